"""Inside the daemon: which functions run, and one exception in one of them.

Started as ``python -c "from soaklib.faults.injector import main; main()" SOCKET PACKAGE RECORD
ARGUMENT...``, it becomes the daemon, and a thread of it does what is said on a Unix socket, a
line of JSON each:

``record``
    forget which functions have been called so far, and note those that are from now on
``functions``
    note no more; answers their names
``arm NAME SECONDS``
    let that function raise at its next call, and wait for that; answers how often it has
    raised, and whether the function is there at all
``disarm``
    let it be itself again; answers how often it has raised
"""

from __future__ import annotations

import dis
import functools
import gc
import json
import runpy
import socket
import sys
import threading
from types import CodeType, FrameType
from typing import Any

from soaklib.faults.patching import InjectedError, Patch, belongs, find, name_of

_INNER = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>", "<module>")  # no functions


class Recorder:
    """Notes which functions of a package are called in the main thread, and in new threads."""

    def __init__(self, package: str) -> None:
        self._package = package
        self._on = False
        # By identity: to compare two codes is to compare all that is in them.
        self._seen: dict[int, tuple[CodeType, str]] = {}

    def begin(self) -> None:
        """Note from now on; to be called in the main thread."""
        self._on = True
        threading.setprofile(self._note)
        sys.setprofile(self._note)

    def forget(self) -> None:
        """Begin anew."""
        self._seen = {}

    def end(self) -> list[str]:
        """Note no more; return the names of the functions that were called."""
        self._on = False  # each thread has its hook, and takes it off by itself
        threading.setprofile(None)
        return sorted({name_of(module, code) for code, module in self._seen.copy().values()})

    def _note(self, frame: FrameType, event: str, _argument: object) -> None:
        if not self._on:
            sys.setprofile(None)
            return
        code = frame.f_code
        if event != "call" or id(code) in self._seen or frame.f_lasti > start_of(code):
            return
        module = frame.f_globals.get("__name__")
        if not belongs(module, self._package) or code.co_filename.startswith("<"):
            return
        if code.co_name not in _INNER:
            self._seen[id(code)] = code, str(module)


@functools.cache
def start_of(code: CodeType) -> int:
    """Return where the first instruction is that a call comes to; later ones go on with one."""
    return next((one.offset for one in dis.get_instructions(code) if one.opname == "RESUME"), 0)


class Injector:
    """Does what it is told, for the functions of one package."""

    def __init__(self, package: str, recorder: Recorder) -> None:
        self._package = package
        self._recorder = recorder
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

    def do_record(self) -> None:
        self._recorder.forget()

    def do_functions(self) -> list[str]:
        return self._recorder.end()

    def do_arm(self, name: str, seconds: float) -> dict[str, Any]:
        self.do_disarm()
        code = find(name, self._package)
        if code is None:
            return {"there": False, "fired": 0}
        self._fired.clear()
        fault = functools.partial(InjectedError, f"injected into {name}")
        self._patch = Patch(code, self._package, fault, self._fired.set)
        self._fired.wait(seconds)
        return {"there": self._patch.reach > 0, "fired": self._patch.fired}

    def do_disarm(self) -> int:
        patch, self._patch = self._patch, None
        if patch is None:
            return 0
        patch.disarm()
        return patch.fired


def main() -> None:
    """Become the daemon, with a thread that lets its functions raise; see the module."""
    _, path, package, record, *arguments = sys.argv
    # What lives already would be out of the collector's sight, and so of ours.
    gc.freeze = lambda: None
    recorder = Recorder(package)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    injector = Injector(package, recorder)
    threading.Thread(target=injector.serve, args=(listener,), daemon=True).start()
    sys.argv = [package, *arguments]
    if record == "record":
        recorder.begin()
    runpy.run_module(package, run_name="__main__", alter_sys=True)
