"""``pubsubd top``: what goes on in the daemon, as it changes, on a terminal or once."""

from __future__ import annotations

import copy
import signal
import sys
from collections.abc import AsyncIterator
from functools import partial

import click
import trio
from rich.live import Live

from pubsubd.broker.connections import ConnectionRow
from pubsubd.broker.live.observers import INTERVALS
from pubsubd.cli import keyboard
from pubsubd.cli.answers import read_answer
from pubsubd.cli.keyboard import Keyboard
from pubsubd.cli.live_state import NAME, LiveState, requested
from pubsubd.cli.options import Target, connects
from pubsubd.cli.terminal import console
from pubsubd.cli.top_once import show_once
from pubsubd.cli.top_screen import Frame, draw
from pubsubd.cli.top_views import SORTS, VIEWS, Choice
from pubsubd.cli.watching import can_redraw, drawing
from pubsubd.client import Client, DaemonError, DisconnectedError
from pubsubd.protocol.errors import STAYS, PubsubdError

_SORTS = dict(zip("rbda", SORTS, strict=True))
_VIEW_KEYS = dict(zip("cnem", VIEWS, strict=True))
_STEPS = {
    keyboard.UP: -1,
    keyboard.DOWN: 1,
    keyboard.PAGE_UP: -10,
    keyboard.PAGE_DOWN: 10,
    keyboard.HOME: -(10**6),
    keyboard.END: 10**6,
}
_ENDS = (signal.SIGTERM, signal.SIGHUP)
_SIGNALS = (signal.SIGTSTP, signal.SIGWINCH, *_ENDS)
_REDRAW = 0.05  # seconds between two pictures
_LONGEST = 200  # characters of a text to look for


@click.command()
@click.option(
    "--view",
    type=click.Choice(list(VIEWS)),
    default="connections",
    show_default=True,
    help="What to show below the totals.",
)
@click.option(
    "--sort",
    type=click.Choice(SORTS),
    default="rate",
    show_default=True,
    help="Show first the connections with the highest rate, backlog or drops, or the oldest.",
)
@click.option("--filter", "match", metavar="TEXT", help="Show connections with TEXT.")
@click.option(
    "--interval",
    type=click.FloatRange(*INTERVALS),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="The time between two updates.",
)
@click.option("--once", is_flag=True, help="Print one picture and end.")
@click.option(
    "--limit",
    type=click.IntRange(1, 500),
    default=50,
    show_default=True,
    metavar="N",
    help="With --once, show N rows at most.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "json", "csv"]),
    default="table",
    show_default=True,
    help="With --once, a table, a JSON object, or CSV with a header.",
)
@connects
def command(
    target: Target,
    view: str,
    sort: str,
    match: str | None,
    interval: float,
    once: bool,
    limit: int,
    form: str,
) -> None:
    """Show what goes on in the daemon: totals, and connections, names, events or the mesh.

    Keys, explained by h, change the view and the order, filter, freeze, and end connections.
    """
    if form != "table" and not once:
        raise click.UsageError("--format needs --once.")
    choice = Choice(sort, match or "", limit)
    if once:
        trio.run(show_once, target, view, choice, interval, form)
    elif not (can_redraw() and sys.stdin.isatty()):
        raise click.UsageError("top needs a terminal; for a script there is --once.")
    else:
        number = trio.run(_Top(target, view, choice, interval).run)
        if number is not None:
            keyboard.end_by(number)


class _Top:
    """The command on a terminal."""

    def __init__(self, target: Target, view: str, choice: Choice, interval: float) -> None:
        self._target, self._interval = target, interval
        self._view = view
        self._choice = choice._replace(limit=max(choice.limit, console().height))
        self._state = LiveState()
        self._frozen: LiveState | None = None
        self._chosen: int | None = None  # number of the connection that is selected
        self._lost = ""  # why there is no connection
        self._note = ""  # what has come of the last key
        self._typed: str | None = None  # a text to look for, while it is typed
        self._doomed: ConnectionRow | None = None  # to be ended, if that is confirmed
        self._help = False
        self._changed, self._asked = trio.Event(), trio.Event()
        self._ended_by: int | None = None

    async def run(self) -> int | None:
        """Show what goes on until it is ended; return the signal that has ended it, if any."""
        keys = Keyboard()
        async with self._target.connect(
            reconnect=True, on_disconnect=self._disconnected, on_connect=self._connected
        ) as client:
            await self._request(client)  # an error is told on the screen that stays
            with trio.open_signal_receiver(*_SIGNALS) as signals, keys.taken(), drawing() as live:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._hear, client)
                    nursery.start_soon(self._keep_asking, client)
                    take = partial(self._take_signals, signals, keys, live)
                    nursery.start_soon(take, nursery.cancel_scope)
                    nursery.start_soon(self._keep_drawing, live)
                    await self._take_keys(keys, client, nursery)
                    nursery.cancel_scope.cancel()
        return self._ended_by

    # The daemon

    async def _request(self, client: Client) -> None:
        view = VIEWS[self._view]
        sections = [("totals", True), (view.section, view.request(self._choice))]
        self._state.take(await client.request(NAME, requested(sections, self._interval)))

    async def _keep_asking(self, client: Client) -> None:
        """Ask anew whenever something else is wanted, or there is another connection."""
        while True:
            await self._asked.wait()
            self._asked = trio.Event()
            try:
                await self._request(client)
            except DisconnectedError:
                pass  # the next connection asks
            except DaemonError as exc:
                self._say(str(exc))
            await trio.sleep(_REDRAW)

    async def _hear(self, client: Client) -> None:
        while True:
            try:
                message = await anext(client)
            except DaemonError as exc:
                if exc.code not in STAYS:
                    raise
                self._say(str(exc))
            else:
                if message.name == NAME:
                    self._state.take(message.data)
                    self._changed.set()

    def _disconnected(self, why: PubsubdError) -> None:
        self._lost = f"no connection: {why}; trying again"
        self._changed.set()

    def _connected(self) -> None:
        self._lost = ""
        self._want()

    async def _kill(self, client: Client, row: ConnectionRow) -> None:
        try:
            answer = await client.request("//pubsubd/kill", str(row.connection))
            gone = read_answer(answer, ConnectionRow, "connection")
            self._say(f"connection {_describe(gone)} is ended")
        except PubsubdError as exc:
            self._say(str(exc))

    def _want(self) -> None:
        self._asked.set()
        self._frozen = None
        self._changed.set()

    # Drawing

    def _say(self, text: str) -> None:
        self._note = text
        self._changed.set()

    async def _keep_drawing(self, live: Live) -> None:
        while True:
            self._changed = trio.Event()
            width, height = live.console.size
            if height > self._choice.limit:
                self._choice = self._choice._replace(limit=height)
                self._want()
            live.update(draw(self._frame(), width, height), refresh=True)
            await trio.sleep(_REDRAW)
            await self._changed.wait()

    def _frame(self) -> Frame:
        view, state = VIEWS[self._view], self._frozen or self._state
        status = self._lost or ("frozen" if self._frozen is not None else "")
        prompt = self._note
        if self._typed is not None:
            prompt = f"only connections with: {self._typed}_"
        elif self._doomed is not None:
            prompt = f"end connection {_describe(self._doomed)}? y/n"
        selected = None if self._view != "connections" else self._chosen
        where = self._target.where
        return Frame(where, state, view, self._choice, selected, status, prompt, self._help)

    # Keys and signals

    async def _take_keys(self, keys: Keyboard, client: Client, nursery: trio.Nursery) -> None:
        async for key in keys.keys():
            self._note = ""
            if self._typed is not None:
                self._type(key)
            elif self._doomed is not None:
                row, self._doomed = self._doomed, None
                if key in ("y", "Y"):
                    nursery.start_soon(self._kill, client, row)
            elif key in ("q", "Q"):
                return
            else:
                self._press(key)
            self._changed.set()

    def _press(self, key: str) -> None:
        self._help = key in ("h", "?") and not self._help
        names = list(VIEWS)
        if key in _VIEW_KEYS:
            self._show(_VIEW_KEYS[key])
        elif key == keyboard.TAB:
            self._show(names[(names.index(self._view) + 1) % len(names)])
        elif key in _SORTS:
            self._choice = self._choice._replace(sort=_SORTS[key])
            self._show("connections")
        elif key == "/":
            self._typed = self._choice.match
        elif key == " ":
            self._frozen = copy.deepcopy(self._state) if self._frozen is None else None
        elif key == "k":
            self._doom()
        elif key in _STEPS:
            self._select(_STEPS[key])
        elif key == keyboard.ESCAPE and self._choice.match:
            self._look_for("")
        elif key == keyboard.ESCAPE:
            self._chosen = None

    def _show(self, view: str) -> None:
        self._view = view
        self._want()

    def _type(self, key: str) -> None:
        """Take a key of a text to look for."""
        assert self._typed is not None
        if key == keyboard.ENTER:
            self._look_for(self._typed)
        elif key == keyboard.ESCAPE:
            self._typed = None
        elif key == keyboard.BACKSPACE:
            self._typed = self._typed[:-1]
        elif len(key) == 1 and key.isprintable() and len(self._typed) < _LONGEST:
            self._typed += key

    def _look_for(self, text: str) -> None:
        self._typed = None
        self._choice = self._choice._replace(match=text)
        self._show("connections")

    def _shown(self) -> list[int]:
        """Return the numbers of the connections that are shown, in order."""
        state = self._frozen or self._state
        return [row["connection"] for row in VIEWS["connections"].rows(state, self._choice)]

    def _select(self, step: int) -> None:
        numbers = self._shown()
        if self._view != "connections" or not numbers:
            return
        at = numbers.index(self._chosen) + step if self._chosen in numbers else max(0, step - 1)
        self._chosen = numbers[min(max(at, 0), len(numbers) - 1)]

    def _doom(self) -> None:
        """Ask whether the connection that is selected is to be ended."""
        state = self._frozen or self._state
        rows = state.rows("connections", ConnectionRow)
        row = next((one for one in rows if one.connection == self._chosen), None)
        if self._view != "connections" or row is None:
            self._note = "no connection is selected: Up and Down select one"
        elif row.connection == state.own:
            self._note = "that is the connection of this command"
        elif not state.may_kill:
            self._note = "you have no right to end connections"
        else:
            self._doomed = row

    async def _take_signals(
        self, signals: AsyncIterator[int], keys: Keyboard, live: Live, scope: trio.CancelScope
    ) -> None:
        async for number in signals:
            if number in _ENDS:
                self._ended_by = number
                scope.cancel()
            elif number == signal.SIGTSTP:
                live.stop()
                keys.give_back()
                keyboard.stop_here()
                keys.take()
                live.start()
            self._changed.set()


def _describe(row: ConnectionRow) -> str:
    user = f"{row.user} at " if row.user else ""
    return f"{row.connection}, {user}{row.peer}"
