"""A message to a hub, and its outcome."""

from __future__ import annotations

import trio

from pubsubd.client.hub_messages import Incoming
from pubsubd.protocol.errors import PubsubdError


class Request:
    """A message to the hub, and its outcome.

    Args:
        text: the message as JSON.
        id: the identifier to which the answer refers; empty for a ping.
        answered: whether the hub answers it.
        kept: whether it may wait for the next connection if it has not been sent.
        counted: whether it is a message from the program, which a flush has to confirm.

    Attributes:
        answer: the answer, if the request was not refused.
        error: the reason why there is no answer.
        lost: whether the reason is that the connection ended.
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
        """Wait for the answer and return it."""
        assert self.done is not None
        await self.done.wait()
        if self.error is not None:
            raise self.error
        assert self.answer is not None
        return self.answer
