"""What ``//pubsubd/live`` has shown so far: its messages, merged as pubsubd-protocol(7) says."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec

from pubsubd.protocol.errors import PubsubdError
from pubsubd.protocol.wire import escape

NAME = "//pubsubd/live"

_KEYS = {"connections": "connection", "names": "name", "daemons": "node", "links": "link"}
_PARTS = {"mesh": ("daemons", "links")}
_EVENTS = 1_000  # that are kept
_HEAD = ("n", "at", "interval", "missed", "own", "may_kill")

_Row = TypeVar("_Row")


class Totals(msgspec.Struct):
    """The totals, as far as they are shown."""

    version: str = "?"
    since: float = 0.0
    connections: int = 0
    subscriptions: int = 0
    messages_in_rate: float = 0.0
    messages_out_rate: float = 0.0
    bytes_in_rate: float = 0.0
    bytes_out_rate: float = 0.0
    backlog_bytes: int = 0
    dropped: int = 0
    dropped_rate: float = 0.0
    errors: int = 0
    loop_lag_ms: float = 0.0
    cpu: float = 0.0
    rss_bytes: int = 0


class NameRow(msgspec.Struct):
    """One of the busiest names."""

    name: str
    rate: float
    error: float


class EventRow(msgspec.Struct):
    """Something that has happened; different kinds have different keys."""

    id: int
    at: float
    event: str
    connection: int | None = None
    peer: str | None = None
    user: str | None = None
    listener: str | None = None
    node: str | None = None
    reason: str | None = None
    detail: str | None = None


class DaemonRow(msgspec.Struct):
    """A daemon of the mesh."""

    node: str
    hops: int | None = None
    articulation: bool | None = None


class LinkRow(msgspec.Struct):
    """A link of the mesh."""

    link: str
    a: str
    b: str
    rtt_ms: float | None = None
    messages_rate: float | None = None
    bytes_rate: float | None = None
    bridge: bool | None = None


class LiveState:
    """What has been shown.

    Attributes:
        at: when the last message was made, in seconds since the epoch; 0 before there is one.
        interval: seconds until the next one.
        own: number of the connection that it is shown to.
        may_kill: whether the connections that are shown may be ended.
        missed: messages that were left out so far, because they were read too slowly.
        lost: events that were lost.
        count: messages with sections since the last request.
    """

    def __init__(self) -> None:
        self.at = self.interval = 0.0
        self.own = 0
        self.may_kill = False
        self.missed = self.lost = self.count = 0
        self._values: dict[str, dict[str, Any]] = {}
        self._rows: dict[str, dict[Any, dict[str, Any]]] = {}
        self._events: deque[dict[str, Any]] = deque(maxlen=_EVENTS)

    def take(self, data: bytes) -> None:
        """Merge a message.

        Raises:
            PubsubdError: it is none.
        """
        try:
            self._take(msgspec.json.decode(data, type=dict[str, Any]))
        except (msgspec.DecodeError, KeyError, TypeError, ValueError, AttributeError) as exc:
            text = f"the daemon's message cannot be understood: {escape(str(exc), 100)}"
            raise PubsubdError(text) from exc

    def _take(self, message: dict[str, Any]) -> None:
        number = int(message["n"])
        self.at, self.interval = float(message["at"]), float(message["interval"])
        self.own = int(message.get("own", self.own))
        self.may_kill = bool(message.get("may_kill", self.may_kill))
        if "missed" in message:
            self.missed += int(message["missed"]["updates"])
        self.count = number
        if number == 1:
            self._values.clear()
            self._rows.clear()
            self._events.clear()
        for name, section in message.items():
            if name not in _HEAD:
                self._merge(name, section)

    def _merge(self, name: str, section: dict[str, Any]) -> None:
        if section.get("error") is not None:
            self._rows.pop(name, None)
        parts = _PARTS.get(name, ())
        for part in parts:
            if part in section:
                self._merge(part, section[part])
        if name == "events":
            self._events += section.get("rows", ())
            if "missed" in section:
                self.lost += int(section["missed"]["events"])
        elif name in _KEYS:
            rows, key = self._rows.setdefault(name, {}), _KEYS[name]
            for row in section.get("rows", ()):
                rows.setdefault(row[key], {}).update(row)
            for gone in section.get("gone", ()):
                rows.pop(gone, None)
        told = {
            key: value
            for key, value in section.items()
            if key not in ("rows", "gone", "missed", *parts)
        }
        self._values.setdefault(name, {}).update(told)

    # What is shown

    def value(self, section: str, key: str, default: Any = None) -> Any:
        """Return a value of a section."""
        return self._values.get(section, {}).get(key, default)

    def refusal(self, section: str) -> str | None:
        """Return why a section is not shown; None if it is."""
        error = self.value(section, "error")
        return None if error is None else f"{error['code']}: {error['text']}"

    def values(self, section: str) -> dict[str, Any]:
        """Return the values of a section as they came."""
        return self._values.get(section, {})

    def raw(self, section: str) -> list[dict[str, Any]]:
        """Return the rows of a section as they came."""
        if section == "events":
            return list(self._events)
        return list(self._rows.get(section, {}).values())

    @property
    def totals(self) -> Totals:
        """The totals."""
        return _convert(self.values("totals"), Totals)

    def rows(self, section: str, kind: type[_Row]) -> list[_Row]:
        """Return the rows of a section, in the order in which they came."""
        return [_convert(row, kind) for row in self.raw(section)]


def _convert(value: Any, kind: type[_Row]) -> _Row:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as exc:
        text = f"the daemon's message has a {kind.__name__} that is none: {escape(str(exc), 100)}"
        raise PubsubdError(text) from exc


def requested(sections: Iterable[tuple[str, Any]], interval: float) -> str:
    """Return the data of a request."""
    return msgspec.json.encode({"interval": interval, **dict(sections)}).decode()
