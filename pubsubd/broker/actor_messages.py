"""Messages to actors elsewhere, as hubs, links to other daemons and workers hand them on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from msgspec import Struct

from pubsubd.broker.faults import Endable


class Delivered(Protocol):
    """Takes what has become of a message to an actor elsewhere."""

    @property
    def peer(self) -> Endable:
        """Who waits for it, and ends if taking it fails."""

    def __call__(self, at: int | None) -> None:
        """Take when it was delivered, in milliseconds since the epoch.

        None if it was not, or if nobody has said so.
        """


class ActorMessage(Struct):
    """A message to an actor of another daemon or worker.

    Attributes:
        pair: the addresses of the sender and of the receiver.
        body: the message, a delivery without ``to``.
        ask: whether the sender waits for the answer.
        answer: called once with what has become of it, unless it cannot be sent.
    """

    pair: tuple[str, str]
    body: bytes
    ask: bool
    answer: Delivered | None


Send = Callable[[str, ActorMessage], bool]
"""Sends a message to a daemon or worker; returns False if too many are under way."""
