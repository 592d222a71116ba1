"""Hub ports of the daemons of a mesh, without sockets, on one clock."""

from __future__ import annotations

from typing import Any

from pubsubd.hub.port import Hub
from pubsubd.protocol.limits import HubLimits
from tests.hubs import Room
from tests.webs import Node, Web

NODES = "abcdefghij"


class Wing(Room):
    """The hub port of one daemon."""

    def __init__(self, web: Web, node: Node, **limits: Any) -> None:
        self.web = web
        self.broker = node.broker
        self.hub = Hub(
            node.broker, HubLimits(**limits), clock=web.clock, wall=lambda: web.wall() + node.skew
        )
        self.hub.join(node.mesh.directory, far=(node.mesh.letters, node.mesh.streams))
        self.connections, self.lines = {}, {}
        self.ended, self.heard = {}, {}
        self.sends, self.ends = {}, {}
        web.schedule(web.now, self._sweep)

    def _sweep(self) -> None:
        for _ in self.hub.sweep():
            pass
        self.web.schedule(self.web.now + 1.0, self._sweep)

    def register(self, name: str, *capabilities: str, **more: Any) -> None:
        """Let a connection come and register ``x/NAME`` in dialect B."""
        if name not in self.connections:
            self.join(name)
        address = f"x/{name}"
        payload = {"actorAddress": address, "capabilities": list(capabilities)} | more
        self.say(name, {"type": "hub:register", "from": address, "payload": payload})

    def registered(self, name: str, *capabilities: str, **more: Any) -> dict[str, Any]:
        """Do as :meth:`register`, and return the answer."""
        self.register(name, *capabilities, **more)
        self.web.run(0.2)
        (answer,) = self.hears(name)
        assert isinstance(answer, dict)
        return answer


def federate(*edges: str, **limits: Any) -> tuple[Web, dict[str, Wing]]:
    """Return a mesh of daemons with hub ports that has settled; see :meth:`Web.link`."""
    web = Web()
    web.add(*sorted(set("".join(edges))))
    limits = {"rate": 0.0, **limits}
    wings = {name: Wing(web, node, **limits) for name, node in web.nodes.items()}
    web.link(*edges)
    web.run()
    return web, wings


class BareHub:
    """A hub of which only the claims are real."""

    connections = 1

    def __init__(self, node: Node) -> None:
        self.directory = node.mesh.directory
        self.known: dict[tuple[str, str], tuple[int, bytes]] = {}
        self.lost: list[tuple[str, str]] = []
        self.room = 10_000
        self.directory.serve(self)

    def describe(self, key: str) -> bytes | None:
        return b'{"of":"%b"}' % key.encode()

    def learn(self, node: str, key: str, since: int, details: bytes) -> bool:
        if (node, key) not in self.known and len(self.known) >= self.room:
            return False
        self.known[node, key] = since, details
        return True

    def forget(self, node: str, key: str) -> None:
        del self.known[node, key]

    def lose(self, key: str, node: str) -> None:
        self.lost.append((key, node))
