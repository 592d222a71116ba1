"""A memory limit, as MemoryMax sets it, under clients that want all the memory there is.

The daemon runs in a control group of its own (v1 or v2; where that is not possible, under a limit
of its address space). Clients do what takes most: they send all but the last byte of payloads,
stop reading with full backlogs, subscribe as many of the longest substrings as they may, publish
under names that are never the same, and send JSON as large as may be. First all limits have their
defaults, and there are so many of these clients that they fit. Then the limits are set so that all
connections there may be fit into less, and all of them are hostile. Each time the daemon has to
live, and streams of healthy clients have to stay whole.
"""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from soaklib.daemons import Daemon, running
from soaklib.scenario import Scenario, Setting, judge_end, judge_messages
from soaklib.traffic import Pub, Report, Sub, traffic
from soaklib.verdict import Verdict, mib
from soaklib.wires import KIB, MIB, Address, Line, frame, over, synap_publish, wait_until
from soaklib.workers import Told, Worker

_V1 = Path("/sys/fs/cgroup/memory")
_V2 = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class _Plan:
    """How much the clients want.

    Attributes:
        name: what it is called.
        limit: bytes that the daemon may have.
        flags: the limits it is given.
        payload, pending, texts: its limits of these.
        halves: clients with a payload that lacks its last byte.
        stopped: those that do not read.
        hoarders: those that subscribe all they may.
        names: that are published once each.
    """

    name: str
    limit: int
    flags: tuple[str, ...]
    payload: int
    pending: int
    texts: int
    halves: int
    stopped: int
    hoarders: int
    names: int

    @property
    def bound(self) -> int:
        """What it all multiplies out to, by the operator's guide."""
        return (
            45 * MIB
            + self.halves * (self.payload + 10 * KIB)
            + self.stopped * (self.pending + 256 * KIB)
            + self.hoarders * self.texts * 3 * KIB
            + min(self.names, 65_536) * 1_300
            + 16 * MIB  # what is being read and written at the moment
        )


_DEFAULT = _Plan(
    *("with defaults", 512 * MIB, (), MIB, 8 * MIB, 10_000),
    halves=100,
    stopped=20,
    hoarders=2,
    names=70_000,
)
_SIZED = _Plan(
    "sized for less",
    256 * MIB,
    (
        "--max-connections=200",
        "--max-payload=128KiB",
        "--max-pending=512KiB",
        "--hub-max-message=128KiB",
        "--hub-max-pending=512KiB",
        "--max-subscriptions=200",
    ),
    128 * KIB,
    512 * KIB,
    200,
    halves=110,
    stopped=55,
    hoarders=20,
    names=70_000,
)


@contextlib.contextmanager
def _group(limit: int) -> Iterator[tuple[str, Callable[[], None]]]:
    """A control group with so much memory: what it is, and what puts a child into it."""
    made = None
    for top, key, extra in (
        (_V1, "memory.limit_in_bytes", "memory.memsw.limit_in_bytes"),
        (_V2 / _own_v2(), "memory.max", "memory.swap.max"),
    ):
        path = top / f"pubsubd-chaos-{os.getpid()}"
        try:
            path.mkdir()
        except OSError:
            continue
        try:
            (path / key).write_text(str(limit))
            made = path
        except OSError:
            path.rmdir()
            continue
        with contextlib.suppress(OSError):
            (path / extra).write_text(str(limit if top == _V1 else 0))
        break
    if made is None:
        room = 4 * limit  # of addresses, of which most are never used
        yield (
            f"a limit of {mib(room)} of addresses, for want of a control group",
            lambda: resource.setrlimit(resource.RLIMIT_AS, (room, room)),
        )
        return
    procs = made / "cgroup.procs"
    try:
        yield f"the control group {made}", lambda: _enter(procs)
    finally:
        with contextlib.suppress(OSError):
            wait_until(lambda: not procs.read_text().strip(), "the control group is empty")
            made.rmdir()


def _enter(procs: Path) -> None:
    procs.write_text(str(os.getpid()))


def _own_v2() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            if line.startswith("0::/"):
                return line[4:]
    return ""


# The clients


def hogs(told: Told, line: Address, hub: Address, plan: _Plan) -> None:
    """Want all there is; told ``grab``, do it, and ``stay``, tell who is still there."""
    told.answer()
    held: list[socket.socket] = []
    while True:
        word, *_ = told.hear()
        if word == "grab":
            _grab(line, hub, plan, held)
            told.answer()
        else:
            told.answer(sum(not _closed(sock) for sock in held))
            return


def _grab(line: Address, hub: Address, plan: _Plan, held: list[socket.socket]) -> None:
    almost = b"pub hog %d " % plan.payload + b"h" * (plan.payload - 1)
    for _ in range(plan.halves):
        sock = line.connect()
        sock.sendall(almost)
        held.append(sock)
    for number in range(plan.hoarders):
        sock = line.connect()
        for i in range(plan.texts):
            sock.sendall(b"sub " + (b"%d/%d/" % (number, i)).ljust(1_000, b"t") + b"\n")
        held.append(sock)
    with Line(line) as own:
        for start in range(0, plan.names, 1_000):
            own.say(
                b"".join(
                    frame((b"n%d/" % i).ljust(1_000, b"n"), b"")
                    for i in range(start, start + 1_000)
                )
            )
            own.ping()
    sock = hub.connect()
    big = over("ndjson", synap_publish("hog", "j" * (plan.payload - 200)))
    for _ in range(20):
        sock.sendall(big)
        sock.recv(64 * KIB)
    held.append(sock)
    _stop_reading(line, plan, held)


def _stop_reading(line: Address, plan: _Plan, held: list[socket.socket]) -> None:
    """Fill the backlogs of clients that do not read, each with messages of its own."""
    small = Address(line.where, line.ca, buffer=4 * KIB)
    for number in range(plan.stopped):
        sock = small.connect()
        sock.sendall(b"sub hog/%d/\n" % number)
        held.append(sock)
    size = 32 * KIB
    with Line(line) as own:
        own.ping()
        for turn in range(4 * plan.pending // size + 200):
            for number in range(plan.stopped):
                own.say(frame(b"hog/%d/" % number, (b"%d" % number).ljust(size, b"h")))
            if turn % 8:
                continue  # requests have a rate
            told = own.request("stats")
            if told["backlog_bytes"] >= plan.stopped * (plan.pending - 2 * size):
                break
            if told["closed"].get("slow-consumer", 0) >= plan.stopped:
                break  # nobody is left to fill


def _closed(sock: socket.socket) -> bool:
    """Whether the daemon has closed the connection, behind whatever it had sent before."""
    sock.settimeout(0)
    try:
        while sock.recv(MIB):
            pass
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


def run(setting: Setting, verdict: Verdict) -> None:
    """Do it."""
    for number, plan in enumerate((_DEFAULT, _SIZED)):
        if setting.short:
            plan = _shortened(plan)  # noqa: PLW2901
        with _group(plan.limit) as (what, enter):
            verdict.note(f"{plan.name}: limit", f"{mib(plan.limit)}, by {what}")
            directory = setting.directory / str(number)
            with running(directory, *plan.flags, prepare=enter) as daemon:
                _run(setting, verdict, daemon, plan)


def _shortened(plan: _Plan) -> _Plan:
    """The same with fewer names, and, where not all connections are hostile, fewer of these."""
    plan = replace(plan, names=5_000)
    return plan if plan.flags else replace(plan, halves=20, stopped=4, hoarders=1)


def _run(setting: Setting, verdict: Verdict, daemon: Daemon, plan: _Plan) -> None:
    pubs = [Pub("p00", daemon.line, rate=2_000), Pub("s00", daemon.line, rate=50)]
    subs = [Sub("line", daemon.line), Sub("ws", daemon.hub, "ws", fast=False)]
    with (
        Worker(traffic, pubs, subs) as load,
        Worker(hogs, daemon.line, daemon.hub, plan) as crowd,
    ):
        load.answer()
        crowd.answer()
        verdict.check("every stream flows", load.ask("prime"), good=True)
        load.ask("go")
        crowd.ask("grab", patience=120)
        if not setting.short:
            time.sleep(5)
        told = daemon.request("stats")
        there = crowd.ask("stay")
        report: Report = load.ask("finish")
    name = plan.name
    verdict.note(f"{name}: hostile clients at a time", there)
    verdict.note(
        f"{name}: backlog, subscriptions",
        f"{mib(told['backlog_bytes'])}, {told['subscriptions']:,}",
    )
    peak = daemon.peak()
    verdict.note(f"{name}: most memory, by its own account", mib(peak))
    verdict.check(
        f"{name}: within what the limits multiply out to",
        f"{mib(plan.bound)}, of {mib(plan.limit)}",
        peak <= plan.bound <= plan.limit,
    )
    verdict.note(f"{name}: delivered to healthy clients", f"{report.delivered:,}")
    judge_messages(verdict, report)
    judge_end(verdict, daemon)


SCENARIO = Scenario("memory-max", __doc__ or "", run)
