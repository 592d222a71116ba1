"""The observers of ``//pubsubd/live``, and the ticks at which they are sent what has changed.

Nothing is computed while nobody looks. While somebody does, all observers together cost
:data:`SHARE` of a core at most: the processor's time of each tick is measured, and the next one
comes accordingly later. Ticks are taken in steps, so they hold up nobody.

Invariants:

- What an observer is sent is the difference to what it was sent before. One that is slow is left
  out until its backlog is small, and then sent the difference to the last that it was sent: nothing
  is kept for it but that.
- An observer has every right that is needed for what it is sent, at the moment of sending.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Hashable, Mapping
from time import thread_time
from typing import Protocol

from pubsubd.broker.delivery import Delivery
from pubsubd.broker.live.reading import read_number
from pubsubd.broker.live.states import Refusal, State, difference
from pubsubd.broker.peer import Peer
from pubsubd.broker.turn import Steps
from pubsubd.broker.unsent import Waited
from pubsubd.protocol import wire
from pubsubd.protocol.errors import ProtocolError
from pubsubd.protocol.limits import KIB

LIVE = b"//pubsubd/live"
STOP = b"//pubsubd/live/stop"

MAX_OBSERVERS = 100
"""Observers of one daemon."""

INTERVALS = 0.2, 60.0
"""Seconds between two messages that may be asked for."""

SHARE = 0.01
"""Part of a core that all observers together may cost."""

ROOM = 64 * KIB
"""Bytes that may wait for an observer when it is sent more."""

MAX_REQUEST = KIB
"""Bytes of the data of a request."""

_DEFAULT = {"totals": True, "events": True}
_MEASURED = 0.5  # part of a tick's cost that is; the rest are the passes of the loop that it takes
_ROUNDING = 1e-6
_NAME = 64  # characters of a section's name in an error

Key = tuple[Hashable, Hashable]
"""What is wanted of a section, and what of that may be seen."""


class Section(Protocol):
    """A part of what can be looked at."""

    def read(self, given: Mapping[str, object]) -> Hashable:
        """Return what is wanted of it.

        Raises:
            ProtocolError: ``bad-request``, it cannot be had.
        """

    def scope(self, asker: Peer) -> Hashable:
        """Return what somebody may see of it; equal ones see the same.

        Raises:
            ProtocolError: nothing.
        """

    def watch(self, watched: bool) -> None:
        """Take note whether anybody looks at it."""

    def look(self, keys: Collection[Key]) -> Steps[dict[Key, State]]:
        """Return its present states, in steps of less than a millisecond."""


class _Observer:
    """Somebody who looks.

    Attributes:
        interval: seconds that it has asked for.
        wanted: section -> what it wants of that.
        due: when it is sent the next message.
        count: messages that it was sent.
        missed: ticks at which it was left out since the last of these.
        sent: section -> the state that it was sent last.
        about: what it was told of itself last.
    """

    __slots__ = ("about", "count", "due", "interval", "missed", "peer", "sent", "wanted")

    def __init__(
        self, peer: Peer, interval: float, wanted: dict[str, Hashable], due: float
    ) -> None:
        self.peer, self.interval, self.wanted, self.due = peer, interval, wanted, due
        self.count = self.missed = 0
        self.sent: dict[str, State] = {}
        self.about: dict[str, object] = {}


class Live:
    """Those who look, and what they are sent.

    Args:
        delivery: sends it.
        peers: number -> peer, of all that are connected.
        sections: name -> section; others may add theirs.
        about: returns what an observer is told of itself.
        clock: seconds that only go forward.
        wall: returns seconds since the epoch.
        cost: returns the seconds of processor's time that ticks are measured by.

    Attributes:
        sections, cost: the arguments.
        woken: called when :attr:`due` has become earlier.
        awaited: what the present tick goes on after; None if it goes on at once.
        spent: returns the seconds that watching has cost between ticks since it was called last.
    """

    def __init__(
        self,
        delivery: Delivery,
        peers: Mapping[int, Peer],
        sections: dict[str, Section],
        about: Callable[[Peer], dict[str, object]],
        clock: Callable[[], float],
        wall: Callable[[], float],
        cost: Callable[[], float] = thread_time,
    ) -> None:
        self._delivery, self._peers, self.sections = delivery, peers, sections
        self._about, self._clock, self._wall, self.cost = about, clock, wall, cost
        self.woken: Callable[[], None] = lambda: None
        self.awaited: Waited | None = None
        self.spent: Callable[[], float] = lambda: 0.0
        self._observers: dict[int, _Observer] = {}
        self._watching: dict[str, int] = {}  # section -> observers
        self._rest = 0.0  # seconds that a tick like the last one is followed by
        self._rested = float("-inf")  # when the next one may begin

    # Requests

    def request(self, asker: Peer, data: bytes) -> bytes:
        """Begin to show somebody what its request names, in place of what it was shown before.

        Returns:
            The answer, a message without sections; those with them follow at ticks.

        Raises:
            ProtocolError: ``bad-request``, the data cannot be used; ``too-many-observers``.
        """
        interval, wanted = self._read(data)
        if asker.number not in self._observers and len(self._observers) >= MAX_OBSERVERS:
            self._forget_those_gone()
            if len(self._observers) >= MAX_OBSERVERS:
                text = f"there are {MAX_OBSERVERS} observers already"
                raise ProtocolError("too-many-observers", text)
        before = self._observers.get(asker.number)
        observer = _Observer(asker, interval, wanted, self._clock())
        self._observers[asker.number] = observer
        self._watch(observer, 1)
        if before is not None:
            self._watch(before, -1)
        self.woken()
        return self._head(observer, 0) + b"}"

    def stop(self, asker: Peer, _data: bytes) -> bytes:
        """Show somebody no more; return how many messages it was sent."""
        observer = self._observers.pop(asker.number, None)
        if observer is None:
            return b'{"messages": 0}'
        self._watch(observer, -1)
        return b'{"messages": %d}' % observer.count

    def _read(self, data: bytes) -> tuple[float, dict[str, Hashable]]:
        try:
            given = json.loads(data) if data.strip() else _DEFAULT
        except (ValueError, RecursionError):
            given = None
        if len(data) > MAX_REQUEST or not isinstance(given, dict):
            raise ProtocolError("bad-request", 'the data is not JSON like {"totals": true}')
        wanted: dict[str, Hashable] = {}
        interval = 1.0
        for name, value in given.items():
            if name == "interval":
                interval = float(read_number("interval", value, *INTERVALS))
            elif name not in self.sections:
                shown = wire.escape(name, _NAME)
                known = ", ".join(self.sections)
                raise ProtocolError("bad-request", f"{shown} is not one of interval, {known}")
            elif value is True or isinstance(value, dict):
                wanted[name] = self.sections[name].read({} if value is True else value)
            elif value is not False:
                raise ProtocolError("bad-request", f"{name} is true or an object")
        if not wanted:
            raise ProtocolError("bad-request", f"nothing of {', '.join(self.sections)} is named")
        return interval, wanted

    # Time

    @property
    def due(self) -> float:
        """When the next tick is to begin; infinite while nobody looks."""
        if not self._observers:
            return float("inf")
        return max(self._rested, min(one.due for one in self._observers.values()))

    def tick(self) -> Steps[None]:
        """Send those who are due what has changed, in steps; others may run in between."""
        ticking, took = self._tick(), 0.0
        while True:
            begun = self.cost()
            try:
                next(ticking)
            except StopIteration:
                break
            finally:
                took += self.cost() - begun
            yield
        took += self.spent()
        self._rest = took / (SHARE * _MEASURED)
        self._rested = self._clock() + self._rest

    def _tick(self) -> Steps[None]:
        now = self._clock()
        due, keys = self._begin(now)
        yield
        states: dict[str, dict[Key, State]] = {}
        for name, wanted in keys.items():
            states[name] = yield from self.sections[name].look(wanted)
        texts: dict[tuple[int, int], bytes] = {}
        for observer, shown in due:
            if self._observers.get(observer.peer.number) is observer and self._holds(observer):
                found = {
                    name: one if isinstance(one, Refusal) else states[name][one]
                    for name, one in shown.items()
                }
                if self._scopes(observer) == shown:  # else its rights have just changed
                    self._send(observer, found, texts)
                else:
                    observer.due = now
            yield

    def _begin(
        self, now: float
    ) -> tuple[list[tuple[_Observer, dict[str, Key | Refusal]]], dict[str, set[Key]]]:
        """Return who is due, with what each may see, and the states that are needed for that."""
        due: list[tuple[_Observer, dict[str, Key | Refusal]]] = []
        keys: dict[str, set[Key]] = {}
        for observer in list(self._observers.values()):
            if observer.due > now or not self._holds(observer):
                continue
            interval = observer.interval  # those with equal ones are due together
            observer.due = (int(now / interval + _ROUNDING) + 1) * interval
            if self._is_slow(observer.peer):
                observer.missed += 1
                continue
            shown = self._scopes(observer)
            due.append((observer, shown))
            for name, key in shown.items():
                if not isinstance(key, Refusal):
                    keys.setdefault(name, set()).add(key)
        return due, keys

    def _scopes(self, observer: _Observer) -> dict[str, Key | Refusal]:
        found: dict[str, Key | Refusal] = {}
        for name, wish in observer.wanted.items():
            try:
                found[name] = wish, self.sections[name].scope(observer.peer)
            except ProtocolError as error:
                found[name] = Refusal(error.code, error.text)
        return found

    @staticmethod
    def _is_slow(peer: Peer) -> bool:
        return peer.outbox.size > min(ROOM, peer.listener.limits.max_pending // 2)

    def _send(
        self, observer: _Observer, found: dict[str, State], texts: dict[tuple[int, int], bytes]
    ) -> None:
        parts = [self._head(observer, observer.count + 1)]
        for name, state in found.items():
            before = observer.sent.get(name)
            both = id(before), id(state)  # which are all kept until the end of the tick
            text = texts.get(both)
            if text is None:
                text = texts[both] = difference(before, state)
            if text:
                parts.append(b', "%b": %b' % (name.encode(), text))
        observer.count += 1
        observer.missed = 0
        observer.sent = found
        self._delivery.push(observer.peer, wire.frame(LIVE, b"".join(parts) + b"}"))

    def _head(self, observer: _Observer, number: int) -> bytes:
        """Return the beginning of a message."""
        head: dict[str, object] = {
            "n": number,
            "at": round(self._wall(), 3),
            "interval": round(max(observer.interval, self._rest), 3),
        }
        if observer.missed:
            why = f"over {ROOM // KIB} KiB waited for this connection"
            head["missed"] = {"updates": observer.missed, "why": why}
        about = self._about(observer.peer)
        if about != observer.about:
            head |= about
            observer.about = about
        return json.dumps(head)[:-1].encode()

    # The end

    def _holds(self, observer: _Observer) -> bool:
        """Return whether somebody may still look; if not, it is told so, and does no more."""
        peer = observer.peer
        if self._peers.get(peer.number) is not peer or peer.ending is not None:
            error = None
        elif peer.expires_at is not None and peer.expires_at <= self._wall():
            error = ProtocolError("login-required", f"{wire.quote(LIVE)}: the login has expired")
        elif (rights := peer.permission) is not None and not rights.may_publish(LIVE):
            text = f"{wire.quote(LIVE)}: no right to publish that any longer"
            error = ProtocolError(rights.code, text)
        else:
            return True
        del self._observers[peer.number]
        self._watch(observer, -1)
        if error is not None:
            self._delivery.push(peer, wire.error_frame(error))
        return False

    def _forget_those_gone(self) -> None:
        for observer in list(self._observers.values()):
            self._holds(observer)

    def _watch(self, observer: _Observer, change: int) -> None:
        """Count who looks at each section, and tell it when the first comes or the last goes."""
        for name in observer.wanted:
            watching = self._watching.get(name, 0) + change
            self._watching[name] = watching
            if watching in (0, change):
                self.sections[name].watch(watching > 0)
