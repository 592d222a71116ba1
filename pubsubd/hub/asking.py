"""Requests to the hubs of others, and their answers: of other daemons, or of this one's workers.

Requests go in letters, and the answers come back in letters. What waits for them is dropped after
:attr:`Asking.patience`.

Invariant: ``_waiting`` is in the order of the deadlines, with at most :data:`MAX_WAITING` entries.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, Protocol

import msgspec
from msgspec import Struct

from pubsubd.broker.actor_messages import ActorMessage
from pubsubd.broker.turn import Steps
from pubsubd.hub import replies as r
from pubsubd.hub.interfaces import Connection, Host
from pubsubd.hub.mirrors import decode
from pubsubd.protocol.steps import Later

MAX_WAITING = 10_000
"""Requests to others whose answers are waited for; more are answered as if none came."""

_MOST = 10**9  # actors of one, more than any has

Answer = Callable[[list[str] | None], None]
"""Called with the words of an answer after its token; None if none came in time."""

Done = Callable[[int, int, list[str]], None]
"""Called with how many got a broadcast, how many could not, and who does not say."""


class Letters(Protocol):
    """The letters of the daemon, :class:`pubsubd.mesh.letters.Letters`, or of a worker."""

    kinds: dict[str, Callable[[str, list[str], bytes], Steps[None] | None]]
    after: Callable[[], None]

    def send(self, node: str | None, words: str, body: bytes = b"") -> None:
        """Send a letter to one, or to all."""

    def refuse(self, reason: str) -> None:
        """Count a letter that is not taken."""


class Streams(Protocol):
    """The messages to actors of other daemons; :class:`pubsubd.mesh.streams.Streams`."""

    deliver: Callable[[str, str, bytes, bool], bool | Later]

    def send(self, node: str, message: ActorMessage) -> bool:
        """Send a message to an actor of a daemon; return False if too many are under way."""


class Passing(Protocol):
    """The messages to actors of other workers; :class:`pubsubd.siblings.actors.Streams`.

    Attributes:
        deliver: delivers what another worker has sent to an actor of this one.
        pass_on: sends what another worker passes on to an actor of another daemon; False if it does
            not go on, and ``answer`` is not called.
    """

    deliver: Callable[[str, bytes], bool]
    pass_on: Callable[[ActorMessage], bool]

    def send(self, node: str, message: ActorMessage) -> bool:
        """Send a message to an actor of a worker; return False if too many are under way."""

    def send_on(self, node: str, message: ActorMessage) -> bool:
        """Send a message through a worker to an actor of another daemon, as :meth:`send`."""


class Broadcast(Struct):
    """A broadcast, as hubs send it to each other."""

    capability: str | None
    delivery: r.Delivery


class Displacement(Struct):
    """The request to give an address to a client elsewhere, who is ``user``."""

    key: str
    user: str | None


_encode = msgspec.json.Encoder().encode
_read_delivery = msgspec.json.Decoder(r.Delivery).decode
_read_broadcast = msgspec.json.Decoder(Broadcast).decode
_read_displacement = msgspec.json.Decoder(Displacement).decode


class _Tally:
    """The answers of several to one request."""

    def __init__(self, nodes: Sequence[str], done: Done) -> None:
        self.nodes = dict.fromkeys(nodes)
        self.delivered = self.failed = 0
        self.silent: list[str] = []
        self._done = done

    def finish(self) -> None:
        self._done(self.delivered, self.failed, [*self.nodes, *self.silent])


class _Asked(NamedTuple):
    """A request.

    Attributes:
        deadline: when it is not waited for any more.
        asker: the connection that waits for the answer, which ends if that cannot be told; None if
            it is asked for somebody elsewhere.
        answer: takes it.
    """

    deadline: float
    asker: Connection | None
    answer: Answer | _Tally


class Asking:
    """Requests to others of one kind.

    Args:
        hub: the port.
        letters: to those others.
        patience: seconds after which one that has not answered is taken not to.

    Attributes:
        letters, patience: see there.
    """

    def __init__(self, hub: Host, letters: Letters, patience: float) -> None:
        self._hub = hub
        self.letters = letters
        self.patience = patience
        self._serial = 0
        self._waiting: OrderedDict[int, _Asked] = OrderedDict()
        letters.after = hub.flush
        letters.kinds.update(
            delivered=self._take_delivered, displaced=self._take_answer, kept=self._take_answer
        )

    def _expect(self, asker: Connection | None, answer: Answer | _Tally) -> int:
        """Return the number of a request that ``answer`` waits for; 0 if too many do already."""
        if len(self._waiting) >= MAX_WAITING:
            return 0
        self._serial += 1
        self._waiting[self._serial] = _Asked(self._hub.clock() + self.patience, asker, answer)
        return self._serial

    @property
    def waiting(self) -> int:
        """Number of requests whose answers are waited for."""
        return len(self._waiting)

    def expire(self) -> bool:
        """Answer a request that has waited too long; return whether more may have."""
        if not self._waiting:
            return False
        serial, asked = next(iter(self._waiting.items()))
        if asked.deadline > self._hub.clock():
            return False
        del self._waiting[serial]
        answer = asked.answer
        self._tell(asked, answer.finish if isinstance(answer, _Tally) else partial(answer, None))
        return True

    def _tell(self, asked: _Asked, call: Callable[[], None]) -> None:
        """Tell what has come of a request; if that fails, no other is concerned."""
        if asked.asker is not None:
            self._hub.spare(asked.asker, call)
            return
        try:
            call()
        except Exception as error:  # noqa: BLE001  (the others get no answer in time)
            self._hub.broker.faults.note(error, "hub")

    def displace(
        self, node: str, wanted: Displacement, asker: Connection | None, answer: Answer
    ) -> None:
        """Ask another to end the registration of an address.

        The first word of the answer is ``displaced`` if it has, and the address is free then.
        """
        if serial := self._expect(asker, answer):
            self.letters.send(node, f"displace {serial}", _encode(wanted))
        else:
            answer(None)

    def broadcast(
        self,
        nodes: Sequence[str],
        message: Broadcast,
        asker: Connection | None,
        done: Done,
        gate: str | None = None,
    ) -> None:
        """Send a message to all actors of others.

        Args:
            nodes: these, who are all that letters reach.
            message: it.
            asker: the sender, if it is connected here.
            done: called with what has become of it.
            gate: the one of them that is to send it on to other daemons.
        """
        tally = _Tally(nodes, done)
        if not nodes or not (serial := self._expect(asker, tally)):
            tally.finish()
            return
        words, body = f"broadcast {serial}", _encode(message)
        if gate is None:
            self.letters.send(None, words, body)
            return
        for node in nodes:
            self.letters.send(node, f"{words} on" if node == gate else words, body)

    def _take_answer(self, _node: str, words: list[str], _body: bytes) -> None:
        asked = self._waiting.pop(int(words[1]), None)
        if asked is not None and not isinstance(asked.answer, _Tally):
            self._tell(asked, partial(asked.answer, [words[0], *words[2:]]))

    def _take_delivered(self, node: str, words: list[str], _body: bytes) -> None:
        serial, delivered, failed = map(int, words[1:4])
        if not (0 <= delivered < _MOST and 0 <= failed < _MOST):
            raise ValueError(words)
        asked = self._waiting.get(serial)
        tally = None if asked is None else asked.answer
        if asked is None or not isinstance(tally, _Tally) or node not in tally.nodes:
            return
        del tally.nodes[node]
        tally.delivered += delivered
        tally.failed += failed
        tally.silent += words[4:]
        if not tally.nodes:
            del self._waiting[serial]
            self._tell(asked, tally.finish)


def read_delivery(body: bytes) -> r.Delivery:
    """Return a message that another daemon has sent; raise ValueError if none may be so."""
    return _check(decode(_read_delivery, body))


def read_broadcast(body: bytes) -> Broadcast:
    """Return a broadcast that another daemon has sent; raise ValueError if none may be so."""
    wanted: Broadcast = decode(_read_broadcast, body)
    _check(wanted.delivery)
    return wanted


read_near_delivery: Callable[[bytes], r.Delivery] = _read_delivery
read_near_broadcast: Callable[[bytes], Broadcast] = _read_broadcast
"""Return what another worker has sent, which one of them has checked: it fails for no limit."""


def read_displacement(body: bytes) -> Displacement:
    """Return which address another hub wants; raise ValueError if it does not say so."""
    wanted: Displacement = decode(_read_displacement, body)
    return wanted


def _check(delivery: r.Delivery) -> r.Delivery:
    if delivery.type.startswith("hub:") or not delivery.payload:
        raise ValueError(delivery.type)
    return delivery
