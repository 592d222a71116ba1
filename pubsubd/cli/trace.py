"""``pubsubd trace``: the way of a name through the mesh, and who would receive it."""

from __future__ import annotations

import json

import click
import msgspec
import trio
from rich.text import Text
from rich.tree import Tree

from pubsubd.broker.trace import MAX_TIMEOUT, TIMEOUT, TRACE, Hop, Listed
from pubsubd.cli.answers import read_answer
from pubsubd.cli.options import Target, connects
from pubsubd.cli.streams import echo, visible
from pubsubd.cli.tables import count, show

_SHOWN = 10  # daemons that are named on a line


class _Unanswered(msgspec.Struct):
    node: str
    came_from: str = msgspec.field(name="from")
    version: str | None = None


class _Others(msgspec.Struct):
    count: int = 0
    daemons: list[str] = []


class _Answer(msgspec.Struct):
    """The answer to ``//pubsubd/trace``; see pubsubd-protocol(7)."""

    name: str
    receivers: int
    hops: list[Hop]
    travels_as: str | None = None
    node: str | None = None
    left_out: int = 0
    unanswered: list[_Unanswered] = []
    waited: float | None = None
    not_asked: _Others = msgspec.field(default_factory=_Others)
    unreachable: _Others = msgspec.field(default_factory=_Others)


@click.command()
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="Print the daemon's JSON object.")
@click.option(
    "--timeout",
    type=click.FloatRange(0.1, MAX_TIMEOUT),
    default=TIMEOUT,
    show_default=True,
    metavar="S",
    help="Wait S seconds for other daemons.",
)
@click.option(
    "--deliver",
    metavar="DATA",
    help="Also publish DATA under NAME, just before; without this, nothing is delivered.",
)
@connects
def command(target: Target, name: str, as_json: bool, timeout: float, deliver: str | None) -> None:
    """Show the way of NAME through the mesh: each daemon, its time, and who receives it there.

    A probe goes the way of a message with that name. It is delivered to nobody.
    """
    answer = trio.run(_ask, target, name, timeout, deliver)
    if as_json:
        echo(json.dumps(json.loads(answer)))
        return
    found = read_answer(answer, _Answer, "hops")
    for tree in _trees(found):
        show(tree)
    for line in _others(found):
        echo(line)
    echo(_summary(found, delivered=deliver is not None))


async def _ask(target: Target, name: str, seconds: float, deliver: str | None) -> bytes:
    request = json.dumps({"name": name, "timeout": seconds}, ensure_ascii=False)
    async with target.connect() as client:
        if deliver is not None:
            await client.publish(name, deliver.encode("utf-8", "surrogateescape"))
        return await client.request(TRACE, request.encode("utf-8", "surrogatepass"))


def _trees(found: _Answer) -> list[Tree]:
    """Return the way as a tree; what comes without a beginning stands by itself."""
    trees: list[Tree] = []
    nodes: dict[str | None, Tree] = {}
    for hop in found.hops:
        above = nodes.get(hop.came_from) if hop.came_from is not None else None
        tree = Tree(_label(hop))
        if above is None:
            trees.append(tree)
        else:
            above.add(tree)
        if not hop.again:
            nodes[hop.node] = tree
            for listed in hop.listed:
                tree.add(_connection(listed))
            if (more := hop.receivers - len(hop.listed)) > 0 and hop.listed:
                tree.add(Text(f"{count(more, 'connection')} more", style="dim"))
    for one in found.unanswered:
        if (above := nodes.get(one.came_from)) is not None:
            known = f" (version {visible(one.version)})" if one.version else ""
            text = f"{visible(one.node)}{known}: no answer within {found.waited or 0:g} s"
            above.add(Text(text, style="red"))
    return trees


def _label(hop: Hop) -> Text:
    label = Text(visible(hop.node or "this daemon"), style="bold")
    if hop.rtt_ms is not None:
        label.append(f"  {hop.rtt_ms / 2:.2f} ms", style="cyan")
    if hop.again:
        return label.append("  had it already, by another way", style="dim")
    text = count(hop.connections, "connection")
    if hop.connections:
        text = f"{hop.receivers:,} of {text}"
    label.append(f"  {text}", style="green" if hop.receivers else "")
    if hop.refused:
        noun = "subscribes" if hop.refused == 1 else "subscribe"
        label.append(f", {hop.refused:,} more {noun} it without the right to receive it", "yellow")
    return label


def _connection(listed: Listed) -> Text:
    user = "" if listed.user is None else f"  {visible(listed.user)}"
    text = f"{listed.connection}{user}  {visible(listed.peer)}  {visible(listed.dialect)}"
    return Text(f"{text}  as {visible(listed.seen)}")


def _others(found: _Answer) -> list[str]:
    lines = []
    if found.left_out:
        lines.append(f"left out, as the answer is too large: {count(found.left_out, 'daemon')}")
    if others := found.not_asked.count:
        if found.travels_as is None:
            why = "not asked, as the name does not cross links or no other daemon wants it"
        else:
            why = "not asked, as nobody there subscribes it"
        lines.append(f"{why}: {_named(others, found.not_asked.daemons)}")
    if others := found.unreachable.count:
        lines.append(f"cannot be reached: {_named(others, found.unreachable.daemons)}")
    return lines


def _named(all_of: int, daemons: list[str]) -> str:
    shown = ", ".join(map(visible, daemons[:_SHOWN]))
    return shown if all_of <= _SHOWN else f"{shown} and {all_of - _SHOWN:,} more"


def _summary(found: _Answer, *, delivered: bool) -> str:
    reached = len({hop.node for hop in found.hops if not hop.again})
    who = count(found.receivers, "connection") if found.receivers else "no connection"
    name = visible(found.name)
    if found.travels_as not in (None, found.name):
        name += f" (on links: {visible(found.travels_as or '')})"
    where = "" if found.node is None else f" on {count(reached, 'daemon')}"
    end = "it was published" if delivered else "nothing was delivered"
    return f"{who}{where} would receive {name}; {end}"
