"""One request to a hub, and its answer."""

from __future__ import annotations

import trio

from pubsubd.client.hub_messages import Incoming
from pubsubd.protocol.errors import PubsubdError


class Request:
    """A request, and then its answer.

    Args:
        text: JSON.
        id: the identifier that its answer refers to; empty for a ping.
        answered: whether there is an answer to it.
        kept: whether it may wait for the next connection while it is not sent.
        counted: whether it is a message of the program's, so that its fate matters.

    Attributes:
        answer: the answer, unless that is a refusal.
        error: the refusal, or another reason why there is no answer.
        lost: whether there is no answer because the connection ended.
    """

    __slots__ = (
        "answer",
        "counted",
        "done",
        "error",
        "id",
        "kept",
        "lost",
        "mark",
        "sent",
        "slot",
        "text",
    )

    def __init__(
        self,
        text: bytes,
        id: str = "",  # noqa: A002  (it is called so everywhere)
        *,
        answered: bool = True,
        kept: bool = False,
        counted: bool = False,
    ) -> None:
        self.text = text
        self.id = id
        self.done = trio.Event() if answered else None
        self.kept = kept
        self.counted = counted
        self.mark = 0  # messages of the program's that its answer confirms
        self.sent = False
        self.slot = False  # whether it holds one of UNDER_WAY
        self.answer: Incoming | None = None
        self.error: PubsubdError | None = None
        self.lost = False

    async def wait(self) -> Incoming:
        """Return the answer; waits for it."""
        assert self.done is not None
        await self.done.wait()
        if self.error is not None:
            raise self.error
        assert self.answer is not None
        return self.answer
