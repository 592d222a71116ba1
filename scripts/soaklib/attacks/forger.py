"""A daemon that is none: it says a proper hello, and makes up the rest of a mesh."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Iterable

from soaklib.wires import frame

from .stage import Stage

MESH, VICTIM = "hostile", "victim"
"""Names of the mesh, and of the daemon that is attacked."""

_BEAT = 0.4  # seconds

_Graph = dict[str, set[str]]


class Forger:
    """A link of a daemon that is none, and what it makes up of others.

    Attributes:
        sock: the link.
    """

    def __init__(self, stage: Stage, node: str = "forger") -> None:
        self._stage = stage
        self.node = node
        self._life = int(time.time() * 1000)
        self._sequence = 0
        self._halfway = False  # in the middle of something, which a heartbeat would break
        self.sock = stage.line()
        hello = f"1 {MESH} {node} {self._life} {self._life} {'0' * 32}"
        stage.say(self.sock, frame(b"//pubsubd/hello", hello.encode()), b" -\n")
        stage.say(self.sock, frame(b"//pubsubd/hello", b"proof -"), b"welcome\n")
        stage.hold(self.sock)
        stage.chore(_BEAT, self._beat)

    def _beat(self) -> None:
        if self.sock.fileno() >= 0 and not self._halfway:
            with contextlib.suppress(OSError):
                self.sock.send(frame(b"//pubsubd/heartbeat", b"ping 1"))

    def advert(self, node: str, links: Iterable[str], wants: bytes = b"", life: int = 0) -> bytes:
        """Return a new advert of a daemon; ``wants`` is from :func:`wanting`."""
        self._sequence += 1
        life = life or self._life
        lines = [b"127.0.0.1 9014", b"node %d %d %d" % (life, self._sequence, self._life)]
        lines += [b"link %b out %d 1.000 100 1000" % (one.encode(), life // 1000) for one in links]
        data = b"\n".join(lines) + wants
        return frame(b"//fwd/peers/%b/%b" % (MESH.encode(), node.encode()), data)

    def say(self, data: bytes) -> None:
        """Say something on the link, all of it."""
        self._halfway = True
        self._stage.say(self.sock, data)
        self._halfway = False

    def make(self, count: int, links: int = 4) -> _Graph:
        """Make up a mesh of so many daemons, the victim and this one included."""
        rng = random.Random(count)
        graph: _Graph = {self.node: {VICTIM}}
        names = [self.node]
        for number in range(count - 2):
            name = f"forged-{number}"
            graph[name] = set()
            for other in rng.sample(names, min(len(names), links // 2)):
                graph[name].add(other)
                graph[other].add(name)
            names.append(name)
        for name in names:
            self.say(self.advert(name, sorted(graph[name])))
        self.settle()
        return graph

    def settle(self) -> None:
        """Wait until what was said has been looked at."""
        answer = b"pong settled"
        self._stage.say(self.sock, frame(b"//pubsubd/heartbeat", b"ping settled"), answer)

    def batch(self, number: int, frames: bytes, count: int, node: str = "") -> bytes:
        """Return a batch of messages."""
        head = b"%b@%d %d 255 %d\n" % ((node or self.node).encode(), self._life, number, count)
        return frame(b"//pubsubd/relay", head + frames)

    def settle_hub(self) -> None:
        """Advertise a hub port, so that letters are taken."""
        self.say(self.advert(self.node, [VICTIM], with_hub(self.node)))
        self.settle()

    def letters(
        self, number: int, letters: Iterable[bytes], whom: str = VICTIM, node: str = ""
    ) -> bytes:
        """Return a batch of letters to the victim, or ``*`` to all."""
        name = b"//fwd/hub/%b/%b/" % (MESH.encode(), whom.encode())
        frames = [frame(name, letter) for letter in letters]
        return self.batch(number, b"".join(frames), len(frames), node)

    def probe(self, number: int) -> bytes:
        """Return 100 probes of names of their own, and a hop for each."""
        said = []
        for one in range(100 * number, 100 * number + 100):
            key = b"%b@%d %d" % (self.node.encode(), self._life, one)
            said.append(frame(b"//pubsubd/trace", b"probe %b 255 open //fwd/%x" % (key, one)))
            hop = b'{"node": "forged-1", "next": ["forged-2"]}'
            said.append(frame(b"//pubsubd/trace", b"hop %b - %b" % (key, hop)))
        return b"".join(said)

    def flood(self, parts: Iterable[bytes]) -> None:
        """Say the parts on the link, as fast as they are taken."""
        stage = self._stage
        self._halfway = True
        following, rest = iter(parts), memoryview(b"")
        while stage.on:
            stage.drain(0.0)
            if not rest:
                rest = memoryview(next(following))
            if self.sock.fileno() < 0:
                break
            try:
                sent = self.sock.send(rest)
            except BlockingIOError:
                stage.drain(0.005)
                continue
            except OSError:
                break
            stage.effort.sent += sent
            rest = rest[sent:]


def wanting(interests: Iterable[bytes]) -> bytes:
    """Return the lines of an advert that tell what a daemon wants."""
    return b"".join(b"\nwant " + one for one in interests)


def with_hub(node: str) -> bytes:
    """Return what the advert of a daemon with a hub port says besides its links.

    Only who wants the whole names of letters is sent any.
    """
    names = [b"//fwd/hub/%b/%b/" % (MESH.encode(), whom) for whom in (node.encode(), b"*")]
    return wanting(names) + b"\nhub 1 1 1"
