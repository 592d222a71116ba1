"""Failures of Spark, explained in one line for a person.

A failure comes as a Java exception with a page of stack, as a Python exception of a worker, or as
a connection that is gone because the process at its other end is. Failures known by their words
are explained with the remedy; of others the first line that says something is kept.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from pathlib import Path
from traceback import walk_tb
from typing import Any

_SPARK = {"py4j", "pyspark", "grpc"}
_JAVA_ENDED = "JAVA_GATEWAY_EXITED"
_CONTEXT_ENDED = re.compile(
    r"SparkContext(?: was (?:shut down|stopped)|\.dagScheduler)|stopped SparkContext"
)

LONGEST = 300
"""Most characters of an explanation."""

_TAIL = 256 * 1024  # bytes of the log that are looked at

_KNOWN = {
    r"No space left on device|Disk quota exceeded": (
        "a disk is full, that of --out or that of temporary files (TMPDIR): {line}"
    ),
    r"OutOfMemoryError|GC overhead limit|UNABLE_TO_ACQUIRE_MEMORY": (
        "Spark's heap is too small for this: give it more with --driver-memory"
        " (on a cluster, the executors with --conf spark.executor.memory=SIZE)"
    ),
    r"insufficient memory for the Java Runtime|Could not reserve enough space": (
        "the machine has not the memory that Java asks for: give it less with --driver-memory"
    ),
    r"Fatal Python error: (?P<fault>[\w ]+)": "a Python worker crashed: {fault}",
    r"Python worker exited unexpectedly": (
        "a Python worker was ended from outside, by the kernel if the machine was short of memory"
    ),
    r"ExecutorLostFailure|[Ee]xecutor (?:lost|heartbeat timed out)|Master removed our": (
        "executors were lost again and again, and Spark gave up: {line}"
    ),
    r"All masters are unresponsive|Could not parse Master URL|Invalid master URL": (
        "Spark's master does not answer as one: {line}"
    ),
    r"ModuleNotFoundError: No module named '(?P<module>[\w.]+)'": (
        "the workers' Python has no module {module!r}: install pubsubd[topology] for it as well"
        " (PYSPARK_PYTHON tells which Python that is)"
    ),
    r"PYTHON_VERSION_MISMATCH|Python in worker has different version": (
        "the workers have another version of Python than this one: {line}"
        " (PYSPARK_PYTHON tells which Python they run)"
    ),
    r"No FileSystem for scheme|ClassNotFoundException: Class org\.apache\.hadoop\.fs\.": (
        "Spark has no library for this kind of URL: {line}"
        " (give it one with --packages GROUP:NAME:VERSION)"
    ),
    r"External scheduler cannot be instantiated|KubernetesClientException": (
        "Spark cannot use the cluster: {cause}"
    ),
    r"invalid null input: name": (
        "Spark needs a name for the user it runs as, and /etc/passwd has none for this one"
    ),
}
"""Words of a failure -> its explanation."""


def explain_failure(failure: BaseException, log: Path | None = None, start: int = 0) -> str:
    """Explain a failure in one line, with the remedy where that is known.

    Args:
        failure: an exception raised while Spark was in use.
        log: the output of Java and the workers, read when the failure says only that they are
            gone.
        start: bytes of the log to skip: those of an earlier run.
    """
    if isinstance(failure, OSError) and failure.errno == errno.ENOSPC:
        where = f" for {failure.filename}" if failure.filename else ""
        return f"a disk is full: no space is left{where}"
    gone = _is_gone(failure)
    text = "" if gone else "\n".join(_text(one) or "" for one in chain(failure))
    if gone or _CONTEXT_ENDED.search(text):
        text = _tail(log, start) or text
    for pattern, told in _KNOWN.items():
        if found := re.search(rf"^.*?(?:{pattern}).*$", text, re.MULTILINE):
            line = _clean(found[0].strip())
            causes = re.findall(r"^\s*Caused by: (.*)$", text, re.MULTILINE)
            cause = _clean(causes[-1]) if causes else line
            return _short(told.format(line=line, cause=cause, **found.groupdict()))
    if _JAVA_ENDED in (_text(failure) or ""):
        return _short(f"Spark's Java did not start: {_last_words(text) or 'it said nothing'}")
    if gone:
        return "Spark's Java process ended unexpectedly; it was perhaps killed"
    return _short(_essence(text) or type(failure).__name__)


def is_of_spark(failure: BaseException) -> bool:
    """Tell whether ``failure`` came from Spark or from what it runs on, not from our own code."""
    kinds = {kind.__module__.partition(".")[0] for kind in type(failure).__mro__}
    if kinds & _SPARK:
        return True
    # An end that came too early may be that of a file, and then it is nothing of Spark's.
    if not isinstance(failure, OSError | EOFError):
        return False
    frames = (frame for frame, _ in walk_tb(failure.__traceback__))
    return any(one.f_globals.get("__name__", "").partition(".")[0] in _SPARK for one in frames)


def _is_gone(failure: BaseException) -> bool:
    """Tell whether the Java process at the other end is gone, or never was there."""
    return any(
        isinstance(one, ConnectionError | EOFError)
        or type(one).__name__ == "Py4JNetworkError"
        or (text := _text(one)) is None
        or _JAVA_ENDED in text
        for one in chain(failure)
    )


def chain(failure: BaseException) -> Iterator[BaseException]:
    """Yield the failure and its causes, each only once."""
    seen: set[int] = set()
    one: BaseException | None = failure
    while one is not None and id(one) not in seen:
        seen.add(id(one))
        yield one
        one = one.__cause__ or getattr(one, "_cause", None) or one.__context__


def _text(failure: BaseException) -> str | None:
    """Return the text of ``failure``; None if only Java knows, which cannot be asked any more."""
    known: Any = failure
    try:
        return str(failure)
    except Exception:  # noqa: BLE001  (whatever py4j raises when it cannot ask)
        return getattr(known, "_desc", None)


def _tail(log: Path | None, start: int) -> str:
    """Return the end of the log, nothing of it before ``start``; empty without a log."""
    if log is None:
        return ""
    try:
        with log.open("rb") as file:
            file.seek(max(start, file.seek(0, 2) - _TAIL))
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""


_JAVA_NAME = r"(?:[a-z]\w*\.)+[\w$]+(?:Exception|Error|Failure): "
_NOISE = re.compile(
    r"^(?:py4j\.protocol\.\w+: )?(?:"
    r"Exception in thread \"\S+\" |An error occurred while calling \S+|: |Caused by: |"
    r"Job aborted due to stage failure: Task .*?most recent failure: |"
    r"Job aborted due to stage failure: |Lost task [\d.]+ in stage [\d.]+ \(TID \d+\) "
    r"\(.*?\): |\[[A-Z_.0-9]+\] |" + _JAVA_NAME + r")"
)
_OURS = "pubsubd.topology.errors.TopologyError: "  # whose words are for a person already
_PYTHON_LINE = re.compile(r"^(?:[A-Za-z_][\w.]*)(?:: .*)?$")


def _clean(line: str) -> str:
    """Return ``line`` without the prefixes that Java and Spark put before a message."""
    while True:
        shorter = _NOISE.sub("", line, count=1)
        if shorter == line:
            return re.sub(r"[;,. ]*\bSQLSTATE: \w+;?$", "", line.strip())
        line = shorter


def _essence(text: str) -> str:
    """Return the line with the message: a worker's own error, or the first one with words."""
    lines = text.split("\n")
    for number, line in enumerate(lines):
        if "Traceback (most recent call last)" in line:
            for later in lines[number + 1 :]:
                # The frames are indented; the first line that is not is the error.
                if later and not later[0].isspace() and _PYTHON_LINE.match(later):
                    return later.strip().removeprefix(_OURS)
    for line in lines:
        stripped = line.strip()
        told = "" if stripped.startswith(("at ", "JVM stacktrace", "... ")) else _clean(stripped)
        if told:
            return told
    return ""


def _last_words(text: str) -> str:
    """Return the line of a log with the reason why Java ended: an exception, else the first."""
    lines = [line.strip() for line in text.split("\n")]
    thrown = [_clean(line) for line in lines if re.match(r"Exception in thread|Caused by: ", line)]
    told = [line for line in lines if line and not line.startswith(("at ", "WARNING", "NOTE"))]
    return next(iter(thrown[-1:] or told), "")


def _short(text: str) -> str:
    """Return ``text`` as one line that is not too long and moves no cursor."""
    line = " ".join("".join(one if one.isprintable() else " " for one in text).split())
    return line if len(line) <= LONGEST else line[: LONGEST - 1] + "…"
