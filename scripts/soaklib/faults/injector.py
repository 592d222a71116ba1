"""Inside the daemon: which functions run, and one exception in one of them.

Started as ``python -c "from soaklib.faults.injector import main; main()" SOCKET PACKAGE
ARGUMENT...``, it becomes the daemon, and a thread of each of its processes does what is said on a
Unix socket, SOCKET with a dot and the number of the process, a line of JSON each:

``watch``
    note which functions are called from now on
``called``
    note no more; answers their names
``arm NAME SECONDS``
    let that function raise at its next call, and wait for that; answers how often it has
    raised, and whether the function is there at all
``waits``
    answers where the daemon's coroutines wait, for whoever looks for one that waits in vain
``disarm``
    let it be itself again; answers how often it has raised
"""

from __future__ import annotations

import functools
import gc
import json
import os
import runpy
import socket
import sys
import threading
from types import CoroutineType
from typing import Any

from soaklib.faults.patching import InjectedError, Patch, Watch, find

_LOOKS = 3  # for a function: a collection of garbage in another thread hides objects for a moment


class Injector:
    """Does what it is told, for the functions of one package."""

    def __init__(self, package: str) -> None:
        self._package = package
        self._watch: Watch | None = None
        self._patch: Patch | None = None
        self._fired = threading.Event()

    def serve(self, listener: socket.socket) -> None:
        """Serve one connection after the other, for ever."""
        while True:
            connection = listener.accept()[0]
            with connection, connection.makefile("rw", encoding="utf-8") as file:
                for line in file:
                    word, *arguments = json.loads(line)
                    file.write(json.dumps(getattr(self, "do_" + word)(*arguments)) + "\n")
                    file.flush()

    def do_watch(self) -> None:
        self._watch = Watch(self._package)

    def do_called(self) -> list[str]:
        watch, self._watch = self._watch, None
        return [] if watch is None else watch.end()

    def do_arm(self, name: str, seconds: float) -> dict[str, Any]:
        self.do_disarm()
        code = None
        for _ in range(_LOOKS):
            code = code or find(name, self._package)
        if code is None:
            return {"there": False, "fired": 0}
        self._fired.clear()
        fault = functools.partial(InjectedError, f"injected into {name}")
        self._patch = Patch(code, self._package, fault, self._fired.set)
        self._fired.wait(seconds)
        return {"there": self._patch.reach > 0, "fired": self._patch.fired}

    def do_waits(self) -> list[str]:
        coroutines = [one for one in gc.get_objects() if isinstance(one, CoroutineType)]
        return [_wait_of(one, f"{self._package}.") for one in coroutines]

    def do_disarm(self) -> int:
        patch, self._patch = self._patch, None
        if patch is None:
            return 0
        patch.disarm()
        return patch.fired


def _wait_of(coroutine: Any, package: str) -> str:
    """Return where a coroutine waits: the package's functions and lines, the outermost first."""
    places = []
    while coroutine is not None:
        frame = getattr(coroutine, "cr_frame", None) or getattr(coroutine, "gi_frame", None)
        module = "" if frame is None else str(frame.f_globals.get("__name__"))
        if frame is not None and module.startswith(package):
            place = f"{module.removeprefix(package)}.{frame.f_code.co_qualname}"
            places.append(f"{place}:{frame.f_lineno}")
        following = getattr(coroutine, "cr_await", None)
        coroutine = following or getattr(coroutine, "gi_yieldfrom", None)
    return " > ".join(places)


def main() -> None:
    """Become the daemon, with a thread that lets its functions raise; see the module."""
    _, path, package, *arguments = sys.argv
    # What lives already would be out of the collector's sight, and so of ours.
    gc.freeze = lambda: None
    serve = functools.partial(_serve, path, package)
    os.register_at_fork(after_in_child=serve)
    serve()
    sys.argv = [package, *arguments]
    runpy.run_module(package, run_name="__main__", alter_sys=True)


def _serve(path: str, package: str) -> None:
    """Begin to do what this process is told."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"{path}.{os.getpid()}")
    listener.listen()
    threading.Thread(target=Injector(package).serve, args=(listener,), daemon=True).start()
