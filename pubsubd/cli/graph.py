"""A mesh as a graph, in the languages of Graphviz and Mermaid."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

from pubsubd.mesh.edges import Row
from pubsubd.protocol.wire import escape

_Links = Mapping[tuple[str, str], float | None]


def links_of(rows: Iterable[Row]) -> dict[tuple[str, str], float | None]:
    """Return each link that is up at one of its ends, and its round trip in milliseconds.

    Of the two round trips that its ends have measured, the shorter one is taken.
    """
    found: dict[tuple[str, str], float | None] = {}
    for row in rows:
        if row["state"] == "up":
            pair = (min(row["src"], row["dst"]), max(row["src"], row["dst"]))
            known = [one for one in (found.get(pair), row["rtt_ms"]) if one is not None]
            found[pair] = min(known, default=None)
    return dict(sorted(found.items()))


def dot(node: str, daemons: Iterable[str], links: _Links) -> str:
    """Return an undirected graph for Graphviz; the daemon that was asked is bold."""

    def quoted(text: str) -> str:
        shown = escape(text).replace("\\", "\\\\").replace('"', '\\"').replace("&", "&amp;")
        return f'"{shown}"'

    lines = ["graph mesh {"]
    lines += [
        f"    {quoted(one)}{' [style=bold]' if one == node else ''};"
        for one in _all(node, daemons, links)
    ]
    for (one, other), rtt in links.items():
        label = "" if rtt is None else f' [label="{rtt:.2f} ms"]'
        lines.append(f"    {quoted(one)} -- {quoted(other)}{label};")
    return "\n".join([*lines, "}\n"])


def mermaid(node: str, daemons: Iterable[str], links: _Links) -> str:
    """Return an undirected graph for Mermaid; the daemon that was asked has a thick border."""
    number = {one: f"n{at}" for at, one in enumerate(_all(node, daemons, links))}
    lines = ["graph LR"]
    for one, at in number.items():
        # Entities, for everything that could mean something in a label.
        shown = re.sub(r"[^\w .:/-]", lambda found: f"#{ord(found[0])};", escape(one))
        lines.append(f'    {at}["{shown}"]')
    for (one, other), rtt in links.items():
        label = "" if rtt is None else f'|"{rtt:.2f} ms"|'
        lines.append(f"    {number[one]} ---{label} {number[other]}")
    return "\n".join([*lines, f"    style {number[node]} stroke-width:3px\n"])


def _all(node: str, daemons: Iterable[str], links: _Links) -> list[str]:
    return sorted({node, *daemons, *(end for pair in links for end in pair)})


FORMS: Mapping[str, Callable[[str, Iterable[str], _Links], str]] = {"dot": dot, "mermaid": mermaid}
"""The languages -> what writes them."""
