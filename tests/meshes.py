"""Meshes of real daemons, and wires between them that can be slow, silent or cut.

An edge is written as the two daemons, the one that dials first: ``ab`` is a, started with
``--peer`` and the address of b; ``a~b`` is the same by way of a :class:`Proxy`. Each mesh has a
loopback address of its own, so that ports can be told before the daemons run, and are theirs
again after a restart.

What is waited for is what the daemons say of themselves in ``//pubsubd/peers``. A mesh has
*settled* when each daemon that runs knows exactly the graph that is meant, agrees with the others
on what they want, and sends along trees again; it is *quiet* when two looks one after the other
show the same counters, and all that was sent over a link has come out of it: then nothing is on
its way, and nothing can begin to be.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import itertools
import json
import os
import queue
import random
import re
import signal
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.daemons import DEADLINE, KIB, Daemon, Line, frame, wait_until

HEARTBEAT = 1.0
"""Seconds; after two without one, a link is given up, though its daemon may only be slow."""

_EDGE = re.compile(r"([a-zA-Z])(~?)([a-zA-Z])(\d?)").fullmatch
_HEADER = re.compile(rb"pub ([^ \n]+) ([0-9]+) ").match
_PING = "//pubsubd/ping"
_HEARTBEAT = re.compile(rb"pub //pubsubd/heartbeat [0-9]+ ping ").findall
_LOOK = 0.02  # seconds between two looks at all daemons


class Proxy:
    """A wire between two TCP ends: slow, silent or cut as a test wants it.

    Args:
        target: where what is dialled here goes.
        delay: seconds that anything takes, each way.

    Attributes:
        address: what to dial.
        said: all that those who dialled have said, for tests that repeat it.
        accepted: connections so far.
    """

    def __init__(self, target: tuple[str, int], delay: float = 0.0) -> None:
        self.target = target
        self.delay = delay
        self.said = b""
        self.accepted = 0
        self._swallowing = self._refusing = False
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._listener = socket.create_server((target[0], 0))
        self.address: tuple[str, int] = self._listener.getsockname()
        threading.Thread(target=self._accept, daemon=True).start()

    def heartbeats(self, since: int) -> int:
        """Return how many heartbeats those who dialled have sent since they had said so much."""
        return len(_HEARTBEAT(self.said[since:]))

    def swallow(self) -> None:
        """Lose all bytes from now on, and tell nobody: no connection is closed."""
        self._swallowing = True

    def cut(self) -> None:
        """Close what is open, and whatever is dialled from now on."""
        self._refusing = True
        self._reset()

    def heal(self) -> None:
        """Carry again. Streams with holes in them are reset."""
        self._reset()
        self._swallowing = self._refusing = False

    def close(self) -> None:
        """End."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes accept()
        self._listener.close()
        self.cut()

    def _reset(self) -> None:
        with self._lock:
            for sock in self._open:
                _shut(sock)

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            self.accepted += 1
            threading.Thread(target=self._serve, args=(near,), daemon=True).start()

    def _serve(self, near: socket.socket) -> None:
        """Carry what two ends say to each other until both have ended."""
        with contextlib.ExitStack() as stack:
            ends = [stack.enter_context(near)]
            if not self._refusing and not self._swallowing:
                with contextlib.suppress(OSError):
                    ends.append(stack.enter_context(socket.create_connection(self.target)))
            with self._lock:
                # A wire that swallows lets who dials wait for an answer.
                if self._refusing or (len(ends) == 1 and not self._swallowing):
                    return
                self._open.update(ends)
            back = threading.Thread(target=self._carry, args=[*ends[1:], near], daemon=True)
            if len(ends) > 1:
                back.start()
            self._carry(near, *ends[1:])
            if len(ends) > 1:
                back.join()
            with self._lock:
                self._open.difference_update(ends)

    def _carry(self, source: socket.socket, sink: socket.socket | None = None) -> None:
        """Carry one way until the end."""
        late: queue.SimpleQueue[tuple[float, bytes]] = queue.SimpleQueue()
        writer = threading.Thread(target=self._deliver, args=(late, sink), daemon=True)
        writer.start()
        source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        from_dialler = source.getsockname() == self.address
        part = b"-"
        while part:
            part = b""
            with contextlib.suppress(OSError):
                part = source.recv(64 * KIB)
            if from_dialler:
                self.said += part
            late.put((time.monotonic() + self.delay, part))
        writer.join()

    def _deliver(
        self, late: queue.SimpleQueue[tuple[float, bytes]], sink: socket.socket | None
    ) -> None:
        part = b"-"
        while part:
            due, part = late.get()
            time.sleep(max(0.0, due - time.monotonic()))
            if self._swallowing or sink is None:
                continue  # not even an end is told
            if not part:
                _shut(sink, socket.SHUT_WR)
            with contextlib.suppress(OSError):  # who is gone is seen by the reading side
                sink.sendall(part)


def _shut(sock: socket.socket, how: int = socket.SHUT_RDWR) -> None:
    with contextlib.suppress(OSError):
        sock.shutdown(how)


class Listener:
    """A client that takes all that comes at once, in a thread, and keeps it.

    Args:
        line: its connection.
        substrings: what it subscribes.

    Attributes:
        heard: the messages so far, ``(name, data)``.
    """

    def __init__(self, line: Line, *substrings: str) -> None:
        self._line = line
        self.heard: list[tuple[str, bytes]] = []
        self._asked = self._answered = 0
        line.say(b"".join(b"sub %b\n" % one.encode() for one in substrings))
        line.sock.settimeout(None)
        threading.Thread(target=self._read, daemon=True).start()
        self.catch_up()

    def _read(self) -> None:
        rest = b""
        while True:
            try:
                part = self._line.sock.recv(256 * KIB)
            except OSError:
                return
            if not part:
                return
            found, rest = _split(rest + part)
            self.heard += (one for one in found if one[0] != _PING)
            self._answered += sum(name == _PING for name, _ in found)

    def say(self, data: bytes) -> None:
        """Send."""
        self._line.say(data)

    def catch_up(self) -> list[tuple[str, bytes]]:
        """Return all that its daemon had for it until now, in order."""
        self._asked += 1
        self._line.say(frame(_PING, b""))
        wait_until(lambda: self._answered == self._asked, "an answer to a ping")
        return list(self.heard)

    def take(self) -> list[tuple[str, bytes]]:
        """Return what :meth:`catch_up` does, and forget it."""
        found = self.catch_up()
        del self.heard[: len(found)]
        return found

    def data(self, prefix: str) -> list[bytes]:
        """Return the data of the messages so far whose names begin so."""
        return [data for name, data in self.heard if name.startswith(prefix)]

    def close(self) -> None:
        """Leave, with a reset: a mere end of what it says would be no end of its listening."""
        if self._line.sock.fileno() >= 0:
            _shut(self._line.sock, socket.SHUT_RD)  # wakes the reader
            self._line.vanish()


def _split(stream: bytes) -> tuple[list[tuple[str, bytes]], bytes]:
    """Return the whole messages at the beginning of ``stream``, and what follows them."""
    found = []
    at = 0
    while (match := _HEADER(stream, at)) is not None:
        start = match.end()
        stop = start + int(match[2])
        if stop >= len(stream):
            break
        assert stream[stop : stop + 1] == b"\n", f"cut at {at}: {stream[at : at + 80]!r}"
        found.append((match[1].decode(), stream[start:stop]))
        at = stop + 1
    return found, stream[at:]


class Mesh:
    """Some daemons and what links them.

    Args:
        directory: where they write.
        edges: who dials whom, as the module says; a digit after an edge tells apart equal ones.
        flags: of every daemon.
        nodes: further daemons, which nobody dials and which dial nobody.
        hubs: those that have a hub port.
        delay: of the proxies, in seconds.
        heartbeat: in seconds.

    Attributes:
        addresses: node -> host and port.
        daemons: node -> the daemon, as long as it runs.
        proxies: edge -> proxy.
    """

    def __init__(
        self,
        directory: Path,
        edges: Iterable[str] = (),
        *flags: str,
        nodes: str = "",
        hubs: str = "",
        delay: float = 0.0,
        heartbeat: float = HEARTBEAT,
    ) -> None:
        self._directory = directory
        self._hubs = hubs
        self._flags = ("--mesh-heartbeat", str(heartbeat), *flags)
        self._host, ports = free_address()
        self._dials: dict[str, list[str]] = {}
        self._lines: dict[str, Line] = {}
        self._clients: list[Line | Listener] = []
        self._starts = itertools.count()
        self._gone: list[Daemon] = []
        self.daemons: dict[str, Daemon] = {}
        self.proxies: dict[str, Proxy] = {}
        self.edges = list(edges)
        ends = [(edge, *_ends(edge)) for edge in self.edges]
        names = sorted({*nodes, *(one for _, *both in ends for one in both)})
        self.addresses = {name: (self._host, next(ports)) for name in names}
        for edge, near, far in ends:
            address = self.addresses[far]
            if "~" in edge:
                self.proxies[edge] = Proxy(address, delay)
                address = self.proxies[edge].address
            self._dials.setdefault(near, []).append("{}:{}".format(*address))

    # Its daemons

    @property
    def names(self) -> list[str]:
        """All daemons that it is meant to have."""
        return list(self.addresses)

    def start(self, names: Iterable[str] | None = None, *flags: str, wait: bool = True) -> None:
        """Start daemons, all at once, and wait until they accept, unless told not to."""
        names = list(self.addresses if names is None else names)
        for name in names:
            host, port = self.addresses[name]
            self.daemons[name] = Daemon(
                self._directory / f"{name}{next(self._starts)}",
                *(["--hub-port", "0"] if name in self._hubs else ["--no-hub"]),
                *["--host", host, "--port", str(port), "--node", name, "--mesh", "m"],
                *[word for peer in self._dials.get(name, ()) for word in ("--peer", peer)],
                *self._flags,
                *flags,
                wait=False,
            )
        if wait:
            self.wait_ready()

    def wait_ready(self) -> None:
        """Wait until all that run accept."""
        for daemon in self.daemons.values():
            daemon.wait_ready()

    def kill(self, name: str) -> None:
        """End a daemon as a crash does."""
        self._forget(name).kill()

    def end(self, name: str) -> None:
        """End a daemon as a supervisor does."""
        self._forget(name).stop()

    def restart(self, name: str, *flags: str) -> None:
        """Kill a daemon, and start it again with the same id and address."""
        self.kill(name)
        self.start([name], *flags)

    def _forget(self, name: str) -> Daemon:
        self._drop_line(name)
        daemon = self.daemons.pop(name)
        self._gone.append(daemon)
        return daemon

    def _drop_line(self, name: str) -> None:
        line = self._lines.pop(name, None)
        if line is not None:
            line.close()

    def stop(self) -> None:
        """End everything; fails unless each daemon ends properly and has a proper log."""
        for client in [*self._clients, *self._lines.values()]:
            client.close()
        for daemon in self.daemons.values():
            daemon.signal(signal.SIGTERM)
        failures: list[BaseException] = []
        for daemon in self.daemons.values():
            try:
                assert daemon.wait() == 0, f"ended badly: {daemon.log[-2000:]}"
            except BaseException as error:  # noqa: BLE001  (the others have to end as well)
                failures.append(error)
                daemon.kill()
        for daemon in [*self.daemons.values(), *self._gone]:
            try:
                daemon.check_log()
            except BaseException as error:  # noqa: BLE001  (the others have to end as well)
                failures.append(error)
        for proxy in self.proxies.values():
            proxy.close()
        if failures:
            raise failures[0]

    # Clients

    def dial(self, name: str) -> Line:
        """Return a new connection to a daemon, which is closed with the mesh."""
        line = Line(self.addresses[name])
        self._clients.append(line)
        return line

    def listen(self, name: str, *substrings: str) -> Listener:
        """Return a new subscriber at a daemon."""
        listener = Listener(Line(self.addresses[name]), *substrings)
        self._clients.append(listener)
        return listener

    def publish(self, name: str, *messages: tuple[str, bytes]) -> None:
        """Publish at a daemon, and wait until it has carried that out."""
        line = Line(self.addresses[name])
        try:
            line.say(b"".join(frame(*one) for one in messages))
            assert line.ping() == b""
        finally:
            line.close()

    # What they say of themselves

    def describe(self, name: str) -> dict[str, Any]:
        """Return what a daemon answers to ``//pubsubd/peers``."""
        line = self._line(name)
        line.say(b"pub //pubsubd/peers 0 \n")
        answer, data = line.hear_frame()
        assert answer == "//pubsubd/peers", (answer, data)
        found: dict[str, Any] = json.loads(data)
        return found

    def stats(self, name: str) -> dict[str, Any]:
        """Return a daemon's statistics."""
        return self._line(name).stats()

    def _line(self, name: str) -> Line:
        if name not in self._lines:
            self._lines[name] = Line(self.addresses[name])
        return self._lines[name]

    def describe_all(self) -> dict[str, dict[str, Any]]:
        """Return what all daemons that run answer, by node."""
        return {name: self.describe(name) for name in self.daemons}

    def refused(self, name: str) -> dict[str, int]:
        """Return what a daemon has refused, by code."""
        found: dict[str, int] = self.describe(name)["counters"]["refused"]
        return found

    def links(self, name: str) -> list[str]:
        """Return a daemon's neighbours."""
        return sorted(link["node"] for link in self.describe(name)["links"])

    def counted(self, counter: str) -> int:
        """Return the sum of a counter over all daemons that run."""
        return sum(one["counters"][counter] for one in self.describe_all().values())

    def crossings(self) -> int:
        """Return how many messages have entered links, all links and both directions together."""
        told = self.describe_all().values()
        return sum(link["messages_out"] for one in told for link in one["links"])

    # What is waited for

    def wait_settled(self, but: Iterable[str] = ()) -> dict[str, set[str]]:
        """Wait until the mesh has settled, and return the neighbours of each daemon.

        Args:
            but: edges that are not to be up, besides those of daemons that do not run.
        """
        near: dict[str, set[str]] = {name: set() for name in self.daemons}
        for one, other in (_ends(edge) for edge in self.edges if edge not in but):
            if one != other and one in near and other in near:
                near[one].add(other)
                near[other].add(one)
        found: list[str] = []

        def settled() -> bool:
            found[:] = _unsettled(self.describe_all(), near)
            return not found

        self._wait(settled, "the mesh has settled", found)
        return near

    def wait_quiet(self) -> None:
        """Wait until the mesh is quiet."""
        looks: deque[dict[Any, int]] = deque([{}], 2)

        def quiet() -> bool:
            looks.append(_traffic(self.describe_all()))
            before, now = looks
            return before == now and all(
                count == now.get(("in", key[2], key[1]))
                for key, count in now.items()
                if key[0] == "out"
            )

        self._wait(quiet, "the mesh is quiet", looks)

    @staticmethod
    def _wait(seen: Callable[[], bool], what: str, why: Any) -> None:
        end = time.monotonic() + DEADLINE
        while not seen():
            if time.monotonic() > end:
                pytest.fail(f"waited {DEADLINE:g} s in vain: {what}: {why}")
            time.sleep(_LOOK)

    def wait_heartbeats(self, count: int) -> None:
        """Wait until so many heartbeats have come by each end of each link."""
        size = 75  # bytes of one at most, ping and pong

        def heard() -> dict[tuple[str, str], int]:
            told = self.describe_all().items()
            return {
                (name, link["node"]): link["bytes_in"]
                for name, one in told
                for link in one["links"]
            }

        before = heard()
        self._wait(
            lambda: all(heard().get(link, 0) >= was + size * count for link, was in before.items()),
            "heartbeats",
            before,
        )


def _ends(edge: str) -> tuple[str, str]:
    match = _EDGE(edge)
    assert match is not None, edge
    return match[1], match[3]


def free_address() -> tuple[str, Iterator[int]]:
    """Return a loopback address where nobody listens, and ports.

    Connections come from 127.0.0.1, so that none of theirs is taken by the time it is needed.
    """
    seed = random.Random(os.urandom(8))
    while True:
        host = f"127.{seed.randrange(1, 255)}.{seed.randrange(256)}.{seed.randrange(1, 255)}"
        with contextlib.suppress(OSError), socket.create_server((host, 9014)):
            return host, itertools.count(9014)


def distances(near: dict[str, set[str]], start: str) -> dict[str, int]:
    """Return how many links it is from ``start`` to each daemon that can be reached."""
    found = {start: 0}
    line = deque([start])
    while line:
        one = line.popleft()
        for other in near[one]:
            if other not in found:
                found[other] = found[one] + 1
                line.append(other)
    return found


def _unsettled(told: dict[str, dict[str, Any]], near: dict[str, set[str]]) -> list[str]:
    """Return what is not yet as it is meant to be."""
    found = []
    wants = {
        name: next(
            (one["interests"] for one in answer["daemons"] if one["node"] == name), "no advert"
        )
        for name, answer in told.items()
    }
    for name, answer in told.items():
        links = [link["node"] for link in answer["links"]]
        if sorted(links) != sorted(near[name]):
            found.append(f"{name} has links to {links}, not {sorted(near[name])}")
        hops = {one["node"]: one["hops"] for one in answer["daemons"] if one["hops"] is not None}
        if hops != (meant := distances(near, name)):
            found.append(f"{name} knows {hops}, not {meant}")
        found += [
            f"{name} has not heard what {one['node']} wants"
            for one in answer["daemons"]
            if one["hops"] is not None and one["interests"] != wants.get(one["node"])
        ]
        if answer["flooding"]:
            found.append(f"{name} still sends over all links")
    return found


def _traffic(told: dict[str, dict[str, Any]]) -> dict[Any, int]:
    """Return all counters of messages, by what and where."""
    found: dict[Any, int] = {}
    for name, answer in told.items():
        for link in answer["links"]:
            for way in ("in", "out"):
                found[way, name, link["node"]] = link[f"messages_{way}"]
        for what in ("originated", "relayed", "received"):
            found[what, name] = answer["counters"][what]
    return found


def prove(secret: bytes | None, side: str, first: bytes, second: bytes) -> bytes:
    """Return the proof of ``dialler`` or ``acceptor``, as pubsubd-mesh(7) defines it."""
    if secret is None:
        return b"-"
    text = b"\n".join([b"pubsubd mesh", side.encode(), first, second])
    return hmac.new(secret, text, hashlib.sha256).hexdigest().encode()


def hello(node: str, *, mesh: str = "m", nonce: str = "0123456789abcdef" * 2) -> bytes:
    """Return the first hello of a daemon that dials."""
    now = int(time.time() * 1000)
    return f"1 {mesh} {node} {now} {now} {nonce}".encode()


class Program:
    """A program that knows three commands, as the original convention has it, and is dialled.

    Args:
        greeting: what it says to whoever connects.

    Attributes:
        address: what to dial.
        heard: all that was said to it since the last connection was made.
        connections: how many were made.
    """

    def __init__(self, greeting: bytes = b"") -> None:
        self._greeting = greeting
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = "{}:{}".format(*self._listener.getsockname())
        self.heard = b""
        self.connections = 0
        self._sock: socket.socket | None = None
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            with sock, contextlib.suppress(OSError):
                sock.sendall(self._greeting)
                self.heard, self._sock = b"", sock
                self.connections += 1
                while part := sock.recv(64 * KIB):
                    self.heard += part

    def say(self, data: bytes) -> None:
        """Say something to the one that has connected."""
        assert self._sock is not None
        self._sock.sendall(data)

    def wait_heard(self, command: bytes) -> None:
        """Wait until a line was said to it."""
        wait_until(lambda: command + b"\n" in self.heard, f"{command!r} in {self.heard!r}")

    def hang_up(self) -> None:
        """Close the connection, and take the next one."""
        if self._sock is not None:
            _shut(self._sock)

    def close(self) -> None:
        """End."""
        _shut(self._listener)
        self._listener.close()
        self.hang_up()
