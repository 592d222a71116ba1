"""Processes of ``pubsubd`` that need not import it: they are forked from one that has.

Importing takes a quarter of a second of processor time, and the tests start a thousand processes.
Otherwise these are what ``python -m pubsubd`` would be, with an id, session, environment,
descriptors, signal handlers and exit status of their own; only ``PYTHON...`` variables and the
locale come too late for them. For those, and for what is imported when, start a real one.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import json
import logging
import os
import runpy
import selectors
import socket
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

from pubsubd.cli import COMMANDS

_ROOT = Path(__file__).resolve().parent.parent
_LARGEST = 1 << 17  # bytes of an order
_NUMBER = struct.Struct("i")
_PARTS = ("access.tokens", "daemon.metrics", "hub.port", "hub.protocol", "hub.web", "mesh.dial")


class Forked(subprocess.Popen[Any]):
    """``subprocess.Popen([sys.executable, "-m", "pubsubd", ...])`` without the imports."""

    def _execute_child(self, args: Any, *more: Any) -> None:
        assert [*args[:3]] == [sys.executable, "-m", "pubsubd"], args
        cwd, env, pipes, session = more[4], more[5], more[9:15], more[20]
        words = [os.fsdecode(word) for word in args[3:]]
        order = [words, str(Path(cwd or ".").absolute()), dict(env or os.environ), session]
        self._report, theirs = socket.socketpair()
        streams = [end if end != -1 else own for own, end in enumerate((pipes[0], *pipes[3::2]))]
        with theirs:
            files = [*streams, theirs.fileno()]
            socket.send_fds(_server(), [json.dumps(order).encode()], files)
        (self.pid,) = _NUMBER.unpack(self._report.recv(_NUMBER.size))
        self._child_created = True
        self._close_pipe_fds(*pipes)

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        try:
            found = self._report.recv(_NUMBER.size, socket.MSG_DONTWAIT if wait_flags else 0)
        except BlockingIOError:
            return 0, 0
        self._report.close()
        return self.pid, _NUMBER.unpack(found)[0]

    def _internal_poll(self, *_: Any, **__: Any) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode


def run(
    command: Any,
    *,
    input: Any = None,  # noqa: A002  (as there)
    capture_output: bool = False,
    timeout: float | None = None,
    check: bool = False,
    **more: Any,
) -> subprocess.CompletedProcess[Any]:
    """Run ``pubsubd`` to its end, as :func:`subprocess.run` does."""
    piped = [*["stdin"][input is None :], *["stdout", "stderr"][: 2 * capture_output]]
    with Forked(command, **(dict.fromkeys(piped, subprocess.PIPE) | more)) as process:
        try:
            told = process.communicate(input, timeout)
        finally:
            process.kill()
    done = subprocess.CompletedProcess(command, process.returncode, *told)
    if check:
        done.check_returncode()
    return done


@functools.cache
def _server() -> socket.socket:
    """Start the process that all are forked from; it ends with this one."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command = [sys.executable, "-m", "tests.forks", str(theirs.fileno())]
    with theirs:
        server = subprocess.Popen(
            command,
            cwd=_ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
    atexit.register(server.wait)
    atexit.register(ours.close)  # before that
    return ours


def _serve(orders: socket.socket) -> tuple[list[Any], list[int]]:
    """Fork for each order; returns it, and the descriptors, in the children only."""
    watched = selectors.PollSelector()
    watched.register(orders, selectors.EVENT_READ)
    while True:
        for key, _ in watched.select():
            if key.fileobj is orders:
                data, files, _, _ = socket.recv_fds(orders, _LARGEST, 4)
                if not data:
                    sys.exit()
                pid = os.fork()
                if pid == 0:
                    orders.close()
                    return json.loads(data), files
                os.write(files[3], _NUMBER.pack(pid))
                for file in files[:3]:
                    os.close(file)
                watched.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, files[3]))
            else:
                pid, report = key.data
                watched.unregister(key.fd)
                os.close(key.fd)
                with contextlib.suppress(BrokenPipeError), open(report, "wb", 0) as file:
                    file.write(_NUMBER.pack(os.waitpid(pid, 0)[1]))


def _main() -> None:
    commands = [f"cli.{name.replace('-', '_')}" for name in COMMANDS if name != "topology"]
    for name in (*commands, *_PARTS):
        importlib.import_module(f"pubsubd.{name}")
    gc.collect()
    gc.freeze()  # pages that no collection writes to are shared
    (words, cwd, env, session), files = _serve(socket.socket(fileno=int(sys.argv[1])))
    for own, file in enumerate(files[:3]):
        os.dup2(file, own)
    os.closerange(3, max(files) + 1000)
    if session:
        os.setsid()
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    sys.argv[1:] = words
    sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", 1, errors="backslashreplace", closefd=False)  # noqa: SIM115
    status: list[int] = []
    atexit.register(_leave, status)  # before all that the command registers, so after it
    try:
        runpy.run_module("pubsubd", run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        if isinstance(ended.code, int | None):
            status.append(ended.code or 0)
        raise


def _leave(status: list[int]) -> None:
    """End without taking apart all that was imported, which is most of what a command costs."""
    if status:
        with contextlib.suppress(Exception):  # what cannot be written the interpreter tells itself
            logging.shutdown()
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
            os._exit(*status)


if __name__ == "__main__":
    _main()
