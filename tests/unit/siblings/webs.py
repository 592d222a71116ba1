"""Workers in memory: real brokers, and links between them that carry what is sent when told to."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable
from typing import Any

from pubsubd.routing.outbox import Pieces
from pubsubd.siblings.actors import Actors
from pubsubd.siblings.elsewhere import Elsewhere
from pubsubd.siblings.in_mesh import FirstActors, OtherActors
from pubsubd.siblings.progress import Progress
from pubsubd.siblings.sibling import Sibling
from pubsubd.siblings.siblings import Siblings
from tests.federations import Wing
from tests.hubs import Room, message_b
from tests.tables import Table
from tests.webs import Web


class Ends:
    """The ends of a worker's links.

    Attributes:
        siblings: the others.
        links: number -> the sibling, and what was sent to it and has not arrived.
    """

    siblings: Siblings
    woken: bool
    links: dict[int, tuple[Sibling, deque[bytes]]]

    def link(self, number: int) -> None:
        """Be linked with another worker."""
        queue: deque[bytes] = deque()

        def send(data: bytes | Pieces) -> None:
            queue.append(data.whole() if isinstance(data, Pieces) else data)

        def end(_code: str, _text: str) -> None:
            queue.append(b"")

        self.links[number] = self.siblings.link(number, "", send, end), queue


class Worker(Table, Ends):
    """One worker, with named peers.

    Attributes:
        woken: whether it has something to tell that it has not been asked for.
    """

    def __init__(self, workers: Workers, number: int) -> None:
        super().__init__(clock=lambda: workers.now)
        self.woken = False
        self.siblings = Siblings(
            self.broker, number, lambda: workers.now, workers.progress, self._wake
        )
        self.links = {}

    def _wake(self) -> None:
        self.woken = True

    def join(self, name: str) -> None:
        """Let a peer come whose output is held as that of a connection is."""
        super().join(name)
        peer = self.peers[name]
        send, waiting = peer.send, deque[bytes | Pieces]()

        def go_on() -> None:
            while waiting:
                held = peer.outbox.held
                if held is not None and not held.over:
                    held.then(go_on)  # it may be held for something else by then
                    return
                send(waiting.popleft())

        def hold(data: bytes | Pieces) -> None:
            waiting.append(data)
            if len(waiting) == 1:
                go_on()

        peer.send = hold


class HubWorker(Room, Ends):
    """One worker, with connections of the hub port."""

    def __init__(self, workers: Workers, number: int, **limits: Any) -> None:
        super().__init__(rate=0.0, **limits)
        self.siblings = Siblings(self.broker, number, lambda: workers.now, workers.progress)
        self.links = {}
        actors = self.actors = Actors(self.siblings, lambda: self.now + workers.now)
        self.hub.settle = self.siblings.settle
        self.hub.join(actors, near=(actors.letters, actors.streams))
        self.hub.policy.elsewhere = Elsewhere(self.siblings, self.hub.counts)

    def register(self, name: str, **more: Any) -> Any:
        """Let a connection come and register ``x/NAME`` in dialect B; return the answer."""
        if name not in self.connections:
            self.join(name)
        address = f"x/{name}"
        payload = {"actorAddress": address, "capabilities": []} | more
        self.say(name, message_b("hub:register", payload, me=address))
        return self.hears(name)[-1]


class Workers:
    """Workers that are linked with each other.

    Attributes:
        now: their clock.
        progress: what they share; for one more, who may come later.
    """

    def __init__(self, count: int, make: Callable[[Workers, int], Any] = Worker) -> None:
        self.now = 0.0
        self.progress = Progress(count + 1)
        self.all: list[Any] = [make(self, number) for number in range(count)]
        for one, other in itertools.combinations(range(count), 2):
            self.all[one].link(other)
            self.all[other].link(one)
        self.settle()

    def __getitem__(self, number: int) -> Any:
        return self.all[number]

    def settle(self) -> None:
        """Carry everything to its end."""
        while sum(self.step(number) for number in range(len(self.all))):
            pass

    def step(self, number: int) -> bool:
        """Let a worker tell what it has to, and the others take it; whether there was anything."""
        worker = self.all[number]
        while worker.siblings.act() or worker.siblings.questions.work():
            pass
        worker.woken = False
        moved = False
        for other, (_, queue) in list(worker.links.items()):
            while queue:
                moved = True
                self.carry(number, other, queue.popleft())
        return moved

    def carry(self, source: int, to: int, data: bytes) -> None:
        sibling, _ = self.all[to].links[source]
        while sibling.receive(data):
            data = b""

    def kill(self, number: int) -> None:
        """End a worker; the others notice."""
        self.all[number].links.clear()
        for other in self.all:
            if number in other.links:
                sibling, _ = other.links.pop(number)
                for step in sibling.leaving():
                    for _ in step():
                        pass


class FirstInMesh(Wing, Ends):
    """The first worker of a daemon of a mesh, which has its links."""

    def __init__(self, web: Web, name: str, progress: Progress) -> None:
        node = web[name]
        super().__init__(web, node, rate=0.0)
        self.siblings = Siblings(self.broker, 0, web.clock, progress)
        self.links = {}
        actors = FirstActors(self.siblings, web.wall, node.mesh.directory)
        elsewhere = _share(self, actors, far=(node.mesh.letters, node.mesh.streams))
        actors.connections_elsewhere = lambda: elsewhere.count("connections")


class OtherInMesh(HubWorker):
    """Another worker of it."""

    def __init__(self, workers: Crew, number: int) -> None:
        super().__init__(workers, number)
        self.siblings = Siblings(self.broker, number, lambda: workers.now, workers.progress)
        self.web = workers.web
        self.hub.clock = workers.web.clock
        _share(self, OtherActors(self.siblings, workers.web.wall))


def _share(worker: Any, actors: Actors, **more: Any) -> Elsewhere:
    """Let a worker's hub be one with that of its siblings."""
    hub = worker.hub
    hub.settle = worker.siblings.settle
    hub.join(actors, near=(actors.letters, actors.streams), **more)
    counts = hub.counts | {"connections": lambda: len(hub.connections)}
    elsewhere = hub.policy.elsewhere = Elsewhere(worker.siblings, counts)
    return elsewhere


class Crew(Workers):
    """The workers of a daemon of a mesh, of which the first one has the links."""

    def __init__(self, web: Web, name: str, count: int = 2) -> None:
        self.web, self.name = web, name
        super().__init__(count, self.make)

    @property
    def now(self) -> float:
        """The mesh's clock is theirs."""
        return self.web.now

    @now.setter
    def now(self, _now: float) -> None:
        """The mesh's clock is theirs."""

    def make(self, _workers: Workers, number: int) -> Any:
        """Return a new worker."""
        if number:
            return OtherInMesh(self, number)
        return FirstInMesh(self.web, self.name, self.progress)

    def run(self, seconds: float = 0.3) -> None:
        """Let time pass, in which they tell each other what there is to tell."""
        for _ in range(round(seconds / 0.01)):
            self.web.run(0.01)
            self.settle()


def known(sibling: Sibling) -> set[object]:
    """Return what a sibling or one of its shares subscribes."""
    every = sibling, *sibling.shares.by_owner.values()
    return {
        key
        for one in every
        for kind in (one.substrings, one.names, one.patterns)
        for key in kind or ()
    }
