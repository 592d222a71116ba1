"""A worker: connections that come and go, of which some do not behave.

Most of them do what clients do: connect, subscribe, publish, hear that it was carried out, leave.
Every hundredth does not: it stops reading in the middle of a flood, resets the connection with
input unread, says half of something and then nothing, or says what makes no sense. It is told
``run`` (how many, and for how many seconds) and ``report``.
"""

from __future__ import annotations

import json
import random
import select
import socket
import ssl
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from .streams import COPIED, errors
from .wires import (
    KIB,
    MIB,
    Address,
    frame,
    hub_subscribe,
    open_websocket,
    over,
    reset,
    synap_publish,
    synap_subscribe,
)
from .workers import Told

_BATCH = 10  # connections that are open at once
_HELD = 20.0  # seconds that those who stop or say half of something stay at most

GARBAGE: dict[str, tuple[bytes, set[str]]] = {
    "no command": (b"hello world\n", {"unknown-command"}),
    "noise": (bytes(range(256)) * 8 + b"\n", {"unknown-command", "line-too-long"}),
    "a wrong length": (b"pub a 3 abcdef\n", {"wrong-length"}),
    "a length of words": (b"pub a many x\n", {"bad-length"}),
    "a huge length": (b"pub a 9999999999 x\n", {"payload-too-large"}),
    "a longer length": (b"pub a %b x\n" % (b"9" * 25), {"bad-length"}),
    "an endless line": (b"sub " + b"a" * 3000, {"line-too-long"}),
    "HTTP": (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", {"http-request"}),
    "a wrong login": (
        frame(b"//pubsubd/auth", b"ann wrong"),
        {"login-failed", "login-throttled"},
    ),
}
"""What is said on the line port that makes no sense -> codes of which one has to be told."""

HUB_GARBAGE: dict[str, tuple[bytes, bytes]] = {
    "no JSON": (b"{no json\n", b"bad-json"),
    "deep JSON": (b'{"a":' + b"[" * 5000 + b"\n", b"bad-json"),
    "a key twice": (b'{"type":"ping","type":"ping"}\n', b"bad-json"),
    "no HTTP": (b"\x00\x01\x02\r\n\r\n", b"400"),
    "an endless head": (b"GET / HTTP/1.1\r\nX: " + b"x" * 70_000, b"431"),
    "a path that is not there": (b"GET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n", b"404"),
}
"""The same on the hub port -> what has to be in the answer."""


@dataclass
class Crowd:
    """What became of them.

    Attributes:
        kinds: how many there were of each kind.
        wrong: what was not as it should be.
        codes: errors that those on the line port were told.
        messages: that were published.
    """

    kinds: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    codes: Counter[str] = field(default_factory=Counter)
    messages: int = 0


class _SubscriberSet:
    def __init__(self, told: Told, lines: list[Address], hubs: list[Address], seed: int) -> None:
        self._told = told
        self._lines, self._hubs = lines, hubs
        self._rng = random.Random(seed)
        self._held: list[tuple[float, socket.socket, str]] = []
        self._number = 0
        self._of: dict[int, int] = {}  # descriptor -> number
        self.crowd = Crowd()

    def serve(self) -> None:
        self._told.answer()
        while True:
            word, *arguments = self._told.hear()
            self._told.answer(getattr(self, "do_" + word)(*arguments))

    def do_run(self, count: int, seconds: float) -> None:
        """Let so many come and go in so many seconds, evenly."""
        begun = time.monotonic()
        done = 0
        while done < count:
            batch = min(_BATCH, count - done)
            self._come(batch)
            done += batch
            self._look_after()
            ahead = begun + seconds * done / count - time.monotonic()
            if ahead > 0:
                time.sleep(ahead)

    def do_report(self) -> Crowd:
        """Let all leave, and tell what became of them."""
        for _, sock, kind in self._held:
            self._let_go(sock, kind)
        self._held.clear()
        return self.crowd

    # Those who behave

    def _come(self, count: int) -> None:
        """Let some come at once, say what they have to say, hear the answer and leave."""
        waiting = []
        for _ in range(count):
            self._number += 1
            if self._number % 100 == 99:
                self._misbehave()
                continue
            kind = self._rng.choice(("line", "line", "line", "ndjson", "ws"))
            where = self._rng.choice(self._lines if kind == "line" else self._hubs)
            self.crowd.kinds[kind] += 1
            try:
                sock = where.connect()
                due = getattr(self, f"_say_{kind}")(sock)
            except OSError as error:
                self._complain(kind, f"cannot connect: {error!r}")
                continue
            self._of[sock.fileno()] = self._number
            waiting.append((kind, sock, due))
        for kind, sock, due in waiting:
            heard = self._hear(sock, due)
            if not heard.endswith(due) and due not in heard:
                self._complain(kind, f"heard {heard[-200:]!r} and not {due!r}")
            # Who shuts down just the sending side goes on listening (as nc -N does), and who closes
            # both looks the same until something is sent to him; so he takes back what he has
            # subscribed, or resets the connection as pubsubd.client does.
            if kind == "ws" or self._take_back(kind, sock):
                sock.close()
            else:
                reset(sock)

    def _say_line(self, sock: socket.socket) -> bytes:
        name = b"crowd/%d" % self._number
        pong = frame(b"//pubsubd/ping", b"%d" % self._number)
        sock.sendall(
            b"sub %b\nsub other/%b\n" % (name, name)
            + frame(name, b"x" * self._rng.randrange(2000))
            + frame(b"//" + name, b"hello")
            + b"unsub other/%b\n" % name
            + pong
        )
        self.crowd.messages += 2
        return pong

    def _say_ndjson(self, sock: socket.socket) -> bytes:
        name = f"crowd/{self._number}"
        sock.sendall(
            over(
                "ndjson",
                synap_subscribe(name, f"crowd.{self._number}.*"),
                synap_publish(name, "hello"),
                b'{"type":"ping"}',
            )
        )
        self.crowd.messages += 1
        return b'{"type":"pong"}\n'

    def _say_ws(self, sock: socket.socket) -> bytes:
        open_websocket(sock)
        sock.sendall(over("ws", hub_subscribe(f"crowd/{self._number}/#"), b'{"type":"ping"}'))
        return b'{"type":"pong"}'

    def _take_back(self, kind: str, sock: socket.socket) -> bool:
        if kind != "line" or self._rng.random() < 0.3:
            return False
        sock.sendall(b"unsub crowd/%d\n" % self._of[sock.fileno()])
        return True

    @staticmethod
    def _hear(sock: socket.socket, due: bytes) -> bytes:
        heard = b""
        try:
            while due not in heard[-len(due) - 2048 :]:
                part = sock.recv(64 * KIB)
                if not part:
                    break
                heard += part
        except OSError as error:
            heard += repr(error).encode()
        return heard

    # Those who do not

    def _misbehave(self) -> None:
        kinds: dict[str, Callable[[], None]] = {
            "stopped": self._stop,
            "reset": self._break_off,
            "half-open": self._say_half,
            "hostile": self._say_nonsense,
        }
        kind = list(kinds)[self._number // 100 % 4]
        self.crowd.kinds[kind] += 1
        try:
            kinds[kind]()
        except OSError as error:
            self._complain(kind, repr(error))

    def _stop(self) -> None:
        """Listen to the flood, and never read."""
        where = self._rng.choice(self._lines)
        sock = Address(where.where, where.ca, buffer=4 * KIB).connect()
        sock.sendall(b"sub %b\n" % COPIED)
        self._hold(sock, "stopped")

    def _break_off(self) -> None:
        """Leave with a reset, with input unread and output unsent."""
        sock = self._rng.choice(self._lines).connect()
        sock.sendall(b"sub %b\npub crowd/%d 1000 half" % (COPIED, self._number))
        select.select([sock], [], [], 0.05)
        reset(sock)

    def _say_half(self) -> None:
        which = self._rng.randrange(4)
        where = self._rng.choice(self._lines if which < 2 else self._hubs)
        plain = Address(where.where)
        if which == 0:
            sock = plain.connect()  # where TLS is spoken this is half a handshake
        elif which == 1:
            sock = where.connect()
            sock.sendall(b"pub crowd/half 1000000 " + b"x" * 1000)
        elif which == 2:
            sock = where.connect()
            sock.sendall(b'{"command":"pubsub.publ')
        else:
            sock = where.connect()
            sock.sendall(b"GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgr")
        self._hold(sock, "half-open")

    def _say_nonsense(self) -> None:
        if self._rng.random() < 0.5:
            what = self._rng.choice(list(GARBAGE))
            said, codes = GARBAGE[what]
            sock = self._rng.choice(self._lines).connect()
            sock.sendall(said)
            sock.shutdown(socket.SHUT_WR) if not isinstance(sock, ssl.SSLSocket) else None
            told = errors(self._hear(sock, b"pub //pubsubd/error"))[0]
            self.crowd.codes.update(told[:1])
            if not codes & set(told):
                self._complain(what, f"told {told}")
        else:
            what = self._rng.choice(list(HUB_GARBAGE))
            said, due = HUB_GARBAGE[what]
            sock = self._rng.choice(self._hubs).connect()
            sock.sendall(said)
            heard = self._hear(sock, due)
            if due not in heard:
                self._complain(what, f"heard {heard[-200:]!r}")
        sock.close()

    def _hold(self, sock: socket.socket, kind: str) -> None:
        self._held.append((time.monotonic() + _HELD, sock, kind))

    def _look_after(self) -> None:
        now = time.monotonic()
        while self._held and now >= self._held[0][0]:
            _, sock, kind = self._held.pop(0)
            self._let_go(sock, kind)

    def _let_go(self, sock: socket.socket, kind: str) -> None:
        if kind == "stopped":
            self.crowd.kinds[
                "cut for being stopped" if self._ended(sock) else "not cut for being stopped"
            ] += 1
        reset(sock)

    @staticmethod
    def _ended(sock: socket.socket) -> bool:
        """Whether the daemon has closed the connection, behind all that it had sent before."""
        sock.settimeout(0)
        try:
            while sock.recv(MIB):
                pass
        except (BlockingIOError, ssl.SSLWantReadError):
            return False
        except OSError:
            pass
        return True

    def _complain(self, kind: str, what: str) -> None:
        if len(self.crowd.wrong) < 20:
            self.crowd.wrong.append(json.dumps(f"{kind}: {what}")[1:300])


def crowd(told: Told, lines: list[Address], hubs: list[Address], seed: int) -> None:
    """Come and go; see the module."""
    _SubscriberSet(told, lines, hubs, seed).serve()
