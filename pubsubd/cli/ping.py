"""``pubsubd ping``: the time of a round trip to the daemon and back."""

from __future__ import annotations

import signal
import statistics
from collections import deque
from collections.abc import AsyncIterator

import click
import trio

from pubsubd.cli.options import Target, connects
from pubsubd.cli.output import while_read
from pubsubd.cli.streams import echo
from pubsubd.cli.values import some_seconds
from pubsubd.client.faults import ends_client
from pubsubd.protocol.errors import PubsubdError

_KEPT = 100_000  # round trips for the median: a day and more at one a second


@click.command()
@click.option("--count", type=click.IntRange(min=1), metavar="N", help="End after this many pings.")
@click.option(
    "--interval",
    type=some_seconds,
    metavar="SECONDS",
    default="1",
    show_default=True,
    help="Time from one ping to the next.",
)
@click.option(
    "--timeout",
    type=some_seconds,
    metavar="SECONDS",
    default="5",
    show_default=True,
    help="Longest time to wait for an answer.",
)
@connects
def command(target: Target, count: int | None, interval: float, timeout: float) -> int:
    """Measure the time of a round trip to the daemon and back.

    Ends after --count pings, or with Ctrl-C. If the connection breaks, pings are lost until it
    is back. The status is 0 if at least one answer has come, and otherwise 1.
    """
    trips = Trips()
    try:
        trio.run(_ping, target, trips, count, interval, timeout)
    finally:
        if trips.sent:
            echo(f"--- {target.where} ---\n{trips.summary()}")
    return 0 if trips.came else 1


class Trips:
    """Round trips so far.

    Attributes:
        sent, came: numbers of pings and of answers.
    """

    def __init__(self) -> None:
        self.sent = 0
        self.came = 0
        self._least = float("inf")
        self._most = 0.0
        self._last: deque[float] = deque(maxlen=_KEPT)

    def note(self, seconds: float) -> None:
        """Note an answer."""
        self.came += 1
        self._least = min(self._least, seconds)
        self._most = max(self._most, seconds)
        self._last.append(seconds)

    def summary(self) -> str:
        """Return the numbers, and the shortest, median and longest round trip."""
        lost = 100 * (self.sent - self.came) / self.sent
        text = f"{self.sent} sent, {self.came} answered, {lost:.0f}% lost"
        if self.came:
            found = (self._least, statistics.median(self._last), self._most)
            shown = "/".join(f"{seconds * 1e3:.3f}" for seconds in found)
            text += f"\nround trip min/median/max = {shown} ms"
        return text


async def _ping(
    target: Target,
    trips: Trips,
    count: int | None,
    interval: float,
    timeout: float,  # noqa: ASYNC109  (of each ping)
) -> None:
    with trio.open_signal_receiver(signal.SIGINT) as interrupts:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_cancel, nursery.cancel_scope, interrupts)
            async with while_read(), target.connect(reconnect=True) as client:
                while trips.sent != count:
                    due = trio.current_time() + interval
                    trips.sent += 1
                    why = f"timed out after {timeout:g} s"
                    with trio.move_on_after(timeout):
                        try:
                            seconds = await client.ping()
                        except PubsubdError as exc:
                            if ends_client(exc):
                                raise
                            why = str(exc)
                        else:
                            why = ""
                            trips.note(seconds)
                            echo(f"answer {trips.sent} from {target.where}: {seconds * 1e3:.3f} ms")
                    if why:
                        echo(f"no answer {trips.sent} from {target.where}: {why}")
                    if trips.sent != count:
                        await trio.sleep_until(due)
            nursery.cancel_scope.cancel()


async def _cancel(scope: trio.CancelScope, interrupts: AsyncIterator[int]) -> None:
    await anext(aiter(interrupts))
    scope.cancel()
