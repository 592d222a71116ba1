"""The ``pubsubd`` command.

``pubsubd serve`` ends with status 0 when it is told to end, however early: a supervisor may change
its mind while Python is still importing. So this module catches the signals before it imports
anything that is not built into the interpreter, and ``serve`` looks at what was caught.

Signals also end every command that is process 1 of a container, for which the kernel takes no
default action.
"""

import _signal  # type: ignore[import-not-found]  # what signal itself is made of
import gc
import os
import sys

_caught: list[int] = []


def _remember(number: int, _frame: object) -> None:
    if _caught:  # the second one ends it at once
        _end(number, _frame)
    _caught.append(number)


def _end(number: int, _frame: object) -> None:
    _signal.signal(number, _signal.SIG_DFL)
    _signal.raise_signal(number)
    os._exit(128 + number)  # only process 1 comes to this; a shell would report the same status


_serving = sys.argv[1:2] == ["serve"]
if _serving:
    _signal.signal(_signal.SIGTERM, _remember)
    _signal.signal(_signal.SIGINT, _remember)
elif os.getpid() == 1:
    for _number in (_signal.SIGTERM, _signal.SIGHUP, _signal.SIGQUIT):
        _signal.signal(_number, _end)


def main() -> int:
    """Run the command that the arguments name and return its exit status."""
    gc.disable()  # imports make no garbage, and looking for it is a sixth of their time
    try:
        from pubsubd.cli import main as run  # noqa: PLC0415  (not before the signals are caught)

        status = run(_caught)
    except KeyboardInterrupt:
        return 130
    if _serving:  # a signal that comes after all is done changes nothing any more
        for number in (_signal.SIGTERM, _signal.SIGINT, _signal.SIGHUP):
            _signal.signal(number, _signal.SIG_IGN)
    gc.freeze()  # nor is there a need to look for garbage at the end
    return status


if __name__ == "__main__":
    sys.exit(main())
