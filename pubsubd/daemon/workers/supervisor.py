"""The process that starts the workers, accepts connections and passes them on.

Strategy: nothing here takes long or waits, and no client is spoken to. It has no trio and no
threads but that of the log, so that it can fork at any time: a worker that has died is started
again from the same program, whatever has become of the files meanwhile. What could take long, the
reading of settings, is done by a process of its own.

Invariants:

- ``WorkerState.open`` counts the connections that were passed to a worker and have not ended, by
  the name of their listener: so the limits hold for all workers together.
- Every pair of workers that live has been given the two ends of one socketpair.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import itertools
import json
import logging
import os
import pickle
import selectors
import signal
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Protocol

import trio

from pubsubd.broker.faults import Faults
from pubsubd.daemon.ports_file import write_now
from pubsubd.daemon.reload import prepare
from pubsubd.daemon.run import describe_addresses
from pubsubd.daemon.status import describe_settings
from pubsubd.daemon.systemd import Notifier, take_sockets
from pubsubd.daemon.warnings import inherited, warnings
from pubsubd.daemon.workers.channel import Channel
from pubsubd.daemon.workers.rereading import Rereading
from pubsubd.daemon.workers.worker import own_config, run_worker
from pubsubd.daemon.workers.worker_state import PAUSES, WorkerState
from pubsubd.protocol.errors import AbortedError, ConfigError, FailedError
from pubsubd.protocol.limits import Limits
from pubsubd.settings.config import Config, ListenerConfig
from pubsubd.settings.load import Settings
from pubsubd.siblings.frames import READ_AT_ONCE
from pubsubd.siblings.progress import Progress
from pubsubd.transport.accept import LIMIT, raise_descriptors
from pubsubd.transport.clock import LoopClock
from pubsubd.transport.listen import BACKLOG, BoundSocket, describe, listen

log = logging.getLogger("pubsubd")

STEADY = 60.0
"""Seconds after which a worker that dies is started again as soon as the first one."""

TWICE = 0.05
"""Seconds in which a second signal to end counts as the first one: some send it to the process and
to its group."""

_STATUS = 10.0  # seconds between two lines of status
_TICK = 1.0  # seconds between two looks at the clock
_MOMENT = 0.1  # seconds in which the end of a worker is seen whose links have ended
_AT_ONCE = 64  # connections accepted before others get their turn
_CROWDED = 256  # messages that wait for a worker, from which on others are preferred
_STOCK = 8  # numbers for connections that a worker makes itself
_OF_FILES = (  # all workers read these, and one tells what is wrong
    "event=readable-users-file",
    "event=certificate-expires",
    "event=certificate-invalid",
)
_NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Log(Protocol):
    """What writes the log; :class:`pubsubd.cli.line_writer.LineWriter`."""

    def close(self, seconds: float) -> None:
        """Wait until all is written, for so many seconds at most."""


class Supervisor:
    """The supervisor of a daemon of several workers.

    Args:
        settings: what holds.
        caught: signals that came before this was made.
        start_log: starts a log for a worker, by its number.
    """

    def __init__(
        self, settings: Settings, caught: Sequence[int], start_log: Callable[[int], Log]
    ) -> None:
        self._settings = settings
        self._caught = caught
        self._start_log = start_log
        self._limits = _limits(settings.config)
        self._stack = contextlib.ExitStack()
        self._selector = selectors.DefaultSelector()
        self._workers = [WorkerState(number) for number in range(settings.config.workers)]
        self._progress = Progress(len(self._workers))
        self._signals: list[int] = []
        self._faults = Faults()
        self._bound: list[BoundSocket] = []
        self._unlinked: dict[tuple[int, ...], float] = {}  # pair -> when it is given a new link
        self._link_at: dict[tuple[int, ...], float] = {}  # pair -> when it may have another one
        self._accepting: set[int] = set()  # indexes of the sockets that are looked at
        self._paused_until = 0.0
        self._numbers = itertools.count(1)
        self._serving = self._ending = False
        self._ended_at = 0.0
        self._rereading = Rereading(self._selector, self._deliver, self._end_reload)
        self._reload_wanted = False
        self._failed = False
        self._older = ""
        self._told_at = 0.0
        self._told = 0  # messages

    def run(self) -> None:
        """Serve until a signal, then let the workers drain.

        Raises:
            ConfigError: the settings cannot be used.
            OSError: a socket or file cannot be had.
            AbortedError: a second signal came before everything was delivered.
            FailedError: a worker has ended before the daemon served.
        """
        config = self._settings.config
        log.addFilter(_not_of_files)
        self._stack.callback(log.removeFilter, _not_of_files)
        with self._stack:
            prepared = prepare(config)
            self._notifier = self._stack.enter_context(contextlib.closing(Notifier()))
            self._bound = listen(
                config.all_listeners(), take_sockets(), insecure=config.insecure, stack=self._stack
            )
            self._stack.callback(self._kill)
            for text in warnings(prepared, inherited(self._bound)):
                log.warning("event=settings-warning detail=%s", json.dumps(text))
            del prepared
            gc.collect()
            gc.freeze()  # pages that no collection writes to are shared
            self._catch()
            for worker in self._workers:
                self._start(worker)
            self._loop()
            log.info("event=stopped")

    # Signals

    def _catch(self) -> None:
        ours, theirs = socket.socketpair()
        for sock in (ours, theirs):
            sock.setblocking(False)
            self._stack.enter_context(sock)
        signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda number, _frame: self._signals.append(number))
        self._selector.register(ours, selectors.EVENT_READ, self._note_signals)
        self._signals += self._caught

    def _note_signals(self, sock: Any) -> None:
        with contextlib.suppress(BlockingIOError):
            sock.recv(1024)

    def _obey_signals(self) -> None:
        while self._signals:
            if self._signals[0] == signal.SIGHUP:
                self._reload_wanted = True
            elif not self._ending:
                self._end()
            elif time.monotonic() >= self._ended_at + TWICE:
                raise AbortedError("ended by a second signal; what had not been delivered is lost")
            del self._signals[0]

    # The loop

    def _loop(self) -> None:
        while True:
            try:
                if self._ending and not any(worker.alive for worker in self._workers):
                    return
                self._turn()
            except (FailedError, AbortedError):
                raise
            except Exception as error:
                if not self._serving:
                    raise
                self._faults.note(error, "supervisor")

    def _turn(self) -> None:
        self._obey_signals()
        for key, events in self._selector.select(self._wait()):
            if events & selectors.EVENT_READ:
                self._guard(self._read_from, key)
            if events & selectors.EVENT_WRITE:
                self._guard(self._send_more, key.fileobj)
        self._guard(self._tick)

    def _guard(self, call: Callable[..., None], *arguments: object) -> None:
        """Do something; if it fails, all that goes on does so without it."""
        try:
            call(*arguments)
        except FailedError:
            raise
        except Exception as error:
            if not self._serving:
                raise
            self._faults.note(error, "supervisor")

    def _read_from(self, key: selectors.SelectorKey) -> None:
        if key.fd in self._selector.get_map():  # what came before may have removed it
            key.data(key.fileobj)

    def _wait(self) -> float:
        now = time.monotonic()
        due = [one.start_at for one in self._workers if not one.alive]
        due += self._unlinked.values()
        tick = min(_TICK, (self._notifier.watchdog or _STATUS) / 3)
        return max(0.0, min([now + tick, *due]) - now)

    def _tick(self) -> None:
        now = time.monotonic()
        for worker in self._workers:
            if not worker.alive and not self._ending and now >= worker.start_at:
                self._guard(self._restart, worker)
            elif (worker.ready or self._serving) and worker.stuck(now):
                log.error("event=worker-silent worker=%d pid=%d", worker.number, worker.pid)
                os.kill(worker.pid, signal.SIGKILL)
                worker.heard = now
        for pair in [one for one, at in self._unlinked.items() if now >= at]:
            self._link_at[pair] = now + _TICK
            if all(self._workers[one] in self._servers for one in pair) and not self._ending:
                log.error("event=link-lost workers=%d,%d", *pair)
                self._link(*(self._workers[one] for one in pair))
            self._unlinked.pop(pair, None)
        if now - self._told_at >= min(_STATUS, (self._notifier.watchdog or _STATUS) / 3):
            self._tell(now)
        able = self._serving and not self._ending
        if self._reload_wanted and able and not self._rereading.under_way:
            self._reload_wanted = False
            self._notifier.reloading()
            try:
                self._rereading.begin(self._settings, self._bound)
            except Exception as error:
                self._end_reload(f"it cannot be begun: {error!r:.200}")
                raise
        self._rereading.look(now)
        self._look_at_listeners(now)

    def _tell(self, now: float) -> None:
        """Tell the service manager that all is well, and ask the workers whether it is."""
        total = sum(worker.messages for worker in self._workers)
        rate = max(0, total - self._told) / max(now - self._told_at, 0.001)
        self._told, self._told_at = total, now
        self._notifier.alive()
        if self._serving:
            connections = sum(worker.connections for worker in self._workers)
            count = sum(worker.ready for worker in self._workers)
            why = describe_settings(self._older, failed=self._failed)
            text = f"{count} of {len(self._workers)} workers, {connections} connections"
            self._notifier.status("; ".join((*why, f"{text}, {rate:.0f} messages/s")))
        for worker in self._workers:
            if worker.channel is not None:
                self._say(worker, "alive")

    # Workers

    def _restart(self, worker: WorkerState) -> None:
        """Start a worker that has died; if the system does not let it, again later."""
        try:
            self._start(worker)
        except Exception:
            if worker.alive:
                os.kill(worker.pid, signal.SIGKILL)  # and it is buried as any other
            else:
                worker.start_at = time.monotonic() + worker.pause
                worker.pause = min(PAUSES[1], 2 * worker.pause)
            raise

    def _start(self, worker: WorkerState) -> None:
        """Start a worker, and link it with the others."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            channel = Channel(ours)
            worker.begin(time.monotonic())
            pid = os.fork()  # from here to the watch, no function of ours that may fail
            if pid == 0:
                ours.close()  # or nobody would see the end of the supervisor
                self._become(worker.number, theirs)
        worker.pid, worker.channel = pid, channel
        worker.watch = os.pidfd_open(pid)
        self._selector.register(worker.watch, selectors.EVENT_READ, lambda _: self._bury(worker))
        self._selector.register(ours, selectors.EVENT_READ, lambda _: self._hear(worker))
        if worker.number == 0 and self._settings.config.mesh is not None:
            self._say(worker, "numbers", [next(self._numbers) for _ in range(_STOCK)])
        others = [one for one in self._workers if one.alive and one is not worker]
        for other in others:
            self._link(worker, other)
        if self._serving or len(others) == len(self._workers) - 1:
            for one in [worker] if self._serving else self._workers:
                expected = len(others) if self._serving else len(self._workers) - 1
                self._say(one, "siblings", expected)

    def _link(self, worker: WorkerState, other: WorkerState) -> None:
        """Give two workers the ends of a new link."""
        ends = socket.socketpair()
        numbers = other.number, worker.number
        self._unlinked.pop(tuple(sorted(numbers)), None)
        with ends[0], ends[1]:
            for one, number, end in zip((worker, other), numbers, ends, strict=True):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, READ_AT_ONCE)
                one.links[number] += 1
                self._say(one, "sibling", number, file=end)

    def _become(self, number: int, channel: socket.socket) -> None:
        """Be a worker, in a new process; never returns."""
        status = 1
        try:
            for one in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(one, signal.SIG_IGN)
            signal.set_wakeup_fd(-1)
            self._selector.close()
            for worker in self._workers:
                if worker.channel is not None:
                    worker.channel.close()
                if worker.watch >= 0:
                    os.close(worker.watch)
            writer = self._start_log(number)
            if number == 0:
                log.removeFilter(_not_of_files)
            try:
                config = self._settings.config
                prepared = prepare(own_config(config, number))
                arguments = prepared, self._bound, Channel(channel), number, config.mesh
                trio.run(run_worker, *arguments, self._progress, clock=LoopClock())
                status = 0
            except BaseException as error:  # noqa: BLE001  (the last chance to report it)
                while isinstance(error, BaseExceptionGroup):
                    error = error.exceptions[0]
                log.error("event=worker-failed detail=%s", json.dumps(str(error) or repr(error)))
                status = 2 if isinstance(error, ConfigError) else 1
            writer.close(1.0)
        finally:
            os._exit(status)

    def _say(
        self, worker: WorkerState, *words: object, file: socket.socket | IO[bytes] | None = None
    ) -> None:
        channel = worker.channel
        assert channel is not None
        try:
            channel.say(*words, file=file)
        finally:
            if channel.waiting:
                self._watch_channel(worker)

    def _watch_channel(self, worker: WorkerState) -> None:
        channel = worker.channel
        assert channel is not None
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if channel.waiting else 0)
        self._selector.modify(channel.sock, events, lambda _: self._hear(worker))

    def _send_more(self, sock: Any) -> None:
        for worker in self._workers:
            if worker.channel is not None and worker.channel.sock is sock:
                worker.channel.send_more()
                self._watch_channel(worker)

    def _hear(self, worker: WorkerState) -> None:
        """Take what a worker says."""
        channel = worker.channel
        assert channel is not None
        for _ in range(_AT_ONCE):
            found = channel.hear()
            if found is None:
                break
            worker.hear(time.monotonic())
            what, *more = found[0]
            if what == "open":
                worker.take_open(*more)
            elif what == "alive":
                worker.messages = more[0]
                if worker.number == 0:
                    self._older = more[1]
            elif what == "ready":
                worker.ready = True
                if self._serving:
                    told = {"event": "worker-started", "worker": worker.number, "pid": worker.pid}
                    self._report(told, logging.INFO)
                else:
                    self._note_ready()
            elif what == "unlinked":
                self._note_unlinked(worker, *more)
            elif what == "number":
                self._say(worker, "numbers", [next(self._numbers)])
            elif what == "link":
                with socket.socket(fileno=found[1][0]) as link:
                    self._pass_link(worker, more, link)
            elif what in ("reloaded", "failed") and worker.answered():
                self._rereading.answers[worker.number] = more[0] if more else None
        if channel.lost:
            self._selector.unregister(channel.sock)
            channel.close()
            worker.channel = None

    def _note_unlinked(self, worker: WorkerState, other: int, links: int) -> None:
        """Take note that a worker's link to another one has ended, which was the last it was given.

        It is given another one a moment later: by then it is known if the other worker is dead.
        """
        if links == worker.links[other]:
            pair = tuple(sorted((worker.number, other)))
            at = max(time.monotonic() + _MOMENT, self._link_at.get(pair, 0.0))
            self._unlinked.setdefault(pair, at)

    def _note_ready(self) -> None:
        if self._ending or not all(worker.ready for worker in self._workers):
            return
        config = self._settings.config
        if config.ports_file is not None:
            write_now(Path(config.ports_file), describe(self._bound), self._stack)
        self._serving = True  # a fault before this ends the daemon
        log.info("event=ready workers=%d %s", len(self._workers), describe_addresses(self._bound))
        self._notifier.ready()

    def _bury(self, worker: WorkerState) -> None:
        """Take note that a worker has ended."""
        if worker.channel is not None:
            self._hear(worker)
        if worker.channel is not None:
            self._selector.unregister(worker.channel.sock)
            worker.channel.close()
            worker.channel = None
        self._selector.unregister(worker.watch)
        os.close(worker.watch)
        _, code = os.waitpid(worker.pid, 0)
        pid, worker.pid, worker.watch, worker.ready = worker.pid, 0, -1, False
        lost = worker.connections
        worker.forget()
        for pair in [one for one in self._unlinked if worker.number in one]:
            del self._unlinked[pair]
        if self._ending:
            return
        self._rereading.answers[worker.number] = None  # it will start with what holds now
        how = _how(code)
        if not self._serving:
            raise FailedError(f"worker {worker.number} has ended, {how}, before it served")
        now = time.monotonic()
        if now - worker.begun > STEADY:
            worker.pause = PAUSES[0]
        worker.start_at = now + worker.pause
        self._report(
            {
                "event": "worker-died",
                "worker": worker.number,
                "pid": pid,
                "connections": lost,
                "detail": f"{how}; started again in {worker.pause:g} s",
            }
        )
        worker.pause = min(PAUSES[1], 2 * worker.pause)

    def _report(self, event: Mapping[str, object], level: int = logging.ERROR) -> None:
        """Log an event, and let a worker publish it."""
        words = [f"{key}={json.dumps(event[key])}" for key in event if key != "event"]
        log.log(level, "%s", " ".join((f"event={event['event']}", *words)))
        for worker in self._workers:
            if worker.ready:
                self._say(worker, "event", event)
                break

    # Connections

    def _look_at_listeners(self, now: float) -> None:
        """Accept while somebody can serve, and there is room for descriptors."""
        for index, bound in enumerate(self._bound):
            able = bool(self._servers) and now >= self._paused_until
            looked_at = index in self._accepting
            if able and not self._ending and self._serving and not looked_at:
                self._selector.register(
                    bound.listener, selectors.EVENT_READ, lambda _, index=index: self._accept(index)
                )
                self._accepting.add(index)
            elif looked_at and not able:
                self._selector.unregister(bound.listener)
                self._accepting.discard(index)

    def _accept(self, index: int, most: int = _AT_ONCE) -> None:
        """Accept connections, and pass each to a worker."""
        bound = self._bound[index]
        for _ in range(most):
            try:
                sock, _ = bound.listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in _NO_ROOM:
                    self._paused_until = time.monotonic() + 0.1
                    return
                continue  # that one connection broke off
            with sock:
                self._guard(self._pass, index, bound.config, sock)

    @property
    def _servers(self) -> list[WorkerState]:
        """The workers that may be passed connections."""
        return [worker for worker in self._workers if worker.ready and worker.channel]

    def _pass_link(self, worker: WorkerState, words: list[Any], link: socket.socket) -> None:
        """Pass a link of the mesh to the first worker."""
        first = self._workers[0]
        if worker is not first and first.ready:
            name = self._bound[words[0]].config.name
            self._say(first, "link", first.add(name), *words, file=link)

    def _pass(self, index: int, listener: ListenerConfig, sock: socket.socket) -> None:
        workers, name = self._servers, listener.name
        if not workers:
            return
        config, own = self._settings.config, self._limits.get(name)
        most = config.limits.max_connections
        total = sum(worker.connections for worker in self._workers)
        here = sum(worker.open[name] for worker in self._workers)
        now = time.monotonic()
        worker = min(workers, key=lambda one: _load(one, name, now))
        refused = ""
        room = most if own is None else own.max_connections
        if total >= most or here >= room:
            refused = f"there are {min(most, room)} connections, {LIMIT}"
        elif worker.connections >= raise_descriptors(config.limits):
            refused = "no descriptors are left"
        number = 0 if refused else next(self._numbers)
        self._say(worker, "connection", worker.add(name), index, number, refused, file=sock)
        if worker.needs_asking(now):
            self._say(worker, "alive")

    # Reload

    def _deliver(self, settings: Settings, texts: list[str]) -> set[int]:
        """Let settings that have been read hold, and return which workers put them into force."""
        self._settings = settings
        self._limits = _limits(settings.config)
        for text in texts:
            log.warning("event=settings-warning detail=%s", json.dumps(text))
        if settings.config.log_level is not None:
            log.setLevel(settings.config.log_level.upper())
        packed = pickle.dumps(settings.config)
        workers = [worker for worker in self._workers if worker.channel is not None]
        for worker in workers:
            with open(os.memfd_create("settings"), "w+b") as file:
                file.write(packed)
                file.seek(0)
                self._say(worker, "settings", file=file)
            worker.owed += 1
        return {worker.number for worker in workers}

    def _end_reload(self, error: str) -> None:
        """Tell what has come of a reload."""
        self._failed = bool(error)
        if error:
            self._report({"event": "reload-failed", "detail": error})
        else:
            self._older = ""
            self._report({"event": "reloaded"}, logging.INFO)
        self._tell(time.monotonic())
        self._notifier.ready()

    # The end

    def _end(self) -> None:
        """Accept who waits, and let the workers drain."""
        connections = sum(worker.connections for worker in self._workers)
        log.info("event=draining connections=%d", connections)
        self._notifier.stopping()
        self._rereading.stop()
        self._ending, self._ended_at = True, time.monotonic()
        for index, bound in enumerate(self._bound):
            if self._serving and not bound.inherited:
                self._accept(index, BACKLOG)
            if index in self._accepting:
                self._selector.unregister(bound.listener)
                self._accepting.discard(index)
            bound.listener.close()
        for worker in self._workers:
            if worker.channel is not None:
                self._say(worker, "end")

    def _kill(self) -> None:
        for worker in self._workers:
            if worker.alive:
                os.kill(worker.pid, signal.SIGKILL)
                os.waitpid(worker.pid, 0)


def _limits(config: Config) -> dict[str, Limits]:
    """Return the limits of each listener, by its name."""
    return {one.name: one.limits for one in config.all_listeners()}


def _load(worker: WorkerState, name: str, now: float) -> tuple[bool, int, int]:
    assert worker.channel is not None
    crowded = worker.late(now) or worker.channel.waiting > _CROWDED
    return crowded, worker.open[name], worker.connections


def _how(code: int) -> str:
    if os.WIFSIGNALED(code):
        return f"killed by {signal.Signals(os.WTERMSIG(code)).name}"
    return f"with status {os.waitstatus_to_exitcode(code)}"


def _not_of_files(record: logging.LogRecord) -> bool:
    return not str(record.msg).startswith(_OF_FILES)
