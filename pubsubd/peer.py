"""What the broker knows of a connection, whatever it speaks, without I/O."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from pubsubd.errors import ProtocolError
from pubsubd.limits import MAX_READ, READ_SIZE
from pubsubd.outbox import Outbox, Pieces
from pubsubd.terms import DEFAULT, Terms
from pubsubd.wildcards import Pattern


def stay(code: str, text: str) -> None:
    """End nothing: for peers that nobody can close."""


class Link(Protocol):
    """What takes the input of a peer that is another daemon.

    Attributes:
        dropped: batches for it that were dropped, because it was too slow.
    """

    dropped: int

    def receive(self, data: bytes) -> bool:
        """Work off what was read; see :meth:`pubsubd.broker.Broker.receive`."""


class Peer:
    """A connection, as the broker sees it.

    Attributes:
        number: counts the connections since the start, from 1.
        label: what it is called in logs, for example ``127.0.0.1:50312``.
        substrings, names, patterns: what it subscribes; the router's. Most peers have substrings
            only: the others are None until there are some.
        fresh: frames put during the present read.
        put: ``fresh.append``, bound once.
        send: hands over whole frames at the end of a read; never blocks; set by the owner.
        outbox: what could not be sent at once; the owner's.
        parts, missing: input that is not worked off; bytes without which nothing can be.
        large: the header, with the LF before it, of a frame larger than a read, if ``parts``
            are the beginning of one; they are without that LF then.
        expected: length of the large frame that was the last thing to come, or 0; another one
            of its kind may follow.
        ending: why the connection has to be closed, once it has.
        end: asks its owner to close it, for a code and a text; set by the owner.
        gone: called once it has left, if somebody has to know.
        link: what takes its input, if it is a link to another daemon, or is becoming one.
        relayed: whether its input is what a link has brought from another daemon.
        echo: whether it gets what it has published itself, if it subscribes that.
        busy: whether it is not read at present, because others have to be waited for.
        remote: False: it is not another daemon that is reached over links.
        terms: what holds for it, as for all connections of its listener.
    """

    remote = False

    __slots__ = (
        "busy",
        "echo",
        "end",
        "ending",
        "expected",
        "fresh",
        "gone",
        "label",
        "large",
        "link",
        "missing",
        "names",
        "number",
        "outbox",
        "parts",
        "patterns",
        "put",
        "relayed",
        "send",
        "substrings",
        "terms",
        "width",
    )

    def __init__(
        self,
        number: int,
        label: str,
        send: Callable[[bytes | Pieces], None],
        end: Callable[[str, str], None] = stay,
        terms: Terms = DEFAULT,
    ) -> None:
        self.number = number
        self.terms = terms
        self.label = label
        self.send = send
        self.end = end
        self.gone: Callable[[], None] | None = None
        self.link: Link | None = None
        self.relayed = False
        self.echo = True
        self.busy = False
        self.substrings: set[bytes] = set()
        self.names: set[bytes] | None = None
        self.patterns: set[Pattern] | None = None
        self.fresh: list[bytes] = []
        self.put = self.fresh.append
        self.outbox = Outbox()
        self.parts = [b"\n"]
        self.missing = 1
        self.large = b""
        self.expected = 0
        self.width = 0
        self.ending: ProtocolError | None = None

    def release(self) -> None:
        """Let go of all that is held for a peer that has left and is closed."""
        self.send = _discard
        self.fresh.clear()
        self.parts.clear()
        self.large = b""
        self.outbox = Outbox()

    @property
    def wanted(self) -> int:
        """Bytes to read at once: of large frames no more than one, so that it ends the read."""
        return max(READ_SIZE, min(self.missing if self.large else self.expected, MAX_READ))

    @property
    def halfway(self) -> bool:
        """Whether part of a command has come and the rest has not."""
        return bool(self.large) or sum(map(len, self.parts)) > 1


def _discard(data: bytes | Pieces) -> None:
    """Take what is sent to a peer that is closed."""
