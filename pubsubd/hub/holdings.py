"""What one connection subscribes: each name and wildcard once in the router, for any dialects.

Strategy: dialects are bits. A name that several of them have asked for is subscribed once and
remembered with all of their bits, so that a message comes once; in which form tells the first bit.

Invariants:

- The router has a name or pattern of this peer if and only if it is in ``_names`` or ``_patterns``.
- ``_tally`` has the number of these for each dialect, and ``form`` is the only one that has any.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pubsubd.hub.render import Form
from pubsubd.wildcards import Pattern

if TYPE_CHECKING:
    from pubsubd.hub.core import Hub
    from pubsubd.peer import Peer

_BITS = {Form.HUB: 1, Form.SYNAP: 2, Form.ENVELOPE: 4}
"""A bit for each form; of several, a message comes in the first."""

_STEP = 1_000  # names let go of at once


class Holdings:
    """The subscriptions of a connection.

    Attributes:
        form: the form in which everything comes; None if there are several, or nothing.
    """

    __slots__ = ("_hub", "_names", "_patterns", "_peer", "_tally", "form")

    def __init__(self, hub: Hub, peer: Peer) -> None:
        self._hub = hub
        self._peer = peer
        self._names: dict[bytes, int] | None = None
        self._patterns: dict[Pattern, int] | None = None
        self._tally = [0, 0, 0]
        self.form: Form | None = None

    def __len__(self) -> int:
        return len(self._names or ()) + len(self._patterns or ())

    def add(self, topic: bytes | Pattern, form: Form) -> None:
        """Subscribe a name or a wildcard for one dialect."""
        bit = _BITS[form]
        bits = self._get(topic)
        if bits & bit:
            return
        self._count(form, 1)
        hub = self._hub
        if isinstance(topic, Pattern):
            if self._patterns is None:
                self._patterns = {}
            self._patterns[topic] = bits | bit
            if not bits:
                hub.broker.router.subscribe_pattern(self._peer, topic)
            if form is not Form.SYNAP:  # which counts its own
                hub.synap.subscribers.other_wildcards += 1
        else:
            if self._names is None:
                self._names = {}
            self._names[topic] = bits | bit
            if not bits:
                hub.broker.router.subscribe_name(self._peer, topic)
            hub.topics.hold(topic, hub.clock())

    def remove(self, topic: bytes | Pattern, form: Form) -> None:
        """Undo :meth:`add`, if there is something to undo."""
        bit = _BITS[form]
        bits = self._get(topic)
        if not bits & bit:
            return
        self._count(form, -1)
        hub, rest = self._hub, bits & ~bit
        if isinstance(topic, Pattern):
            assert self._patterns is not None
            self._patterns[topic] = rest
            if not rest:
                del self._patterns[topic]
                hub.broker.router.unsubscribe_pattern(self._peer, topic)
            if form is not Form.SYNAP:
                hub.synap.subscribers.other_wildcards -= 1
        else:
            assert self._names is not None
            self._names[topic] = rest
            if not rest:
                del self._names[topic]
                hub.broker.router.unsubscribe_name(self._peer, topic)
            hub.topics.release(topic)

    def form_of(self, name: bytes) -> Form | None:
        """Return the form in which ``name`` comes."""
        bits = self._get(name)
        for pattern, more in (self._patterns or {}).items():
            if pattern.matches(name):
                bits |= more
        return next((form for form, bit in _BITS.items() if bits & bit), None)

    def release(self) -> Iterator[None]:
        """Let go of what is counted elsewhere, at the end, in steps: iterate to the end.

        The router forgets the peer itself.
        """
        for done, (name, bits) in enumerate((self._names or {}).items(), 1):
            self._hub.topics.release(name, bits.bit_count())
            if done % _STEP == 0:
                yield
        for bits in (self._patterns or {}).values():
            self._hub.synap.subscribers.other_wildcards -= bits & _BITS[Form.HUB]

    def _get(self, topic: bytes | Pattern) -> int:
        if isinstance(topic, Pattern):
            return (self._patterns or {}).get(topic, 0)
        return (self._names or {}).get(topic, 0)

    def _count(self, form: Form, change: int) -> None:
        self._hub.broker.flush()  # what is on its way comes in the form it was asked for in
        self._tally[list(_BITS).index(form)] += change
        held = [one for one, count in zip(_BITS, self._tally, strict=True) if count]
        self.form = held[0] if len(held) == 1 else None
