"""The ``pubsubd`` command.

``pubsubd serve`` ends with status 0 when it is told to end, however early: a supervisor may change
its mind while Python is still importing. So this module catches the signals before it imports
anything that is not built into the interpreter, and ``serve`` looks at what was caught.
"""

import _signal  # type: ignore[import-not-found]  # what signal itself is made of
import sys

_caught: list[int] = []


def _remember(number: int, _frame: object) -> None:
    if _caught:  # the second one ends it at once
        _signal.signal(number, _signal.SIG_DFL)
        _signal.raise_signal(number)
    _caught.append(number)


_serving = sys.argv[1:2] == ["serve"]
if _serving:
    _signal.signal(_signal.SIGTERM, _remember)
    _signal.signal(_signal.SIGINT, _remember)


def main() -> int:
    """Run the command that the arguments name and return its exit status."""
    try:
        from pubsubd.cli import main as run  # noqa: PLC0415  (not before the signals are caught)

        status = run(_caught)
    except KeyboardInterrupt:
        return 130
    if _serving:  # a signal that comes after all is done changes nothing any more
        for number in (_signal.SIGTERM, _signal.SIGINT, _signal.SIGHUP):
            _signal.signal(number, _signal.SIG_IGN)
    return status


if __name__ == "__main__":
    sys.exit(main())
