"""One connection to another daemon, without I/O: the dialler's handshake, and the link after it.

After the hello, a link carries adverts, ``//pubsubd/relay``, ``//pubsubd/trace`` and
``//pubsubd/heartbeat``, and nothing else. A link that has been silent for two heartbeats and a
round trip is closed, although the system may still take bytes for it: so a link that loses
everything is noticed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from pubsubd.broker.peer import Peer, stay
from pubsubd.broker.trace import TRACE
from pubsubd.mesh.adverts import LinkReport
from pubsubd.mesh.hello import HELLO, WELCOME, Hello, check_proof, parse_hello, prove
from pubsubd.protocol import wire
from pubsubd.protocol.errors import CLOSES, MESH_CLOSES, STAYS, ProtocolError
from pubsubd.protocol.limits import MIB
from pubsubd.routing.lookups import Unfinished
from pubsubd.routing.outbox import Pieces

MAX_BATCH = 64 * MIB
"""Bytes of the data of one frame between daemons; larger batches are not sent."""

RELAY = b"//pubsubd/relay"
HEARTBEAT = b"//pubsubd/heartbeat"

_FRAMES = 256  # read at once, before the first of them is worked off
_INNER = 64  # peers that stand for origins and are kept; each is some 2 KiB
_LEGACY = frozenset(("unknown-request", "unknown-command", "no-mesh"))
_UNDER_WAY = 100  # heartbeats whose answers are waited for
_FAREWELL = 200  # bytes kept of why the other end closes
_GREETING = 4_096  # bytes of a hello at most


class Owner(Protocol):
    """The part of a daemon's mesh that a link needs."""

    def now(self) -> float:
        """Return the time, in seconds."""

    def over(self) -> bool:
        """Return whether the present turn is over."""

    def hold(self, link: Link, more: int) -> None:
        """Count ``more`` bytes of unprocessed input of a link; too many may end it."""

    def relay(self, link: Link, data: bytes) -> bool:
        """Take a batch; return whether work is left for :meth:`go_on`.

        Raises:
            Unfinished: it is to be taken again in the next turn.
        """

    def go_on(self, link: Link) -> bool:
        """Go on with a batch; return whether work is left of it."""

    def advert(self, link: Link, node: str, data: bytes) -> None:
        """Take an advert."""

    def trace(self, link: Link, data: bytes) -> None:
        """Take a part of a trace.

        Raises:
            Unfinished: it is to be taken again in the next turn.
        """


class Link:
    """A connection to another daemon that has said hello.

    Attributes:
        peer: the connection.
        node, start: id and start of the daemon at the other end.
        dialled: whether this end has dialled.
        address: the address that was dialled, or that of the other end.
        since: seconds since the epoch.
        ready: whether it has carried all known adverts, and can be used.
        heard: the time of the last input.
        rtt_ms: round trip in milliseconds, if measured.
        inner: the peer that stands for the origin of the last batch.
        unread: what this daemon's own subscribers have not been given of it.
        halted: whether they have been given part of what was read of it last.
        unannounced: ids of the daemons whose adverts it has yet to carry, until it is ready.
        messages_in, messages_out, bytes_in, bytes_out: carried so far.
        dropped: batches that it was too slow for.
        farewell: the last error that the other end has sent, for people.
    """

    def __init__(
        self, owner: Owner, peer: Peer, hello: Hello, *, dialled: bool, address: str, since: float
    ) -> None:
        self._owner = owner
        self.peer = peer
        self.node = hello.node
        self.start = hello.start
        self.dialled = dialled
        self.address = address
        self.since = since
        self.ready = False
        self.heard = owner.now()
        self.rtt_ms: float | None = None
        self.messages_in = self.messages_out = self.bytes_in = self.bytes_out = 0
        self.dropped = 0
        self.farewell = ""
        self._beat = 0
        self._beats: dict[bytes, float] = {}  # that are not answered -> when they were sent
        self._mesh_prefix = b"//fwd/peers/" + hello.mesh.encode() + b"/"
        self._decoder = wire.Decoder(MAX_BATCH)
        self._frames: deque[tuple[bytes, bytes]] = deque()  # read, and not worked off
        self._unfinished = False  # whether work is left of a batch
        self._held = 0  # bytes of input that are not worked off, as the owner knows
        self._inners: dict[tuple[str, bool], Peer] = {}
        self.unread = memoryview(b"")
        self.halted = False
        self.unannounced: dict[str, None] | None = None
        self.inner = self.speak_for(self.node, vouched=False)

    def speak_for(self, origin: str, vouched: bool) -> Peer:
        """Return the peer that stands for the origin of a batch, and make it :attr:`inner`.

        Each origin has two peers, vouched for or not: a message may be delivered later, when the
        mark of its batch is gone.
        """
        inner = self._inners.get((origin, vouched))
        if inner is None:
            if len(self._inners) >= _INNER:
                self._inners.clear()
            inner = Peer(self.peer.number, f"mesh/{origin}", _throw_away, stay)
            inner.relayed, inner.vouched = True, vouched
            self._inners[origin, vouched] = inner
        self.inner = inner
        return inner

    def forget_inner(self) -> None:
        """Forget the unfinished frame of the last batch."""
        self._inners = {key: one for key, one in self._inners.items() if one is not self.inner}

    def wait(self, seconds: float) -> None:
        """Let a new link be silent for ``seconds`` longer."""
        self.heard += seconds

    def receive(self, data: bytes) -> bool:
        """Process input; return whether work is left that ``receive(b"")`` goes on with."""
        owner, frames, decoder = self._owner, self._frames, self._decoder
        if (now := owner.now()) > self.heard:  # without data, the silence is ours
            self.heard = now
        self.bytes_in += len(data)
        more = False
        try:
            if data:
                busy = frames or decoder.stopped or self._unfinished
                frames += decoder.feed(data, 0 if busy else _FRAMES)
            while self.peer.ending is None:
                if self._unfinished:
                    self._unfinished = owner.go_on(self)
                elif frames:
                    name, data = frame = frames.popleft()
                    try:
                        if name == RELAY:
                            self._unfinished = owner.relay(self, data)
                        else:
                            self._take(name, data)
                    except Unfinished:
                        frames.appendleft(frame)
                        more = True
                        break
                elif decoder.stopped:
                    frames += decoder.feed(b"", _FRAMES)
                else:
                    break
                if (frames or decoder.stopped or self._unfinished) and owner.over():
                    more = True
                    break
        except ProtocolError as error:
            self.peer.end(error.code, error.text)
            more = False
        held = decoder.size + (sum(map(_size, frames)) if frames else 0)
        if held != self._held:
            owner.hold(self, held - self._held)
            self._held = held
        return more and self.peer.ending is None

    @property
    def crowded(self) -> bool:
        """Whether its outbox is so full that adverts should wait."""
        return self.peer.outbox.size > self.peer.listener.limits.max_pending // 2

    def release(self) -> None:
        """Drop all unprocessed input."""
        self._owner.hold(self, -self._held)
        self._held = 0
        self._frames.clear()
        self._inners.clear()
        self.unread = memoryview(b"")
        self._decoder = wire.Decoder(MAX_BATCH)

    def _take(self, name: bytes, data: bytes) -> None:
        if name.startswith(self._mesh_prefix):
            self._owner.advert(self, name[len(self._mesh_prefix) :].decode(), data)
        elif name == HEARTBEAT:
            self._take_heartbeat(data)
        elif name == TRACE:
            self._owner.trace(self, data)
        elif name == wire.ERROR:
            self.farewell = wire.escape(data, _FAREWELL)
        # Anything else is for later versions.

    def _take_heartbeat(self, data: bytes) -> None:
        verb, _, number = data.partition(b" ")
        if verb == b"ping":
            self.say(HEARTBEAT, b"pong " + number[:20])
        elif verb == b"pong" and number in self._beats:
            self.rtt_ms = round((self._owner.now() - self._beats.pop(number)) * 1000, 3)

    def say(self, name: bytes, data: bytes) -> None:
        """Send a message between the two daemons."""
        self.send(wire.frame(name, data))

    def send(self, frame: bytes | Pieces, messages: int = 0) -> None:
        """Send a whole frame, which carries ``messages`` messages."""
        self.messages_out += messages
        self.bytes_out += len(frame)
        self.peer.send(frame)

    def ping(self) -> None:
        """Send a heartbeat."""
        self._beat += 1
        number = b"%d" % self._beat
        self._beats[number] = self._owner.now()
        if len(self._beats) > _UNDER_WAY:
            del self._beats[next(iter(self._beats))]
        self.say(HEARTBEAT, b"ping " + number)

    def report(self) -> LinkReport:
        """Return its entry in an advert."""
        return LinkReport(
            self.node,
            self.dialled,
            int(self.since),
            self.rtt_ms,
            self.messages_in + self.messages_out,
            self.bytes_in + self.bytes_out,
        )


class DialerHandshake:
    """The dialler's side of a handshake: until it is a link, or a legacy peer, or refused.

    Args:
        peer: the connection.
        mine: this daemon's hello.
        secret: the mesh's.
        admit: raises ProtocolError if the other daemon must not be linked.
        linked: called with the other's hello, and the input that follows, once both have proved
            themselves.
        legacy: called with the input so far if the other end does not know of hellos.
        refused: called with the reason if either side has refused.
    """

    def __init__(
        self,
        peer: Peer,
        mine: Hello,
        secret: bytes | None,
        *,
        admit: Callable[[Hello], None],
        linked: Callable[[Hello, bytes], None],
        legacy: Callable[[bytes], None],
        refused: Callable[[ProtocolError], None],
    ) -> None:
        self._peer, self._mine, self._secret = peer, mine, secret
        self._admit, self._linked, self._legacy, self._refused = admit, linked, legacy, refused
        self.node = ""
        self.messages_in = self.messages_out = self.dropped = 0
        self._theirs: Hello | None = None
        self._input = b""
        self._done = 0  # bytes of it
        peer.send(wire.frame(HELLO, mine.text()))

    def receive(self, data: bytes) -> bool:
        """Process input; return False, as no work is ever left."""
        self._input += data
        try:
            while self._peer.link is self and (frame := self._next()) is not None:
                self._take(*frame)
        except ProtocolError as error:
            self._refused(error)
            self._peer.end(error.code, error.text)
        return False

    def _next(self) -> tuple[bytes, bytes] | None:
        """Return the next frame if it has come; any other input means a legacy peer."""
        buf = self._input[self._done :]
        try:
            start = wire.find_header_end(buf, 0)
            verb = buf[:4].lower()
            if verb != b"pub "[: len(verb)] or (start < 0 and wire.find_line_end(buf, 0) >= 0):
                self.give_up()
                return None
            if start < 0:
                return None
            name, digits = wire.parse_header(buf[:start])
            stop = start + wire.parse_length(digits)
            wire.check_size(stop, _GREETING)
        except ProtocolError:
            self.give_up()
            return None
        if stop >= len(buf):
            return None
        self._done += stop + 1
        return name, buf[start:stop]

    @property
    def answered(self) -> bool:
        """Whether the other end has said hello."""
        return self._theirs is not None

    def give_up(self) -> None:
        """Take the other end for a legacy peer, which knows three commands and nothing else."""
        self._legacy(self._input)

    def _take(self, name: bytes, said: bytes) -> None:
        if name == HELLO and self._theirs is None:
            theirs, proof = parse_hello(said, 7)
            self._admit(theirs)
            check_proof(proof, self._secret, "acceptor", self._mine, theirs)
            self._theirs = theirs
            answer = prove(self._secret, "dialler", self._mine, theirs)
            self._peer.send(wire.frame(HELLO, b"proof " + answer.encode()))
        elif name == HELLO and said == WELCOME and self._theirs is not None:
            self._linked(self._theirs, self._input[self._done :])
        elif name == wire.ERROR:
            code, _, text = said.decode("utf-8", "replace").partition(" ")
            if code not in _LEGACY or self._theirs is not None:
                known = code in STAYS or code in CLOSES or code in MESH_CLOSES
                raise ProtocolError(code if known else "bad-hello", text)
            self.give_up()
        elif self._theirs is None:
            self.give_up()


def _size(frame: tuple[bytes, bytes]) -> int:
    name, data = frame
    return len(name) + len(data)


def _throw_away(data: bytes | Pieces) -> None:
    """Take an answer to what came in a batch."""
