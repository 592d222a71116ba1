"""Lets connections that have much to say take turns, so that others need not wait for all of them.

trio looks for input once in a pass of its loop, and then runs every task that has some. Of those
whose last read was large, as many go on in one pass as take :data:`~pubsubd.protocol.limits.SOON`,
and the others wait here, in order. The lane is for turns that take ten times as long; waiting here
costs a tenth of that.

Invariants:

- While somebody waits, somebody else is on the way, who lets the next one go when it goes on.
"""

from __future__ import annotations

from collections import deque

import trio

from pubsubd.protocol.limits import SOON


class Crowd:
    """Those who have much to say.

    Attributes:
        queued: how many of them are on the way to their turn in the next pass.
        spoken: when one who says little has spoken last; without such, nobody need wait.
    """

    def __init__(self) -> None:
        self.queued = 0
        self.spoken = float("-inf")
        self._waiting: deque[trio.Event] = deque()

    async def wait(self, cost: float) -> None:
        """Wait for a pass that has room, which is never the present one.

        Args:
            cost: seconds that the turn is likely to take.
        """
        turn = trio.Event() if self.queued and (self.queued + 1) * cost > SOON else None
        if turn is not None:
            self._waiting.append(turn)
        else:
            self.queued += 1
        try:
            if turn is None:
                await trio.lowlevel.checkpoint()
            else:
                await turn.wait()
        finally:
            # By no function of ours, which may fail: then the next one would wait for ever.
            if turn is not None and not turn.is_set():
                self._waiting.remove(turn)
            elif self._waiting:
                self._waiting.popleft().set()
            else:
                self.queued -= 1
