"""Failures of Spark, explained in one line for a person.

A failure comes as a Java exception with a page of stack, as a Python exception of a worker, or as
a connection that is gone because the process at its other end is. Where there is a remedy, the line
names it; of other failures, the first line that says something is kept.
"""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from traceback import walk_tb

LONGEST = 300
"""Most characters of an explanation."""

_SPARK = {"py4j", "pyspark", "grpc"}
_TAIL = 256 * 1024  # bytes of the log that are looked at

_REMEDIES = {
    "No space left on device|Disk quota exceeded": (
        "a disk is full, that of --out or that of temporary files (TMPDIR): {line}"
    ),
    "OutOfMemoryError|GC overhead limit|UNABLE_TO_ACQUIRE_MEMORY": (
        "Spark's heap is too small for this: give it more with --driver-memory"
        " (on a cluster, the executors with --conf spark.executor.memory=SIZE)"
    ),
    "insufficient memory for the Java Runtime|Could not reserve enough space": (
        "the machine has not the memory that Java asks for: give it less with --driver-memory"
    ),
    "Python worker exited unexpectedly": (
        "a Python worker crashed or was killed, perhaps as memory was short: {line}"
    ),
    "ExecutorLostFailure|[Ee]xecutor (?:lost|heartbeat timed out)|Master removed our"
    "|masters are unresponsive|[Mm]aster URL|External scheduler|KubernetesClientException": (
        "Spark cannot use the cluster, or has lost it: {cause}"
    ),
    "ModuleNotFoundError: No module named": (
        "the workers' Python (PYSPARK_PYTHON) needs pubsubd[topology] as well: {line}"
    ),
    r"No FileSystem for scheme|ClassNotFoundException: Class org\.apache\.hadoop\.fs\.": (
        "Spark has no library for this kind of URL, give it one with --packages: {line}"
    ),
    "invalid null input: name": "Spark needs a name in /etc/passwd for the user it runs as",
}
"""Words of a failure -> its explanation."""

_PREFIX = re.compile(
    r"(?:py4j\.protocol\.\w+: )?(?:Exception in thread \"\S+\" |Caused by: |: |"
    r"An error occurred while calling \S+|Job aborted due to stage failure: |"
    r"Task .*?most recent failure: |Lost task [\d.]+ in stage [\d.]+ \(TID \d+\) \(.*?\): |"
    r"\[[A-Z_.0-9]+\] |(?:[a-z]\w*\.)+[\w$]+(?:Exception|Error|Failure): )"
)
"""What Java and Spark put before a message, one or more of it."""


def explain_failure(failure: BaseException, log: Path | None = None, start: int = 0) -> str:
    """Explain a failure in one line, with the remedy where that is known.

    Args:
        failure: an exception raised while Spark was in use.
        log: the output of Java and the workers, read when the failure says only that they are
            gone.
        start: bytes of the log to skip: those of an earlier run.
    """
    texts: list[str | None] = []
    one: BaseException | None = failure
    while one is not None and len(texts) < 20:  # it may be its own cause
        texts.append(_text(one))
        one = one.__cause__ or one.__context__
    text = "\n".join(filter(None, texts))
    not_started = "JAVA_GATEWAY_EXITED" in text
    gone = not_started or None in texts
    if log and (gone or re.search(r"SparkContext(?: was|\.dag)|stopped SparkContext", text)):
        with contextlib.suppress(OSError), log.open("rb") as file:
            file.seek(max(start, file.seek(0, 2) - _TAIL))
            text = file.read().decode("utf-8", "replace")
    for words, told in _REMEDIES.items():
        if found := re.search(rf"^.*?(?:{words}).*$", text, re.MULTILINE):
            causes = re.findall(r"^\s*Caused by: .*$", text, re.MULTILINE) or [found[0]]
            return _short(told.format(line=_message(found[0]), cause=_message(causes[-1])))
    if not_started:
        return _short(f"Spark's Java did not start: {_essence(text) or 'it said nothing'}")
    if gone:
        return "Spark's Java process ended unexpectedly; it was perhaps killed"
    return _short(_essence(text) or type(failure).__name__)


def is_of_spark(failure: BaseException) -> bool:
    """Tell whether ``failure`` came from Spark or from what it runs on, not from our own code."""
    modules = [kind.__module__ for kind in type(failure).__mro__]
    # An end that came too early may be that of a file, and then it is nothing of Spark's.
    if isinstance(failure, OSError | EOFError):
        frames = (frame for frame, _ in walk_tb(failure.__traceback__))
        modules += (one.f_globals.get("__name__", "") for one in frames)
    return any(one.partition(".")[0] in _SPARK for one in modules)


def _text(failure: BaseException) -> str | None:
    """Return the text of ``failure``; None if Java, at the other end, is gone."""
    if isinstance(failure, ConnectionError | EOFError):
        return None
    try:
        return None if type(failure).__name__ == "Py4JNetworkError" else str(failure)
    except Exception:  # noqa: BLE001  (whatever py4j raises when it cannot ask)
        return None


def _message(line: str) -> str:
    """Return ``line`` without what Java and Spark put before and behind a message."""
    line = line.strip()
    while found := _PREFIX.match(line):
        line = line[found.end() :]
    return re.sub(r"[;,. ]*\bSQLSTATE: \w+;?$", "", line)


def _essence(text: str) -> str:
    """Return the line with the message: the error of a worker or of a thread, or the first one."""
    # The frames of a traceback are indented; the first line that is not is the error.
    if found := re.search(r"Traceback \(most recent call last\).*\n(?:\s.*\n|\n)*(\S.*)", text):
        return _message(found[1])
    lines = re.findall(r"^Exception in thread .*$", text, re.MULTILINE) + text.split("\n")
    noise = ("at ", "JVM stacktrace", "... ", "WARNING", "NOTE")
    told = (_message(line) for line in lines if not line.strip().startswith(noise))
    return next(filter(None, told), "")


def _short(text: str) -> str:
    """Return ``text`` as one line that is not too long and moves no cursor."""
    line = " ".join("".join(one if one.isprintable() else " " for one in text).split())
    return line if len(line) <= LONGEST else line[: LONGEST - 1] + "…"
