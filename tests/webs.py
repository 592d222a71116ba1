"""Meshes by hand, on the simulation's daemons: each link is dialled once, by the test."""

from __future__ import annotations

from collections.abc import Iterable

from pubsubd.mesh.report import Report
from pubsubd.mesh.sim import daemon
from pubsubd.mesh.sim.world import World
from pubsubd.mesh.state import MeshConfig


class Node(daemon.Daemon):
    """One daemon.

    Attributes:
        events: what it has reported on ``//pubsubd/events``.
    """

    def __init__(self, web: Web, name: str, *, skew: float = 0.0, **config: object) -> None:
        config = {"node": name, "host": f"{name}.example", **config}
        super().__init__(web, MeshConfig(**config))  # type: ignore[arg-type]
        self.name = name
        self.skew = skew
        self.events: list[dict[str, object]] = []
        self._heard: dict[str, list[tuple[bytes, bytes]]] = {}
        self.run()
        self.report = Report(self.mesh)

    @property
    def connections(self) -> list[Connection]:
        """Those that it has, to other daemons."""
        return list(dict.fromkeys(end.connection for end in self.ends))  # type: ignore[arg-type]

    @property
    def refused(self) -> dict[str, int]:
        """What it has refused."""
        return dict(self.mesh.counters.refused)

    def hears(self, client: str) -> list[tuple[bytes, bytes]]:
        """Return what a client has heard since the last call, but no adverts."""
        return [one for one in self.hears_all(client) if b"/peers/default/" not in one[0]]

    def hears_all(self, client: str) -> list[tuple[bytes, bytes]]:
        """Return what a client has heard since the last call."""
        return self._heard.pop(client, [])

    def hear(self, client: str, name: bytes, data: bytes) -> None:
        self._heard.setdefault(client, []).append((name, data))

    def carry(self, end: daemon.End, data: bytes) -> None:
        if isinstance(end.connection, Connection):  # and not a dialler's
            end.connection.sent.append((end, data))

    def note_event(self, event: dict[str, object]) -> None:
        self.events.append(event)


class Connection(daemon.Connection):
    """A connection between two nodes, the first of which has dialled."""

    def __init__(self, near: Node, far: Node) -> None:
        self.sent: list[tuple[daemon.End, bytes]] = []
        self.nodes = (near, far)
        super().__init__(near, far)

    @property
    def carried(self) -> tuple[list[bytes], list[bytes]]:
        """The frames that have crossed it, by direction."""
        near, far = ([data for end, data in self.sent if end is one] for one in self.ends)
        return near, far


class Web(World):
    """Nodes, connections and the time, which goes on only in :meth:`run`."""

    def __init__(self, delay: float = 0.001) -> None:
        super().__init__(latency=delay)
        self.nodes: dict[str, Node] = {}

    def run(self, seconds: float = 3.0) -> None:
        """Let time pass."""
        self.run_until(self.now + seconds)

    def add(self, *names: str, skew: float = 0.0, **config: object) -> None:
        """Start daemons."""
        for name in names:
            self.nodes[name] = Node(self, name, skew=skew, **config)

    def link(self, *edges: str) -> list[Connection]:
        """Let daemons dial: ``ab`` is a dialling b.

        Of two dials of one pair at once, each daemon may end another one. A dialler tries again;
        here, where none does, the second waits for the first.
        """
        made = []
        for number, edge in enumerate(edges):
            if edge in edges[:number]:
                self.run(0.01)
            made.append(Connection(self.nodes[edge[0]], self.nodes[edge[1]]))
        return made

    def kill(self, name: str) -> None:
        """End a daemon; its neighbours notice that."""
        self.nodes.pop(name).end()

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
