"""Rendering of messages: put into JSON once for all subscribers.

Strategy: a chunk of line frames comes as one object for all its receivers. It is read once, and
once for each form and framing put into frames. In the form of Signal Hub only ``to`` differs from
receiver to receiver, and the head of a frame depends only on its length. So the stretch between one
``to`` and the next is the same for all receivers with addresses of the same length; for each
receiver, it remains to fill in its address (:mod:`pubsubd.hub.spliced`).

Invariants:

- A message has the same identifier in whatever form it is sent, and to whomever.
- Frames, kept for framings and for addresses of different lengths, take :data:`ROOM` bytes at most,
  or are those of a single one.
- ``size`` is the size of everything that is kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum
from itertools import islice

import msgspec

from pubsubd.broker.peer import MADE
from pubsubd.hub.codec import MAYBE_JSON, PLAIN, Message, before_text, from_line, with_text
from pubsubd.hub.frames import NDJSON, Framing
from pubsubd.hub.ids import new_ids
from pubsubd.hub.messages import HUB
from pubsubd.hub.spliced import MUCH, Joined, Patched
from pubsubd.protocol.limits import MIB
from pubsubd.routing.outbox import Pieces

ROOM = 4 * MIB
"""Bytes that a batch keeps in frames; addresses have up to some 260 different lengths."""

STEP = 128
"""Messages that are read or rendered at once: a millisecond's work."""

_KINDS = 256  # of messages around which the text is remembered, up to 5 KiB each

_PAYLOAD, _ID, _METADATA = b'"payload":', b',"id":', b',"metadata":'  # in this order
_encode = msgspec.json.Encoder().encode


class Form(Enum):
    """The form of a delivered message."""

    __hash__ = object.__hash__  # an Enum's own is written in Python, and takes 0.1 µs

    HUB = "hub"
    SYNAP = "synap"
    ENVELOPE = "envelope"


def read_chunk(chunk: bytes, sender: str, trusted: int) -> Iterator[Message]:
    """Yield the messages of a chunk of whole line frames, as a broker delivers them.

    Args:
        chunk: whole line frames.
        sender: the sender's address.
        trusted: whether they were made on this port; see :func:`~pubsubd.hub.codec.from_line`.
            :data:`~pubsubd.broker.peer.MADE` if each of them was made from an object.
    """
    # Hot path: scripts/bench line-to-ws-100.
    at, end = 0, len(chunk)
    last, begin = None, b""  # the last object, if the next one may be like it, and how both begin
    head, name, size = b"\n", b"", 0  # of the last frame; no frame begins so
    before = b""
    while at < end:
        if not chunk.startswith(head, at):
            gap = chunk.index(b" ", at + 4)
            start = chunk.index(b" ", gap + 1) + 1
            head, size = chunk[at:start], int(chunk[gap + 1 : start - 1])
            name = chunk[at + 4 : gap]
            before = before_text(name)
        at += len(head)
        stop = at + size
        if chunk[at] not in MAYBE_JSON and (payload := with_text(before, chunk[at:stop])):
            yield Message(name, PLAIN, payload, sender)
            at = stop + 1
            continue
        if last is not None and chunk.startswith(begin, at):
            payload = chunk[at + len(begin) : stop - 1]
            if not (_ID in payload or _METADATA in payload):  # else they may stand behind it
                yield Message(name, last.type, payload, last.sender)
                at = stop + 1
                most = 1
                while chunk.startswith(head, at):
                    most = min(2 * most, STEP)
                    payloads = _payloads(chunk, at, head + begin, len(head) + size + 1, most)
                    for payload in payloads:
                        yield Message(name, last.type, payload, last.sender)
                    at += len(payloads) * (len(head) + size + 1)
                    if len(payloads) < most:
                        break
                continue
        data = chunk[at:stop]
        message = from_line(name, data, sender, trusted > 0)
        if trusted == MADE:
            begin = data.removesuffix(message.payload + b"}")
            more = message.id is not None or message.metadata is not None
            last = message if begin.endswith(_PAYLOAD) and not more else None
        yield message
        at = stop + 1


def _payloads(chunk: bytes, at: int, start: bytes, length: int, most: int) -> list[bytes]:
    """Return those of frames of one length from ``at`` on, as long as they begin with ``start``.

    They end before one that may have more behind its payload.
    """
    stop = min(len(chunk), at + most * length)
    for key in (_ID, _METADATA):
        found = chunk.find(key, at, stop)
        if found >= 0:
            stop = found
    skipped, size = len(start), length - len(start) - 2  # an object and a frame end behind it
    payloads = []
    for begin in range(at, stop - length + 1, length):
        if not chunk.startswith(start, begin):
            break
        payloads.append(chunk[begin + skipped : begin + skipped + size])
    return payloads


class Batch:
    """The messages of one chunk, and their renderings.

    Args:
        messages: in order; read when they are needed.
        now_ms: the time, in epoch milliseconds.

    Attributes:
        size: bytes of the renderings that are kept.
    """

    __slots__ = (
        "_frames",
        "_held",
        "_ids",
        "_messages",
        "_now",
        "_ready",
        "_spliced",
        "_texts",
        "_unread",
        "size",
    )

    def __init__(self, messages: Iterable[Message], now_ms: int) -> None:
        self._unread: Iterator[Message] | None = None
        self._messages: list[Message] = []
        if isinstance(messages, list):
            self._messages = messages
        else:
            self._unread = iter(messages)
        self._now = now_ms
        self._ids: list[bytes] = []
        self._ready: set[Form] = set()  # whose texts are all rendered
        self._texts: dict[Form, list[bytes]] = {}  # but for that of Signal Hub
        self._frames: dict[tuple[Form, Framing], bytes] = {}
        self._spliced: dict[tuple[Framing, bool, int | None], Joined | Patched] = {}
        self._held = 0  # bytes of frames
        self.size = 0

    @property
    def messages(self) -> list[Message]:
        """The messages, in order."""
        while self._unread is not None:
            self._read_some(self._unread)
        return self._messages

    @property
    def names(self) -> list[bytes]:
        """The names of the messages, in order."""
        return [message.name for message in self.messages]

    def prepare(self, form: Form) -> bool:
        """Read or render :data:`STEP` messages more; return whether there was nothing left to do.

        Whoever must not take long calls this until it is true, and only then what renders.
        """
        if self._unread is not None:
            self._read_some(self._unread)
        elif form is Form.HUB or form in self._ready:  # that of Signal Hub is a matter of joining
            return True
        else:
            self._render_some(form)
        return False

    def _read_some(self, unread: Iterator[Message]) -> None:
        more = list(islice(unread, STEP))
        self._messages += more
        if len(more) < STEP:
            self._unread = None

    def _render_some(self, form: Form) -> None:
        texts = self._texts.setdefault(form, [])
        start = len(texts)
        messages = self._messages[start : start + STEP]
        if form is Form.SYNAP:
            more = _synap(messages, self._identify(start, len(messages)), self._now // 1000)
        else:
            more = _envelopes(messages)
        texts += more
        self.size += sum(map(len, more))
        if len(texts) == len(self._messages):
            self._ready.add(form)

    def hub(self, framing: Framing, wrapped: bool, to: bytes) -> bytes | Pieces:
        """Return all messages in the form of Signal Hub; pieces are valid until the next call.

        Args:
            framing: how a JSON text becomes a frame.
            wrapped: whether addresses are written as ``@(x/y)``.
            to: the receiver's address so written, as it stands inside of a JSON string.
        """
        # What has no head fits addresses of any length.
        length = None if framing is NDJSON else len(to)
        key = framing, wrapped, length
        spliced = self._spliced.get(key)
        if spliced is None:
            spliced = self._splice(framing, wrapped, to if length else b"")
            self._make_room(spliced.size)
            self._spliced[key] = spliced
        return spliced.fill(to)

    def synap(self, framing: Framing) -> bytes:
        """Return all messages as Synap pushes them."""
        return self._whole(Form.SYNAP, framing)

    def envelopes(self, framing: Framing) -> bytes:
        """Return all messages as envelopes."""
        return self._whole(Form.ENVELOPE, framing)

    def one(self, index: int, form: Form, framing: Framing, wrapped: bool, to: bytes) -> bytes:
        """Return a single message; ``wrapped`` and ``to`` are only of use to Signal Hub's form."""
        if form is not Form.HUB:
            return framing.frame(self._all(form)[index])
        message, (id_,) = self.messages[index], self._identify(index, 1)
        sender, kind, end = _around(message, wrapped, self._now)
        return framing.frame(b"".join((_OPENING, id_, sender, to, kind, message.payload, end)))

    def _whole(self, form: Form, framing: Framing) -> bytes:
        key = form, framing
        found = self._frames.get(key)
        if found is None:
            found = b"".join(map(framing.frame, self._all(form)))
            self._make_room(len(found))
            self._frames[key] = found
        return found

    def _all(self, form: Form) -> list[bytes]:
        """Return the JSON texts in a form that is not Signal Hub's."""
        while not self.prepare(form):
            pass
        return self._texts[form]

    def _make_room(self, size: int) -> None:
        if self._held + size > ROOM:
            self._spliced.clear()
            self._frames.clear()
            self.size -= self._held
            self._held = 0
        self._held += size
        self.size += size

    def _splice(self, framing: Framing, wrapped: bool, to: bytes) -> Joined | Patched:
        """Return all messages in frames for receivers whose addresses are as long as ``to``."""
        # Hot path: scripts/bench line-to-ws-100.
        messages = self.messages
        ids = self._identify(0, len(messages))
        if to and ids and len(ids) * len(messages[0].payload) > MUCH and _alike(messages):
            return self._patched(framing, wrapped, to)
        name, type_, from_ = b"", "", ""
        sender = kind = payload = end = b""
        before: tuple[bytes, bytes, bytes] = b"", b"", b""  # what follows the last address
        fixed, beginnings = 0, dict[int, bytes]()
        stretches = []
        for message, id_ in zip(messages, ids, strict=True):
            if (
                message.name is not name
                or message.type is not type_
                or message.sender is not from_
                or not end
            ):
                name, type_, from_ = message.name, message.type, message.sender
                sender, kind, end = _around(message, wrapped, self._now)
                fixed = len(_OPENING) + len(id_) + len(sender) + len(to) + len(kind) + len(end)
                end += framing.tail
            payload = message.payload
            size = fixed + len(payload)
            beginning = beginnings.get(size)
            if beginning is None:
                beginning = beginnings[size] = framing.head(size) + _OPENING
            stretches.append(b"".join((*before, beginning, id_, sender)))
            before = kind, payload, end
        stretches.append(b"".join(before))
        return Joined(stretches)

    def _patched(self, framing: Framing, wrapped: bool, to: bytes) -> Patched:
        """As :meth:`_splice`, of messages that are alike and of one length."""
        messages, ids = self._messages, self._ids
        count, payload = len(messages), messages[0].payload
        sender, kind, end = _around(messages[0], wrapped, self._now)
        around = sender + to + kind
        head = framing.head(len(_OPENING) + len(ids[0]) + len(around) + len(payload) + len(end))
        end += framing.tail
        parts = [end + head + _OPENING, ids[0], around, payload] * count
        parts[1::4] = ids
        parts[3::4] = [message.payload for message in messages]
        parts[0] = head + _OPENING
        parts.append(end)
        start = len(parts[0]) + len(ids[0]) + len(sender)
        return Patched(bytearray().join(parts), count, start, to)

    def _identify(self, start: int, count: int) -> list[bytes]:
        """Return the identifiers of so many messages; new ones if they have none."""
        ids = self._ids
        ids += new_ids(max(0, start + count - len(ids)))
        return ids[start : start + count]


_OPENING = b'{"id":"'


def _alike(messages: list[Message]) -> bool:
    """Return whether they differ in their payloads alone, and these are of one length."""
    first = messages[0]
    name, kind, sender, size = first.name, first.type, first.sender, len(first.payload)
    for one in messages:
        if (
            one.name is not name
            or one.type is not kind
            or one.sender is not sender
            or len(one.payload) != size
        ):
            return False
    return True


def _around(message: Message, wrapped: bool, now: int) -> tuple[bytes, bytes, bytes]:
    """Return what is between id and receiver, before the payload, and behind it."""
    sender, kind, before, behind = _AROUND[message.name, message.type, message.sender, wrapped]
    return sender, kind, b"%b%d%b" % (before, now, behind)


class _Around(dict[tuple[bytes, str, str, bool], tuple[bytes, bytes, bytes, bytes]]):
    """What is around id, receiver, payload and time, by name, type, sender and ``wrapped``."""

    def __missing__(self, key: tuple[bytes, str, str, bool]) -> tuple[bytes, bytes, bytes, bytes]:
        if len(self) >= _KINDS:
            self.clear()
        name, kind, sender, wrapped = key
        self[key] = around = (
            b'","from":%b,"to":"' % _encode(dress(sender, wrapped)),
            b'","type":%b,"payload":' % _encode(kind),
            b',"pattern":"tell","correlationId":null,"timestamp":',
            b',"metadata":{"topic":%b,"publication":true,"forwarded":true,"via":"%b"},"ttl":null,'
            b'"signature":null}' % (_encode(name.decode()), dress(HUB, wrapped).encode()),
        )
        return around


_AROUND = _Around()


def _synap(messages: list[Message], ids: list[bytes], now: int) -> list[bytes]:
    texts = []
    topics: dict[bytes, bytes] = {}
    for message, id_ in zip(messages, ids, strict=True):
        topic = topics.get(message.name)
        if topic is None:
            topic = topics[message.name] = _encode(message.name.decode())
        text = (
            b'{"type":"message","message_id":%b,"topic":%b,"payload":%b,"message":%b,'
            b'"metadata":%b,"timestamp":%d}'
        ) % (
            _encode(message.id or "msg_" + id_.decode().replace("-", "")),
            topic,
            message.payload,
            message.payload,
            message.metadata or b"null",
            now,
        )
        texts.append(text)
    return texts


def _envelopes(messages: list[Message]) -> list[bytes]:
    """Return envelopes whose type and id spell the name, as their receivers have asked for it."""
    texts = []
    heads: dict[tuple[bytes, str], bytes] = {}
    for message in messages:
        key = message.name, message.type
        head = heads.get(key)
        if head is None:
            name, kind = message.name.decode(), message.type
            if name.startswith(kind + ":"):
                rest = name[len(kind) + 1 :]
            else:
                kind, _, rest = name.partition(":")
            head = b'{"type":%b,"id":%b,"payload":' % (_encode(kind), _encode(rest))
            heads[key] = head
        texts.append(head + message.payload + b"}")
    return texts


def dress(address: str, wrapped: bool) -> str:
    """Return an address in the form that is asked for, whichever it has."""
    bare = address[2:-1] if address.startswith("@(") and address.endswith(")") else address
    return f"@({bare})" if wrapped else bare
