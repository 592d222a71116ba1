"""Where to connect and how, and what is said there."""

from __future__ import annotations

import functools
import json
import socket
import ssl
import struct
import time
from dataclasses import dataclass
from typing import Any

from benchlib.websocket import TEXT, client_frame, upgrade

PATIENCE = 120.0
"""Seconds after which something that is waited for will not come any more."""

KIB = 1024
MIB = 1024 * KIB


class SoakError(Exception):
    """Something that has to be there for a scenario is not."""


def frame(name: bytes, data: bytes) -> bytes:
    """Return a ``pub`` command."""
    return b"pub %b %d %b\n" % (name, len(data), data)


@functools.cache
def client_context(ca: str, certificate: str | None, key: str | None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=ca)
    if certificate is not None:
        context.load_cert_chain(certificate, key)
    return context


@dataclass(frozen=True)
class Address:
    """Where to connect and how.

    Attributes:
        where: host and port, or the path of a Unix socket.
        ca: the authority of its certificate, if TLS is spoken there.
        certificate, key: what to show then.
        login: name and secret to log in with, on the line port.
        buffer: bytes of the receive buffer; None for what the system gives.
    """

    where: tuple[str, int] | str
    ca: str | None = None
    certificate: str | None = None
    key: str | None = None
    login: str | None = None
    buffer: int | None = None

    def connect(self, timeout: float = PATIENCE) -> socket.socket:
        """Return a connection that blocks; raises OSError if there is none."""
        family = socket.AF_UNIX if isinstance(self.where, str) else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.settimeout(timeout)
            if self.buffer is not None:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self.buffer)
            sock.connect(self.where)
            if family == socket.AF_INET:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self.ca is not None:
                context = client_context(self.ca, self.certificate, self.key)
                sock = context.wrap_socket(sock, server_hostname="localhost")
            if self.login is not None:
                self._log_in(sock, self.login)
        except BaseException:
            sock.close()
            raise
        return sock

    @staticmethod
    def _log_in(sock: socket.socket, login: str) -> None:
        sock.sendall(frame(b"//pubsubd/auth", login.encode()))
        answer = b""
        while not answer.endswith(b"\n"):
            part = sock.recv(4096)
            if not part:
                break
            answer += part
        if b" ok " not in answer:
            raise ConnectionError(f"the login was not taken: {answer!r}")


class Line:
    """A connection to the line port that blocks, for what a scenario does by itself."""

    def __init__(self, address: Address, timeout: float = PATIENCE) -> None:
        self.sock = address.connect(timeout)
        self._heard = b""
        self._pings = 0

    def say(self, data: bytes) -> None:
        self.sock.sendall(data)

    def hear_until(self, ending: bytes) -> bytes:
        """Return everything up to and with ``ending``; raises ConnectionError at the end."""
        parts, tail = [self._heard], self._heard
        while ending not in tail:
            part = self.sock.recv(MIB)
            if not part:
                self._heard = b"".join(parts)
                raise ConnectionError(f"closed, after {self._heard[-200:]!r}")
            parts.append(part)
            tail = tail[-len(ending) :] + part
        everything = b"".join(parts)
        stop = everything.index(ending) + len(ending)
        self._heard = everything[stop:]
        return everything[:stop]

    def hear_end(self) -> bytes:
        """Return everything up to the end of the stream, or to a reset."""
        parts = [self._heard]
        self._heard = b""
        try:
            while part := self.sock.recv(MIB):
                parts.append(part)
        except ConnectionError:
            pass
        return b"".join(parts)

    def ping(self) -> bytes:
        """Wait until all that was said is carried out; return what came before the answer."""
        self._pings += 1
        answer = frame(b"//pubsubd/ping", b"-- %d --" % self._pings)
        self.say(answer)
        return self.hear_until(answer)[: -len(answer)]

    def request(self, what: str) -> dict[str, Any]:
        """Return the answer to ``//pubsubd/<what>``; nothing else may be due.

        Raises:
            ConnectionError: the daemon answers with an error, or not at all.
        """
        self.say(frame(b"//pubsubd/" + what.encode(), b""))
        head = self.hear_until(b" ") + self.hear_until(b" ") + self.hear_until(b" ")
        if head.split(b" ")[1] == b"//pubsubd/error":
            error = self.hear_until(b"\n")
            raise ConnectionError(f"{what}: {error!r}")
        size = int(head.split(b" ")[2])
        while len(self._heard) < size:
            part = self.sock.recv(MIB)
            if not part:
                raise ConnectionError("closed in an answer")
            self._heard += part
        body, self._heard = self._heard[:size], self._heard[size:]
        told: dict[str, Any] = json.loads(body)
        return told

    def close(self) -> None:
        self.sock.close()

    def __enter__(self) -> Line:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def reset_at_end(sock: socket.socket) -> None:
    """Let closing be a reset, so that nobody takes it for the end of what is said alone."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def reset(sock: socket.socket) -> None:
    """Close with a reset, as a process that crashes with unread input does."""
    reset_at_end(sock)
    sock.close()


# What clients of the hub port say


def compact(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def synap_subscribe(*topics: str) -> bytes:
    return compact(
        {"command": "pubsub.subscribe", "request_id": "s", "payload": {"topics": list(topics)}}
    )


def hub_subscribe(topic: str) -> bytes:
    return compact({"type": "hub:subscribe", "payload": {"topic": topic}})


def synap_publish(topic: str, payload: str) -> bytes:
    return compact(
        {
            "command": "pubsub.publish",
            "request_id": "p",
            "payload": {"topic": topic, "payload": payload},
        }
    )


def over(kind: str, *texts: bytes) -> bytes:
    """Return JSON texts as they are sent: ``ndjson`` or ``ws``."""
    if kind == "ndjson":
        return b"".join(text + b"\n" for text in texts)
    return b"".join(client_frame(TEXT, text) for text in texts)


def open_websocket(sock: socket.socket, path: str = "/ws") -> bytes:
    """Upgrade a connection to the hub port; return what came after that."""
    sock.sendall(upgrade(9015, path))
    heard = b""
    while b"\r\n\r\n" not in heard:
        part = sock.recv(4096)
        if not part:
            raise ConnectionError(f"no WebSocket: {heard!r}")
        heard += part
    if b" 101 " not in heard[:20]:
        raise ConnectionError(f"no WebSocket: {heard!r}")
    return heard.partition(b"\r\n\r\n")[2]


def wait_until(seen: Any, what: str, patience: float = PATIENCE, tick: float = 0.01) -> float:
    """Wait until ``seen()`` is true; return the seconds that this took. Raises SoakError."""
    begun = time.monotonic()
    while not seen():
        if time.monotonic() - begun > patience:
            raise SoakError(f"waited {patience:g} s in vain: {what}")
        time.sleep(tick)
    return time.monotonic() - begun
