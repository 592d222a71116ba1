"""Publishers and subscribers that stay: numbered streams, in every dialect.

A publisher asks with each message for an answer, so that it is known how far it has been carried
out. When its connection breaks, what has no answer may be lost; when that of a subscriber breaks,
what comes until it has subscribed again may be. Everything else has to arrive, once, and of one
publisher in order.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

import trio

from soaklib.faults.wire import LostError, Wire, opened, wires
from soaklib.streams import (
    COPIED,
    PUBLISHED,
    RUN,
    SLOW_COPIED,
    SLOW_PUBLISHED,
    FastReader,
    Flow,
    Runs,
    SlowReader,
    mark,
)
from soaklib.wires import Address, compact, frame, hub_subscribe, synap_publish, synap_subscribe

_KEPT = 50  # gaps of one flow that may still turn out to be late messages
_AGAIN = 0.05  # seconds until a connection that broke is made again
LOCAL = b"slow:"
"""What names begin with that stay at the daemon where they are published; they are envelopes'."""

_PONG = re.compile(rb"pub //pubsubd/ping \d+ (\d+)\n")
_DONE = {
    "synap": re.compile(rb'"success":true'),
    "hub": re.compile(rb'"type":"hub:delivery_ack"'),
    "envelope": re.compile(rb'"type":"pong"'),
}
_REFUSED = re.compile(rb'"success":false|"type":"hub:error"')


@dataclass(frozen=True)
class Pub:
    """A publisher.

    Attributes:
        name: of its stream: ``p..`` for runs on the line port, else ``s..``.
        place: the number of its daemon.
        address: where it connects.
        kind: how JSON is framed there, or ``line``.
        says: ``line``, ``synap``, ``hub`` or ``envelope``.
        rate: messages, or runs, a second.
    """

    name: str
    place: int
    address: Address
    kind: str = "line"
    says: str = "line"
    rate: float = 15.0


@dataclass(frozen=True)
class Sub:
    """A subscriber.

    Attributes:
        name: what it is called in reports.
        place, address, kind: as of a publisher.
        says: ``fast``, ``line``, ``synap``, ``pattern``, ``a``, ``b`` or ``envelope``.
    """

    name: str
    place: int
    address: Address
    kind: str = "line"
    says: str = "line"


@dataclass
class Seen:
    """What has become of one stream at one subscriber, since it was last asked.

    Attributes:
        sub, stream: which.
        far: whether it passes a link.
        lost, doubled, late, changed: messages.
        samples: which ones.
    """

    sub: str
    stream: str
    far: bool
    lost: int = 0
    doubled: int = 0
    late: int = 0
    changed: int = 0
    samples: list[str] = field(default_factory=list)


class Resident:
    """A connection that is made again whenever it breaks.

    Attributes:
        up: whether it is there.
        broke: why it was lost the last time.
    """

    def __init__(self, name: str, address: Address, kind: str, lose: Callable[[str], None]) -> None:
        self.name, self._address, self._kind, self._lose = name, address, kind, lose
        self.up = False
        self.broke = "never lost"

    async def run(self) -> None:
        """Be there, for ever."""
        wires.set([])
        while True:
            try:
                async with opened(self._address, self._kind) as wire:
                    await self._serve(wire)
            except LostError as error:
                self.broke = str(error)
                if self.up:
                    self._lose(f"{self.name}: {error}")
                self.up = False
                self.break_off()
            await trio.sleep(_AGAIN)

    async def _serve(self, wire: Wire) -> None:
        raise NotImplementedError

    def break_off(self) -> None:
        raise NotImplementedError


class Publisher(Resident):
    """One stream.

    Attributes:
        plan: of it.
        number: the next one.
        done: the number before which all has been carried out, or was lost with a connection.
        excused: ranges of numbers that may be lost.
        wrong: answers that should not have come.
    """

    def __init__(self, plan: Pub, lose: Callable[[str], None]) -> None:
        super().__init__(f"publisher {plan.name}", plan.address, plan.kind, lose)
        self.plan = plan
        self.number = self.done = 0
        self.excused: list[tuple[int, int]] = []
        self.wrong: list[str] = []
        self._runs = Runs(plan.name, PUBLISHED) if plan.name.startswith("p") else None
        self._count = RUN if self._runs else 1

    @property
    def local(self) -> bool:
        """Whether what it publishes stays at its daemon."""
        return self.plan.says == "envelope"

    async def _serve(self, wire: Wire) -> None:
        self.done = self.number
        self.up = True
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._hear, wire)
                while True:
                    said = self._make()
                    self.number += self._count
                    await wire.say(*said)
                    await trio.sleep(1 / self.plan.rate)
        except* LostError as errors:
            raise errors.exceptions[0] from None

    def _make(self) -> list[bytes]:
        number, plan = self.number, self.plan
        pong = frame(b"//pubsubd/ping", b"%d" % (number + self._count))
        if self._runs is not None:
            return [self._runs[number // RUN], pong]
        text = mark(plan.name, number)
        name = SLOW_PUBLISHED.decode() + plan.name
        if plan.says == "line":
            return [frame(name.encode(), text), pong]
        if plan.says == "synap":
            return [synap_publish(name, text.decode())]
        if plan.says == "hub":
            payload = {"topic": name, "type": "slow", "data": text.decode()}
            return [compact({"type": "hub:publish", "from": "x/y", "payload": payload})]
        envelope = {"type": LOCAL.decode()[:-1], "id": plan.name, "payload": text.decode()}
        return [compact(envelope), b'{"type":"ping"}']

    async def _hear(self, wire: Wire) -> None:
        rest = b""
        while True:
            data = rest + await wire.some()
            end = 0
            pattern = _PONG if self.plan.says == "line" else _DONE[self.plan.says]
            for match in pattern.finditer(data):
                end = match.end()
                self.done = int(match[1]) if match.re is _PONG else self.done + 1
            if self.plan.says != "line" and (match := _REFUSED.search(data)):
                self.wrong.append(data[match.start() :][:200].decode(errors="replace"))
                end = max(end, match.end())
            rest = data[max(end, len(data) - 200) :]

    def break_off(self) -> None:
        self.excused.append((self.done, self.number))
        del self.excused[:-_KEPT]


class Subscriber(Resident):
    """Who hears all streams of a kind.

    Attributes:
        plan: of it.
        flows: stream -> what has come.
    """

    def __init__(self, plan: Sub, pubs: list[Pub], lose: Callable[[str], None]) -> None:
        super().__init__(f"subscriber {plan.name}", plan.address, plan.kind, lose)
        self.plan = plan
        self._pubs = {pub.name: pub for pub in pubs if _hears(plan, pub)}
        names = list(self._pubs)
        self.reader: FastReader | SlowReader
        if plan.says == "fast":
            self.reader = FastReader(names, {name: Runs(name, COPIED) for name in names})
        else:
            self.reader = SlowReader(names)
        self.flows: dict[str, Flow] = self.reader.flows

    async def _serve(self, wire: Wire) -> None:
        await getattr(self, f"_greet_{self.plan.says}")(wire)
        self.up = True
        while True:
            self.reader.feed(await wire.some())

    async def _greet_fast(self, wire: Wire) -> None:
        await wire.say(b"sub %b\n" % COPIED)
        self.reader.feed(await wire.ping())

    async def _greet_line(self, wire: Wire) -> None:
        await wire.say(b"sub %b\nsub %bs\n" % (SLOW_COPIED, LOCAL))
        self.reader.feed(await wire.ping())

    async def _greet_synap(self, wire: Wire) -> None:
        await self._subscribe(wire, *(SLOW_COPIED.decode() + name for name in self._pubs))

    async def _greet_pattern(self, wire: Wire) -> None:
        await self._subscribe(wire, f"{SLOW_COPIED.decode()}*", f"{LOCAL.decode()}*")

    async def _subscribe(self, wire: Wire, *topics: str) -> None:
        self.reader.feed(await wire.ask(synap_subscribe(*topics), b'"success":true'))

    async def _greet_b(self, wire: Wire) -> None:
        said = hub_subscribe(f"{SLOW_COPIED.decode()}#")
        self.reader.feed(await wire.ask(said, b"hub:subscribed"))

    async def _greet_a(self, wire: Wire) -> None:
        to, me = "@(cloudflare/signal-hub)", "@(resident/a)"
        known = {"protocolVersion": "0.1.0", "capabilities": ["ui"]}
        head = {"from": me, "to": to}
        said = {"id": "1", "type": "hub:connect", "metadata": known, **head}
        await wire.ask(compact(said), b"hub:connected")
        topic = {"topic": f"{SLOW_COPIED.decode()}#"}
        said = {"id": "2", "type": "hub:subscribe", "payload": topic, **head}
        self.reader.feed(await wire.ask(compact(said), b"hub:subscribed"))

    async def _greet_envelope(self, wire: Wire) -> None:
        for name in self._pubs:
            topic = {"topic": f"{LOCAL.decode()}{name}"}
            await wire.say(compact({"type": "__subscribe", "id": "", "payload": topic}))
        self.reader.feed(await wire.ping())

    def break_off(self) -> None:
        self.reader.break_off()

    def look(self, publishers: dict[str, Publisher]) -> list[Seen]:
        """Return what was not as it should be since the last look."""
        found = []
        for name, flow in self.flows.items():
            gaps = [one for gap in flow.gaps for one in _without(gap, publishers[name].excused)]
            lost = sum(stop - first for first, stop in gaps)
            far = self._pubs[name].place != self.plan.place
            samples = [f"{first}..{stop - 1} lost" for first, stop in gaps] + flow.samples
            seen = Seen(
                self.name, name, far, lost, flow.doubled, flow.late, flow.changed, samples[:3]
            )
            if lost or flow.doubled or flow.late or flow.changed:
                found.append(seen)
            flow.excused_gaps = (flow.excused_gaps + flow.gaps)[-_KEPT:]
            flow.gaps = []
            flow.doubled = flow.late = flow.changed = 0
            flow.samples = []
        strange, self.reader.strange = self.reader.strange, []
        self.reader.told.clear()
        if strange:
            found.append(Seen(self.name, "of nobody", False, changed=len(strange)))
            found[-1].samples = strange[:3]
        return found

    def excuse(self) -> None:
        """Let what was missed so far be of no account: a daemon was started again."""
        for flow in self.flows.values():
            flow.broken = True


def _hears(plan: Sub, pub: Pub) -> bool:
    if plan.says == "fast" or pub.name.startswith("p"):
        return plan.says == "fast" and pub.name.startswith("p")
    if pub.says == "envelope":
        return plan.place == pub.place and plan.says in ("envelope", "line", "pattern")
    return plan.says != "envelope"


def _without(gap: tuple[int, int], excused: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return what is left of a range when others are taken out of it."""
    left = [gap]
    for first, stop in excused:
        left = [
            part
            for low, high in left
            for part in ((low, min(high, first)), (max(low, stop), high))
            if part[0] < part[1]
        ]
    return left
