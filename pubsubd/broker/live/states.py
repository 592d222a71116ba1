"""States of a section at one moment, and what has changed from one to the next.

A state is never changed. Rows that are equal in two states should be the same object: then they
are compared at no cost, and kept once for all observers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

Row = Mapping[str, Any]
Changes = dict[str, Any]

_encode = msgspec.json.Encoder().encode


class State(Protocol):
    """A section at one moment, as far as an observer wants and may see it."""

    def difference(self, before: Any) -> Changes:
        """Return what is to be told to who was told ``before``, a state of this type or None.

        Empty if there is nothing to tell.
        """


class Table:
    """Rows by their key, values besides, and tables within it.

    Args:
        key: the column that tells rows apart.
        rows: key -> row.
        values: what is not in rows.
        parts: name -> table.

    Attributes:
        key, rows, values, parts: the arguments.
    """

    __slots__ = ("key", "parts", "rows", "values")

    def __init__(
        self,
        key: str = "",
        rows: Mapping[Any, Row] | None = None,
        values: Row | None = None,
        parts: Mapping[str, Table] | None = None,
    ) -> None:
        self.key = key
        self.rows: Mapping[Any, Row] = rows or {}
        self.values: Row = values or {}
        self.parts: Mapping[str, Table] = parts or {}

    def difference(self, before: Table | None) -> Changes:
        """Return new and changed rows, the keys of those that are gone, and changed values."""
        if before is None:
            found: Changes = dict(self.values)
            if self.key:
                found["rows"] = list(self.rows.values())
            for name, part in self.parts.items():
                found[name] = part.difference(None)
            return found
        found = changed(before.values, self.values)
        old, key = before.rows, self.key
        rows: list[Row] = []
        for at, row in self.rows.items():
            last = old.get(at)
            if last is None:
                rows.append(row)
            elif last is not row and (columns := changed(last, row)):
                rows.append({key: at} | columns)
        if rows:
            found["rows"] = rows
        if gone := [at for at in old if at not in self.rows]:
            found["gone"] = gone
        for name, part in self.parts.items():
            if changes := part.difference(before.parts.get(name)):
                found[name] = changes
        return found


class Refusal(NamedTuple):
    """Stands for a section that an observer may not see, or that this daemon does not have.

    Attributes:
        code: of the error.
        text: why, for people.
    """

    code: str
    text: str

    def difference(self, before: Refusal | None) -> Changes:
        """Return the error, unless it has been told."""
        return {} if self == before else {"error": self._asdict()}


def changed(before: Row, now: Row) -> dict[str, Any]:
    """Return the columns of ``now`` that ``before`` does not have so."""
    return {key: value for key, value in now.items() if key not in before or before[key] != value}


def difference(before: State | None, now: State) -> bytes:
    """Return what has changed as JSON; empty if nothing has."""
    if type(before) is not type(now):
        found = now.difference(None)
        if before is not None and type(before) is Refusal:
            found["error"] = None
    else:
        found = now.difference(before)
    return encode(found) if found else b""


def encode(value: Mapping[str, Any] | Sequence[Any]) -> bytes:
    """Return JSON; names of users of the machine may be no Unicode, which json escapes."""
    try:
        return _encode(value)
    except UnicodeEncodeError:
        return json.dumps(value).encode()
