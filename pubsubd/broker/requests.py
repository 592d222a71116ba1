"""Requests to the daemon itself: what a ``pub`` to a name under ``//pubsubd/`` does."""

from __future__ import annotations

from collections.abc import Callable

from pubsubd.broker.delivery import AUTH, Delivery
from pubsubd.broker.peer import Peer
from pubsubd.broker.rate import Bucket
from pubsubd.broker.turn import Steps
from pubsubd.protocol import wire
from pubsubd.protocol.errors import ProtocolError

OPEN = (AUTH, b"//pubsubd/ping", b"//pubsubd/hello")
"""Requests that need no right, and that no rate limits."""

HELP = b"""\
each command is a line:
  sub chat               receive the messages whose names contain "chat"
  sub                    receive all messages
  pub chat/main - hello  publish "hello"; instead of -, give the length of data in bytes
  unsub chat             receive them no longer
  quit                   close the connection"""

Request = Callable[[Peer, bytes], bytes | Steps[bytes] | None]
"""Called with who asks and the data of a ``pub`` to a name of the daemon's own.

Returns the data of the answer, which goes to the asker alone under the same name, or the steps in
which it is made, or None. Raises ProtocolError to answer with that.
"""


class Requests(dict[bytes, Request]):
    """The requests by their names."""

    def __init__(self, delivery: Delivery, clock: Callable[[], float]) -> None:
        super().__init__()
        self._delivery = delivery
        self._clock = clock

    def make(self, peer: Peer, name: bytes, data: bytes) -> None:
        """Do what a peer asks for, and queue the answer or begin to make it."""
        request = self.get(name)
        if request is None:
            raise ProtocolError("unknown-request", f"{wire.quote(name)} is no request")
        if name not in OPEN and (wait := self.wait(peer)):
            rate = peer.listener.limits.request_rate
            text = f"over {rate:g} requests a second; try again in {wait:.2g} s"
            raise ProtocolError("rate-limited", text)
        answer = request(peer, data)
        if isinstance(answer, bytes):
            self._delivery.answer(peer, wire.frame(name, answer))
        elif answer is not None:
            peer.step = self._answer(peer, name, answer)
            self.go_on(peer)

    def wait(self, peer: Peer) -> float:
        """Count a request of a peer's; return in how many seconds it may make it, 0 for now."""
        rate = peer.listener.limits.request_rate
        if peer.requests is None:
            peer.requests = Bucket(60 * rate, max(1, round(10 * rate)))
        return peer.requests.take(self._clock())

    def go_on(self, peer: Peer) -> bool:
        """Go on with the answer that is made for ``peer``; whether it is there."""
        assert peer.step is not None
        for _ in peer.step:
            if self._delivery.turn.over():
                return False
        peer.step = None
        return True

    def _answer(self, peer: Peer, name: bytes, making: Steps[bytes]) -> Steps[None]:
        try:
            self._delivery.answer(peer, wire.frame(name, (yield from making)))
        except ProtocolError as error:
            self._delivery.tell(peer, error)
