"""The section of events: what happens, one after the other."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from typing import Any

from pubsubd.broker.connections import Connections, Scope
from pubsubd.broker.events import KEPT, Event, Events
from pubsubd.broker.live.observers import Key
from pubsubd.broker.live.reading import check_keys, read_number
from pubsubd.broker.live.states import Changes, State
from pubsubd.broker.peer import Peer
from pubsubd.broker.turn import Steps
from pubsubd.protocol import wire
from pubsubd.protocol.errors import ProtocolError

_EVENTS = 100  # past ones that are shown at first


class _Seen:
    """The events up to one moment.

    Args:
        events: in order.
        last: id of the last one there is, whether or not it is shown.
        past: how many are shown to whom has seen none.
        oldest: the id of the first that is kept.
    """

    __slots__ = ("_events", "_past", "last", "oldest")

    def __init__(self, events: list[Event], last: int, past: int, oldest: int) -> None:
        self._events, self.last, self._past, self.oldest = events, last, past, oldest

    def difference(self, before: _Seen | None) -> Changes:
        """Return the events since ``before``, and how many are lost."""
        if before is None:
            new = self._events[-self._past :] if self._past else []
            return {"rows": [_row(one) for one in new]}
        if self.last == before.last:
            return {}
        found: Changes = {}
        if new := [one for one in self._events if one.id > before.last]:
            found["rows"] = [_row(one) for one in new]
        if (lost := self.oldest - before.last - 1) > 0:
            found["missed"] = {"events": lost, "why": f"only the last {KEPT} are kept"}
        return found


def _row(event: Event) -> dict[str, Any]:
    return {"id": event.id, "at": event.at} | event.told


class EventRows:
    """What happens."""

    def __init__(self, events: Events, connections: Connections) -> None:
        self._events, self._connections = events, connections

    def read(self, given: Mapping[str, object]) -> Hashable:
        """Return how many past ones are wanted."""
        check_keys(given, "events", "limit")
        return int(read_number("limit", given.get("limit", _EVENTS), 0, KEPT))

    def scope(self, asker: Peer) -> Hashable:
        """Return whose events somebody may see, None for all."""
        name, rights = b"//pubsubd/events", asker.permission
        if rights is not None and not rights.may_receive(name):
            raise ProtocolError(rights.code, f"{wire.quote(name)}: no right to receive that")
        return self._connections.scope(asker)

    def watch(self, watched: bool) -> None:
        """Take no note of who looks."""

    def look(self, keys: Collection[Key]) -> Steps[dict[Key, State]]:
        """Return the events, in steps."""
        kept, found = list(self._events.kept), dict[Key, State]()
        last = self._events.last
        for key in keys:
            past, scope = key
            assert isinstance(past, int)
            shown = kept if scope is None else [one for one in kept if _is_seen(one, scope)]
            found[key] = _Seen(shown, last, past, kept[0].id if kept else last + 1)
            yield
        return found


def _is_seen(event: Event, scope: Any) -> bool:
    """Return whether an event is about no connection, or one that may be seen."""
    assert isinstance(scope, Scope)
    number = event.told.get("connection")
    return number is None or scope.has(number, event.told.get("user"))
