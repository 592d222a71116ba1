"""A simulated daemon with one client, whose messages are counted."""

from __future__ import annotations

from pubsubd.mesh.link import RELAY
from pubsubd.mesh.sim.daemon import Daemon, End
from pubsubd.mesh.sim.mail import Mail
from pubsubd.mesh.sim.results import Client
from pubsubd.mesh.sim.world import World
from pubsubd.mesh.state import MeshConfig
from pubsubd.protocol import wire


class _Hub:
    """A hub port of which only the registrations are played."""

    connections = 0

    def describe(self, _key: str) -> bytes:
        """Return the details of an actor."""
        return b"{}"

    def learn(self, _node: str, _key: str, _since: int, _details: bytes) -> bool:
        """Take an actor of another daemon; there is always room."""
        return True

    def forget(self, node: str, key: str) -> None:
        """Take note that an actor of another daemon is gone."""

    def lose(self, key: str, node: str) -> None:
        """End a registration; the directory has noted it."""


class Member(Daemon):
    """A daemon of a simulation.

    Args:
        world: where it runs.
        config: how it takes part in the mesh.
        mail: counts messages.
        hub: whether it has a hub port.

    Attributes:
        subscribed: the substrings that its client subscribes; they outlive it.
        asked: those of them that it asks other daemons for.
    """

    def __init__(self, world: World, config: MeshConfig, mail: Mail, *, hub: bool = False) -> None:
        super().__init__(world, config)
        self._mail = mail
        self._hub = hub
        self.subscribe(frozenset())

    @property
    def key(self) -> Client:
        """Tells this run of the daemon from its other ones."""
        return self.node, self.starts

    def run(self, asleep_until: float = 0.0) -> None:
        """Start it; its client subscribes as before."""
        super().run(asleep_until)
        if self._hub:
            self.mesh.directory.serve(_Hub())
        self.send(b"".join(b"sub %b\n" % substring for substring in sorted(self.subscribed)))

    def send(self, data: bytes) -> None:
        """Let its client send something."""
        self.say("client", data)

    def subscribe(self, substrings: frozenset[bytes]) -> None:
        """Take note of all that its client subscribes from now on."""
        self.subscribed = substrings
        self.asked = frozenset(text for text in substrings if text.startswith(wire.FORWARD))

    def receives(self, name: bytes, *, here: bool) -> bool:
        """Return whether its client is to get a message, published here or elsewhere."""
        copy = name if name.startswith(wire.FORWARD) else wire.copy_name(name)
        if here and any(text in name for text in self.subscribed):
            return True
        texts = self.subscribed if here else self.asked
        return copy is not None and any(text in copy for text in texts)

    def hear(self, client: str, name: bytes, data: bytes) -> None:
        """Count a message that its client has received."""
        self._mail.count_delivery(self.key, data)

    def carry(self, end: End, data: bytes) -> None:
        """Count the messages that cross a link."""
        if RELAY in data:
            self._mail.count_crossings(self.node, end.other.daemon.node, data)
