"""What only a trusted proxy says, and whoever comes through one that does not check it."""

from __future__ import annotations

import time

from soaklib.wires import frame

from .attack import attack
from .parts import repeated
from .stage import Stage

_V2 = b"\r\n\r\n\0\r\nQUIT\n"
_LONGEST = 4_096 - 16  # bytes behind the first 16 of a PROXY header


def _header(size: int = _LONGEST) -> bytes:
    """Return a PROXY header of version 2 from 192.0.2.1, with so many bytes after the first 16."""
    addresses = bytes([192, 0, 2, 1, 192, 0, 2, 2, 0, 80, 0, 90])
    return _V2 + b"\x21\x11" + size.to_bytes(2) + addresses.ljust(size, b"\x04")


@attack("proxy-headers", daemon="proxied", crowd=True)
def proxy_headers(stage: Stage) -> None:
    """Sends the longest PROXY headers, on ever new connections."""
    end = frame(b"//pubsubd/ping", b"the end")
    stage.flood(stage.line, [_header() + end], once=True, done=end, count=max(4, stage.count))


@attack("proxy-header-bytes", "handshake_timeout", daemon="proxied")
def proxy_header_bytes(stage: Stage) -> None:
    """Sends PROXY headers byte by byte, on 500 connections at once."""
    header = _header()
    socks = [stage.hold(stage.line()) for _ in range(stage.scaled(500))]
    stage.begin()
    for at in range(len(header) - 1):
        for sock in socks:
            if not stage.on:
                return
            try:
                stage.effort.sent += sock.send(header[at : at + 1])
            except OSError:  # its time is over
                time.sleep(0.001)
        stage.drain(0.0)


@attack("proxy-header-faults", daemon="proxied", crowd=True)
def proxy_header_faults(stage: Stage) -> None:
    """Sends PROXY headers that cannot be read, on ever new connections."""
    parts = [b"PROXY TCP4 x x 1 1\r\n", b"PROXY ".ljust(110, b"x"), _V2 + b"\x21\x11\xff\xff"]
    end = b"bad-proxy-header"
    stage.flood(stage.line, parts, once=True, done=end, count=max(6, stage.count))


@attack("forwarded", daemon="proxied", crowd=True)
def forwarded(stage: Stage) -> None:
    """Asks over HTTP, with headers of 8,000 bytes that say where from."""
    head = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"
    chain = b",".join([b"192.0.2.%d" % n for n in range(31)])
    node = b'Forwarded: by="' + b"\\x" * 3_500 + b'";' + b";".join([b"proto=http"] * 80)
    hops = b"X-Forwarded-For: " + chain + b"\r\n"
    stage.flood(stage.hub, repeated(head + node + b"\r\n\r\n" + head + hops + b"\r\n"))
