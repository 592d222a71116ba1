"""Subscribers that other workers of the daemon have, by name, without I/O.

Strategy: a subscriber is at one worker, and the others do not know of it. So a command that names
one that is not here first asks all of them. Who has it without a connection hands it over to a
connection, with its topics; what is said over HTTP is carried out where it is. A daemon of one
worker asks nobody, and neither does a command that names nobody, or somebody who is here.

Two workers may ask for one name at the same moment. Of these, one goes first: that of the lower
rank. It tells the other one to ask again, by when it has the subscriber; and one that has let
another go first asks again by itself. A subscriber is handed over only to one that all have let go
first, which nobody overtakes from then on. So no two workers have a subscriber of one name, unless
one of them has been stuck for longer than is waited for its answer.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct
from msgspec.msgpack import decode, encode

from pubsubd.broker.turn import Steps
from pubsubd.hub.core import HubCore
from pubsubd.hub.synap.requests import SynapError, invalid
from pubsubd.hub.synap.subscribers import MAX_ID, Subscribers
from pubsubd.hub.topics import shown

NAMED = b"hub-synap-named"
"""The question for a subscriber of some name."""

LOOK, TAKE, SUBSCRIBE, UNSUBSCRIBE = range(4)
"""What is wanted of it: that it has no connection, is handed over, gets topics, or loses them."""

_TRIES = 10  # a worker that goes first has the subscriber after one or two


class Wish(Struct, array_like=True):
    """The question.

    Attributes:
        kind: what is wanted.
        id: of the subscriber.
        who: the user who asks; None for a client that has not logged in.
        topics: that it gets or loses; None for all.
        rank: who asks with the lower one goes first.
    """

    kind: int
    id: str
    who: str | None
    topics: Sequence[str] | None
    rank: int


class _Told(Struct, array_like=True):
    """The answer of one worker.

    Attributes:
        busy: whether it is about to have that subscriber itself.
        payload: of what it has carried out; the topics of a subscriber that it hands over.
        error: why it has not, and the status of that.
    """

    busy: bool = False
    payload: dict[str, Any] | None = None
    error: tuple[str, int] | None = None


class _Claim:
    """A question that is being asked.

    Attributes:
        rank: as of :class:`Wish`; 0 once all have let it go first.
        again: whether another worker has been let go first.
    """

    def __init__(self) -> None:
        self.rank = 1 + random.getrandbits(62)
        self.again = False


class Elsewhere:
    """The subscribers of other workers.

    Args:
        hub: the port.
        subscribers: of this worker.
        carry_out: does what another worker wishes.
        receive: takes over a subscriber with an id, of a user, and its topics.
    """

    def __init__(
        self,
        hub: HubCore,
        subscribers: Subscribers,
        carry_out: Callable[[Wish], Steps[dict[str, Any]]],
        receive: Callable[[str, str | None, list[str]], Steps[None]],
    ) -> None:
        self._hub, self._subscribers = hub, subscribers
        self._carry_out, self._receive = carry_out, receive
        self._claims: dict[str, list[_Claim]] = {}

    def ask(
        self, kind: int, id_: str | None, who: str | None, topics: Sequence[str] | None
    ) -> Steps[dict[str, Any] | None]:
        """Return the payload of a command that another worker has carried out, in steps.

        None if it is to be carried out here. Nobody else has a subscriber of that name then, until
        the next step.

        Raises:
            SynapError: another worker refuses it.
        """
        if self._hub.elsewhere is None or id_ is None or not 0 < len(id_) <= MAX_ID:
            return None
        claim = _Claim()
        self._claims.setdefault(id_, []).append(claim)
        try:
            for _ in range(_TRIES):
                if id_ in self._subscribers:
                    return None
                claim.again = False
                found = yield from self._ask(Wish(kind, id_, who, topics, claim.rank))
                payload = next((told.payload for told in found if told.payload is not None), None)
                if payload is not None and kind != LOOK:
                    return payload
                if claim.again or any(told.busy for told in found):
                    continue
                claim.rank = 0
                if payload is not None:
                    for told in (yield from self._ask(Wish(TAKE, id_, who, None, 0))):
                        if told.payload is not None:
                            yield from self._receive(id_, who, told.payload["topics"])
                return None
            raise invalid(f"Subscriber {shown(id_)} is in use by another request; try again")
        finally:
            claims = self._claims[id_]
            claims.remove(claim)
            if not claims:
                del self._claims[id_]

    def _ask(self, wish: Wish) -> Steps[list[_Told]]:
        """Return what the others answer, in steps; raise :class:`SynapError` if one refuses."""
        assert self._hub.elsewhere is not None
        texts = yield from self._hub.elsewhere(NAMED, encode(wish))
        found = [decode(text, type=_Told) for text in texts]
        for told in found:
            if told.error is not None:
                raise SynapError(*told.error)
        return found

    def answer(self, data: bytes) -> Steps[bytes]:
        """Answer another worker, in steps."""
        wish = decode(data, type=Wish)
        told = _Told()
        for claim in self._claims.get(wish.id, ()):
            if claim.rank < wish.rank:
                told.busy = True
            else:
                claim.again = True
        if wish.id not in self._subscribers:
            return encode(told)
        try:
            told.payload = yield from self._carry_out(wish)
        except SynapError as error:
            told.error = error.text, error.status
        return encode(told)
