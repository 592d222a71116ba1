"""``pubsubd peers``: a daemon's links, and what it knows of the rest of its mesh."""

from __future__ import annotations

import json
import time

import click
import msgspec
import trio
from rich.console import Group
from rich.table import Table
from rich.text import Text

from pubsubd.cli.answers import read_answer
from pubsubd.cli.edges import ask_edges
from pubsubd.cli.graph import FORMS, links_of
from pubsubd.cli.options import Target, connects
from pubsubd.cli.output import while_read
from pubsubd.cli.pages import ask_pages
from pubsubd.cli.streams import echo, visible
from pubsubd.cli.tables import adaptive_table, count, duration, show, size
from pubsubd.cli.terminal import console
from pubsubd.cli.watching import can_redraw, keep_drawing, watches
from pubsubd.cli.weak import ask_weak, draw_weak
from pubsubd.client import Client
from pubsubd.protocol.wire import show_address


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
    version: str | None = None
    site: str | None = None
    rack: str | None = None
    hops: int | None = None
    links: int = 0
    interests: int = 0
    actors: int | None = None
    hub_connections: int | None = None


_COUNTED = ("node", "hops", "links", "interests", "actors", "hub connections")


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


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print the daemon's JSON object.")
@watches
@click.option(
    "--graph",
    type=click.Choice(list(FORMS)),
    help="Print the whole mesh as a graph for Graphviz or Mermaid.",
)
@click.option(
    "--weak",
    is_flag=True,
    help="Show which daemons and links the mesh cannot lose, and the links to add.",
)
@connects
def command(
    target: Target, as_json: bool, watch: float | None, graph: str | None, weak: bool
) -> None:
    """Show the daemon's links to other daemons, and all daemons that it knows."""
    if graph is not None and (as_json or watch is not None or weak):
        raise click.UsageError("--graph excludes --json, --watch and --weak.")
    trio.run(_show, target, as_json, watch, graph, weak)


async def _show(
    target: Target, as_json: bool, watch: float | None, graph: str | None, weak: bool
) -> None:
    async with target.connect() as client:
        ask = ask_weak if weak else _ask

        async def draw(width: int) -> Group:
            answer = await ask(client)
            if weak:
                return draw_weak(answer, width)
            return _draw(read_answer(answer, _Answer, "peers"), width)

        if graph is not None:
            answer = read_answer(await _ask(client), _Answer, "peers")
            links = links_of(await ask_edges(client))
            daemons = [one.node for one in answer.daemons]
            echo(FORMS[graph](answer.node, daemons, links), nl=False)
            return
        if watch is not None and can_redraw() and not as_json:
            await keep_drawing(draw, watch)
        async with while_read():
            while True:
                if as_json:
                    echo(json.dumps(json.loads(await ask(client))))
                else:
                    show(await draw(console().width))
                if watch is None:
                    return
                await trio.sleep(watch)


async def _ask(client: Client) -> bytes:
    """Return the daemon's answer, as JSON.

    Raises:
        PubsubdError: the answer is not what it should be.
    """
    return await ask_pages(client, "//pubsubd/peers", ("links", "daemons"))


# Drawing


def _draw(answer: _Answer, width: int) -> Group:
    """Return an answer for a terminal that is ``width`` cells wide.

    The most wanted tables come first, because a watched screen shows only what fits.
    """
    now = time.time()
    shown: list[Text | Table] = [
        Text(visible(_summary(answer)), overflow="fold"),
        *adaptive_table(
            "links",
            ["node", "address", "dialled", "for", "round trip", "interests"],
            [_link_cells(link, now) for link in answer.links],
            width,
            numbers=[3, 4],
        ),
        *adaptive_table(
            "traffic of links",
            ["node", "messages in", "messages out", "data in", "data out", "waiting"],
            [_traffic_cells(link) for link in answer.links],
            width,
            numbers=range(1, 6),
        ),
        *adaptive_table(
            "connections outside the mesh",
            ["peer", "connection"],
            [[one.peer, _or_none(one.connection)] for one in answer.plain],
            width,
            numbers=[1],
        ),
        *adaptive_table(
            "being dialled",
            ["address", "attempts", "error"],
            [[one.address, f"{one.attempts:,}", one.error] for one in answer.dialling],
            width,
            numbers=[1],
        ),
        *adaptive_table(
            "refused",
            ["reason", "times"],
            [[code, f"{count:,}"] for code, count in _refused(answer.counters).items()],
            width,
            numbers=[1],
        ),
        *adaptive_table(
            "daemons",
            [*_COUNTED, "version", "address"],
            [_daemon_cells(one) for one in answer.daemons],
            width,
            numbers=range(1, len(_COUNTED)),
        ),
        *adaptive_table(
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
        count(len(answer.links), "link") + ",",
        count(len(answer.daemons), "daemon") + " known",
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
        duration(now - link.since),
        "" if link.rtt_ms is None else f"{link.rtt_ms:,.2f} ms",
        " ".join(link.interests) + (f" and {more:,} more" if more > 0 else ""),
    ]


def _traffic_cells(link: _Link) -> list[str]:
    return [
        link.node,
        f"{link.messages_in:,}",
        f"{link.messages_out:,}",
        size(link.bytes_in),
        size(link.bytes_out),
        size(link.backlog_bytes),
    ]


def _daemon_cells(one: _Daemon) -> list[str]:
    hops = "unreachable" if one.hops is None else f"{one.hops:,}"
    hub = ["" if count is None else f"{count:,}" for count in (one.actors, one.hub_connections)]
    address = show_address(one.host, one.port)
    links, interests = f"{one.links:,}", f"{one.interests:,}"
    return [one.node, hops, links, interests, *hub, one.version or "", address]


def _refused(counters: dict[str, int | dict[str, int]]) -> dict[str, int]:
    """Return how many links and adverts were refused, by the reason."""
    found = counters.get("refused")
    return found if isinstance(found, dict) else {}


def _or_none(number: int | None) -> str:
    return "" if number is None else str(number)
