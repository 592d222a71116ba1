"""The daemon's log: one line per event, for people or for programs.

An event is logged as ``event=NAME key=value ...``, where a value is a word or a JSON string.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time

from pubsubd.cli.line_writer import LineWriter
from pubsubd.cli.streams import encoded
from pubsubd.protocol.wire import escape

_PRIORITIES = {"DEBUG": 7, "INFO": 6, "WARNING": 4, "ERROR": 3, "CRITICAL": 2}  # as in syslog(3)
_decode = json.JSONDecoder().raw_decode


class _OneLine(logging.Formatter):
    """One line per event; for the journal, a priority replaces time and level."""

    def __init__(self, *, journal: bool, as_json: bool, worker: int | None = None) -> None:
        super().__init__()
        self._worker = "" if worker is None else f"worker={worker} "
        self.converter = time.gmtime
        self._journal = journal
        self._json = as_json

    def format(self, record: logging.LogRecord) -> str:
        line = self._worker + record.getMessage()
        if record.exc_info:
            line += f" traceback={json.dumps(escape(self.formatException(record.exc_info)))}"
        stamp = f"{self.formatTime(record, '%Y-%m-%dT%H:%M:%S')}.{int(record.msecs):03d}Z"
        level = record.levelname.lower()
        if self._json:
            line = json.dumps({"time": stamp, "level": level, **read_pairs(line)})
        if self._journal:
            return f"<{_PRIORITIES.get(record.levelname, 6)}>{line}"
        return line if self._json else f"time={stamp} level={level} {line}"


def read_pairs(line: str) -> dict[str, object]:
    """Return the keys of an event and their values: numbers or texts."""
    found: dict[str, object] = {}
    at = 0
    while at < len(line):
        key, equal, rest = line[at:].partition("=")
        if not equal:
            found["message"] = line[at:]
            break
        at = len(line) - len(rest)
        if rest.startswith('"'):
            value, length = _decode(rest)
        else:
            word = rest.partition(" ")[0]
            value, length = int(word) if word.isdigit() and len(word) < 16 else word, len(word)
        found[key] = value
        at += length + 1
    return found


class _Handler(logging.Handler):
    """Hands the lines to a thread that writes them."""

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self.writer = LineWriter(descriptor, self._tell_lost)

    @property
    def lost(self) -> int:
        """Lines that were lost so far; the metrics tell it."""
        return self.writer.lost

    def emit(self, record: logging.LogRecord) -> None:
        self.writer.put(self._line(record))

    def _line(self, record: logging.LogRecord) -> bytes:
        return encoded(self.format(record), err=True) + b"\n"

    def _tell_lost(self, count: int) -> bytes:
        text = f"event=log-dropped lines={count}"
        return self._line(logging.LogRecord("pubsubd", logging.WARNING, "", 0, text, None, None))


def start_log(level: str, form: str, worker: int | None = None) -> LineWriter:
    """Write the log of this process to standard error; return what does so.

    Args:
        level: the lowest level that is logged.
        form: ``text`` or ``json``.
        worker: the number of the worker that this process is, if it is one.
    """
    handler = _Handler(sys.stderr.fileno())
    journal = "JOURNAL_STREAM" in os.environ
    handler.setFormatter(_OneLine(journal=journal, as_json=form == "json", worker=worker))
    logger = logging.getLogger("pubsubd")
    for before in list(logger.handlers):  # of the process that this one was forked from
        logger.removeHandler(before)
    logger.addHandler(handler)
    logger.setLevel(level.upper())
    logger.propagate = False
    return handler.writer
