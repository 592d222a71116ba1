"""Peers: connections of any protocol as the broker sees them, without I/O."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from pubsubd.access.rules import Permission
from pubsubd.broker.listener_state import DEFAULT, ListenerState
from pubsubd.broker.publish_filter import PublishFilter, Refusals
from pubsubd.broker.rate import Bucket
from pubsubd.broker.turn import Steps
from pubsubd.protocol.errors import ProtocolError
from pubsubd.protocol.limits import LARGE_READ, MAX_READ, READ_SIZE
from pubsubd.routing.outbox import Outbox, Pieces
from pubsubd.routing.wildcards import Pattern

Counts = tuple[int, int, int, int]
"""Messages in and out, and bytes in and out, that a connection has carried."""

_NOTHING: Counts = (0, 0, 0, 0)
_NOTED = _NOTHING, _NOTHING

MADE = 2
"""Of messages that are vouched for: they were made on the hub port, and need not be checked again.
"""


def stay(code: str, text: str) -> None:
    """End nothing: for peers that nobody can close."""


def _discard(_data: bytes) -> bool:
    return True


class Link(Protocol):
    """The receiver of input from a peer that is another daemon.

    Attributes:
        node: the other daemon's id; empty until it is known.
        messages_in, messages_out: carried so far.
        dropped: batches for it that were dropped, because it was too slow.
    """

    node: str
    messages_in: int
    messages_out: int
    dropped: int

    def receive(self, data: bytes) -> bool:
        """Work off what was read; see :meth:`pubsubd.broker.broker.Broker.receive`."""


class HubSide(Protocol):
    """A connection of the hub port, as the broker asks about it."""

    @property
    def spoken(self) -> tuple[str, str]:
        """Transport and dialect, as metrics name them."""


class Check(Protocol):
    """Work that takes too long for the loop; :class:`pubsubd.broker.logins.Check`."""

    @property
    def address(self) -> str:
        """Where it comes from."""

    def run(self) -> None:
        """Do it, in a thread."""

    def settle(self) -> object:
        """Note, in the loop, how it went, even if nobody waits for it any more."""

    def refuse(self) -> None:
        """Note that it is not done."""


class Job(Protocol):
    """A password that has to be checked before more input of a peer is worked off."""

    @property
    def check(self) -> Check:
        """Takes too long for the loop."""

    def finish(self) -> None:
        """Act on what has come of it, in the loop, before the peer's input is gone on with."""


class Peer:
    """A connection, as the broker sees it.

    Attributes:
        number: counts the connections since the start, from 1; no other one ever has it.
        label: what it is called in logs, for example ``127.0.0.1:50312``.
        substrings, names, patterns: what it subscribes; the router's. Most peers have substrings
            only: the others are None until there are some.
        pending: frames put during the present read.
        enqueue: ``pending.append``, bound once.
        send: hands over whole frames at the end of a read; never blocks; set by the owner.
        outbox: what could not be sent at once; the owner's.
        parts, missing: input that is not worked off; bytes without which nothing can be.
        large: the header, with the LF before it, of a large frame, if ``parts`` are the beginning
            of one; they are without that LF then.
        expected: length of the large frames that come, or 0; more of their kind may follow.
        ending: why the connection has to be closed, once it has.
        end: asks its owner to close it, for a code and a text; set by the owner.
        gone: called once it has left, if somebody has to know.
        link: what takes its input, if it is a link to another daemon, or is becoming one.
        relayed: whether its input is what a link has brought from another daemon or worker.
        sibling: whether that is another worker of this daemon: everybody here may get it, but no
            other worker.
        vouched: whether that daemon vouches for the senders that the messages name; :data:`MADE`
            if it has made the messages, too.
        echo: whether it gets what it has published itself, if it subscribes that.
        busy: whether it is not read at present, because others have to be waited for.
        strain: is given the consumers that it fills, if it is one that stands for somebody at
            another worker; None for others, who wait for them.
        joined: when it connected, in seconds that only go forward.
        messages_in, messages_out, bytes_in, bytes_out: carried so far; see
            :mod:`pubsubd.broker.traffic`.
        noted: those counts as they were at two moments before.
        dropped: messages that it has lost for being slow.
        remote: False: it is not another daemon that is reached over links.
        render: renders some of what it is sent, as on the hub port, or sends it if it is rendered,
            and returns whether it is sent; set by the owner. None if it is sent frames as they are.
        hub: its other side, if it is a connection of the hub port.
        listener: what holds for it, as for all connections of its listener.
        identity: who it is; None for one who has not logged in, empty for somebody without a name.
        lost: how the system has said that the connection is broken; empty if it has not.
        last_identity: who it was when it was somebody last, for the log.
        credential: by what it has logged in, for :class:`~pubsubd.broker.logins.Access` to tell
            whether that still holds; None if it cannot be taken back.
        expires_at: until when it may stay logged in, in seconds since the epoch; None for ever.
        permission: what it may publish and receive; None for everything.
        publish_filter: what it publishes by; None if, and only if, ``permission`` is.
        trusted: whether it may do everything, whatever the rules: it is another daemon.
        requests: how many requests it may make; None if it has made none.
        refusals: what has been refused to it; None if nothing has.
        failures: how often its login has failed.
        outside_since: since when it has had to log in; None if it has not, or has just come.
        job: what has to be done before more of its input is; its owner's, once it is there.
        step: the answer that is being made for it, in steps; more of its input waits for that.
    """

    remote = False

    __slots__ = (
        "busy",
        "bytes_in",
        "bytes_out",
        "credential",
        "dropped",
        "echo",
        "end",
        "ending",
        "enqueue",
        "expected",
        "expires_at",
        "failures",
        "gone",
        "hub",
        "identity",
        "job",
        "joined",
        "label",
        "large",
        "last_identity",
        "link",
        "listener",
        "lost",
        "messages_in",
        "messages_out",
        "missing",
        "names",
        "noted",
        "number",
        "outbox",
        "outside_since",
        "parts",
        "patterns",
        "pending",
        "permission",
        "publish_filter",
        "refusals",
        "relayed",
        "render",
        "requests",
        "send",
        "sibling",
        "step",
        "strain",
        "substrings",
        "trusted",
        "vouched",
        "width",
    )

    def __init__(
        self,
        number: int,
        label: str,
        send: Callable[[bytes | Pieces], None],
        end: Callable[[str, str], None] = stay,
        listener: ListenerState = DEFAULT,
        joined: float = 0.0,
    ) -> None:
        self.number = number
        self.joined = joined
        self.listener = listener
        self.label = label
        self.send = send
        self.end = end
        self.gone: Callable[[], None] | None = None
        self.link: Link | None = None
        self.relayed = self.sibling = False
        self.vouched = 0
        self.echo = True
        self.busy = False
        self.strain: Callable[[Any], None] | None = None
        self.messages_in = self.messages_out = self.bytes_in = self.bytes_out = 0
        self.noted = _NOTED  # one for all: there may be thousands
        self.dropped = 0
        self.substrings: set[bytes] = set()
        self.names: set[bytes] | None = None
        self.patterns: set[Pattern] | None = None
        self.pending: list[bytes] = []
        self.enqueue = self.pending.append
        self.outbox = Outbox()
        self.parts = [b"\n"]
        self.missing = 1
        self.large = b""
        self.expected = 0
        self.width = 0
        self.ending: ProtocolError | None = None
        self.hub: HubSide | None = None
        self.identity: str | None = None
        self.last_identity: str | None = None
        self.lost = ""
        self.credential: object = None
        self.expires_at: float | None = None
        self.permission: Permission | None = None
        self.publish_filter: PublishFilter | None = None
        self.trusted = False
        self.refusals: Refusals | None = None
        self.failures = 0
        self.outside_since: float | None = None
        self.job: Job | None = None
        self.step: Steps[bytes | None] | None = None
        self.render: Callable[[bytes], bool] | None = None
        self.requests: Bucket | None = None

    def discard_all(self) -> None:
        """Throw away whatever it is given from now on, because it is leaving."""
        self.send, self.end = discard, stay
        if self.render is not None:
            self.render = _discard

    def release(self) -> None:
        """Let go of all that is held for a peer that has left and is closed."""
        self.discard_all()
        self.pending.clear()
        self.job = self.step = self.hub = None
        self.parts.clear()
        self.large = b""
        self.outbox = Outbox()

    @property
    def wanted(self) -> int:
        """Bytes to read at once: while large frames come, up to where one of them ends."""
        if not self.expected:
            return READ_SIZE
        missing = self.missing if self.large else 0
        more = max(0, -((missing - LARGE_READ) // self.expected))
        return min(missing + more * self.expected, MAX_READ)

    @property
    def halfway(self) -> bool:
        """Whether part of a command has come and the rest has not."""
        return bool(self.large) or sum(map(len, self.parts)) > 1


def address(peer: Peer) -> str:
    """Return the address of a peer that has registered none: where it comes from."""
    if peer.relayed:
        return peer.label
    return f"unix/{peer.number}" if peer.label == "unix" else f"tcp/{peer.label}"


def discard(data: bytes | Pieces) -> None:
    """Take what is sent to a peer that is closed."""
