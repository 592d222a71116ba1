"""Messages to actors that differ in their data, their ids and their time alone.

Strategy: what an actor sends is alike. The text of one message is remembered, around the values
that differ; that of another one is put together from its values, and need not be encoded. What
comes from another daemon and has the bytes of an earlier message around such values is as legal as
that one if these values are, so it need not be read.

Invariant: a message that :class:`Recurring` writes is what :func:`~pubsubd.hub.handover.write`
makes of it once it is read and checked.
"""

from __future__ import annotations

import msgspec

from pubsubd.hub import messages as m
from pubsubd.hub import replies as r
from pubsubd.hub.ids import new_id
from pubsubd.hub.render import dress
from pubsubd.hub.strict import LIGHT
from pubsubd.hub.templates import PLAIN, UNLIKE, cutter, read_data

_SHAPES = 256  # that are remembered, up to 10 KiB each
_START = b'{"id":"'
_ID = slice(len(_START), len(_START) + 36)
_DATA = b'"payload":'

_encode = msgspec.json.Encoder().encode


class Alike:
    """The text of deliveries that are alike, around the texts and numbers that differ.

    Args:
        delivery: one of them, ``metadata`` of which has ``originalMessageId``.
        correlated: whether their ``correlationId`` differs, or that of ``delivery`` is theirs.
        wrapped: how addresses are written to their receiver; None to another daemon.
    """

    __slots__ = ("_correlated", "_text")

    def __init__(self, delivery: r.Delivery, *, correlated: bool, wrapped: bool | None) -> None:
        marks = [new_id() for _ in range(6)]
        ident, sender, to, data, correlation, original = marks
        metadata = {**delivery.metadata, "originalMessageId": original}
        if wrapped is not None:
            metadata["via"] = dress(m.HUB, wrapped)
        one = msgspec.structs.replace(
            delivery,
            id=ident,
            sender=sender,
            to=to,
            payload=msgspec.Raw(_encode(data)),
            correlation_id=correlation if correlated else delivery.correlation_id,
            metadata=metadata,
        )
        text = _encode(one).replace(b"%", b"%%").replace(_encode(data), b"%b")
        # Before it are strings alone, in which a quote is escaped.
        text = text.replace(b'"timestamp":%d' % one.timestamp, b'"timestamp":%d', 1)
        for mark in marks:
            text = text.replace(mark.encode(), b"%b")
        self._text = text
        self._correlated = correlated

    def write(
        self,
        ident: bytes,
        sender: bytes,
        to: bytes,
        data: bytes,
        correlation: bytes,
        time: int,
        original: bytes,
    ) -> bytes:
        """Return one of them as a JSON text; its texts are as between quotes."""
        if self._correlated:
            return self._text % (ident, sender, to, data, correlation, time, original)
        return self._text % (ident, sender, to, data, time, original)


class _Shape:
    """Deliveries of another daemon that are alike, but for their id the same up to their data.

    Args:
        rest: the text of one of them, behind its data.
        delivery: that one.

    Raises:
        KeyError, ValueError: its values cannot be found there.
    """

    __slots__ = ("_correlated", "_cut", "_delivery", "_fixed", "_forms", "_rest")

    def __init__(self, rest: bytes, delivery: r.Delivery) -> None:
        self._delivery = delivery
        self._correlated = delivery.correlation_id is not None
        self._forms: dict[bool, tuple[Alike, bytes]] = {}
        pieces: list[bytes] = []
        at = 0
        for key, value in (
            ("correlationId", delivery.correlation_id),
            ("timestamp", delivery.timestamp),
            ("originalMessageId", delivery.metadata["originalMessageId"]),
        ):
            if value is None:
                continue
            written = _encode(value)
            whole = b'"%b":%b' % (key.encode(), written)
            if rest.count(whole) != 1:
                raise ValueError(key)
            end = rest.index(whole) + len(whole)
            begin = end - len(written)
            if type(value) is str:
                begin, end = begin + 1, end - 1
            pieces += rest[at:begin], rest[begin:end]
            at = end
        pieces.append(rest[at:])
        self._rest, self._cut, self._fixed = len(rest), cutter(pieces), tuple(pieces[::2])

    def write(self, text: bytes, start: int, to: str) -> bytes | None:
        """Return one of them as a JSON text for its receiver; None if it is not alike."""
        stop = len(text) - self._rest
        if stop <= start:
            return None
        pieces = self._cut(text, stop)
        if pieces[::2] != self._fixed:
            return None
        ident, time, original = text[_ID], pieces[-4], pieces[-2]
        correlation = pieces[1] if self._correlated else b""
        texts = b"%b%b%b" % (ident, original, correlation)
        if texts.translate(None, PLAIN) or not time.isdigit() or time[0] == 48:
            return None
        data = read_data(text[start:stop])
        if not data:
            return None
        wrapped = to[:2] == "@("
        form = self._forms.get(wrapped)
        if form is None:
            one = self._delivery
            alike = Alike(one, correlated=self._correlated, wrapped=wrapped)
            form = self._forms[wrapped] = alike, _encode(dress(one.sender, wrapped))[1:-1]
        alike, sender = form
        return alike.write(ident, sender, to.encode(), data, correlation, int(time), original)


class Recurring:
    """What other daemons send, most of which is like something earlier."""

    def __init__(self) -> None:
        self._shapes: dict[bytes, _Shape] = {}  # by the text between id and data
        self._unlike = UNLIKE

    def write(self, text: bytes, to: str) -> bytes | None:
        """Return a delivery as a JSON text for its receiver; None if it has to be read.

        Args:
            text: the delivery as another daemon has sent it.
            to: the address of its receiver.
        """
        start = text.find(_DATA) + len(_DATA)
        shape = self._shapes.get(text[_ID.stop : start])
        if shape is None or len(text) > LIGHT or not text.startswith(_START):
            return None
        return shape.write(text, start, to)

    def note(self, text: bytes, delivery: r.Delivery) -> None:
        """Remember a delivery that has been read and checked, if it is time to."""
        self._unlike += 1
        if self._unlike < UNLIKE or len(text) > LIGHT or _encode(delivery) != text:
            return
        start = text.find(_DATA) + len(_DATA)
        head, rest = text[_ID.stop : start], text[start + len(bytes(delivery.payload)) :]
        if not head.startswith(b'","from":"'):
            return
        self._unlike = 0
        try:
            shape = _Shape(rest, delivery)
        except (KeyError, ValueError):
            return
        if len(self._shapes) >= _SHAPES:
            self._shapes.clear()
        self._shapes[head] = shape
