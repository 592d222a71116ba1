"""Graphs to simulate meshes on: made by a rule, or read from a file.

A graph is a sorted list of pairs ``(src, dst)`` of ids of daemons: ``src`` dials ``dst``. Those
that are made here are connected and simple: no daemon dials itself, and of two daemons at most one
dials the other. Daemons are called n1, n2, ... and the same ``random.Random`` makes the same graph.
"""

from __future__ import annotations

import json
import random
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TypeVar

from pubsubd.mesh.adverts import AdvertError, check_node
from pubsubd.protocol.errors import PubsubdError
from pubsubd.protocol.wire import quote

Edge = tuple[str, str]
Graph = list[Edge]
Node = TypeVar("Node")

_TRIES = 200  # graphs made before there seems to be none that will do


class GraphError(PubsubdError):
    """A graph that cannot be made or read, in one line."""


def line(count: int) -> Graph:
    """Return ``count`` daemons, each of which but the last dials the next one."""
    _check(count)
    return sorted((_name(i), _name(i + 1)) for i in range(count - 1))


def ring(count: int) -> Graph:
    """Return ``count`` daemons, 3 or more, in a circle."""
    _check(count, 3)
    return sorted((_name(i), _name((i + 1) % count)) for i in range(count))


def tree(count: int, branches: int = 2) -> Graph:
    """Return a tree of ``count`` daemons in which each has up to ``branches`` below it."""
    _check(count)
    if branches < 1:
        raise GraphError(f"a tree of {branches} branches cannot be made")
    return sorted((_name(i), _name((i - 1) // branches)) for i in range(1, count))


def regular(count: int, degree: int, rng: random.Random) -> Graph:
    """Return a random graph of ``count`` daemons that have ``degree`` links each.

    Ends of links are paired at random, as far as the graph stays simple (Steger and Wormald 1999);
    what is not connected, or gets stuck, is made again.
    """
    _check(count)
    if not 1 <= degree < count or count * degree % 2:
        raise GraphError(f"{count} daemons cannot have {degree} links each")
    if degree == 1 and count > 2:
        raise GraphError(f"{count} daemons with 1 link each are not connected")
    if degree == 2:
        order = rng.sample(range(count), count)
        return _orient(zip(order, [*order[1:], order[0]], strict=True), rng)
    if degree > (count - 1) // 2:  # dense: leave out a sparse one
        rest = count - 1 - degree
        spared = _try(lambda: _pair(count, rest, rng)) if rest else set()
        every = ((i, j) for i in range(count) for j in range(i + 1, count))
        return _orient([pair for pair in every if pair not in spared], rng)
    return _orient(_try(lambda: _if_connected(count, _pair(count, degree, rng))), rng)


def small_world(count: int, rng: random.Random, degree: int = 4, rewired: float = 0.1) -> Graph:
    """Return a small world (Watts and Strogatz 1998).

    ``count`` daemons in a circle are linked to the ``degree / 2`` nearest ones on either side, and
    then each link is, with the probability ``rewired``, moved to a random daemon at one end.
    """
    _check(count, 3)
    if not 2 <= degree < count or degree % 2:
        raise GraphError(f"a small world of {count} daemons cannot have {degree} links each")
    if not 0 <= rewired <= 1:
        raise GraphError(f"{rewired} is no probability")
    return _orient(_try(lambda: _if_connected(count, _rewire(count, degree, rewired, rng))), rng)


def _check(count: int, least: int = 2) -> None:
    if count < least:
        raise GraphError(f"{count} daemons are too few: {least} or more make such a graph")


def _name(number: int) -> str:
    return f"n{number + 1}"


def _orient(pairs: Iterable[tuple[int, int]], rng: random.Random) -> Graph:
    """Return the graph of ``pairs``, in each of which a coin decides who dials."""
    graph: Graph = []
    for pair in sorted((min(pair), max(pair)) for pair in pairs):
        one, another = map(_name, pair)
        graph.append((one, another) if rng.random() < 0.5 else (another, one))
    return sorted(graph)


def _try(make: Callable[[], set[tuple[int, int]] | None]) -> set[tuple[int, int]]:
    for _ in range(_TRIES):
        if (pairs := make()) is not None:
            return pairs
    raise GraphError(f"of {_TRIES} graphs that were made, none is connected")


def _pair(count: int, degree: int, rng: random.Random) -> set[tuple[int, int]] | None:
    """Return a random graph of ``degree``, connected or not; None if no pair is left for it."""
    pairs: set[tuple[int, int]] = set()
    stubs = [i for i in range(count) for _ in range(degree)]
    while stubs:
        rng.shuffle(stubs)
        left: list[int] = []
        for one, another in zip(stubs[::2], stubs[1::2], strict=True):
            pair = (min(one, another), max(one, another))
            if one == another or pair in pairs:
                left += pair
            else:
                pairs.add(pair)
        if len(left) == len(stubs) and not _pairable(set(left), pairs):
            return None
        stubs = left
    return pairs


def _pairable(left: set[int], pairs: set[tuple[int, int]]) -> bool:
    return any(one < another and (one, another) not in pairs for one in left for another in left)


def _rewire(count: int, degree: int, rewired: float, rng: random.Random) -> set[tuple[int, int]]:
    near: list[set[int]] = [set() for _ in range(count)]
    lattice = [(i, (i + step) % count) for step in range(1, degree // 2 + 1) for i in range(count)]
    for one, another in lattice:
        near[one].add(another)
        near[another].add(one)
    for one, another in lattice:
        if rng.random() >= rewired or len(near[one]) == count - 1:
            continue
        chosen = rng.randrange(count)
        while chosen == one or chosen in near[one]:
            chosen = rng.randrange(count)
        near[one].remove(another)
        near[another].remove(one)
        near[one].add(chosen)
        near[chosen].add(one)
    return {(one, another) for one in range(count) for another in near[one] if one < another}


def _if_connected(count: int, pairs: set[tuple[int, int]] | None) -> set[tuple[int, int]] | None:
    if pairs is None:
        return None
    return pairs if len(reach(0, neighbours(pairs))) == count else None


def neighbours(graph: Iterable[tuple[Node, Node]]) -> dict[Node, set[Node]]:
    """Return who is linked to whom, whoever dialled; links of a daemon to itself do not count."""
    near: dict[Node, set[Node]] = {}
    for one, another in graph:
        if one != another:
            near.setdefault(one, set()).add(another)
            near.setdefault(another, set()).add(one)
    return near


def reach(start: Node, near: Mapping[Node, Iterable[Node]]) -> set[Node]:
    """Return ``start`` and all that can be reached from it."""
    found = {start}
    queue = [start]
    while queue:
        for node in near.get(queue.pop(), ()):
            if node not in found:
                found.add(node)
                queue.append(node)
    return found


# Files


def least_edges(
    near: Mapping[str, Iterable[str]], root: str, receivers: Iterable[str]
) -> list[Edge]:
    """Return the edges of a tree of shortest paths from ``root`` that lead to ``receivers``.

    Each is given with its lesser end first.
    """
    above = {root: root}
    queue = deque([root])
    while queue:
        node = queue.popleft()
        for neighbour in near[node]:
            if neighbour not in above:
                above[neighbour] = node
                queue.append(neighbour)
    edges: set[Edge] = set()
    for end in receivers:
        node = end
        while node != root and (above[node], node) not in edges:
            edges.add((above[node], node))
            node = above[node]
    return [(min(edge), max(edge)) for edge in sorted(edges)]


def read_graph(path: Path | str) -> Graph:
    """Return the graph in a file.

    Either ``src dst`` a line, with a tab, a comma or spaces between, ``#`` before comments, and
    with tabs perhaps more columns, which are ignored; or one JSON object a line, as ``pubsubd
    edges`` writes them: of several about one link, the one with the latest ``ts`` counts,
    and a link that it calls down is left out.

    A pair that comes twice is one link. A daemon may dial itself, and two may dial each other.

    Raises:
        GraphError: a line that is neither, by its number; or no link at all.
        OSError: the file cannot be read.
    """
    path = Path(path)
    states: dict[Edge, tuple[str, bool]] = {}
    for number, raw in enumerate(path.read_bytes().split(b"\n"), 1):
        try:
            text = raw.decode("utf-8-sig" if number == 1 else "utf-8")
            if text.startswith("{"):
                edge, ts, up = _parse_row(text)
            elif text := text.partition("#")[0].strip(" \r"):
                edge, ts, up = _parse_pair(text), "", True
            else:
                continue
            for node in edge:
                check_node(node)
        except UnicodeDecodeError:
            raise GraphError(f"{path}, line {number}: not UTF-8") from None
        except (GraphError, AdvertError) as error:
            raise GraphError(f"{path}, line {number}: {error}") from None
        if edge not in states or states[edge][0] <= ts:
            states[edge] = ts, up
    graph = sorted(edge for edge, (_, up) in states.items() if up)
    if not graph:
        raise GraphError(f"{path}: there is no link in it")
    return graph


def _parse_pair(text: str) -> Edge:
    if "\t" in text:
        words = [word.strip() for word in text.split("\t")][:2]
    elif "," in text:
        words = [word.strip() for word in text.split(",")]
    else:
        words = text.split()
    if len(words) != 2 or not all(words):
        raise GraphError(f"{quote(text.encode())} is not: <src> <dst>")
    return words[0], words[1]


def _parse_row(text: str) -> tuple[Edge, str, bool]:
    try:
        row = json.loads(text)
    except (ValueError, RecursionError):
        raise GraphError("it begins like a JSON object and is none") from None
    src, dst, ts, state = (row.get(key) for key in ("src", "dst", "ts", "state"))
    if not (isinstance(src, str) and isinstance(dst, str)):
        raise GraphError('a row needs the texts "src" and "dst"')
    if not isinstance(ts, str | None) or state not in (None, "up", "down"):
        raise GraphError('"ts" has to be a text, and "state" "up" or "down"')
    return (src, dst), ts or "", state != "down"
