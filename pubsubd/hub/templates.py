"""Messages that differ from an earlier one in their data, their id and their time alone.

Strategy: the messages of a publisher are alike. The bytes of one around these three values are
remembered. A message that has the same bytes around other values is as legal as that one if these
values are, and means the same but for them. So they alone are read.

Invariant: :func:`pubsubd.hub.strict.read` accepts each message that matches, and writes its data as
a template hands it over.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from pubsubd.hub.strict import LIGHT, MAX_DEPTH, JsonError, parse, read

UNLIKE = 8
"""Messages of a connection that do not match before another one is looked at."""

_PLAIN = bytes(byte for byte in range(0x20, 0x7F) if byte not in b'"\\')
_LONGEST = 10**15  # milliseconds of a time; a double has all integers up to there
_AROUND = 8  # levels around data; no dialect has as many

Place = tuple[int, int]
"""Where a value begins and ends in a text; the same for a value that is not there."""

CarryOut = Callable[[bytes, bytes, int], None]
"""Carries out a message, given its data, its id and its time; empty and 0 if it has none.

The id is as between quotes, and means itself.
"""

_NOWHERE = 0, 0


class Template:
    """The bytes of a message around its data, its id and its time.

    Args:
        text: a message that ``read`` has accepted.
        data: where its data is.
        id_: where the text of its id is, without quotes.
        time: where its time is: an integer.
        carry_out: carries out a message that matches.
    """

    __slots__ = ("_after", "_before", "_carry_out", "_fixed", "_id", "_time")

    def __init__(
        self, text: bytes, data: Place, id_: Place, time: Place, carry_out: CarryOut
    ) -> None:
        start, stop = data
        size = len(text)

        def stretch(begin: int, end: int) -> slice:  # what is behind the data counts from the end
            return slice(begin, end) if end <= start else slice(begin - size, end - size or None)

        fixed, at = [], 0
        for begin, end in sorted(place for place in (data, id_, time) if place != _NOWHERE):
            fixed.append(stretch(at, begin))
            at = end
        fixed.append(stretch(at, size))
        self._fixed = [(where, text[where]) for where in fixed]
        self._before, self._after = start, size - stop
        self._id, self._time = stretch(*id_), stretch(*time)
        self._carry_out = carry_out

    def take(self, text: bytes) -> bool:
        """Carry out a message; return False if it does not match, and has to be read."""
        # Hot path: scripts/bench hub-fan-100.
        start, stop = self._before, len(text) - self._after
        if start < stop and len(text) <= LIGHT:
            for where, piece in self._fixed:
                if text[where] != piece:
                    break
            else:
                data, id_, time = text[start:stop], text[self._id], text[self._time]
                if not id_.translate(None, _PLAIN) and (
                    not time or (time.isdigit() and time[0] != 48)  # no zero in front
                ):
                    data = read_data(data)
                    if data:
                        self._carry_out(data, id_, int(time or 0))
                        return True
        return False


def is_plain(text: bytes) -> bool:
    """Return whether a text is ASCII that a JSON string holds as it is."""
    return not text.translate(None, _PLAIN)


def read_data(data: bytes) -> bytes:
    """Return data as ``read`` does; nothing if that alone does not show that it is legal."""
    if data[0] == data[-1] == 34 and len(data) > 1 and not data[1:-1].translate(None, _PLAIN):
        return data
    if data.count(b"[") + data.count(b"{") > MAX_DEPTH - _AROUND:
        return b""
    try:
        return read(data)[1]
    except JsonError:
        return b""


class Sample:
    """A message that has been read, in one of two spellings, and may become a template.

    Args:
        text: the message as it came.
        read: as ``read`` has returned it.
    """

    def __init__(self, text: bytes, read: bytes) -> None:
        self._text = text
        self._colon = b":" if text == read else b": "  # with spaces, as Python writes by default
        self._known = len(text) <= LIGHT and self._spell(read) == text

    def _spell(self, value: bytes) -> bytes:
        return value if self._colon == b":" else json.dumps(parse(value)).encode()

    def _find(self, key: bytes, value: bytes) -> Place:
        """Return where the value of a key is; nowhere if there may be another such key.

        The message has the key with this value. So it is the only place in which both stand.
        """
        written = self._spell(value)
        whole = b'"%b"%b%b' % (key, self._colon, written)
        if self._text.count(whole) != 1:
            return _NOWHERE
        end = self._text.index(whole) + len(whole)
        return (end - len(written), end) if self._text[end] in b",}" else _NOWHERE

    def template(
        self,
        data: tuple[str, bytes],
        id_: tuple[str, bytes],
        time: tuple[str, object],
        carry_out: CarryOut,
    ) -> Template | None:
        """Return the template that it makes; None if it makes none.

        Args:
            data: key and value, as ``read`` has written it; empty if there is none.
            id_: the same, of the id; not a string if there is none.
            time: its key and, if it is one, a number.
            carry_out: of the template.
        """
        if not self._known or not data[1]:
            return None
        place = self._find(data[0].encode(), data[1])
        if place == _NOWHERE:
            return None
        begin, end = _NOWHERE
        if len(id_[1]) > 2 and id_[1].startswith(b'"'):
            begin, end = self._find(id_[0].encode(), id_[1])
        when = _NOWHERE
        if isinstance(time[1], float | int) and 0 < time[1] < _LONGEST:
            when = self._find(time[0].encode(), b"%d" % time[1])
        return Template(
            self._text, place, (begin + 1, end - 1) if end else _NOWHERE, when, carry_out
        )
