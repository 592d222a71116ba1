"""Thinning of the edge lists of a day, so that the windows of its hours stay as they were.

Sessions of links, and what ended them, begin and end with the same rows as before, to the second;
only how often they are repeated in between is lost, and with it round trips. All rows that are
kept are as they were exported.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Annotated

import msgspec

_REPEATED = timedelta(hours=25)  # for which ends of links are kept again each hour


_Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class _Row(msgspec.Struct):
    """The columns of :mod:`pubsubd.mesh.edges` that every row has."""

    ts: str
    mesh: str
    observer: str
    src: str
    dst: str
    state: str
    since: str
    messages: _Count
    bytes: _Count


class _Spell:
    """An end of a link, in one state since one time, in one hour: its first and its last row."""

    __slots__ = ("first", "first_ts", "last", "last_ts")

    def __init__(self, ts: str, line: bytes) -> None:
        self.first_ts = self.last_ts = ts
        self.first = self.last = line

    def add(self, ts: str, line: bytes) -> None:
        """Take another row."""
        if ts < self.first_ts:
            self.first_ts, self.first = ts, line
        elif ts >= self.last_ts:
            self.last_ts, self.last = ts, line


_Key = tuple[str, str, str, str, str, str]  # src, dst, observer, mesh, state, since


def thin(lines: Iterable[bytes]) -> list[bytes]:
    """Return the lines of a day that its hours need, sorted by link.

    Of each hour these are, for each end of a link in one state since one time:

    - the last row, so that the hour ends with all that was there then;
    - the first row, unless it was there in the first list of the hour, of which one row stays to
      tell when the hour began; of an hour that follows upon none, all rows of that list stay.

    An end that is down was that 25 hours ago and since: all lists repeat it, and its rows are left
    out, except one of an observer that says nothing else.
    """
    hours: dict[str, dict[_Key, _Spell]] = {}
    decode = msgspec.json.Decoder(_Row).decode
    for line in lines:
        try:
            row = decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError):  # not written by a daemon
            continue
        key = (row.src, row.dst, row.observer, row.mesh, row.state, row.since)
        spells = hours.setdefault(row.ts[:13], {})
        if (spell := spells.get(key)) is None:
            spells[key] = _Spell(row.ts, line)
        else:
            spell.add(row.ts, line)
    kept: list[tuple[_Key, str, bytes]] = []
    for hour, spells in hours.items():
        kept += _thin_hour(spells, _repeated(hour), follows=_before(hour) in hours)
    kept.sort()
    return [line for _, _, line in kept]


def _thin_hour(
    spells: dict[_Key, _Spell], repeated: str, *, follows: bool
) -> Iterator[tuple[_Key, str, bytes]]:
    began: dict[str, str] = {}  # the first row of each mesh
    for key, spell in spells.items():
        began[key[3]] = min(spell.first_ts, began.get(key[3], spell.first_ts))
    marked: set[str] = set()
    silent: dict[tuple[str, str], tuple[_Key, _Spell]] = {}
    telling = set()
    for key, spell in sorted(spells.items()):
        _, _, observer, mesh, state, since = key
        if state == "down" and since < repeated:
            told = silent.get((mesh, observer))
            if told is None or told[0][5] < since:
                silent[mesh, observer] = key, spell
            continue
        telling.add((mesh, observer))
        at_begin = spell.first_ts == began[mesh]
        if spell.first_ts != spell.last_ts and not (follows and at_begin and mesh in marked):
            yield key, spell.first_ts, spell.first
        if at_begin:
            marked.add(mesh)
        yield key, spell.last_ts, spell.last
    for who, (key, spell) in silent.items():
        if who not in telling:
            if who[0] not in marked and spell.first_ts == began[who[0]] != spell.last_ts:
                marked.add(who[0])
                yield key, spell.first_ts, spell.first
            yield key, spell.last_ts, spell.last


def _before(hour: str) -> str:
    """Return the hour before ``hour``: ``2026-11-28T06``."""
    return _shifted(hour, timedelta(hours=1))[:13]


def _repeated(hour: str) -> str:
    """Return the time before which the end of a link is old in ``hour``."""
    return _shifted(hour, _REPEATED)


def _shifted(hour: str, by: timedelta) -> str:
    try:
        return (datetime.fromisoformat(f"{hour}:00") - by).isoformat()
    except (ValueError, OverflowError):  # not written by a daemon
        return ""
