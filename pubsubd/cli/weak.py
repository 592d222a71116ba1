"""``pubsubd peers --weak``: what the mesh cannot lose now, and the links that change that."""

from __future__ import annotations

import msgspec
from rich.console import Group
from rich.text import Text

from pubsubd.cli.answers import read_answer
from pubsubd.cli.pages import ask_pages
from pubsubd.cli.streams import visible
from pubsubd.cli.tables import adaptive_table, count, duration
from pubsubd.client import Client

_LISTS = ("articulation_daemons", "bridges", "add", "unreachable")


class _Articulation(msgspec.Struct):
    node: str
    cut_off: int
    daemons: list[str] = []


class _Bridge(msgspec.Struct):
    src: str
    dst: str
    cut_off: int
    daemons: list[str] = []


class _Link(msgspec.Struct):
    node: str
    to: str
    peer: str | None = None


class _Unreachable(msgspec.Struct):
    node: str
    peer: str | None = None
    seconds: float | None = None


class _Answer(msgspec.Struct):
    """The answer to ``//pubsubd/weak``; see pubsubd-mesh(7)."""

    node: str
    mesh: str
    daemons: int
    links: int
    articulation_daemons: list[_Articulation] = []
    bridges: list[_Bridge] = []
    add: list[_Link] = []
    unreachable: list[_Unreachable] = []


async def ask_weak(client: Client) -> bytes:
    """Return the daemon's answer, as JSON.

    Raises:
        PubsubdError: the answer is not what it should be.
    """
    return await ask_pages(client, "//pubsubd/weak", _LISTS)


def draw_weak(data: bytes, width: int) -> Group:
    """Return an answer for a terminal that is ``width`` cells wide.

    Raises:
        PubsubdError: it is not one.
    """
    answer = read_answer(data, _Answer, "weak points")
    return Group(
        Text(visible(_summary(answer)), overflow="fold"),
        Text(_verdict(answer), overflow="fold"),
        *adaptive_table(
            "articulation daemons",
            ["daemon", "cuts off", "these daemons"],
            [[one.node, f"{one.cut_off:,}", _names(one)] for one in answer.articulation_daemons],
            width,
            numbers=[1],
        ),
        *adaptive_table(
            "bridges",
            ["link", "cuts off", "these daemons"],
            [[f"{one.src} - {one.dst}", f"{one.cut_off:,}", _names(one)] for one in answer.bridges],
            width,
            numbers=[1],
        ),
        *adaptive_table(
            "links to add",
            ["at daemon", "to daemon", "option"],
            [[one.node, one.to, f"--peer {one.peer}" if one.peer else ""] for one in answer.add],
            width,
            numbers=[],
        ),
        *adaptive_table(
            "unreachable daemons",
            ["daemon", "for", "address"],
            [
                [one.node, "" if one.seconds is None else duration(one.seconds), one.peer or ""]
                for one in answer.unreachable
            ],
            width,
            numbers=[1],
        ),
    )


def _summary(answer: _Answer) -> str:
    found = f"{count(answer.daemons, 'daemon')}, {count(answer.links, 'link')}"
    return f"the mesh {answer.mesh} as {answer.node} knows it: {found}"


def _verdict(answer: _Answer) -> str:
    if answer.daemons == 1:
        return "this daemon has no links"
    found = []
    if answer.articulation_daemons:
        found.append(count(len(answer.articulation_daemons), "daemon"))
    if answer.bridges:
        found.append(count(len(answer.bridges), "link"))
    if not found:
        return "there is no single point of failure"
    single = len(answer.articulation_daemons) + len(answer.bridges) == 1
    points = "is a single point of failure" if single else "are single points of failure"
    text = f"{' and '.join(found)} {points}"
    if not answer.add:
        return f"{text}; a third daemon would help"
    one = len(answer.add) == 1
    them = "it" if single else "all of them"
    return f"{text}; {count(len(answer.add), 'new link')} {'removes' if one else 'remove'} {them}"


def _names(one: _Articulation | _Bridge) -> str:
    more = one.cut_off - len(one.daemons)
    return " ".join(one.daemons) + (f" and {more:,} more" if more > 0 else "")
