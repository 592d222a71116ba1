"""``//pubsubd/live`` for all workers: the sections of each are put together, without I/O.

An observer is shown by the worker that it is connected to. At each tick, that one asks the others
for the same sections, and waits for them before it goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from heapq import nsmallest
from typing import Any

import msgspec

from pubsubd.broker.connections import Scope
from pubsubd.broker.live.observers import LIVE, Key, Live, Section
from pubsubd.broker.live.reading import check_keys, need
from pubsubd.broker.live.sections import PEERS, Wish
from pubsubd.broker.live.states import Row, State, Table, encode
from pubsubd.broker.peer import Peer
from pubsubd.broker.turn import Steps
from pubsubd.siblings.sibling import Sibling
from pubsubd.siblings.siblings import Siblings

_MORE = 1_000  # names asked of others for who may not see all
_MOST = {"loop_lag_ms"}
_LEAST = {"since"}
_SAME = {"version"}
_MESH = "mesh"
_MESH_PARTS = {"daemons": "node", "links": "link"}  # name -> the column that tells rows apart

Part = tuple[Mapping[str, Any], Sequence[Row]]
"""The values and the rows of one worker."""


class _Told:
    """A section that is told to other workers, too, and is watched while anybody looks there.

    Args:
        name: of the section.
        local: this worker's own.
        siblings: the others.
    """

    def __init__(self, name: str, local: Section, siblings: Siblings) -> None:
        self._local, self._siblings = local, siblings
        self._question = b"%b/%b" % (LIVE, name.encode())
        self._watchers: set[int] = set()  # workers whose clients look, this one perhaps among them
        self.read, self.scope = local.read, local.scope
        siblings.questions[self._question] = self._look_here
        siblings.told[self._question] = self._unwatch
        siblings.on_gone.append(self._forget)

    def watch(self, watched: bool) -> None:
        """Take note whether anybody looks; if not any more, the others are told so."""
        if watched:
            self._add(self._siblings.number)
        else:
            self._forget(self._siblings.number)
            self._siblings.tell(self._question, b"")

    def _add(self, number: int) -> None:
        if not self._watchers:
            self._local.watch(True)
        self._watchers.add(number)

    def _forget(self, number: int) -> None:
        if self._watchers:
            self._watchers.discard(number)
            if not self._watchers:
                self._local.watch(False)

    def _unwatch(self, sibling: Sibling, _data: bytes) -> None:
        self._forget(sibling.number)

    def _look_here(self, data: bytes) -> Steps[bytes]:
        number, asked = msgspec.json.decode(data)
        self._add(number)
        return self._answer(asked)

    def _answer(self, asked: list[Any]) -> Steps[bytes]:
        raise NotImplementedError


class Whole(_Told):
    """A section of all workers.

    Args:
        name: of the section.
        local: this worker's own.
        joined: returns the state, for a key and the parts of all workers, this one's first.
        siblings: the others.
        live: who looks.
    """

    def __init__(
        self,
        name: str,
        local: Section,
        joined: Callable[[Key, list[Part]], Table],
        siblings: Siblings,
        live: Live,
    ) -> None:
        super().__init__(name, local, siblings)
        self._join, self._live = joined, live

    def look(self, keys: Collection[Key]) -> Steps[dict[Key, State]]:
        """Return the present states, in steps; the tick goes on when the others have answered."""
        wanted = list(keys)
        asked = [_for_others(key) for key in wanted]
        number = self._siblings.number
        answers = self._siblings.questions.send(self._question, encode([number, asked]))
        own = yield from self._local.look(wanted)
        while answers.waiting:
            self._live.awaited = answers
            yield
        others = [msgspec.json.decode(text) for text in answers.got.values()]
        found: dict[Key, State] = {}
        for at, key in enumerate(wanted):
            parts = [_part(own[key]), *(states[at] for states in others)]
            joined = found[key] = self._join(key, parts)
            joined.values = {**joined.values, "silent": sorted(answers.silent)}
            yield
        return found

    def _answer(self, asked: list[Any]) -> Steps[bytes]:
        keys = [_key(*one) for one in asked]
        found = yield from self._local.look(keys)
        return encode([_part(found[key]) for key in keys])


class ToldMesh(_Told):
    """The mesh, where it is known: at the first worker.

    Args:
        local: the section.
        siblings: the others.
    """

    def __init__(self, local: Section, siblings: Siblings) -> None:
        super().__init__(_MESH, local, siblings)
        self.look = local.look

    def _answer(self, asked: list[Any]) -> Steps[bytes]:
        table = (yield from self._local.look([(None, None)]))[None, None]
        assert isinstance(table, Table)
        rows = [list(table.parts[name].rows.values()) for name in _MESH_PARTS]
        return encode([table.values, *rows])


class HeardMesh:
    """The mesh, as a worker shows it that asks the first one for it.

    Args:
        siblings: the others.
        live: who looks.
    """

    def __init__(self, siblings: Siblings, live: Live) -> None:
        self._siblings, self._live = siblings, live
        self._question = b"%b/%b" % (LIVE, _MESH.encode())
        self._last = Table()

    def read(self, given: Mapping[str, object]) -> Hashable:
        """Return what is wanted: there is no choice."""
        check_keys(given, _MESH)
        return None

    def scope(self, asker: Peer) -> Hashable:
        """Return what somebody may see: all of it, who may see the peers."""
        need(asker, PEERS)
        return None

    def watch(self, watched: bool) -> None:
        """Tell the first worker when nobody looks any more."""
        if not watched:
            self._siblings.tell(self._question, b"")

    def look(self, keys: Collection[Key]) -> Steps[dict[Key, State]]:
        """Return the mesh, in steps; as it was last if the first worker does not answer."""
        siblings = self._siblings
        first = [one for one in siblings.others.values() if one.number == 0]
        asked = encode([siblings.number, []])
        answers = siblings.questions.send(self._question, asked, only=first)
        while answers.waiting:
            self._live.awaited = answers
            yield
        for text in answers.got.values():
            values, *parts = msgspec.json.decode(text)
            tables = {
                name: Table(key, {row[key]: row for row in rows})
                for (name, key), rows in zip(_MESH_PARTS.items(), parts, strict=True)
            }
            self._last = Table(values=values, parts=tables)
            yield
        return dict.fromkeys(keys, self._last)


def install(siblings: Siblings, live: Live) -> None:
    """Let the observers of this worker see the whole daemon."""
    joins: dict[str, Callable[[Key, list[Part]], Table]] = {
        "totals": lambda _key, parts: Table(values=_add_up([values for values, _ in parts])),
        "connections": _join_connections,
        "names": _join_names,
    }
    for name, joined in joins.items():
        live.sections[name] = Whole(name, live.sections[name], joined, siblings, live)


def install_mesh(siblings: Siblings, live: Live) -> None:
    """Let the observers of this worker see the mesh that the first worker takes part in."""
    if siblings.number == 0:
        live.sections[_MESH] = ToldMesh(live.sections[_MESH], siblings)
    else:
        live.sections[_MESH] = HeardMesh(siblings, live)


def _part(state: State) -> Part:
    assert isinstance(state, Table)
    return state.values, list(state.rows.values())


def _for_others(key: Key) -> tuple[Any, Any]:
    """Return what others are asked: rights are applied here, to what they answer."""
    wish, scope = key
    if isinstance(wish, int):
        return (wish if scope is None else max(wish, _MORE)), None
    return wish, scope


def _key(wish: Any, scope: Any) -> Key:
    return (
        Wish(*wish) if isinstance(wish, list) else wish,
        None if scope is None else Scope(*scope),
    )


def _add_up(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    found = dict(parts[0])
    for part in parts[1:]:
        for name, value in part.items():
            if name in _MOST:
                found[name] = max(found[name], value)
            elif name in _LEAST:
                found[name] = min(found[name], value)
            elif name not in _SAME:
                found[name] = round(found[name] + value, 3)
    return found


_ORDERS: dict[str, Callable[[Row], Any]] = {
    "age": lambda row: row["connection"],
    "rate": lambda row: -row["messages_in_rate"] - row["messages_out_rate"],
    "backlog": lambda row: -row["backlog_bytes"],
    "dropped": lambda row: -row["dropped"],
}


def _join_connections(key: Key, parts: list[Part]) -> Table:
    wish = key[0]
    assert isinstance(wish, Wish)
    order = _ORDERS[wish.sort]
    rows = nsmallest(
        wish.limit,
        (row for _, rows in parts for row in rows),
        key=lambda row: (order(row), row["connection"]),
    )
    shown = {row["connection"]: row for row in rows}
    return Table("connection", shown, _add_up([values for values, _ in parts]))


def _join_names(key: Key, parts: list[Part]) -> Table:
    limit, rights = key
    assert isinstance(limit, int)
    sums: dict[str, dict[str, Any]] = {}
    for _, rows in parts:
        for row in rows:
            name = row["name"]
            before = sums.get(name, {"rate": 0, "error": 0})
            sums[name] = {
                "name": name,
                "rate": round(before["rate"] + row["rate"], 1),
                "error": round(before["error"] + row["error"], 1),
            }
    may: Any = rights
    seen = [row for row in sums.values() if may is None or may.may_receive(row["name"].encode())]
    rows = nsmallest(limit, seen, key=lambda row: -row["rate"])
    values = {"sampled": min(values.get("sampled", 1.0) for values, _ in parts)}
    return Table("name", {row["name"]: row for row in rows}, values)
