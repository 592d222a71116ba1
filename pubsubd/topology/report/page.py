"""The report as one page of HTML that needs nothing else: no network, no script.

Whatever comes from the input goes through :func:`_text` or :func:`_name` on its way here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib import resources

from pubsubd.topology.metrics import METRICS
from pubsubd.topology.report.comparison import compare, differing
from pubsubd.topology.report.data import MeshReport, Report
from pubsubd.topology.report.incident import findings
from pubsubd.topology.report.parts import FULL, WORST, Listing, Section, Status
from pubsubd.topology.report.pictures import pictures_of
from pubsubd.topology.report.sections import by_need, in_order, sections_of, status_of, structure
from pubsubd.topology.report.snapshot_view import SnapshotView
from pubsubd.topology.report.texts import count, moment, number, shorten, supposed, visible

_OVERVIEW = 1_000  # meshes in the table
_ROOM = 72  # characters of a name in a table
_BROAD = {"mesh", "availability"}
_CAPTIONS = {
    "mesh": "The numbers are those of the daemons under Single points of failure.",
    "availability": "Each row is a daemon, with the least available on top. Each column is a"
    " window, or the worst of several. A blank means that the daemon was not known.",
}
_TILES = {
    "daemons": ("daemon", "daemons"),
    "links": ("link", "links"),
    "components": ("component", "components"),
    "articulation_daemons": ("articulation daemon", "articulation daemons"),
    "bridges": ("bridge", "bridges"),
    "advice_links": ("link to add", "links to add"),
}
"""Metric -> the word for one, and for several."""


def render(report: Report) -> str:
    """Return the page."""
    meshes = in_order(report)
    title = f"Topology of {shorten(meshes[0].mesh, 60)}" if len(meshes) == 1 else "Topology"
    parts = [f"<header><h1>{_text(title)}</h1>"]
    if len(meshes) != 1:
        parts.append(f"<p class=muted>{_text(count(len(meshes), 'mesh', 'meshes'))}</p>")
    if not meshes:
        parts.append("<p class=verdict>There is no mesh in the input.</p>")
    if said := supposed(report.without, report.added):
        parts.append(f"<p class=verdict>{_text(said)}.</p>")
    parts.append("</header>")
    if len(meshes) > 1:
        parts.append(_overview(meshes, report))
    for index, mesh in enumerate(meshes[:FULL]):
        parts += _mesh(mesh, report, f"m{index}", alone=len(meshes) == 1)
    parts += [_glossary(), _made_of(report)]
    template = resources.files(__package__).joinpath("page.html").read_text(encoding="utf-8")
    filled = {"title": _text(title), "body": "\n".join(parts)}
    # In one go: what is filled in may look like a place to fill in.
    return re.sub(r"\{\{(title|body)\}\}", lambda place: filled[place[1]], template)


def _overview(meshes: Sequence[MeshReport], report: Report) -> str:
    """Return a table with a row for each mesh."""
    names = ("daemons", "links", "components", "articulation_daemons", "bridges", "one_way_links")
    head = "".join(f"<th class=number>{_text(METRICS[name].label)}" for name in names)
    rows = []
    for index, mesh in enumerate(meshes[:_OVERVIEW]):
        facts = SnapshotView(mesh.snapshot)
        name = _name(mesh.mesh)
        if index < FULL:
            name = f'<a href="#m{index}">{name}</a>'
        cells = "".join(f"<td class=number>{number(facts.value(one))}" for one in names)
        state = _state(status_of(sections_of(mesh, facts, report.parameters)))
        rows.append(f"<tr><td class=name>{name}<td>{state}{cells}</tr>")
    rest = len(meshes) - len(rows)
    verb = "is" if rest == 1 else "are"
    more = f"<p class=muted>{rest:,} more {verb} in the tables.</p>" if rest > 0 else ""
    if len(meshes) > FULL:
        more += f"<p class=muted>The {FULL} with the most daemons follow.</p>"
    return (
        "<section><h3>All meshes</h3><div class=wide><table><thead><tr><th>Mesh<th>State"
        f"{head}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>{more}</section>"
    )


def _mesh(mesh: MeshReport, report: Report, key: str, *, alone: bool) -> Iterable[str]:
    """Yield the parts of one mesh."""
    facts = SnapshotView(mesh.snapshot)
    sections = by_need(sections_of(mesh, facts, report.parameters))
    pictures = pictures_of(mesh, facts, key)
    yield f'<article id="{key}">'
    if not alone:
        yield f"<h2>{_name(mesh.mesh)}</h2>"
    if mesh.window is not None:
        yield f"<p class=muted>Window starting {_text(moment(mesh.window))}</p>"
    yield _incident(mesh, facts)
    yield f"<p class=verdict>{_text(structure(facts))}</p>"
    yield _tiles(mesh, facts, sections)
    yield _comparison(mesh)
    if "mesh" in pictures:
        captions = _CAPTIONS if len(facts.articulation) else {}
        both = pictures["mesh"] + pictures["mesh-narrow"]
        yield _figure("mesh", both, captions)
    elif why := facts.left_out("regions"):
        yield f"<p class=muted>No picture of the mesh: {_text(why)}.</p>"
    yield _contents(sections, key)
    yield from (_section(section, pictures, key) for section in sections)
    yield "</article>"


def _incident(mesh: MeshReport, facts: SnapshotView) -> str:
    lines = "".join(
        f'<li class="{_class(status)}">{_text(sentence)}</li>'
        for status, sentence in findings(mesh, facts)
    )
    return f"<ul class=incident>{lines}</ul>" if lines else ""


def _comparison(mesh: MeshReport) -> str:
    """Return a table with what a hypothetical mesh changes."""
    rows = "".join(
        f"<tr><td>{_text(label)}<td class=number>{_text(was)}<td class=number>{_text(now)}</tr>"
        for label, was, now in compare(mesh, differing(mesh))
    )
    head = "<tr><th>Metric<th class=number>Before<th class=number>After</tr>"
    table = f"<table><thead>{head}</thead><tbody>{rows}</tbody></table>"
    wide = f"<div class=wide>{table}</div>"
    return f"<section><h3>What would change</h3>{wide}</section>" if rows else ""


def _tiles(mesh: MeshReport, facts: SnapshotView, sections: Iterable[Section]) -> str:
    states = {figure.label: figure.status for one in sections for figure in one.figures}
    tiles = []
    if mesh.incident is not None:
        gone = len(mesh.incident.gone)
        kind = _class(Status.ACT if gone else Status.GOOD)
        tiles.append(f'<li class="{kind}"><b>{number(gone)}</b><span>gone</span></li>')
    for name, (one, many) in _TILES.items():
        kind = _class(states.get(METRICS[name].label, Status.UNKNOWN))
        value = facts.value(name)
        word = one if value == 1 else many
        tiles.append(f'<li class="{kind}"><b>{number(value)}</b><span>{word}</span></li>')
    return f"<ul class=tiles>{''.join(tiles)}</ul>"


def _contents(sections: Iterable[Section], key: str) -> str:
    links = "".join(
        f'<li><a class="{_class(section.status)}" href="#{key}-{section.key}">'
        f"{_text(section.title)}</a></li>"
        for section in sections
    )
    return f'<nav aria-label="Sections"><ol>{links}</ol></nav>'


def _section(section: Section, pictures: dict[str, str], key: str) -> str:
    shown = [name for name in section.pictures if name in pictures]
    captions = _CAPTIONS if section.listings else {}
    broad = [_figure(name, pictures[name], captions) for name in shown if name in _BROAD]
    small = [_figure(name, pictures[name], captions) for name in shown if name not in _BROAD]
    state = "" if section.silent else _state(section.status)
    parts = [
        f'<section id="{key}-{section.key}">',
        f"<div class=head><h3>{_text(section.title)}</h3>{state}</div>",
        f"<p class=advice>{_text(section.advice)}</p>",
    ]
    if len(small) == 1 and section.figures:
        parts.append(f"<div class=pair><div>{_figures(section)}</div>{small[0]}</div>")
        small = []
    else:
        parts.append(_figures(section))
    if small:
        parts.append(f"<div class=charts>{''.join(small)}</div>")
    parts += broad
    if section.listings:
        listings = "".join(_listing(listing) for listing in section.listings)
        parts.append(f"<div class=lists>{listings}</div>")
    parts.append("</section>")
    return "".join(parts)


def _figures(section: Section) -> str:
    if not section.figures:
        return ""
    rows = []
    for figure in section.figures:
        label = _text(figure.label)
        if figure.definition:
            label = f'<span title="{_text(figure.definition)}">{label}</span>'
        note = f" <span class=note>{_text(figure.note)}</span>" if figure.note else ""
        state = "" if figure.status is Status.UNKNOWN else _state(figure.status)
        rows.append(
            f"<tr><th>{label}<td class=value><b>{_text(figure.value)}</b>{note}"
            f"<td class=healthy>{_text(figure.healthy)}<td>{state}</tr>"
        )
    return (
        "<div class=wide><table class=figures><thead><tr><th>Metric<th>Value<th>Healthy<th></tr>"
        f"</thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def _figure(name: str, picture: str, captions: Mapping[str, str]) -> str:
    caption = f"<figcaption>{_text(captions[name])}</figcaption>" if name in captions else ""
    kind = f' class="broad {name}"' if name in _BROAD else ""
    scrolls = ' tabindex="0"' if name in _BROAD else ""
    return f"<figure{kind}><div{scrolls}>{picture}</div>{caption}</figure>"


def _listing(listing: Listing) -> str:
    first, more = listing.rows[:WORST], listing.rows[WORST:]
    verb = "is" if listing.hidden == 1 else "are"
    hidden = f"{listing.hidden:,} more {verb} in the tables." if listing.hidden else ""
    if more:
        word = f"{len(more):,} more" + (f" of {listing.total:,}" if hidden else "")
        rest = f"<details><summary>{word}</summary>{_table(listing, more)}"
        rest += f"<p class=muted>{hidden}</p></details>" if hidden else "</details>"
    else:
        rest = f"<p class=muted>{hidden}</p>" if hidden else ""
    table = f"{_table(listing, first)}{rest}"
    if listing.folded:
        return f"<details><summary>{_text(listing.title)}</summary>{table}</details>"
    return f"<div><h4>{_text(listing.title)}</h4>{table}</div>"


def _table(listing: Listing, rows: Iterable[Sequence[str]]) -> str:
    kinds = list(listing.columns.values())
    head = "".join(f'<th class="{kind}">{_text(word)}' for word, kind in listing.columns.items())
    body = "".join(
        f"<tr>{''.join(_cell(text, kind) for text, kind in zip(row, kinds, strict=True))}</tr>"
        for row in rows
    )
    return (
        f"<div class=wide><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _cell(text: str, kind: str) -> str:
    if kind == "name":
        return f"<td class=name>{_name(text)}"
    if kind == "command":
        return f"<td class=command><code>{_text(text)}</code>"
    return f'<td class="{kind}">{_text(text)}'


def _glossary() -> str:
    entries = "".join(
        f"<dt>{_text(metric.label)} <code>{metric.name}</code></dt>"
        f"<dd>{_text(metric.definition)} <span class=muted>Unit: {_text(metric.unit)}. Source:"
        f" {_text(metric.source)}.</span></dd>"
        for metric in METRICS.values()
    )
    return f"<details><summary>What the metrics mean</summary><dl>{entries}</dl></details>"


def _made_of(report: Report) -> str:
    inputs = ", ".join(_name(one) for one in report.made_of[:20])
    if len(report.made_of) > 20:
        inputs += f" and {len(report.made_of) - 20:,} more"
    bad = sum(report.rejects.values())
    reasons = ", ".join(f"{n:,} {reason}" for reason, n in sorted(report.rejects.items()) if n)
    rejects = f"; {bad:,} rejected ({_text(reasons)})" if bad else "; none rejected"
    settings = [f"seed={report.seed}"]
    known = sorted((name, one) for name, one in report.parameters.items() if one is not None)
    settings += [f"{name}={value}" for name, value in known]
    return (
        f"<footer><p>Input: {inputs or 'none'}; {count(report.rows, 'row')}{rejects}.</p>"
        f"<p>Settings: {_text(', '.join(settings))}.</p></footer>"
    )


def _state(status: Status) -> str:
    return f'<span class="state {_class(status)}">{status.word}</span>'


def _class(status: Status) -> str:
    return ("unknown", "good", "look", "act")[status]


def _text(text: str) -> str:
    return escape(visible(text))


def _name(name: str) -> str:
    """Return a name from the input; the whole of it is shown to who points at it."""
    short = shorten(name, _ROOM)
    whole = f' title="{_text(name)}"' if short != visible(name) else ""
    return f"<bdi{whole}>{escape(short)}</bdi>"
