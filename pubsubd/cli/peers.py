"""``pubsubd peers``: a daemon's links, and what it knows of the rest of its mesh."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Container, Iterable, Sequence
from typing import Any

import click
import msgspec
import trio
from rich import box
from rich.cells import cell_len
from rich.console import Group
from rich.table import Table
from rich.text import Text

from pubsubd.cli.edges import ask_edges
from pubsubd.cli.graph import FORMS, links_of
from pubsubd.cli.options import Target, connects
from pubsubd.cli.output import while_read, write
from pubsubd.cli.streams import echo, encoded, visible
from pubsubd.cli.terminal import console
from pubsubd.cli.watching import can_redraw, keep_drawing, watches
from pubsubd.client import Client
from pubsubd.protocol.errors import PubsubdError
from pubsubd.protocol.limits import KIB, MIB
from pubsubd.protocol.wire import escape, show_address

_LARGEST = 1024 * MIB  # of an answer: it grows with the mesh
_ROOM = 10  # cells of the last column, whose texts may be wrapped


class _Link(msgspec.Struct):
    node: str
    peer: str
    dialled: bool
    since: float
    rtt_ms: float | None = None
    messages_in: int = 0
    messages_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    backlog_bytes: int = 0
    interests: list[str] = []
    interest_count: int = 0


class _Plain(msgspec.Struct):
    peer: str
    connection: int | None = None


class _Dialling(msgspec.Struct):
    address: str
    attempts: int = 0
    error: str = ""


class _Daemon(msgspec.Struct):
    node: str
    host: str
    port: int
    hops: int | None = None
    links: int = 0
    interests: int = 0


class _Answer(msgspec.Struct):
    """The answer to ``//pubsubd/peers``; see pubsubd-mesh(7)."""

    node: str
    mesh: str
    host: str
    port: int
    flooding: bool = False
    links: list[_Link] = []
    plain: list[_Plain] = []
    dialling: list[_Dialling] = []
    daemons: list[_Daemon] = []
    counters: dict[str, int | dict[str, int]] = {}


class _Page(msgspec.Struct):
    """A page of the answer of a daemon that knows very many others."""

    links: list[Any] = []
    daemons: list[Any] = []
    following: int | None = msgspec.field(name="next", default=None)


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print the daemon's JSON object.")
@watches
@click.option(
    "--graph",
    type=click.Choice(list(FORMS)),
    help="Print the whole mesh as a graph for Graphviz or Mermaid.",
)
@connects
def command(target: Target, as_json: bool, watch: float | None, graph: str | None) -> None:
    """Show the daemon's links to other daemons, and all daemons that it knows."""
    if graph is not None and (as_json or watch is not None):
        raise click.UsageError("--graph excludes --json and --watch.")
    # The reader may close our output; click would call that a failure.
    with contextlib.suppress(BrokenPipeError):
        trio.run(_show, target, as_json, watch, graph)


async def _show(target: Target, as_json: bool, watch: float | None, graph: str | None) -> None:
    async with target.connect(max_payload=_LARGEST) as client:

        async def draw(width: int) -> Group:
            return _draw(_read_answer(await _ask(client)), width)

        if graph is not None:
            answer = _read_answer(await _ask(client))
            links = links_of(await ask_edges(client))
            daemons = [one.node for one in answer.daemons]
            echo(FORMS[graph](answer.node, daemons, links), nl=False)
            return
        if watch is not None and can_redraw() and not as_json:
            await keep_drawing(draw, watch)
        output = console()
        async with while_read():
            while True:
                if as_json:
                    echo(json.dumps(json.loads(await _ask(client))))
                else:
                    # Not printed by rich, for which a closed pipe is a failure.
                    with output.capture() as captured:
                        output.print(await draw(output.width))
                    write(encoded(captured.get()))
                if watch is None:
                    return
                await trio.sleep(watch)


async def _ask(client: Client) -> bytes:
    """Return the daemon's answer, all of its pages as one.

    Raises:
        PubsubdError: the answer is not what it should be.
    """
    answer = await client.request("//pubsubd/peers")
    page = _read_page(answer)
    following = page.following
    if following is None:
        return answer
    whole, offset = json.loads(answer), 0
    while following is not None:
        if following <= offset:
            raise PubsubdError("the daemon's pages of peers do not advance")
        offset = following
        page = _read_page(await client.request("//pubsubd/peers", str(offset)))
        whole["links"] += page.links
        whole["daemons"] += page.daemons
        following = page.following
    return json.dumps(whole | {"next": None}).encode()


def _read_page(answer: bytes) -> _Page:
    try:
        return msgspec.json.decode(answer, type=_Page)
    except msgspec.DecodeError as exc:
        raise PubsubdError(f"the daemon's answer has no peers: {escape(str(exc))}") from exc


def _read_answer(data: bytes) -> _Answer:
    try:
        return msgspec.json.decode(data, type=_Answer)
    except msgspec.DecodeError as exc:
        raise PubsubdError(f"the daemon's answer has no peers: {escape(str(exc))}") from exc


# Drawing


def _draw(answer: _Answer, width: int) -> Group:
    """Return an answer for a terminal that is ``width`` cells wide.

    The most wanted tables come first, because a watched screen shows only what fits.
    """
    now = time.time()
    shown: list[Text | Table] = [
        Text(visible(_summary(answer)), overflow="fold"),
        *_table(
            "links",
            ["node", "address", "dialled", "for", "round trip", "interests"],
            [_link_cells(link, now) for link in answer.links],
            width,
            numbers=[3, 4],
        ),
        *_table(
            "traffic of links",
            ["node", "messages in", "messages out", "data in", "data out", "waiting"],
            [_traffic_cells(link) for link in answer.links],
            width,
            numbers=range(1, 6),
        ),
        *_table(
            "connections outside the mesh",
            ["peer", "connection"],
            [[one.peer, _or_none(one.connection)] for one in answer.plain],
            width,
            numbers=[1],
        ),
        *_table(
            "being dialled",
            ["address", "attempts", "error"],
            [[one.address, f"{one.attempts:,}", one.error] for one in answer.dialling],
            width,
            numbers=[1],
        ),
        *_table(
            "refused",
            ["reason", "times"],
            [[code, f"{count:,}"] for code, count in _refused(answer.counters).items()],
            width,
            numbers=[1],
        ),
        *_table(
            "daemons",
            ["node", "hops", "links", "interests", "address"],
            [_daemon_cells(one) for one in answer.daemons],
            width,
            numbers=[1, 2, 3],
        ),
        *_table(
            "counters",
            ["counter", "number"],
            [
                [key, f"{count:,}"]
                for key, count in answer.counters.items()
                if not isinstance(count, dict)
            ],
            width,
            numbers=[1],
        ),
    ]
    return Group(*shown)


def _summary(answer: _Answer) -> str:
    words = [
        f"{answer.node} of the mesh {answer.mesh}, at {show_address(answer.host, answer.port)}:",
        _count(len(answer.links), "link") + ",",
        _count(len(answer.daemons), "daemon") + " known",
    ]
    if answer.flooding:
        words.append("(the mesh is changing)")
    return " ".join(words)


def _link_cells(link: _Link, now: float) -> list[str]:
    more = link.interest_count - len(link.interests)
    return [
        link.node,
        link.peer,
        "by us" if link.dialled else "by them",
        _duration(now - link.since),
        "" if link.rtt_ms is None else f"{link.rtt_ms:,.2f} ms",
        " ".join(link.interests) + (f" and {more:,} more" if more > 0 else ""),
    ]


def _traffic_cells(link: _Link) -> list[str]:
    return [
        link.node,
        f"{link.messages_in:,}",
        f"{link.messages_out:,}",
        _size(link.bytes_in),
        _size(link.bytes_out),
        _size(link.backlog_bytes),
    ]


def _daemon_cells(one: _Daemon) -> list[str]:
    hops = "unreachable" if one.hops is None else f"{one.hops:,}"
    address = show_address(one.host, one.port)
    return [one.node, hops, f"{one.links:,}", f"{one.interests:,}", address]


def _refused(counters: dict[str, int | dict[str, int]]) -> dict[str, int]:
    """Return how many links and adverts were refused, by the reason."""
    found = counters.get("refused")
    return found if isinstance(found, dict) else {}


def _table(
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    width: int,
    numbers: Container[int],
) -> list[Table]:
    """Return a table with its title, or nothing without rows.

    Where a terminal is too narrow for it, each row becomes a list of titles and values.
    """
    if not rows:
        return []
    cells = [[Text(visible(cell), overflow="fold") for cell in row] for row in rows]
    *firm, last = zip(columns, *cells, strict=True)
    needed = sum(_widest(column) for column in firm) + min(_widest(last), _ROOM)
    if needed + 3 * len(columns) + 1 <= width:
        table = _titled(title)
        for number, column in enumerate(columns):
            table.add_column(
                column,
                style="cyan" if number == 0 else None,
                justify="right" if number in numbers else "left",
                no_wrap=number < len(firm),
                overflow="fold",
            )
        for row in cells:
            table.add_row(*row)
        return [table]
    table = _titled(title, show_header=False)
    table.add_column(style="cyan", overflow="fold")
    table.add_column(overflow="fold")
    for row in cells:
        for column, cell in zip(columns, row, strict=True):
            if cell:
                table.add_row(column, cell)
        table.add_section()
    return [table]


def _titled(title: str, *, show_header: bool = True) -> Table:
    return Table(
        title=title,
        title_style="bold",
        title_justify="left",
        box=box.SIMPLE,
        show_header=show_header,
    )


def _widest(column: Iterable[str | Text]) -> int:
    return max(cell_len(str(cell)) for cell in column)


def _or_none(number: int | None) -> str:
    return "" if number is None else str(number)


def _count(number: int, noun: str) -> str:
    return f"{number or 'no'} {noun}{'' if number == 1 else 's'}"


def _duration(seconds: float) -> str:
    minutes, second = divmod(int(max(seconds, 0.0)), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    return (f"{days:,}d " if days else "") + f"{hour}:{minute:02}:{second:02}"


def _size(number: int) -> str:
    value, unit = float(number), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < KIB:
            break
        value, unit = value / KIB, larger
    return f"{number:,} B" if unit == "B" else f"{value:,.1f} {unit}"
