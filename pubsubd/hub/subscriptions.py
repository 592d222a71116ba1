"""Subscriptions of one connection: each name and wildcard once in the router, for any dialects.

Strategy: dialects are bits. A name that several dialects have asked for is subscribed once and
remembered with all of their bits, so that a message comes once. The first bit of its name decides
the form of a message; a message whose name is not subscribed came by a wildcard, and all wildcards
of a connection are of one dialect. So the cost does not depend on their number.

Invariants:

- The router has a name or pattern of this peer if and only if it is in ``_names`` or ``_patterns``.
- Of these, and of no others, the table of topics and the policy count one for each dialect, also
  when something has failed: it is the router that forgets the peer whatever it holds for it.
- ``_tally`` has the number of these for each dialect, and ``form`` is the only one that has any.
- ``wild`` is the dialect of all patterns, and None if and only if there are none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pubsubd.broker.peer import Peer
from pubsubd.hub.core import HubCore
from pubsubd.hub.render import Form
from pubsubd.hub.topics import TopicError
from pubsubd.routing.wildcards import Pattern

_FORMS = (Form.HUB, Form.SYNAP, Form.ENVELOPE)
"""Of several, a message comes in the first."""

_BITS = {form: 1 << number for number, form in enumerate(_FORMS)}
_FIRST = (None, *(next(form for form in _FORMS if _BITS[form] & bits) for bits in range(1, 8)))
_STEP = 1_000  # names let go of at once


class Subscriptions:
    """The subscriptions of a connection.

    Attributes:
        form: the form in which everything comes; None if there are several, or nothing.
        wild: the dialect of its wildcards; None if there are none.
    """

    __slots__ = ("_hub", "_names", "_patterns", "_peer", "_tally", "form", "wild")

    def __init__(self, hub: HubCore, peer: Peer) -> None:
        self._hub = hub
        self._peer = peer
        self._names: dict[bytes, int] | None = None
        self._patterns: set[Pattern] | None = None
        self._tally = [0, 0, 0]
        self.form: Form | None = None
        self.wild: Form | None = None

    def __len__(self) -> int:
        return len(self._names or ()) + len(self._patterns or ())

    def check_patterns(self, count: int, form: Form) -> None:
        """Raise :class:`TopicError` if it may not have so many more wildcards of that dialect."""
        if not count:
            return
        if self.wild is not None and self.wild is not form:
            raise TopicError("this connection has wildcards of another dialect")
        self._hub.policy.check_own_patterns(len(self._patterns or ()) + count, "connection")

    def add(self, topic: bytes | Pattern, form: Form) -> None:
        """Subscribe a name or a wildcard for one dialect, after :meth:`check_patterns`."""
        hub = self._hub
        if isinstance(topic, Pattern):
            if self._patterns is None:
                self._patterns = set()
            elif topic in self._patterns:
                return
            self._count(form, 1)
            self._patterns.add(topic)
            self.wild = form
            if form is not Form.SYNAP:  # which counts those of subscribers without a connection too
                hub.policy.wildcards += 1
            hub.broker.router.subscribe_pattern(self._peer, topic)
            return
        if self._names is None:
            self._names = {}
        bits, bit = self._names.get(topic, 0), _BITS[form]
        if bits & bit:
            return
        self._count(form, 1)
        hub.topics.hold(topic, hub.clock())
        self._names[topic] = bits | bit
        if not bits:
            hub.broker.router.subscribe_name(self._peer, topic)

    def remove(self, topic: bytes | Pattern, form: Form) -> None:
        """Undo :meth:`add`, if there is something to undo."""
        hub = self._hub
        if isinstance(topic, Pattern):
            if self.wild is not form or topic not in (self._patterns or ()):
                return
            assert self._patterns is not None
            self._count(form, -1)
            self._patterns.remove(topic)
            if not self._patterns:
                self._patterns = self.wild = None
            if form is not Form.SYNAP:
                hub.policy.wildcards -= 1
            hub.broker.router.unsubscribe_pattern(self._peer, topic)
            return
        names, bit = self._names or {}, _BITS[form]
        bits = names.get(topic, 0)
        if not bits & bit:
            return
        self._count(form, -1)
        hub.topics.release(topic)
        if bits == bit:
            del names[topic]
            hub.broker.router.unsubscribe_name(self._peer, topic)
        else:
            names[topic] = bits & ~bit

    @property
    def forms(self) -> Sequence[Form]:
        """The forms in which something may come."""
        if self.form is not None:
            return (self.form,)
        return [form for form, count in zip(_FORMS, self._tally, strict=True) if count]

    def form_of(self, name: bytes) -> Form | None:
        """Return the form in which ``name`` comes."""
        bits = self._names.get(name) if self._names is not None else None
        return self.wild if bits is None else _FIRST[bits]

    def release(self) -> Iterator[None]:
        """Release what other tables count for this connection, in steps, to be iterated to the end.

        The router forgets the peer itself.
        """
        topics = self._hub.topics
        if self._patterns is not None and self.wild is not Form.SYNAP:
            self._hub.policy.wildcards -= len(self._patterns)
        self._patterns = None
        done = 0
        while self._names:
            name, bits = next(reversed(self._names.items()))
            topics.release(name, bits.bit_count())
            self._names.popitem()
            done += 1
            if done % _STEP == 0:
                yield

    def _count(self, form: Form, change: int) -> None:
        # Messages on their way come in the form that was asked for then.
        self._hub.broker.delivery.flush()
        tally = self._tally
        tally[_FORMS.index(form)] += change
        held = sum(bit for bit, count in zip((1, 2, 4), tally, strict=True) if count)
        self.form = _FORMS[held >> 1] if held in (1, 2, 4) else None
