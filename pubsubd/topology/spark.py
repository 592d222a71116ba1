"""A Spark session that starts without a hunt, says nothing on the terminal and leaves nothing.

Invariants:

- Java, and through it the Python workers, write to a log file; the terminal is the caller's.
- What Spark writes on this machine is in one scratch directory, which is also where its processes
  run, and is removed at the end.
- What fails in Spark leaves the session as one :class:`TopologyError` of one line.
- Afterwards the process is as it was: its environment, its signals, no Java below it.

Where a Spark is there already, its own settings stand: under ``spark-submit``, where Java has
started this process, with Spark Connect (``sc://``), where it is on another machine, and where
this process has a session, which is used and not ended.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import TimeoutExpired
from typing import IO, TYPE_CHECKING, Any

from pubsubd.topology.errors import TopologyError
from pubsubd.topology.failures import explain_failure, is_of_spark
from pubsubd.topology.java import find_java
from pubsubd.topology.process import environment, process_as_it_was, quiet_loggers
from pubsubd.topology.settings import (
    LOCAL,
    default_heap,
    java_environ,
    session_settings,
    spark_settings,
    with_attempts,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MASTER_SECONDS = 10
"""For which a stand-alone master may be silent when it is first spoken to."""

EXECUTOR_SECONDS = 120
"""For which a stand-alone cluster may take to give the first executor."""

JAVA_SECONDS = 15
"""For which Java may take to end."""

_GATEWAY = "PYSPARK_GATEWAY_PORT"  # set by spark-submit: Java is there already


@contextlib.contextmanager
def spark_session(
    master: str | None = None,
    log_file: Path | None = None,
    *,
    heap: str | None = None,
    brief: bool = False,
    scratch: Path | None = None,
    settings: Mapping[str, str] | None = None,
) -> Iterator[SparkSession]:
    """Start a session, or take the one there is, and end it when the block is left.

    Args:
        master: a URL that Spark takes; otherwise the environment's ``MASTER``, or :data:`LOCAL`.
            Under ``spark-submit`` it is that command's.
        log_file: where Java and the workers write, after what is there; without one it is a
            temporary file that is kept when something has failed, and the error tells its path.
        heap: the size of Java's heap, as Java takes it: ``2g``; otherwise :func:`default_heap`.
        brief: the input is small, see :data:`BRIEF`: start soon.
        scratch: where to make the scratch directory: a disk with room for what is sorted and
            shuffled; otherwise where temporary files go.
        settings: more for Spark; they win.

    Raises:
        TopologyError: there is no Java or no Spark, they could not be started, or they failed in
            the block.
    """
    if _is_running():
        with _failures_told(log_file, 0):
            yield _take(settings or {})
        return
    places = _Places(log_file, scratch)
    kept = False
    try:
        with places.opened() as log, process_as_it_was(), quiet_loggers(log):
            start = log.seek(0, os.SEEK_END)
            try:
                with _failures_told(places.log, start):
                    session = _start(master, heap, brief, places.scratch, log, settings or {})
                    yield session
                    session.stop()
            except _SparkError:
                kept = True
                raise
            finally:
                _end_java()
    finally:
        places.leave(kept)


class _SparkError(TopologyError):
    """What failed in Spark, with the log that tells more."""


@contextlib.contextmanager
def _failures_told(log: Path | None, start: int) -> Iterator[None]:
    """Raise what fails in Spark as one line; what fails in our own code stays as it is."""
    try:
        yield
    except Exception as failure:
        if not is_of_spark(failure):
            raise
        more = f" (see {log})" if log else ""
        raise _SparkError(explain_failure(failure, log, start) + more) from failure


@dataclass
class _Places:
    """The files of a session."""

    log_file: Path | None
    parent: Path | None
    scratch: Path = field(init=False)
    log: Path = field(init=False)

    @contextlib.contextmanager
    def opened(self) -> Iterator[IO[bytes]]:
        """Make the scratch directory and open the log."""
        try:
            self.scratch = Path(tempfile.mkdtemp(prefix="pubsubd-spark-", dir=self.parent))
            self.scratch = self.scratch.resolve()
            if self.log_file is None:
                handle, name = tempfile.mkstemp(prefix="pubsubd-topology-", suffix=".log")
                os.close(handle)
                self.log = Path(name)
            else:
                self.log = self.log_file
            log = self.log.open("ab", buffering=0)
        except OSError as error:
            raise TopologyError(
                f"{error.filename or tempfile.gettempdir()}: {error.strerror}"
            ) from error
        with log:
            yield log

    def leave(self, kept: bool) -> None:
        """Remove the scratch directory, and the log if nobody asked for it."""
        if hasattr(self, "scratch"):
            shutil.rmtree(self.scratch, ignore_errors=True)
        if self.log_file is None and hasattr(self, "log") and not kept:
            self.log.unlink(missing_ok=True)


def _is_running() -> bool:
    """Tell whether this process has a session that somebody else will end."""
    if "pyspark" not in sys.modules:
        return False
    from pyspark import SparkContext  # noqa: PLC0415

    return SparkContext._active_spark_context is not None


def _start(
    master: str | None,
    heap: str | None,
    brief: bool,
    scratch: Path,
    log: IO[bytes],
    more: Mapping[str, str],
) -> SparkSession:
    """Start Spark with its output in ``log``, or take what there is."""
    try:
        import pyspark  # noqa: PLC0415  (the daemon is installed without it)
    except ImportError as error:
        raise TopologyError(
            "Spark is not installed: install it with \"pip install 'pubsubd[topology]'\""
        ) from error
    url = master or os.environ.get("MASTER") or LOCAL
    if _GATEWAY in os.environ:
        return _take(more)
    if url.startswith("sc://"):
        return _connect(url, more)
    if url.startswith("spark://"):
        _knock(url)
    java = find_java(os.environ).home_for_spark(scratch)
    settings = spark_settings(url, heap or default_heap(), scratch, brief=brief) | dict(more)
    settings["spark.master"] = with_attempts(settings["spark.master"])
    spark = Path(pyspark.__file__).parent
    with environment(java_environ(java, spark, scratch, url)):
        session = _launch(settings, scratch, log)
    if url.startswith("spark://"):
        _wait_for_executor(session)
    return _sized(session, more)


def _launch(settings: Mapping[str, str], scratch: Path, log: IO[bytes]) -> SparkSession:
    """Start Java in ``scratch``, and a session in it."""
    from pyspark import SparkConf, SparkContext  # noqa: PLC0415
    from pyspark.java_gateway import launch_gateway  # noqa: PLC0415
    from pyspark.sql import SparkSession  # noqa: PLC0415

    conf = SparkConf()
    conf.setAll(list(settings.items()))
    # SparkSession.builder would start Java as well, but with our own output and directory.
    launch: Callable[..., Any] = launch_gateway  # it has no types
    gateway = launch(conf, {"stdout": log, "stderr": log, "cwd": scratch})
    interrupt = signal.getsignal(signal.SIGINT)
    context: Any = SparkContext(conf=conf, gateway=gateway)
    # It would print a stack when Java is gone, which is told already.
    context._accumulatorServer.handle_error = lambda *_: None
    if threading.current_thread() is threading.main_thread():
        # Spark's own handler asks Java in the middle of another question, and fails.
        signal.signal(signal.SIGINT, interrupt)
    return SparkSession.builder.getOrCreate()


def _take(more: Mapping[str, str]) -> SparkSession:
    """Return the session of the Java that has started this process: its settings stand."""
    from pyspark.sql import SparkSession  # noqa: PLC0415

    builder = SparkSession.builder.appName("pubsubd topology")
    for name, value in (session_settings() | dict(more)).items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("WARN")
    return _sized(session, more)


def _connect(url: str, more: Mapping[str, str]) -> SparkSession:
    """Return a session at a Spark Connect server."""
    from pyspark.errors import PySparkImportError  # noqa: PLC0415
    from pyspark.sql import SparkSession  # noqa: PLC0415

    try:
        session: SparkSession = SparkSession.builder.remote(url).getOrCreate()
    except (ImportError, PySparkImportError) as error:
        raise TopologyError(
            "Spark Connect needs more packages: install them with"
            " \"pip install 'pyspark[connect]'\""
        ) from error
    for name, value in (session_settings() | dict(more)).items():
        session.conf.set(name, value)
    return session


def _sized(session: SparkSession, more: Mapping[str, str]) -> SparkSession:
    """Shuffle into two partitions a core; Spark's 200 cost minutes where there are few rows."""
    partitions = "spark.sql.shuffle.partitions"
    context = session.sparkContext
    if partitions not in more and context.getConf().get(partitions) is None:
        session.conf.set(partitions, 2 * max(1, context.defaultParallelism))
    return session


def _end_java() -> None:
    """End the Java that was ours, whatever state it is in; it ends the session with it."""
    if "pyspark" not in sys.modules:
        return
    from pyspark import SparkContext  # noqa: PLC0415
    from pyspark.sql import SparkSession  # noqa: PLC0415

    gateway: Any = SparkContext._gateway
    process = getattr(gateway, "proc", None)
    if process is None:
        return
    # It leaves its cluster and removes its files, and does not wait for what is computed. It is
    # asked nothing: it may be gone, or in the middle of an answer.
    process.terminate()
    process.stdin.close()
    try:
        process.wait(JAVA_SECONDS)
    except TimeoutExpired:
        process.kill()
        process.wait()
    context: Any = SparkContext._active_spark_context
    if context is not None:
        context._jsc = None
        context.stop()
    with contextlib.suppress(Exception):
        gateway.shutdown()
    # A next session starts a Java of its own.
    SparkContext._gateway = None
    SparkContext._jvm = None
    SparkSession._instantiatedSession = None


def _knock(url: str) -> None:
    """See that one of the masters of a stand-alone cluster is there; Spark takes a minute for that.

    Raises:
        TopologyError: none is.
    """
    reasons = []
    for address in url.removeprefix("spark://").split(","):
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), MASTER_SECONDS).close()
        except (OSError, ValueError, OverflowError) as error:
            reasons.append(f"{address}: {getattr(error, 'strerror', None) or error}")
        else:
            return
    raise TopologyError(f"no Spark master answers at {url} ({'; '.join(reasons)})")


def _wait_for_executor(session: SparkSession) -> None:
    """Wait until a stand-alone cluster has given an executor; without one nothing would happen.

    Raises:
        TopologyError: it gives none.
    """
    end = time.monotonic() + EXECUTOR_SECONDS
    context: Any = session.sparkContext
    while context._jsc.sc().getExecutorMemoryStatus().size() < 2:  # the driver is in it as well
        if time.monotonic() > end:
            raise TopologyError(
                f"the cluster gave no executor in {EXECUTOR_SECONDS} s: its workers are all in use,"
                " or have less memory or fewer cores than is asked for"
            )
        time.sleep(0.1)
