"""Requests about the whole daemon: what each worker finds is put together, without I/O.

Whichever worker a client is connected to, it asks all others, waits for them as long as
:data:`~pubsubd.siblings.questions.PATIENCE` says, and answers for all of them. A worker that has
not answered by then is named in the answer, under ``silent``. Counters never go down: those of a
worker that has died or does not answer are what it has told last.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable
from dataclasses import asdict
from time import perf_counter
from typing import Any

import msgspec

from pubsubd.broker.connections import Ending, Found, Scope, Wanted, join
from pubsubd.broker.explain import explain
from pubsubd.broker.peer import Peer
from pubsubd.broker.trace import (
    TRACE,
    Receiving,
    add_up,
    describe_trace,
    find_receiving,
    read_request,
)
from pubsubd.broker.turn import Steps
from pubsubd.broker.unsent import Waited
from pubsubd.protocol.errors import ProtocolError
from pubsubd.protocol.limits import MAX_EXPLAINED
from pubsubd.routing.targets import CopyTargets, Targets
from pubsubd.siblings.questions import PATIENCE, Answers
from pubsubd.siblings.siblings import Siblings, is_sibling

STATS = b"//pubsubd/stats"
EXPLAIN = b"//pubsubd/explain"
CONNECTIONS = b"//pubsubd/connections"
KILL = b"//pubsubd/kill"

_SAME = {"version", "pid", "uptime_s", "substrings"}  # each worker knows all substrings
_COUNTERS = (
    *("connections_total", "messages_in", "messages_out", "bytes_in", "bytes_out", "dropped"),
    *("half_frames", "closed", "errors", "faults", "lookups", "cpu_s"),
)


class Whole:
    """The requests of all workers' clients about the daemon.

    Args:
        siblings: the other workers.
        pid: of the process that started the workers, which stands for the daemon.
    """

    def __init__(self, siblings: Siblings, pid: int) -> None:
        self._siblings, self._broker, self._pid = siblings, siblings.broker, pid
        self._kept = siblings.progress.statistics
        self._before = json.loads(self._kept.last(siblings.number) or b"{}")
        siblings.questions |= {
            STATS: lambda _data: _encode(self._own_statistics()),
            EXPLAIN: self._explain_here,
            CONNECTIONS: self._find_here,
            KILL: self._end_here,
            TRACE: self._trace_here,
        }
        self._broker.requests |= {
            STATS: lambda _peer, _data: self.describe(),
            EXPLAIN: lambda _peer, data: self._explain(data),
            CONNECTIONS: self._show,
            KILL: self._kill,
            TRACE: self._trace,
        }

    # Statistics

    def describe(self) -> Steps[bytes]:
        """Return the statistics of the daemon, in steps, as ``//pubsubd/stats`` carries them."""
        return self._describe((yield from self._siblings.ask(STATS, b"")))

    def tell(self, tell: Callable[[bytes], None]) -> None:
        """Call ``tell`` with the statistics of the daemon, when all workers have told theirs."""
        answers = self._siblings.questions.send(STATS, b"")
        answers.done = lambda: tell(self._describe(answers))
        if not answers.waiting:
            answers.done()

    def _describe(self, answers: Answers) -> bytes:
        parts = {self._siblings.number: self._own_statistics()}
        others = self._kept.fill(answers.got, self._siblings.number)
        parts |= {number: json.loads(text) for number, text in others.items()}
        used = {str(number): part["cpu_s"] for number, part in sorted(parts.items())}
        found = _add_up(parts.values()) | {"workers_cpu_s": used}
        return _encode(found | _silent(answers.silent))

    def _own_statistics(self) -> dict[str, Any]:
        """Return the statistics of this worker, and of those that were it before, and keep them."""
        own = _add_up([asdict(self._broker.statistics()), self._before])
        self._kept.keep(self._siblings.number, _encode({key: own[key] for key in _COUNTERS}))
        uptime = time.monotonic() - self._siblings.progress.begun
        return own | {"pid": self._pid, "uptime_s": round(uptime, 3)}

    # Who receives a name

    def _explain(self, data: bytes) -> Steps[bytes]:
        found = yield from self._own_receivers(data)
        answers = yield from self._siblings.ask(EXPLAIN, data)
        size = len(json.dumps(found["receivers"]))
        for text in answers.got.values():
            part = json.loads(text)
            found["count"] += part["count"]
            for entry in part["receivers"]:
                if size >= MAX_EXPLAINED:
                    break
                size += len(json.dumps(entry))
                found["receivers"].append(entry)
        return _encode(found | _silent(answers.silent))

    def _explain_here(self, data: bytes) -> Steps[bytes]:
        return _encode((yield from self._own_receivers(data)))

    def _own_receivers(self, name: bytes) -> Steps[dict[str, Any]]:
        broker = self._broker
        return (yield from explain(broker.router, broker.delivery.turn, name, without=_Elsewhere()))

    # Connections

    def _show(self, asker: Peer, data: bytes) -> Steps[bytes]:
        connections = self._broker.connections
        wanted, scope = connections.read(data), connections.scope(asker)
        answers = yield from self._siblings.ask(CONNECTIONS, _encode([wanted, scope]))
        parts = [(yield from connections.find(wanted, scope))]
        for text in answers.got.values():
            total, more, rows = json.loads(text)
            parts.append(Found(total, more, [(value, number, row) for value, number, row in rows]))
        return join(wanted, parts, answers.silent)

    def _find_here(self, data: bytes) -> Steps[bytes]:
        wanted, scope = json.loads(data)
        return _encode(
            (yield from self._broker.connections.find(Wanted(*wanted), read_scope(scope)))
        )

    def _kill(self, asker: Peer, data: bytes) -> Steps[bytes]:
        connections = self._broker.connections
        ending = connections.read_ending(asker, data)
        if ending.number == asker.number or ending.number in self._broker.peers:
            return connections.kill(asker, data)
        answers = yield from self._siblings.ask(KILL, _encode(ending))
        for text in answers.got.values():
            error, row = json.loads(text)
            if error:
                raise ProtocolError(*error)
            if row:
                return row.encode()  # type: ignore[no-any-return]
        raise ending.unknown()

    def _end_here(self, data: bytes) -> bytes:
        number, scope, allowed, text = json.loads(data)
        try:
            row = self._broker.connections.end(Ending(number, read_scope(scope), allowed, text))
        except ProtocolError as error:
            return _encode([[error.code, error.text], None])
        return _encode([None, row and row.decode()])

    # Traces

    def look(
        self, name: bytes, *, relayed: bool, listed: bool, scope: Scope | None
    ) -> Generator[Waited | None, None, tuple[Receiving, Targets | CopyTargets]]:
        """Return what all workers do with ``name``, and where this one's router sends it, in steps.

        It takes the arguments of :func:`~pubsubd.broker.trace.find_receiving`, and yields what it
        waits for.
        """
        asked = _encode([name.decode(), relayed, listed, scope])
        answers = self._siblings.questions.send(TRACE, asked)
        found, targets = yield from self._receiving(name, relayed, listed, scope)
        while answers.waiting:
            yield answers
        return add_up([found, *_receivings(answers)]), targets

    def _trace(self, asker: Peer, data: bytes) -> Steps[bytes]:
        _, name = read_request(asker, data)
        scope, begun = self._broker.connections.scope(asker), perf_counter()
        asked = _encode([name.decode(), False, True, scope])
        answers = yield from self._siblings.ask(TRACE, asked)
        found, _ = yield from self._receiving(name, False, True, scope)
        parts = [found, *_receivings(answers)]
        return describe_trace(name, parts, perf_counter() - begun, sorted(answers.silent))

    def pass_trace(self, question: bytes, asker: Peer, data: bytes) -> Steps[bytes]:
        """Return the answer to a trace, which the first worker makes, in steps."""
        request, _ = read_request(asker, data, self._broker.reserved)
        asked = _encode([data.decode(), self._broker.connections.scope(asker)])
        patience = request.timeout + PATIENCE
        answer = yield from self._siblings.questions.ask_one(0, question, asked, patience)
        return answer

    def read_trace(self, data: bytes) -> tuple[bytes, Scope | None]:
        """Return the data of a trace and the scope of its asker, as another worker passes them."""
        request, scope = json.loads(data)
        return request.encode(), read_scope(scope)

    def _trace_here(self, data: bytes) -> Steps[bytes]:
        name, relayed, listed, scope = json.loads(data)
        found, _ = yield from self._receiving(name.encode(), relayed, listed, read_scope(scope))
        return msgspec.json.encode(found)

    def _receiving(
        self, name: bytes, relayed: bool, listed: bool, scope: Scope | None
    ) -> Steps[tuple[Receiving, Targets | CopyTargets]]:
        router, peers = self._broker.router, self._broker.peers
        return find_receiving(router, peers, name, relayed=relayed, listed=listed, scope=scope)


class _Elsewhere:
    """The receivers at other workers, which tell of them themselves."""

    def __contains__(self, receiver: object) -> bool:
        return is_sibling(receiver)


def _receivings(answers: Answers) -> list[Receiving]:
    return [msgspec.json.decode(text, type=Receiving) for text in answers.got.values()]


def read_scope(found: list[Any] | None) -> Scope | None:
    """Return whose connections may be seen, as another worker has told it."""
    return None if found is None else Scope(*found)


def _encode(value: object) -> bytes:
    return json.dumps(value).encode()


def _silent(numbers: list[int]) -> dict[str, list[int]]:
    return {"silent": sorted(numbers)} if numbers else {}


def _add_up(parts: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Return the statistics of several workers as those of one daemon."""
    found: dict[str, Any] = {}
    for part in parts:
        for key, value in part.items():
            before = found.get(key)
            if before is None or key in _SAME:
                found[key] = value
            elif isinstance(value, dict):
                found[key] = dict(Counter(before) + Counter(value))
            else:
                found[key] = round(before + value, 3)
    return found
