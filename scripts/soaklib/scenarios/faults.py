"""One exception, once each, in every function that the daemon runs.

A daemon with plain, encrypted and guarded doors for both ports is part of a mesh, exports edge
lists, tells metrics and is told to read its settings again, while publishers and subscribers in
every dialect keep numbered streams going and visitors of two dozen kinds come and go: among them
slow consumers, strangers with wrong passwords, and clients that leave with thousands of
subscriptions under traffic. First it is noted which functions of the package the daemon calls
then. Then an exception is thrown in each of them, once, and each time this has to hold: the daemon
lives and serves every door; one connection at most was lost, or two where one receives what the
other says; what all others hear is complete, and nothing comes twice; its tasks go on; and
connections, subscriptions, actors, links and descriptors are what they were. At the end its memory
is, too. The few functions by which it catches, and the clock of its loop, are left out and named.
As most of the time is spent waiting, this is done to three such daemons at once, each with a mesh
and clients of its own, which share the functions.
"""

from __future__ import annotations

import contextlib
import fnmatch
import random
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import median

from soaklib.faults.judging import cost, wrong
from soaklib.faults.load import Round, load
from soaklib.faults.residents import Pub, Sub
from soaklib.faults.victim import State, Town
from soaklib.scenario import Scenario, Setting
from soaklib.verdict import Verdict, mib
from soaklib.wires import SoakError, wait_until
from soaklib.workers import Worker

_NET = (
    "pubsubd.broker.faults.",
    "pubsubd.transport.tasks.",
    "pubsubd.transport.clock.",  # which trio's loop asks, and nothing of ours is around that
)
# What raises there is caught, and told, by Python's logging and its TLS; the log tells how many
# lines it has lost.
_TOLD = (
    "pubsubd.cli.logs.",
    "pubsubd.cli.line_writer.",
    "pubsubd.cli.streams.",
    "pubsubd.transport.trust._note:",
)
_UNCOUNTED = tuple(
    f"pubsubd.daemon.workers.{module}."
    for module in ("supervisor", "worker_state", "rereading", "channel")
)
_BETWEEN = ("pubsubd.siblings.", "pubsubd.daemon.workers.")  # workers
_TOWNS = 3  # daemons to which it is done at once; they take a third of a core each
_WARM = 3.0  # seconds until all that stays has been allocated
_RESTED = 2.0  # seconds for which it has to stay as it is
_PASSED = 3  # descriptors of a link that is passed from one worker to another
_CALLERS = 3  # kinds of visits at a time that lead to a function
_LEAVING = ("line leave_in_steps", "hub leave_in_steps")
_TOGETHER = 5  # kinds of visits that are watched at a time in a short run
_FEW = 3  # functions in which a short run throws
_SOON, _LATE = 2.0, 11.0  # seconds to wait for a function to be called; some are every ten
_EXPORTED = 4.0  # seconds since the last edge list
_RESTARTED, _WEARY = 35.0, 2.0  # seconds until a task that has failed runs, and too many of them
_HEARD = 30.0  # seconds until those who stay have heard what is published
_GREETED = 60.0  # seconds until all hear each other
_BACK = 30.0  # seconds until all is as it was
_LINKED = 35.0  # seconds until the others dial again, after many links that did not last


@dataclass
class Tried:
    """What came of the faults so far.

    Attributes:
        fired: functions that have raised.
        unreached: that were not called while they were armed.
        failed: function -> what was not as it should be.
        twice: faults that have cost two connections.
        late: messages that came by another way after later ones.
        memory: of the daemon after each fault, for each time that one was started.
        again: why all daemons were started again.
    """

    fired: list[str] = field(default_factory=list)
    unreached: list[str] = field(default_factory=list)
    failed: dict[str, list[str]] = field(default_factory=dict)
    twice: int = 0
    late: int = 0
    memory: list[list[int]] = field(default_factory=list)
    again: list[str] = field(default_factory=list)


def _clients(town: Town) -> tuple[list[Pub], list[Sub]]:
    doors, (first, second) = town.doors, town.others
    pubs = [
        Pub("p00", 0, doors.line, rate=10),
        Pub("p01", 2, second.line, rate=10),
        Pub("s00", 0, doors.line),
        Pub("s01", 0, doors.known),
        Pub("s02", 0, doors.hub, "ndjson", "synap"),
        Pub("s03", 0, doors.secure_hub, "ws", "synap"),
        Pub("s04", 0, doors.hub, "ws", "hub"),
        Pub("s05", 0, doors.hub, "ndjson", "envelope"),
        Pub("s06", 1, first.line),
        Pub("s07", 2, second.hub, "ws", "synap"),
    ]
    subs = [
        Sub("fast", 0, doors.line, says="fast"),
        Sub("fast-tls", 0, doors.secure, says="fast"),
        Sub("fast-far", 1, first.line, says="fast"),
        Sub("line", 0, doors.line),
        Sub("unix", 0, doors.unix),
        Sub("tls", 0, doors.secure),
        Sub("synap", 0, doors.hub, "ndjson", "synap"),
        Sub("pattern", 0, doors.secure_hub, "ws", "pattern"),
        Sub("hub-a", 0, doors.hub, "ndjson", "a"),
        Sub("hub-b", 0, doors.hub, "ws", "b"),
        Sub("envelopes", 0, doors.hub, "ws", "envelope"),
        Sub("line-first", 1, first.line),
        Sub("line-second", 2, second.line),
        Sub("hub-second", 2, second.hub, "ws", "b"),
    ]
    return pubs, subs


def run(setting: Setting, verdict: Verdict, workers: int = 1, part: Sequence[str] = ("*",)) -> None:
    """Do it.

    Args:
        setting: how.
        verdict: takes what is seen.
        workers: of the daemon.
        part: patterns of the functions that are tried if the setting names none.
    """
    tried = Tried()
    with contextlib.ExitStack() as stack:
        runs = []
        for place in range(1 if setting.short else _TOWNS):
            directory = setting.directory / f"{place}"
            directory.mkdir()
            town = Town(directory, setting.rng.randrange(2**32), workers)
            stack.callback(town.kill)
            town.start()
            worker = stack.enter_context(Worker(load, town.doors, *_clients(town), town.reloads()))
            worker.answer()
            rng = random.Random(setting.rng.random())
            runs.append(_Run(town, worker, rng, tried, short=setting.short))
        _all(setting, verdict, runs, tried, setting.only or part)
    _judge(tried, verdict)


@dataclass
class _Functions:
    """Functions that the daemons have called.

    Attributes:
        callers: function -> kinds of visits that lead to it.
        places: function -> which processes have called it.
    """

    callers: dict[str, set[str]] = field(default_factory=dict)
    places: dict[str, set[int]] = field(default_factory=dict)

    def add(self, name: str, kinds: Sequence[str], place: int) -> None:
        """Note that visits of these kinds have led to a function in that process."""
        self.callers.setdefault(name, set()).update(kinds)
        self.places.setdefault(name, set()).add(place)


def _all(
    setting: Setting, verdict: Verdict, runs: list[_Run], tried: Tried, only: Sequence[str]
) -> None:
    """Watch all daemons, and throw an exception in each function of one of them."""
    functions = _Functions()
    _together([partial(one.watch, functions) for one in runs])
    callers = functions.callers
    net = [name for name in callers if name.startswith(_NET)]
    verdict.note("functions that the daemon has called", len(callers))
    verdict.note("of these left out, as they catch", f"{len(net)} {sorted(net)}")
    chosen = sorted(
        name
        for name in callers.keys() - set(net)
        if any(fnmatch.fnmatch(_plain(name), one) for one in only)
    )
    setting.rng.shuffle(chosen)
    if setting.short:
        del chosen[_FEW:]
    for patience in (_SOON, _LATE):
        names, tried.unreached = deque(chosen), []
        _together([partial(one.try_all, names, functions, patience) for one in runs])
        chosen = tried.unreached
        if setting.short and tried.fired:
            break


def _together(calls: Sequence[Callable[[], object]]) -> None:
    """Call all of these at once, and wait for them; raises what the first one to fail does."""
    errors: list[Exception] = []
    done = threading.Semaphore(0)

    def attempt(call: Callable[[], object]) -> None:
        try:
            call()
        except Exception as error:  # noqa: BLE001  (raised below)
            errors.append(error)
        done.release()
        threading.Event().wait()  # for ever: daemons that it has started would end with it

    for one in calls:
        threading.Thread(target=attempt, args=(one,), daemon=True).start()
    for _ in calls:
        done.acquire()
    if errors:
        raise errors[0]


class _Run:
    """What is done to one daemon."""

    def __init__(
        self, town: Town, worker: Worker, rng: random.Random, tried: Tried, *, short: bool
    ) -> None:
        self._town, self._load, self._rng = town, worker, rng
        self._tried, self._short = tried, short
        self._kinds: list[str] = worker.ask("kinds")
        self._before: State | None = None
        self._weary = False
        self._memory: list[int] = []  # since it was started

    def watch(self, functions: _Functions) -> None:
        """Take note of the functions that are called."""
        self._greet()
        self._load.ask("begin", self._kinds)
        time.sleep(_WARM)
        self._load.ask("hold")
        self._before = self._settled()
        load, victim = self._load, self._town.victim
        size = _TOGETHER if self._short else 1
        groups = [self._kinds[at : at + size] for at in range(0, len(self._kinds), size)]
        for kinds in ([], *groups):
            for process in victim.processes:
                victim.tell("watch", process=process)
            for _ in range(2):  # a reload takes turns
                load.ask("visit", kinds)
            if not kinds:
                time.sleep(_WARM)
            for place, process in enumerate(victim.processes):
                for name in victim.tell("called", process=process):
                    functions.add(name, kinds, place)
            seen: Round = load.ask("check", _HEARD)
            if found := wrong(seen, 0):
                self._tried.failed[f"without a fault, with {kinds}"] = found

    def _greet(self) -> None:
        """Take note that the daemon is new."""
        load = self._load
        load.ask("daemons", *self._town.pids)
        load.ask("excuse")
        until = time.monotonic() + _GREETED
        while stuck := load.ask("check", _HEARD).stuck:
            if time.monotonic() > until:
                raise SoakError(f"not all hear each other: {stuck[:4]}")
        self._memory = []
        self._tried.memory.append(self._memory)

    def _settled(self) -> State:
        """Return what the daemon looks like once that stays the same."""
        last, since = self._town.state(), time.monotonic()
        for _ in range(150):
            time.sleep(0.1)
            now = self._town.state()
            if now != last or now.connections != self._staying or now.links != ("n1", "n2"):
                last, since = now, time.monotonic()
            elif time.monotonic() - since > _RESTED:
                return now
        raise SoakError(f"it does not come to rest: {last}")

    @property
    def _staying(self) -> int:
        """The connections that there are without visitors: residents, links, and who asks."""
        return sum(one.place == 0 for all_of in _clients(self._town) for one in all_of) + 3

    def _start_again(self) -> None:
        """Start the daemon again; and all others as well, if it does not get on with them."""
        town, self._weary = self._town, False
        self._load.ask("hold")
        town.victim.kill()
        try:
            self._start()
        except SoakError as error:
            self._tried.again.append(str(error))
            town.kill()
            self._start()

    def _start(self) -> None:
        self._town.start()
        self._greet()
        if found := self._wait_back():
            raise SoakError(f"a new daemon is not what the first one was: {found}")

    def try_all(self, names: deque[str], functions: _Functions, patience: float) -> None:
        """Throw an exception in functions while there are names of some left."""
        tried = self._tried
        while names:
            name = names.popleft()
            fired, found = self._throw(name, functions, patience)
            if not fired and not found:
                tried.unreached.append(name)
                continue
            if fired:
                tried.fired.append(name)
            if found:
                tried.failed[name] = found
                # A long run takes half an hour; whoever waits for it reads this meanwhile.
                text = f"{len(tried.fired)} {name}: {'; '.join(found)}"
                print(f"    {text}", *self._waits(), sep="\n        ", file=sys.stderr, flush=True)
            if found or self._weary:
                self._start_again()

    def _waits(self) -> list[str]:
        """Where the tasks of the daemon wait."""
        try:
            victim = self._town.victim
            waits: set[str] = set()
            for process in victim.processes:
                waits.update(victim.tell("waits", process=process, patience=5.0))
        except (OSError, ValueError):
            return []
        return sorted(text for text in waits if text.startswith("transport.tasks.contain"))

    def _throw(self, name: str, functions: _Functions, patience: float) -> tuple[int, list[str]]:
        """Throw an exception in a function; return how often it has raised, and what is wrong."""
        town, load, fired = self._town, self._load, 0
        process = town.victim.processes[self._rng.choice(sorted(functions.places[name]))]
        kinds = self._some(sorted(functions.callers[name]), 1 if patience < _LATE else 3)
        try:
            counted, down = town.counted(), town.links_down()
            load.ask("begin", kinds)
            fired = town.victim.tell("arm", name, patience, process=process)["fired"]
            load.ask("hold")
            fired = max(fired, town.victim.tell("disarm", process=process))
            found = self._look(name, fired, counted, down)
        except (OSError, SoakError, ValueError) as error:
            found = [f"does not answer: {error!r}"]
        if found:
            with contextlib.suppress(SoakError):
                wait_until(lambda: not town.victim.alive, "it ends", patience=0.5)
        if not town.victim.alive:
            return max(fired, 1), [f"the daemon has ended with {town.victim.process.returncode}"]
        if not town.victim.whole:
            return max(fired, 1), [*found, "a worker has ended"]
        return fired, found

    def _some(self, kinds: list[str], share: int) -> list[str]:
        """Return kinds of visits that lead to a function, one that leaves in steps, and any one."""
        if len(kinds) > share * _CALLERS:
            kinds = self._rng.sample(kinds, share * _CALLERS)
        return sorted({*kinds, self._rng.choice(_LEAVING), self._rng.choice(self._kinds)})

    def _look(self, name: str, fired: int, counted: int | None, down: int) -> list[str]:
        """Return what is not as it should be after a fault."""
        town = self._town
        back = self._wait_back()
        seen: Round = self._load.ask("check", _HEARD)
        links = town.links_down() - down
        found = back + wrong(seen, fired, links, told=name.startswith(_BETWEEN))
        self._tried.twice += fired > 0 and cost(seen, links) > fired
        if not all(one.alive for one in (*town.others, town.guest)):
            found.append("another daemon has ended")
        found += self._wait_tasks()
        if (
            fired
            and counted == town.counted() is not None
            and not name.startswith(_TOLD + _UNCOUNTED)
        ):
            found.append("it has not counted the fault")
        self._tried.late += sum(one.late for one in seen.streams if one.far)
        self._memory.append(town.victim.memory())
        return found

    def _wait_tasks(self) -> list[str]:
        """Wait until the daemon's tasks run; return what they do not do."""
        town, begun = self._town, time.monotonic()
        found = []
        for what, seen in (
            ("it is not ready", town.ready),
            ("it exports no edge lists", lambda: town.exported() < _EXPORTED),
        ):
            try:
                wait_until(seen, what, patience=_RESTARTED, tick=0.05)
            except SoakError:
                found.append(what)
        # Who fails again and again waits longer and longer, and in the end gives up: that is as it
        # should be, and no matter of one fault.
        self._weary = time.monotonic() - begun > _WEARY or town.failures() > 1
        return found

    def _wait_back(self) -> list[str]:
        """Wait until the daemon is what it was; return in what it is not."""
        now = before = self._before
        assert before is not None

        def back() -> bool:
            nonlocal now
            with contextlib.suppress(OSError):
                now = self._town.state()
            # The link that another daemon dials comes to any worker; the first one has it in the
            # end, and those that come to another one are passed on by a pair of sockets.
            if (
                self._town.victim.workers > 1
                and abs(now.descriptors - before.descriptors) == _PASSED
            ):
                now = replace(now, descriptors=before.descriptors)
            return now == before

        with contextlib.suppress(SoakError):
            wait_until(back, "it is what it was", patience=_BACK, tick=0.05)
        if now.links != before.links:
            with contextlib.suppress(SoakError):
                wait_until(back, "it is linked again", patience=_LINKED, tick=0.05)
        return [
            f"{key} {getattr(now, key)}, not {value}"
            for key, value in vars(before).items()
            if getattr(now, key) != value
        ]


def _judge(tried: Tried, verdict: Verdict) -> None:
    again = tried.again
    verdict.note("functions in which one was thrown", len(tried.fired))
    verdict.note("not called while it was armed", f"{len(tried.unreached)} {tried.unreached}")
    verdict.note("times that all daemons were started again", f"{len(again)} {again or ''}")
    verdict.note("faults that have cost two connections", tried.twice)
    verdict.note("messages that came after later ones, by another way", tried.late)
    verdict.check("anything was tried", bool(tried.fired), tried.fired)
    for name, found in tried.failed.items():
        verdict.check(name, "; ".join(found), good=False)
    verdict.none("functions whose fault costs more than it may", len(tried.failed))
    samples = max(tried.memory, key=len, default=[])
    quarter = len(samples) // 4
    if quarter:
        early, late = median(samples[quarter : 2 * quarter]), median(samples[-quarter:])
        text = f"{mib(early)}, {mib(late)}, over {len(samples)} faults"
        if len(samples) >= 200:
            verdict.check("memory, early and late", text, late <= early * 1.1)
        else:
            verdict.note("memory, early and late", text)


def _plain(name: str) -> str:
    """Return what a function is called in the log: without the package, and the line."""
    return name.removeprefix("pubsubd.").rpartition(":")[0]


SCENARIO = Scenario("faults", __doc__ or "", run)
