"""Rendering of messages: put into JSON once for all subscribers.

Strategy: a chunk of line frames comes as one object for all its receivers. It is read once, and
once for each form and framing put into frames. In the form of Signal Hub only ``to`` differs from
receiver to receiver, and the head of a frame depends only on its length. So the stretch between one
``to`` and the next is the same for all receivers with addresses of the same length; for each
receiver, it remains to join these stretches with its address.

Invariants:

- A message has the same identifier in whatever form it is sent, and to whomever.
- Frames and stretches, kept for framings and for addresses of different lengths, take
  :data:`ROOM` bytes at most, or are a single one.
- ``size`` is the size of everything that is kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum
from itertools import islice

import msgspec

from pubsubd.broker.peer import MADE
from pubsubd.hub.codec import Message, from_line
from pubsubd.hub.frames import NDJSON, Framing
from pubsubd.hub.ids import IDS
from pubsubd.hub.messages import HUB
from pubsubd.protocol.limits import MIB

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
    at, end = 0, len(chunk)
    last, begin = None, b""  # the last object, if the next one may be like it, and how both begin
    head, name, size = b"\n", b"", 0  # of the last frame; no frame begins so
    while at < end:
        if not chunk.startswith(head, at):
            gap = chunk.index(b" ", at + 4)
            start = chunk.index(b" ", gap + 1) + 1
            head, size = chunk[at:start], int(chunk[gap + 1 : start - 1])
            name = chunk[at + 4 : gap]
        at += len(head)
        stop = at + size
        if last is not None and chunk.startswith(begin, at):
            payload = chunk[at + len(begin) : stop - 1]
            if not (_ID in payload or _METADATA in payload):  # else they may stand behind it
                yield Message(name, last.type, payload, last.sender)
                at = stop + 1
                continue
        data = chunk[at:stop]
        message = from_line(name, data, sender, trusted > 0)
        if trusted == MADE:
            begin = data.removesuffix(message.payload + b"}")
            more = message.id is not None or message.metadata is not None
            last = message if begin.endswith(_PAYLOAD) and not more else None
        yield message
        at = stop + 1


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
        "_stretches",
        "_unread",
        "size",
        "texts",
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
        self._ready: set[tuple[Form, bool]] = set()  # the texts that are all rendered
        self.texts: dict[tuple[Form, bool], list[tuple[bytes, bytes]]] = {}
        self._frames: dict[tuple[Form, Framing], bytes] = {}
        self._stretches: dict[tuple[Framing, bool, int], list[bytes]] = {}
        self._held = 0  # bytes of frames and stretches
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

    def prepare(self, form: Form, wrapped: bool) -> bool:
        """Read or render :data:`STEP` messages more; return whether there was nothing left to do.

        Whoever must not take long calls this until it is true, and only then what renders.
        """
        key = form, wrapped and form is Form.HUB
        if key in self._ready:
            return True
        self._go_on(key)
        return False

    def _go_on(self, key: tuple[Form, bool]) -> None:
        if self._unread is not None:
            self._read_some(self._unread)
        else:
            self._render_some(key)

    def _read_some(self, unread: Iterator[Message]) -> None:
        more = list(islice(unread, STEP))
        self._messages += more
        if len(more) < STEP:
            self._unread = None

    def _render_some(self, key: tuple[Form, bool]) -> None:
        form, wrapped = key
        texts = self.texts.get(key)
        if texts is None:
            texts = self.texts[key] = []
        start = len(texts)
        messages = self._messages[start : start + STEP]
        if form is Form.HUB:
            more = self._hub_halves(messages, self._identify(start, len(messages)), wrapped)
        elif form is Form.SYNAP:
            more = _synap(messages, self._identify(start, len(messages)), self._now // 1000)
        else:
            more = _envelopes(messages)
        texts += more
        self.size += sum([len(before) + len(after) for before, after in more])
        if len(texts) == len(self._messages):
            self._ready.add(key)

    def hub(self, framing: Framing, wrapped: bool, to: bytes) -> bytes:
        """Return all messages in the form of Signal Hub.

        Args:
            framing: how a JSON text becomes a frame.
            wrapped: whether addresses are written as ``@(x/y)``.
            to: the receiver's address so written, as it stands inside of a JSON string.
        """
        # What has no head fits addresses of any length.
        key = framing, wrapped, 0 if framing is NDJSON else len(to)
        stretches = self._stretches.get(key)
        if stretches is None:
            stretches = self._split(framing, wrapped, len(to))
            self._make_room(sum(map(len, stretches)))
            self._stretches[key] = stretches
        return to.join(stretches)

    def synap(self, framing: Framing) -> bytes:
        """Return all messages as Synap pushes them."""
        return self._whole(Form.SYNAP, framing)

    def envelopes(self, framing: Framing) -> bytes:
        """Return all messages as envelopes."""
        return self._whole(Form.ENVELOPE, framing)

    def one(self, index: int, form: Form, framing: Framing, wrapped: bool, to: bytes) -> bytes:
        """Return a single message; ``wrapped`` and ``to`` are only of use to Signal Hub's form."""
        if form is Form.HUB:
            before, after = self._halves(form, wrapped)[index]
            return framing.frame(b"%b%b%b" % (before, to, after))
        return framing.frame(self._halves(form, False)[index][0])

    def _whole(self, form: Form, framing: Framing) -> bytes:
        key = form, framing
        found = self._frames.get(key)
        if found is None:
            frame = framing.frame
            found = b"".join([frame(text) for text, _ in self._halves(form, False)])
            self._make_room(len(found))
            self._frames[key] = found
        return found

    def _make_room(self, size: int) -> None:
        if self._held + size > ROOM:
            self._stretches.clear()
            self._frames.clear()
            self.size -= self._held
            self._held = 0
        self._held += size
        self.size += size

    def _split(self, framing: Framing, wrapped: bool, length: int) -> list[bytes]:
        """Return the stretches before the first ``to``, between each two, and behind the last."""
        tail, heads = framing.tail, dict[int, bytes]()
        stretches = []
        left = b""
        for before, after in self._halves(Form.HUB, wrapped):
            size = len(before) + length + len(after)
            head = heads.get(size)
            if head is None:
                head = heads[size] = framing.head(size)
            stretches.append(left + head + before)
            left = after + tail if tail else after
        stretches.append(left)
        return stretches

    def _halves(self, form: Form, wrapped: bool) -> list[tuple[bytes, bytes]]:
        """Return the JSON texts, each in two parts: before ``to`` and behind it."""
        key = form, wrapped
        while key not in self._ready:
            self._go_on(key)
        return self.texts[key]

    def _identify(self, start: int, count: int) -> list[bytes]:
        """Return the identifiers of so many messages; new ones if they have none."""
        ids = self._ids
        ids += islice(IDS, start + count - len(ids) if len(ids) < start + count else 0)
        return ids[start : start + count]

    def _hub_halves(
        self, messages: list[Message], ids: list[bytes], wrapped: bool
    ) -> list[tuple[bytes, bytes]]:
        # Hot path: scripts/bench hub-fan-100.
        halves = []
        now = b"%d" % self._now
        name, type_, from_ = b"", "", ""
        sender = kind = end = b""
        for message, id_ in zip(messages, ids, strict=True):
            if (
                message.name is not name
                or message.type is not type_
                or message.sender is not from_
                or not end
            ):
                name, type_, from_ = message.name, message.type, message.sender
                sender, kind, before, behind = _AROUND[name, type_, from_, wrapped]
                end = before + now + behind
            halves.append((b'{"id":"' + id_ + sender, kind + message.payload + end))
        return halves


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


def _synap(messages: list[Message], ids: list[bytes], now: int) -> list[tuple[bytes, bytes]]:
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
        texts.append((text, b""))
    return texts


def _envelopes(messages: list[Message]) -> list[tuple[bytes, bytes]]:
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
        texts.append((head + message.payload + b"}", b""))
    return texts


def dress(address: str, wrapped: bool) -> str:
    """Return an address in the form that is asked for, whichever it has."""
    bare = address[2:-1] if address.startswith("@(") and address.endswith(")") else address
    return f"@({bare})" if wrapped else bare
