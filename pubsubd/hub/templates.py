"""Messages that differ from an earlier one in their data, their id and their time alone.

Strategy: the messages of a publisher are alike. The bytes of one around these three values are
remembered. A message that has the same bytes around other values is as legal as that one if these
values are, and means the same but for them. So they alone are read.

Invariant: :func:`pubsubd.hub.strict.read` accepts each message that matches, and writes its data as
a template hands it over.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from itertools import pairwise
from struct import Struct

from pubsubd.hub.strict import LIGHT, MAX_DEPTH, JsonError, parse, read

UNLIKE = 8
"""Messages of a connection that do not match before another one is looked at."""

PLAIN = bytes(byte for byte in range(0x20, 0x7F) if byte not in b'"\\')
"""What a JSON string holds as it is."""

_LONGEST = 10**15  # milliseconds of a time; a double has all integers up to there
_AROUND = 8  # levels around data; no dialect has as many

Place = tuple[int, int]
"""Where a value begins and ends in a text; the same for a value that is not there."""

CarryOut = Callable[[bytes, bytes, int], None]
"""Carries out a message, given its data, its id and its time; empty and 0 if it has none.

The id is as between quotes, and means itself.
"""

Values = tuple[bytes, bytes, bytes]
"""Data, id and time of a message; an empty one if it has none."""

CarryOutAll = Callable[[list[Values]], int]
"""Carries out messages together, and returns how many, from the first on; 0 if each has to be
carried out by itself."""

_NOWHERE = 0, 0


class Template:
    """The bytes of a message around its data, its id and its time.

    Args:
        text: a message that ``read`` has accepted.
        data: where its data is.
        id_: where the text of its id is, without quotes.
        time: where its time is: an integer.
        carry_out: carries out a message that matches.
        carry_out_all: the same, of several; None if there is no such thing.
    """

    __slots__ = (
        "_after",
        "_before",
        "_carry_out",
        "_carry_out_all",
        "_cut_after",
        "_cut_before",
        "_fixed",
        "_id",
        "_time",
    )

    def __init__(
        self,
        text: bytes,
        data: Place,
        id_: Place,
        time: Place,
        carry_out: CarryOut,
        carry_out_all: CarryOutAll | None = None,
    ) -> None:
        # Fixed pieces and values take turns: what is before the data is cut from the start of a
        # text, what is behind it from where the data ends.
        places = sorted(place for place in (data, id_, time) if place != _NOWHERE)
        edges = [0, *(edge for place in places for edge in place), len(text)]
        pieces = [text[begin:end] for begin, end in pairwise(edges)]
        middle = 2 * places.index(data) + 1
        self._cut_before = cutter(pieces[:middle])
        self._cut_after = cutter(pieces[middle + 1 :])
        self._before, self._after = data[0], len(text) - data[1]
        self._fixed = tuple(pieces[::2])
        self._id = 2 * places.index(id_) + 1 if id_ != _NOWHERE else None
        self._time = 2 * places.index(time) + 1 if time != _NOWHERE else None
        self._carry_out, self._carry_out_all = carry_out, carry_out_all

    def take(self, text: bytes) -> bool:
        """Carry out a message; return False if it does not match, and has to be read."""
        values = self._match(text)
        if values is None:
            return False
        data, id_, time = values
        self._carry_out(data, id_, int(time or 0))
        return True

    def take_some(self, texts: Iterable[object], most: int) -> int:
        """Carry out messages together, ``most`` at most; return how many, from the first on.

        It is 0 if the first one does not match, or has to be carried out by itself.
        """
        if self._carry_out_all is None:
            return 0
        found: list[Values] = []
        for text in texts:
            if type(text) is not bytes or len(found) == most:
                break
            values = self._match(text)
            if values is None:
                break
            found.append(values)
        return self._carry_out_all(found) if found else 0

    def _match(self, text: bytes) -> Values | None:
        """Return the values of a message; None if it does not match."""
        # Hot path: scripts/bench hub-fan-100.
        start, stop = self._before, len(text) - self._after
        if start >= stop or len(text) > LIGHT:
            return None
        data = text[start:stop]
        pieces = *self._cut_before(text), data, *self._cut_after(text, stop)
        if pieces[::2] != self._fixed:
            return None
        id_ = b"" if self._id is None else pieces[self._id]
        time = b"" if self._time is None else pieces[self._time]
        if id_.translate(None, PLAIN) or (time and (time[0] == 48 or not time.isdigit())):
            return None  # no zero in front
        data = read_data(data)
        return (data, id_, time) if data else None


def cutter(pieces: list[bytes]) -> Callable[..., tuple[bytes, ...]]:
    """Return what cuts pieces as long as these out of a text, from a place on."""
    return Struct("".join(f"{len(piece)}s" for piece in pieces)).unpack_from


def read_data(data: bytes) -> bytes:
    """Return data as ``read`` does; nothing if that alone does not show that it is legal."""
    if data[0] == data[-1] == 34 and len(data) > 1 and not data[1:-1].translate(None, PLAIN):
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
        carry_out_all: CarryOutAll | None = None,
    ) -> Template | None:
        """Return the template that it makes; None if it makes none.

        Args:
            data: key and value, as ``read`` has written it; empty if there is none.
            id_: the same, of the id; not a string if there is none.
            time: its key and, if it is one, a number.
            carry_out: of the template.
            carry_out_all: of the template.
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
        within = (begin + 1, end - 1) if end else _NOWHERE
        return Template(self._text, place, within, when, carry_out, carry_out_all)
