"""Who receives what is said on the line port: many, slow ones, and those of others."""

from __future__ import annotations

import socket

from soaklib.wires import KIB, MIB, Address, frame

from .attack import attack
from .bounds import PAYLOAD, PENDING, SEND, STALL
from .parts import READ, repeated
from .stage import Stage

_SMALL = 4 * KIB  # bytes of a receive buffer, so that what is not read waits in the daemon


def _lazy(stage: Stage) -> socket.socket:
    """Return a connection that can take little without being read."""
    where = stage.place.line
    return stage.connect(Address(where.where, where.ca, buffer=_SMALL))


@attack("alternating-1000", crowd=True)
def alternating(stage: Stage) -> None:
    """Publishes two names in turn that 1,000 clients each receive."""
    stage.crowd(1_000, stage.line, lambda number: b"sub b1\nsub b2\n" if number else b"sub b1\n")
    stage.flood(stage.line, repeated(frame(b"b1", b"") + frame(b"b2", b"")))


@attack("one-name-1000", crowd=True)
def one_name(stage: Stage) -> None:
    """Publishes one name that 1,000 clients receive."""
    stage.crowd(1_000, stage.line, lambda _: b"sub b1\n")
    stage.flood(stage.line, repeated(frame(b"b1", b"")))


@attack("many-names-1000")
def many_names(stage: Stage) -> None:
    """Publishes 1,000 names in turn that 1,000 clients each receive."""
    stage.crowd(1_000, stage.line, lambda number: b"sub bb\nsub b%d.\n" % number)
    said = b"".join(frame(b"bb.b%d." % i, b"") for i in range(1_000))
    stage.flood(stage.line, [said * 10])


@attack("large-to-1000", "max_payload", crowd=True, each=PAYLOAD, table=2 * PENDING)
def large_to_many(stage: Stage) -> None:
    """Publishes 1 MiB to 1,000 clients that read."""
    stage.crowd(1_000, stage.line, lambda _: b"sub big\n")
    stage.flood(stage.line, [frame(b"big", b"." * MIB)])


@attack("large-unread", "max_payload", "max_pending", table=4 * PENDING)
def large_unread(stage: Stage) -> None:
    """Publishes 1 MiB to 500 clients that never read; it is kept once for all."""
    for _ in range(500):
        _lazy(stage).sendall(b"sub big\n")
    stage.flood(stage.line, [frame(b"big", b"." * MIB)])


@attack("backlogs", "max_pending", "stall_timeout", table=100 * PENDING)
def backlogs(stage: Stage) -> None:
    """Fills the backlogs of 100 clients that never read, each with messages of its own."""
    for number in range(100):
        _lazy(stage).sendall(b"sub own/%d/\n" % number)
    said = b"".join(frame(b"own/%d/" % i, (b"%d" % i).ljust(16 * KIB, b".")) for i in range(100))
    stage.flood(stage.line, [said])


@attack("listeners-in", "stall_budget", "max_pending", table=20 * PENDING, delay=STALL)
def listeners_in(stage: Stage) -> None:
    """Receives what others publish, with 20 full backlogs, and reads a little now and then."""
    socks = []
    for number in range(20):
        sock = _lazy(stage)
        sock.sendall("sub ψ\n".encode() + b"sub own/%d/\n" % number)
        sock.setblocking(False)
        socks.append(sock)

    def sip() -> None:
        for sock in socks:
            try:
                sock.recv(READ)
            except OSError:
                continue

    stage.chore(0.1, sip)
    said = b"".join(frame(b"own/%d/" % i, b"." * 16 * KIB) for i in range(20))
    stage.flood(stage.line, [said])


@attack("stalled-in", "stall_timeout", "max_pending", table=20 * PENDING, delay=STALL)
def stalled_in(stage: Stage) -> None:
    """Receives what others publish, and never reads, on ever new connections."""
    for number in range(20):
        sock = _lazy(stage)
        sock.sendall("sub ψ\n".encode() + b"sub own/%d/\n" % number)
    said = b"".join(frame(b"own/%d/" % i, b"." * 16 * KIB) for i in range(20))
    stage.flood(stage.line, [said])


# A probe hears its message early and sends the next one while the last one goes out to the rest,
# and so does the other probe: up to four are ahead of what it waits for.
@attack("receive-all-1000", delay=4 * 1_000 * SEND)
def receive_all(stage: Stage) -> None:
    """Receives what others publish, on 1,000 connections that read."""
    stage.crowd(1_000, stage.line, lambda _: "sub ψ\n".encode())
    stage.wait()
