"""Addresses that are registered at the workers, and letters between their hubs, without I/O.

Each worker tells the others what is registered there as it changes, so that each knows of all.
Of two registrations of one address, which may cross on their way, the earlier one stays, or that of
the worker with the lower number.

Invariants:

- ``_claims[sibling]`` has what a linked sibling has told: address -> when it was registered there.
- The registrar has learned these, and no others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from pubsubd.broker.actor_messages import ActorMessage, Delivered
from pubsubd.broker.faults import Endable
from pubsubd.broker.turn import Steps
from pubsubd.siblings import frames
from pubsubd.siblings.sibling import Sibling
from pubsubd.siblings.siblings import Siblings

CLAIM, RELEASE = b"claim", b"release"

MAX_WAITING = 10_000
"""Messages to other workers of which it is waited for what has become of them."""

_MESSAGES = ("send ", "on ", "broadcast ")  # letters that come in order, behind what was published
_STEP = 32  # addresses forgotten between two looks at the clock


Take = Callable[[str, list[str], bytes], Steps[None] | None]


class Registrar(Protocol):
    """The hub; :class:`pubsubd.hub.federation.Federation`."""

    @property
    def connections(self) -> int:
        """Number of connections of the hub port at this worker."""

    def describe(self, key: str, node: str | None = None) -> bytes | None:
        """Return the details of an actor of this worker, or of another node, in one line."""

    def learn(self, node: str, key: str, since: int, details: bytes) -> bool:
        """Take an actor of another node; return False if there is no room for it."""

    def forget(self, node: str, key: str) -> None:
        """Take note that an actor of another node is gone."""

    def lose(self, key: str, node: str) -> None:
        """End a registration of this worker: that at another one is earlier."""


class Letters:
    """Letters between the hubs of workers.

    Attributes:
        kinds: kind of a letter -> what takes it.
        after: called when one was taken.
        ignored: letters that were not taken.
    """

    def __init__(self, siblings: Siblings) -> None:
        self._siblings = siblings
        self.kinds: dict[str, Take] = {}
        self.after: Callable[[], None] = siblings.delivery.flush
        self.ignored = 0
        siblings.open_letter = self._open

    def send(self, node: str | None, words: str, body: bytes = b"") -> None:
        """Send a letter to a worker, or to all, behind what was published before."""
        siblings = self._siblings
        siblings.delivery.end_run()
        siblings.ship()
        speaker = siblings.delivery.speaker if words.startswith(_MESSAGES) else None
        number = 0 if speaker is None else speaker.number
        data = b"%d\n%b\n%b" % (number, words.encode(), body)
        for sibling in list(siblings.others.values()):
            if node in (None, sibling.node):
                sibling.say(frames.LETTER, data)
                sibling.hold_up(speaker)

    def refuse(self, _reason: str) -> None:
        """Count a letter that is not taken."""
        self.ignored += 1

    def _open(self, sibling: Sibling, data: bytes) -> Iterator[None]:
        line, _, body = data.partition(b"\n")
        words = line.decode().split(" ")
        try:
            steps = self.kinds[words[0]](sibling.node, words, body)
            if steps is not None:
                for _ in steps:
                    self.after()
                    yield
        finally:
            self.after()


@dataclass(slots=True)
class _Answer:
    """What has become of a message of another worker, for that one to be told.

    Attributes:
        letters: to it.
        node: it.
        peer: the link.
        serial: what it calls the message.
    """

    letters: Letters
    node: str
    peer: Endable
    serial: str

    def __call__(self, at: int | None) -> None:
        self.letters.send(self.node, f"done {self.serial} {'-' if at is None else at}")


class Streams:
    """Messages to actors of other workers. A link loses none, so nothing is sent twice.

    Attributes:
        deliver: delivers what a worker has sent to an address; returns whether somebody has it.
        pass_on: sends what a worker has sent to an actor of another daemon; returns whether
            ``answer`` will be called.
    """

    def __init__(self, siblings: Siblings, letters: Letters, wall: Callable[[], float]) -> None:
        self._letters = letters
        self._wall = wall
        self.deliver: Callable[[str, bytes], bool] = lambda _key, _body: False
        self.pass_on: Callable[[ActorMessage], bool] = lambda _message: False
        self._others = siblings.others
        self._serial = 0
        self._waiting: dict[int, tuple[Sibling, Delivered]] = {}
        letters.kinds.update(send=self._take, on=self._take_on, done=self._take_answer)
        siblings.farewells.append(self._forget)

    def send(self, node: str, message: ActorMessage) -> bool:
        """Send a message to an actor of a worker; return False if too many are under way."""
        return self._send(node, "send", message.pair[1], message)

    def send_on(self, node: str, message: ActorMessage) -> bool:
        """Send a message through a worker to an actor of another daemon, as :meth:`send`."""
        sender, receiver = message.pair
        return self._send(node, "on", f"{receiver} {int(message.ask)} {sender}", message)

    def _send(self, node: str, kind: str, words: str, message: ActorMessage) -> bool:
        link = self._link(node)
        if link is None:
            return False
        serial = 0
        if message.answer is not None:
            if len(self._waiting) >= MAX_WAITING:
                return False
            serial = self._serial = self._serial + 1
            self._waiting[serial] = link, message.answer
        self._letters.send(node, f"{kind} {serial} {words}", message.body)
        return True

    def _link(self, node: str) -> Sibling | None:
        """Return the link to a worker, if there is one."""
        return next((one for one in self._others.values() if one.node == node), None)

    def _take(self, node: str, words: list[str], body: bytes) -> None:
        delivered = False
        try:
            delivered = self.deliver(words[2], body)
        finally:
            if words[1] != "0":
                at = str(int(self._wall() * 1000)) if delivered else "-"
                self._letters.send(node, f"done {words[1]} {at}")

    def _take_on(self, node: str, words: list[str], body: bytes) -> None:
        _, serial, key, ask, *sender = words
        answer, link = None, self._link(node)
        if link is not None and serial != "0":
            answer = _Answer(self._letters, node, link.peer, serial)
        message = ActorMessage((" ".join(sender), key), body, ask == "1", answer)
        if not self.pass_on(message) and answer is not None:
            answer(None)

    def _take_answer(self, _node: str, words: list[str], _body: bytes) -> None:
        found = self._waiting.pop(int(words[1]), None)
        if found is not None:
            found[1](int(words[2]) if words[2] != "-" else None)

    def _forget(self, sibling: Sibling) -> Iterator[None]:
        for serial, (link, answer) in list(self._waiting.items()):
            if link is sibling and self._waiting.pop(serial, None) is not None:
                answer(None)
                yield
        self._letters.after()


class Actors:
    """Where actors are registered; for the hub, as if workers were the daemons of a mesh.

    Args:
        siblings: the other workers.
        wall: returns seconds since the epoch.

    Attributes:
        letters, streams: between the hubs.
        named: False: all of them are one daemon to their clients.
    """

    named = False

    def __init__(self, siblings: Siblings, wall: Callable[[], float]) -> None:
        self._siblings = siblings
        self._wall = wall
        self.letters = Letters(siblings)
        self.streams = Streams(siblings, self.letters, wall)
        self._registrar: Registrar | None = None
        self._own: dict[str, int] = {}
        self._claims: dict[Sibling, dict[str, int]] = {}
        siblings.told[CLAIM] = self._hear_claim
        siblings.told[RELEASE] = self._hear_release
        siblings.introductions.append(self._introduce)
        siblings.farewells.append(self._forget)

    @property
    def node(self) -> str:
        """Return what this worker is called."""
        return f"worker/{self._siblings.number}"

    def serve(self, registrar: Registrar) -> None:
        """Take part, for a hub."""
        self._registrar = registrar

    def note(self, key: str, *, told: bool) -> None:
        """Do nothing: an address is claimed or free, and nobody else is to be told.

        Args:
            key: it.
            told: whether it was claimed just now, or has other details.
        """

    # Of this worker

    def claim(self, key: str) -> None:
        """Tell that an address is registered here, or its new details."""
        self._own.setdefault(key, int(self._wall() * 1000))
        if (claim := self._describe(key)) is not None:
            self._siblings.tell(CLAIM, claim)
        self.note(key, told=True)

    def release(self, key: str) -> None:
        """Tell that an address is registered here no more."""
        if self._own.pop(key, None) is not None:
            self._siblings.tell(RELEASE, key.encode())
            self.note(key, told=False)

    def _describe(self, key: str) -> bytes | None:
        since = self._own.get(key)
        details = None if self._registrar is None else self._registrar.describe(key)
        if since is None or details is None:
            return None
        return b"%d %b\n%b" % (since, key.encode(), details)

    def _introduce(self) -> Iterator[bytes]:
        """Return frames that tell a new sibling all addresses; they may change meanwhile."""
        for key in list(self._own):
            if (claim := self._describe(key)) is not None:
                yield frames.frame(frames.TELL, b"%b\n%b" % (CLAIM, claim))

    # Of others

    def find(self, key: str) -> str | None:
        """Return where an address is registered, if it is at another worker."""
        return self.find_near(key)

    def find_near(self, key: str) -> str | None:
        """Return the worker at which an address is registered, if it is at another one."""
        found = list(self.claims(key))
        return f"worker/{min(found)[1]}" if found else None

    def claims(self, key: str) -> Iterator[tuple[int, int]]:
        """Yield since when an address is registered at each other worker, and at which."""
        for sibling, claims in self._claims.items():
            if key in claims and not sibling.left:
                yield claims[key], sibling.number

    def disown(self, node: str, key: str) -> None:
        """Do nothing: a worker says that an address is free before it answers that.

        Args:
            node: it.
            key: the address.
        """

    @property
    def siblings(self) -> list[str]:
        """Return the other workers."""
        return [one.node for one in self._siblings.others.values()]

    @property
    def gate(self) -> str | None:
        """Return None: there are no other daemons."""
        return None

    @property
    def others(self) -> list[str]:
        """Return the other daemons: none."""
        return []

    @property
    def unsettled(self) -> list[str]:
        """Return daemons whose actors are not all known: none."""
        return []

    def _hear_claim(self, sibling: Sibling, data: bytes) -> None:
        head, _, details = data.partition(b"\n")
        first, _, name = head.partition(b" ")
        since, key = int(first), name.decode()
        self._claims.setdefault(sibling, {})[key] = since
        if self._registrar is None:
            return
        self._registrar.learn(sibling.node, key, since, details)
        mine = self._own.get(key)
        if mine is not None and (since, sibling.number) < (mine, self._siblings.number):
            self._registrar.lose(key, sibling.node)
            self.letters.after()
        self.note(key, told=True)

    def _hear_release(self, sibling: Sibling, data: bytes) -> None:
        self._drop(sibling, data.decode())

    def _drop(self, sibling: Sibling, key: str) -> None:
        claims = self._claims.get(sibling, {})
        if claims.pop(key, None) is None or self._registrar is None:
            return
        now = self._siblings.others.get(sibling.number)
        if now is sibling or now is None or key not in self._claims.get(now, {}):
            self._registrar.forget(sibling.node, key)
        self.note(key, told=False)

    def _forget(self, sibling: Sibling) -> Iterator[None]:
        """Forget what a sibling has told whose link has ended, in steps."""
        claims = self._claims.get(sibling, {})
        while claims:
            self._drop(sibling, next(iter(claims)))
            if len(claims) % _STEP == 0:
                yield
        self._claims.pop(sibling, None)
