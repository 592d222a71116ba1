"""Connections: many, short ones, half ones, and those with TLS."""

from __future__ import annotations

import _ssl
import contextlib
import ctypes
import socket
import ssl
import time

from soaklib.wires import MIB, Address, reset

from .attack import attack
from .bounds import END, HANDSHAKE
from .stage import Stage

_HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"  # how a handshake begins


def _storm(stage: Stage, address: Address, said: bytes, *, abruptly: bool) -> None:
    """Connect, say something and leave, as fast as it goes."""
    while stage.on:
        try:
            sock = address.connect(1.0)
        except OSError:
            time.sleep(0.01)
            continue
        stage.effort.opened += 1
        try:
            if said:
                sock.sendall(said)
        except OSError:
            pass
        if abruptly:
            reset(sock)
        else:
            sock.close()


@attack("connects", "max_connections")
def connects(stage: Stage) -> None:
    """Connects and leaves without a word, as fast as it can."""
    _storm(stage, stage.place.line, b"", abruptly=False)


@attack("connects-hub", "max_connections")
def connects_hub(stage: Stage) -> None:
    """Connects to the hub port and leaves without a word, as fast as it can."""
    _storm(stage, stage.place.hub, b"", abruptly=False)


@attack("resets")
def resets(stage: Stage) -> None:
    """Connects, says half a command, and resets the connection."""
    _storm(stage, stage.place.line, b"sub a\npub a 100 half", abruptly=True)


@attack("resets-hub")
def resets_hub(stage: Stage) -> None:
    """Connects to the hub port, subscribes, says half a message, and resets the connection."""
    said = b'{"command":"pubsub.subscribe","payload":{"topics":["a","b.*"]}}\n{"comm'
    _storm(stage, stage.place.hub, said, abruptly=True)


@attack("idle-5000", "max_connections", delay=2 * 5_000 * END)
def idle(stage: Stage) -> None:
    """Holds 5,000 connections to each port, all of which leave at once."""
    address: Address
    for address in (stage.place.line, stage.place.hub):
        for _ in range(stage.scaled(5_000)):
            stage.hold(stage.connect(address))
    stage.wait()


@attack("half-closed")
def half_closed(stage: Stage) -> None:
    """Closes its sending side on 1,000 connections, and lets them receive."""
    for number in range(1_000):
        sock = stage.line()
        sock.sendall(b"sub half/%d\nsub all\n" % (number % 10))
        sock.shutdown(socket.SHUT_WR)
        stage.hold(sock)
    stage.flood(stage.line, [b"pub all 0 \npub half/1 0 \n" * 100])


@attack("handshakes", "handshake_timeout", daemon="tls", crowd=True)
def handshakes(stage: Stage) -> None:
    """Shakes hands for TLS and leaves, over and over."""
    assert stage.place.secure is not None
    while stage.on:
        try:
            reset(stage.place.secure.connect(2.0))
        except OSError:
            continue
        stage.effort.opened += 1


@attack("half-handshakes", "handshake_timeout", daemon="tls", table=3_000 * HANDSHAKE)
def half_handshakes(stage: Stage) -> None:
    """Begins 3,000 handshakes that do not go on."""
    assert stage.place.secure is not None
    plain = Address(stage.place.secure.where)
    for _ in range(stage.scaled(3_000)):
        sock = stage.connect(plain)
        sock.sendall(_HELLO)
        stage.hold(sock)
    stage.wait()


@attack("bad-handshakes", daemon="tls")
def bad_handshakes(stage: Stage) -> None:
    """Says what is no handshake where TLS is spoken, as fast as it can."""
    assert stage.place.secure is not None
    _storm(stage, Address(stage.place.secure.where), b"GET / HTTP/1.1\r\n\r\n", abruptly=True)


@attack("small-records", daemon="tls")
def small_records(stage: Stage) -> None:
    """Says commands over TLS in records of a few bytes."""
    assert stage.place.secure is not None
    secure = stage.place.secure
    sock = stage.connect(secure)
    stage.hold(sock)
    while stage.on:
        try:
            stage.effort.sent += sock.send(b"pub a 0 \n")
        except (BlockingIOError, OSError):
            time.sleep(0.001)


@attack("key-updates", daemon="tls")
def key_updates(stage: Stage) -> None:
    """Changes its keys over TLS, 5,000 times in one piece, over and over, and says nothing."""
    assert stage.place.secure is not None
    library = ctypes.CDLL(_ssl.__file__)
    update, go_on = library.SSL_key_update, library.SSL_do_handshake
    update.argtypes, go_on.argtypes = [ctypes.c_void_p, ctypes.c_int], [ctypes.c_void_p]
    sock = stage.connect(Address(stage.place.secure.where))
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context(cafile=stage.place.secure.ca)
    context.check_hostname = False
    spoken = context.wrap_bio(incoming, outgoing)
    while True:
        with contextlib.suppress(ssl.SSLWantReadError):
            spoken.do_handshake()
            break
        sock.sendall(outgoing.read())
        incoming.write(sock.recv(MIB))
    # CPython has the connection of OpenSSL behind its own head and a reference.
    own = spoken._sslobj  # type: ignore[attr-defined]
    connection = ctypes.c_void_p.from_address(id(own) + 24).value
    while stage.on:
        for _ in range(5_000):
            update(connection, 0)
            go_on(connection)
        said = outgoing.read()
        sock.sendall(said)
        stage.effort.sent += len(said)
