"""Actors of the workers of a daemon that is in a mesh, and of the other daemons, without I/O.

The first worker has the links, and the mesh's directory. There, what is registered at any worker is
claimed by this daemon; see :class:`FirstActors`. It tells the other workers what is claimed at
other daemons, so that each of them finds all; see :class:`OtherActors`.

    far <lines>                             changes of claims
    + <daemon> <since> <key> <details>
    - <daemon> <key>
    mesh <json>                             the other daemons
    lose <key> <daemon>                     a letter: an earlier claim has been found there

Changes are gathered, and a line says what holds when it is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Protocol

import msgspec
from msgspec import Struct

from pubsubd.protocol.limits import KIB
from pubsubd.routing.claims import Claims, Table
from pubsubd.siblings import frames
from pubsubd.siblings.actors import Actors, Registrar
from pubsubd.siblings.sibling import Sibling
from pubsubd.siblings.siblings import Siblings

FAR, MESH = b"far", b"mesh"

PART = 64 * KIB
"""Bytes of lines that are told at once."""

FIRST = "worker/0"

_STEP = 16  # lines taken between two looks at the clock


class _Nodes(Struct):
    """The other daemons.

    Attributes:
        node: this daemon.
        others: those with a hub that can be reached.
        unsettled: those whose claims are not all known.
    """

    node: str = ""
    others: list[str] = []
    unsettled: list[str] = []


_encode = msgspec.json.Encoder().encode
_read_nodes = msgspec.json.Decoder(_Nodes).decode


class Directory(Protocol):
    """The claims of all daemons; :class:`pubsubd.mesh.directory.Directory`."""

    looked: Callable[[], None]

    @property
    def node(self) -> str:
        """Id of this daemon."""

    @property
    def own(self) -> Mapping[str, int]:
        """What is claimed by this daemon, and since when, in milliseconds."""

    @property
    def nodes(self) -> Iterable[str]:
        """The other daemons whose claims are known."""

    @property
    def others(self) -> list[str]:
        """Those with a hub that can be reached."""

    @property
    def unsettled(self) -> list[str]:
        """Those of them whose claims are not all known."""

    def serve(self, registrar: FirstActors) -> None:
        """Take part."""

    def claim(self, key: str, since: int) -> object:
        """Claim an address, or tell its new details."""

    def release(self, key: str) -> None:
        """Withdraw a claim."""

    def find(self, key: str) -> str | None:
        """Return the other daemon at which an address is claimed."""

    def disown(self, node: str, key: str) -> None:
        """Take note that another daemon has given an address away."""

    def claims(self, node: str) -> Mapping[str, int]:
        """Return what is known to be claimed at another daemon, and since when."""


class MeshActors(Actors):
    """Actors of a worker of a daemon in a mesh."""

    named = True

    @property
    def unsettled(self) -> list[str]:
        """Return daemons whose actors are not all known; this one, while a worker is new."""
        found = set(self.far_unsettled)
        if not self._siblings.introduced:
            found.add(self.node)
        return sorted(found)

    @property
    def far_unsettled(self) -> list[str]:
        """Return other daemons whose actors are not all known."""
        raise NotImplementedError


class FirstActors(MeshActors):
    """Actors of the first worker, to the mesh's directory those of the daemon.

    Args:
        siblings, wall: as for :class:`Actors`.
        directory: of the mesh.

    Attributes:
        connections_elsewhere: returns the number of connections of the hub port at other workers.
    """

    def __init__(self, siblings: Siblings, wall: Callable[[], float], directory: Directory) -> None:
        super().__init__(siblings, wall)
        self._directory = directory
        self.connections_elsewhere: Callable[[], int] = lambda: 0
        self._changed: dict[tuple[str, str], None] = {}  # claims of daemons that are to be told
        self._told = b""  # of the daemons
        self._looked = False
        directory.looked = self._note_nodes
        siblings.introductions.append(self._introduce_far)
        siblings.changes.append(self._tell)

    def serve(self, registrar: Registrar) -> None:
        """Take part, for a hub, and let the daemon take part in the mesh."""
        super().serve(registrar)
        self._directory.serve(self)

    # Of this daemon

    def note(self, key: str, *, told: bool) -> None:
        """Claim an address in the mesh, or withdraw that: the daemon has it if a worker has."""
        directory, claims = self._directory, list(self.claims(key))
        if key in self._own:
            claims.append((self._own[key], self._siblings.number))
        if not claims:
            directory.release(key)
        elif told or directory.own.get(key) != min(claims)[0]:
            directory.claim(key, min(claims)[0])

    # What the hub asks

    @property
    def node(self) -> str:
        """Return the id of the daemon."""
        return self._directory.node

    @property
    def others(self) -> list[str]:
        """Return the other daemons with a hub that can be reached."""
        return self._directory.others

    @property
    def far_unsettled(self) -> list[str]:
        """Return those of them whose actors are not all known."""
        return self._directory.unsettled

    def find(self, key: str) -> str | None:
        """Return the worker or daemon at which an address is registered."""
        return self.find_near(key) or self._directory.find(key)

    def disown(self, node: str, key: str) -> None:
        """Take note that another daemon has given an address away."""
        self._directory.disown(node, key)

    # What the mesh's directory asks and says

    @property
    def connections(self) -> int:
        """Return the number of connections of the hub port."""
        assert self._registrar is not None
        return self._registrar.connections + self.connections_elsewhere()

    def describe(self, key: str) -> bytes | None:
        """Return the details of an actor of this daemon, in one line."""
        assert self._registrar is not None
        return self._registrar.describe(key, None if key in self._own else self.find_near(key))

    def learn(self, node: str, key: str, since: int, details: bytes) -> bool:
        """Take an actor of another daemon; return False if there is no room for it."""
        assert self._registrar is not None
        if not self._registrar.learn(node, key, since, details):
            return False
        self._change(node, key)
        return True

    def forget(self, node: str, key: str) -> None:
        """Take note that an actor of another daemon is gone."""
        assert self._registrar is not None
        self._registrar.forget(node, key)
        self._change(node, key)

    def lose(self, key: str, node: str) -> None:
        """End a registration of this daemon: that at another one is earlier."""
        assert self._registrar is not None
        for _, number in list(self.claims(key)):
            self.letters.send(f"worker/{number}", f"lose {key} {node}")
        self._registrar.lose(key, node)

    # Telling the other workers

    def _change(self, node: str, key: str) -> None:
        if not self._changed:
            self._siblings.woken()
        self._changed[node, key] = None

    def _note_nodes(self) -> None:
        if not self._looked:
            self._looked = True
            self._siblings.woken()

    def _describe_nodes(self) -> bytes:
        directory = self._directory
        return _encode(_Nodes(directory.node, directory.others, directory.unsettled))

    def _line(self, node: str, key: str) -> bytes:
        since, details = self._directory.claims(node).get(key), None
        try:
            if since is not None and self._registrar is not None:
                details = self._registrar.describe(key, node)
        except Exception as error:  # noqa: BLE001  (only that actor is not found at other workers)
            self._siblings.broker.faults.note(error, "siblings")
        if since is None or details is None:
            return b"- %b %b\n" % (node.encode(), key.encode())
        return b"+ %b %d %b %b\n" % (node.encode(), since, key.encode(), details)

    def _tell(self) -> None:
        """Tell what has changed, as much as goes at once."""
        if self._looked:
            if (told := self._describe_nodes()) != self._told:
                self._siblings.tell(MESH, told)
                self._told = told
            self._looked = False
        lines: list[bytes] = []
        size = 0
        told_of = []
        for node, key in self._changed:
            lines.append(self._line(node, key))
            told_of.append((node, key))
            size += len(lines[-1])
            if size >= PART:
                break
        if lines:
            self._siblings.tell(FAR, b"".join(lines))
        for one in told_of:
            del self._changed[one]
        if self._changed:
            self._siblings.woken()

    def _introduce_far(self) -> Iterator[bytes]:
        """Return frames that tell a new sibling of all daemons; they may change meanwhile."""
        yield frames.frame(frames.TELL, b"%b\n%b" % (MESH, self._describe_nodes()))
        for node in list(self._directory.nodes):
            lines: list[bytes] = []
            size = 0
            for key in list(self._directory.claims(node)):
                lines.append(self._line(node, key))
                size += len(lines[-1])
                if size >= PART:
                    yield frames.frame(frames.TELL, b"%b\n%b" % (FAR, b"".join(lines)))
                    lines.clear()
                    size = 0
            yield frames.frame(frames.TELL, b"%b\n%b" % (FAR, b"".join(lines)))


class OtherActors(MeshActors):
    """Actors of a worker without links to other daemons, which knows theirs from the first one."""

    def __init__(self, siblings: Siblings, wall: Callable[[], float]) -> None:
        super().__init__(siblings, wall)
        self._nodes = _Nodes()
        self._reached: frozenset[str] = frozenset()
        self._far = Claims()
        self.letters.kinds["lose"] = self._lose
        siblings.told[FAR] = self._hear_far
        siblings.told[MESH] = self._hear_nodes
        siblings.on_gone.append(self._note_gone)
        siblings.changes.append(self._empty)

    def serve(self, registrar: Registrar) -> None:
        """Take part, for a hub."""
        super().serve(registrar)
        self._far.learner = registrar

    # What the hub asks

    @property
    def node(self) -> str:
        """Return the id of the daemon, as the first worker has told it."""
        return self._nodes.node

    @property
    def gate(self) -> str | None:
        """Return the first worker, if there is a link to it."""
        return FIRST if 0 in self._siblings.others else None

    @property
    def others(self) -> list[str]:
        """Return the other daemons with a hub that can be reached."""
        return self._nodes.others

    @property
    def far_unsettled(self) -> list[str]:
        """Return those of them whose actors are not all known."""
        return self._nodes.unsettled

    def find(self, key: str) -> str | None:
        """Return the worker or daemon at which an address is registered."""
        near = self.find_near(key)
        if near is not None:
            return near
        node = self._far.find(key)
        return node if node in self._reached else None

    def disown(self, node: str, key: str) -> None:
        """Take note that another daemon has given an address away."""
        self._remove(node, key)

    # What the first worker tells

    def _hear_nodes(self, _sibling: Sibling, data: bytes) -> None:
        self._set_nodes(_read_nodes(data))

    def _set_nodes(self, nodes: _Nodes) -> None:
        self._nodes, self._reached = nodes, frozenset(nodes.others)

    def _hear_far(self, sibling: Sibling, data: bytes) -> Iterator[None]:
        for number, line in enumerate(data.splitlines(), 1):
            if sibling.left:
                return
            sign, named, *rest = line.split(b" ", 4)
            node = named.decode()
            if sign == b"-":
                self._remove(node, rest[0].decode())
            else:
                since, key, details = rest
                table = self._far.tables.setdefault(node, Table(0))
                self._far.add(node, table, key.decode(), int(since), details)
            if number % _STEP == 0:
                yield

    def _remove(self, node: str, key: str) -> None:
        if (table := self._far.tables.get(node)) is not None:
            self._far.remove(node, table, key)
            if not table.claims:
                del self._far.tables[node]

    def _note_gone(self, number: int) -> None:
        """Forget the other daemons: the link to the first worker has ended."""
        if number == 0:
            self._set_nodes(_Nodes(self._nodes.node))
            for node in list(self._far.tables):
                self._far.drop(node)
            self._siblings.woken()

    def _empty(self) -> None:
        """Forget some claims of daemons that are gone."""
        for _ in self._far.emptying():
            self._siblings.woken()
            break

    def _lose(self, _node: str, words: list[str], _body: bytes) -> None:
        if self._registrar is not None:
            self._registrar.lose(words[1], words[2])
