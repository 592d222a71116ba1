"""Meshes without sockets: real brokers and meshes on one clock, and connections with a delay."""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable, Iterable

from pubsubd.broker.broker import Broker
from pubsubd.broker.peer import Peer
from pubsubd.mesh.core import Mesh
from pubsubd.mesh.report import Report
from pubsubd.mesh.state import MeshConfig
from pubsubd.protocol.limits import Limits
from pubsubd.protocol.wire import Decoder
from pubsubd.routing.outbox import Pieces

EPOCH = 1_800_000_000.0


class Node:
    """One daemon.

    Attributes:
        events: what it has told on ``//pubsubd/events``.
        connections: those that it has, to other daemons.
    """

    def __init__(self, web: Web, name: str, *, skew: float = 0.0, **config: object) -> None:
        self.web = web
        self.name = name
        self.events: list[dict[str, object]] = []
        self.connections: list[Connection] = []
        self.alive = True
        self.broker = Broker(Limits(), clock=lambda: web.now)
        self.mesh = Mesh(
            self.broker,
            MeshConfig(node=name, host=f"{name}.example", **config),  # type: ignore[arg-type]
            clock=lambda: web.now,
            wall=lambda: EPOCH + web.now + skew,
            rng=random.Random(name),
            woken=lambda: web.at(0, self._act),
            tell=self.events.append,
        )
        self.report = Report(self.mesh)
        self._heard: dict[str, bytes] = {}
        self._clients: dict[str, Peer] = {}
        self._act()

    def _act(self) -> None:
        if not self.alive or not hasattr(self, "mesh"):
            return
        if self.web.now >= self.mesh.due:
            self.mesh.act()
        self.web.at(self.mesh.due - self.web.now, self._act)

    # Its clients

    def say(self, client: str, data: bytes) -> None:
        """Let a client say something; it comes if it is not there yet."""
        if client not in self._clients:
            self._heard[client] = b""

            def take(data: bytes | Pieces) -> None:
                self._heard[client] += data if isinstance(data, bytes) else data.whole()

            self._clients[client] = self.broker.join(client, take)
        while self.broker.receive(self._clients[client], data):
            data = b""

    def hears(self, client: str) -> list[tuple[bytes, bytes]]:
        """Return what a client has heard since the last call, but no adverts."""
        return [one for one in self.hears_all(client) if b"/peers/default/" not in one[0]]

    def hears_all(self, client: str) -> list[tuple[bytes, bytes]]:
        """Return what a client has heard since the last call."""
        heard, self._heard[client] = self._heard[client], b""
        return Decoder(1 << 30).feed(heard)

    def leave(self, client: str) -> None:
        """Let a client go."""
        for _ in self.broker.leave(self._clients.pop(client)):
            pass

    @property
    def refused(self) -> dict[str, int]:
        """What it has refused."""
        return dict(self.mesh.counters.refused)


class Connection:
    """A connection between two nodes, the first of which has dialled.

    Attributes:
        swallowing: whether what is said is lost, and the closing too.
        carried: the frames that have crossed it, by direction.
    """

    def __init__(self, web: Web, near: Node, far: Node) -> None:
        self.web = web
        self.nodes = (near, far)
        self.swallowing = False
        self.open = True
        self.refusal: str | None = None
        self.carried: tuple[list[bytes], list[bytes]] = ([], [])
        self.peers = [self._join(0), self._join(1)]
        for node in self.nodes:
            node.connections.append(self)
        near.mesh.greet(self.peers[0], far.name, self._note_end)

    def _note_end(self, refusal: Exception | None) -> None:
        if refusal is not None:
            self.refusal = refusal.code  # type: ignore[attr-defined]

    def _join(self, side: int) -> Peer:
        return self.nodes[side].broker.join(
            self.nodes[1 - side].name,
            lambda data: self._send(side, data if isinstance(data, bytes) else data.whole()),
            lambda code, _text: self._end(side, code),
        )

    def _send(self, side: int, data: bytes) -> None:
        if self.open and not self.swallowing:
            self.carried[side].append(data)
            self.web.at(self.web.delay(), lambda: self._arrive(1 - side, data))

    def _arrive(self, side: int, data: bytes) -> None:
        if self.open and not self.swallowing and self.nodes[side].alive:
            peer = self.peers[side]
            while self.nodes[side].broker.receive(peer, data):
                data = b""
            if peer.ending is not None:
                self.web.at(self.web.delay(), self.close)  # behind the reason

    def _end(self, side: int, code: str) -> None:
        if self.swallowing:
            self._close(side)
        else:
            self.web.at(self.web.delay(), self.close)

    def close(self) -> None:
        """Close it, so that both ends notice."""
        if self.open:
            self.open = False
            for side in (0, 1):
                self._close(side)

    def _close(self, side: int) -> None:
        node, peer = self.nodes[side], self.peers[side]
        if self in node.connections:
            node.connections.remove(self)
            if node.alive:
                for _ in node.broker.leave(peer):
                    pass


class Web:
    """Nodes, connections and the time, which goes on only in :meth:`run`.

    Args:
        delay: seconds that anything takes over a connection.
    """

    def __init__(self, delay: float = 0.001) -> None:
        self.now = 0.0
        self.nodes: dict[str, Node] = {}
        self.delay: Callable[[], float] = lambda: delay
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()

    def at(self, after: float, what: Callable[[], None]) -> None:
        """Let something happen after so many seconds, in the order of asking."""
        heapq.heappush(self._events, (self.now + max(0.0, after), next(self._order), what))

    def run(self, seconds: float = 3.0) -> None:
        """Let time pass."""
        until = self.now + seconds
        while self._events and self._events[0][0] <= until:
            at, _, what = heapq.heappop(self._events)
            self.now = max(self.now, at)
            what()
        self.now = until

    def add(self, *names: str, skew: float = 0.0, **config: object) -> None:
        """Start daemons."""
        for name in names:
            self.nodes[name] = Node(self, name, skew=skew, **config)

    def link(self, *edges: str) -> list[Connection]:
        """Let daemons dial: ``ab`` is a dialling b."""
        return [Connection(self, self.nodes[edge[0]], self.nodes[edge[1]]) for edge in edges]

    def kill(self, name: str) -> None:
        """End a daemon at once; its neighbours notice that."""
        node = self.nodes.pop(name)
        node.alive = False
        for connection in list(node.connections):
            connection.close()

    def __getitem__(self, name: str) -> Node:
        return self.nodes[name]


def build(edges: Iterable[str], *, delay: float = 0.001) -> Web:
    """Return a mesh that has settled."""
    web = Web(delay)
    edges = list(edges)
    web.add(*sorted(set("".join(edges))))
    web.link(*edges)
    web.run()
    return web
