"""Adverts as frames: sent to neighbours, and published to this daemon's own peers."""

from __future__ import annotations

from pubsubd.broker.broker import Broker
from pubsubd.broker.turn import Steps, finish
from pubsubd.mesh.link import Link
from pubsubd.mesh.remotes import Outbound
from pubsubd.mesh.state import State
from pubsubd.protocol import wire
from pubsubd.routing.lookups import Unfinished

LOST = 60.0
"""Seconds that a daemon may be unreachable and still be announced to new neighbours."""

_STEP = 16  # frames sent between two looks at the clock


class News:
    """The newest advert of each daemon, as a frame.

    Args:
        state: the daemon's.
        broker: the daemon's.
        outbound: messages for other daemons, which adverts must not become.

    Attributes:
        size: bytes of all adverts.
        unpublished: id -> an advert that this daemon's own peers have yet to see.
    """

    def __init__(self, state: State, broker: Broker, outbound: Outbound) -> None:
        self._state = state
        self._broker = broker
        self._outbound = outbound
        self._frames: dict[str, bytes] = {}  # node -> the frame of its advert
        self.size = 0
        self.unpublished: dict[str, bytes] = {}

    def frame(self, node: str, data: bytes) -> bytes:
        """Return the frame of an advert."""
        mesh = self._state.config.mesh.encode()
        return wire.frame(b"//fwd/peers/%b/%b" % (mesh, node.encode()), data)

    def keep(self, node: str, frame: bytes) -> None:
        """Keep the frame of a daemon's advert, for new neighbours."""
        self.forget(node)
        self._frames[node] = frame
        self.size += len(frame)

    def forget(self, node: str) -> None:
        """Forget a daemon's advert."""
        self.size -= len(self._frames.pop(node, b""))

    # Neighbours

    def send(self, link: Link, node: str) -> None:
        """Send a neighbour the advert of a daemon; an error ends that link alone."""
        frame = self._frames.get(node)
        if frame is None:
            return
        counters = self._state.counters
        counters.adverts_out += 1
        counters.advert_bytes_out += len(frame)
        try:
            link.send(frame)
        except Exception as error:  # noqa: BLE001  (the other links get theirs)
            self._broker.faults.end(link.peer, error)

    def announce(self, node: str, source: Link | None = None) -> None:
        """Send the advert of a daemon to all neighbours but ``source``."""
        finish(self.announcing(node, source))

    def announcing(self, node: str, source: Link | None = None) -> Steps[None]:
        """Do the work of :meth:`announce` in steps; new neighbours get the advert in its turn."""
        for number, link in enumerate(list(self._state.links.values()), 1):
            if link is source:
                continue
            if link.ready:
                self.send(link, node)
            elif link.unannounced is not None:
                link.unannounced[node] = None
            if number % _STEP == 0:
                yield

    def introduce(self, link: Link) -> bool:
        """Send a new neighbour the next known adverts; return whether it has them all.

        It gets no more than it takes; the other adverts wait.
        """
        if link.unannounced is None:
            lost = self._state.now() - LOST
            unreachable = self._state.unreachable
            # Of the neighbour itself too, in case it has been here before.
            link.unannounced = {
                node: None
                for node in self._frames
                if node == link.node or unreachable.get(node, lost) >= lost
            }
        for _ in range(_STEP):
            if not link.unannounced or self._state.links.get(link.node) is not link:
                link.unannounced = None
                return True
            if link.crowded:
                break
            node = next(iter(link.unannounced))
            del link.unannounced[node]
            self.send(link, node)
        return False

    # This daemon's own peers

    def publish(self, node: str, data: bytes) -> bool:
        """Publish an advert to this daemon's peers; False if that has to be tried again.

        Other daemons have it from the links.
        """
        broker, outbound, state = self._broker, self._outbound, self._state
        broker.delivery.flush()  # what somebody has said so far goes out as theirs
        speaker = broker.delivery.speaker
        prefix = b"//peers/" if node == state.node else b"//fwd/peers/"
        outbound.closed = True
        try:
            name = b"%b%b/%b" % (prefix, state.config.mesh.encode(), node.encode())
            broker.delivery.enqueue(None, name, data)
            broker.delivery.flush()
        except Unfinished:
            self.unpublished[node] = data
            return False
        finally:
            outbound.closed = False
            broker.delivery.speaker = speaker
        self.unpublished.pop(node, None)
        return True

    def publishing(self) -> Steps[None]:
        """Publish adverts that could not be published before, in steps."""
        for node, data in list(self.unpublished.items()):
            if node in self._frames:
                self.publish(node, data)
            else:
                del self.unpublished[node]
            yield
