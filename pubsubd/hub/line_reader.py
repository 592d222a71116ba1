"""JSON texts in a stream of lines, without I/O.

Invariants:

- A reader holds at most one line of ``max_message`` bytes, and what it was fed last.
- Its events do not depend on how the stream was cut.
"""

from __future__ import annotations

from pubsubd.hub.frames import TooLarge


class LineReader:
    """JSON texts, a line each, that end with LF or CR LF; empty lines are left out.

    Args:
        max_message: bytes of a line without its end. What is longer is skipped as it comes.
    """

    __slots__ = ("_last", "_max", "_rest", "_skipped")

    def __init__(self, max_message: int) -> None:
        self._max = max_message
        self._rest: bytes | bytearray = b""
        self._skipped = 0  # bytes of a line that is too long, so far
        self._last = b""  # the last one of them, which may be a CR

    @property
    def halfway(self) -> bool:
        """Whether part of a line has come and its end has not."""
        return bool(self._rest) or self._skipped > 0

    def receive(self, data: bytes) -> list[bytes | TooLarge]:
        """Return the lines that ``data`` completes, in order."""
        stop = data.find(b"\n")
        if stop < 0:
            self._keep(data)
            return []
        if stop == len(data) - 1 and not self._rest and not self._skipped and stop <= self._max:
            line = data[:stop].removesuffix(b"\r")  # one whole line, as most come
            return [line] if line else []
        found: list[bytes | TooLarge] = []
        at = 0
        if self._rest or self._skipped:
            self._keep(data[:stop])
            at = stop + 1
            if self._skipped:
                size = self._skipped - (self._last == b"\r")
                found.append(TooLarge(size))
                self._skipped = 0
            else:
                self._add(bytes(self._rest), found)
                self._rest = b""
        lines = data[at:].split(b"\n")
        rest = lines.pop()
        if len(data) <= self._max and b"\r" not in data:
            found += filter(None, lines)
        else:
            for line in lines:
                self._add(line, found)
        self._keep(rest)
        return found

    def _add(self, line: bytes, found: list[bytes | TooLarge]) -> None:
        line = line.removesuffix(b"\r")
        if len(line) > self._max:
            found.append(TooLarge(len(line)))
        elif line:
            found.append(line)

    def _keep(self, data: bytes) -> None:
        """Add to the line that has not ended, or just count it."""
        if not data:
            return
        if not self._skipped:
            rest = self._rest
            size = len(rest) + len(data)
            if size <= self._max + 1:  # it may yet be a CR too many
                if not rest:
                    self._rest = data
                elif isinstance(rest, bytes):
                    self._rest = bytearray(b"".join((rest, data)))
                else:
                    rest += data
                return
            self._skipped = len(rest)
            self._rest = b""
        self._skipped += len(data)
        self._last = data[-1:]
