"""A Spark session that starts quickly, prints nothing and leaves nothing behind.

Invariants:

- Java, and the Python workers that it starts, write to a log file; the terminal is the caller's.
- Spark writes its local files into one scratch directory, which is also where its processes run,
  and which is removed at the end.
- A failure in Spark leaves the session as one :class:`TopologyError` of one line.
- Afterwards the process is as it was: its environment, its signals, no Java below it.

Where Spark is running already, its own settings stand: under ``spark-submit``, where Java has
started this process, with Spark Connect (``sc://``), where it is on another machine, and where
this process has a session, which is used and not ended.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from subprocess import TimeoutExpired
from typing import IO, TYPE_CHECKING, Any

from pubsubd.topology.archive import SECONDS, Archive
from pubsubd.topology.errors import TopologyError
from pubsubd.topology.failures import explain_failure, is_of_spark
from pubsubd.topology.held import held_folder
from pubsubd.topology.java import find_java
from pubsubd.topology.process import process_as_it_was, quiet_loggers
from pubsubd.topology.settings import (
    LOCAL,
    default_heap,
    java_environ,
    session_settings,
    spark_home,
    spark_settings,
    with_attempts,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MASTER_SECONDS = 10
"""Longest wait for the first answer of a stand-alone master."""

EXECUTOR_SECONDS = 120
"""Longest wait for the first executor of a stand-alone cluster."""

JAVA_SECONDS = 15
"""Longest wait for Java to end."""


@contextlib.contextmanager
def spark_session(
    master: str | None = None,
    log_file: Path | None = None,
    *,
    heap: str | None = None,
    brief: bool = False,
    archive: bool = False,
    settings: Mapping[str, str] | None = None,
    meanwhile: Callable[[], None] = lambda: None,
) -> Iterator[SparkSession]:
    """Start a session, or take a running one, and end it when the block is left.

    Args:
        master: a URL that Spark takes; otherwise the environment's ``MASTER``, or :data:`LOCAL`.
            Under ``spark-submit`` it is that command's.
        log_file: Java and the workers append to it; without one it is a temporary file, which is
            kept when something has failed, and the error names it.
        heap: the size of Java's heap, as Java takes it: ``2g``; otherwise :func:`default_heap`.
        brief: the input is small, see :data:`BRIEF`: start soon.
        archive: make an archive of Java's classes at the end, if there is none.
        settings: more for Spark; they win.
        meanwhile: called in a thread while Java starts.

    Raises:
        TopologyError: there is no Java, it could not be started, or it failed in the block.
        ModuleNotFoundError: pyspark is not installed.
    """
    import pyspark.sql  # noqa: PLC0415  (the daemon is installed without it)

    more = dict(settings or {})
    if pyspark.sql.SparkSession.getActiveSession() is not None:  # somebody else will end it
        with _one_line_failures():
            yield _take(None, more)
        return
    with _files(log_file) as (scratch, log), process_as_it_was(), _one_line_failures(log):
        url = master or os.environ.get("MASTER") or LOCAL
        if "PYSPARK_GATEWAY_PORT" in os.environ:  # set by spark-submit: Java is there already
            opened: Any = contextlib.nullcontext(_take(None, more))
        elif url.startswith("sc://"):
            opened = contextlib.nullcontext(_take(url, more))
        else:
            all_settings = spark_settings(url, heap or default_heap(), scratch, brief=brief) | more
            opened = _own_java(url, all_settings, scratch, log, archive)
        thread = threading.Thread(target=meanwhile)
        thread.start()
        try:
            quiet_loggers()
            with opened as session:
                yield session
                session.stop()
        finally:
            thread.join()


class _SparkError(TopologyError):
    """A failure in Spark; the log has more about it."""


@contextlib.contextmanager
def _one_line_failures(log: IO[bytes] | None = None) -> Iterator[None]:
    """Turn failures of Spark into errors of one line; failures of our own code pass unchanged."""
    start = log.seek(0, os.SEEK_END) if log else 0
    try:
        yield
    except Exception as failure:
        if not is_of_spark(failure):
            raise
        path = Path(log.name) if log else None
        line = explain_failure(failure, path, start)
        if log:
            log.write(traceback.format_exc().encode(errors="backslashreplace"))
            line += f" (see {path})"
        raise _SparkError(line) from failure


@contextlib.contextmanager
def _files(log_file: Path | None) -> Iterator[tuple[Path, IO[bytes]]]:
    """Make the scratch directory and open the log; a temporary log is kept if Spark fails."""
    with contextlib.ExitStack() as stack:
        try:
            parent = Path(tempfile.gettempdir())
            scratch = stack.enter_context(held_folder("pubsubd-java-", parent))
            opened: Any = (
                log_file.open("ab", buffering=0)
                if log_file
                else tempfile.NamedTemporaryFile(  # noqa: SIM115  (entered below)
                    "ab", buffering=0, prefix="pubsubd-topology-", suffix=".log", delete=False
                )
            )
            log: IO[bytes] = stack.enter_context(opened)
        except OSError as error:
            raise TopologyError(
                f"{error.filename or tempfile.gettempdir()}: {error.strerror}"
            ) from error
        kept = log_file is not None
        try:
            yield scratch.resolve(), log
        except _SparkError:
            kept = True
            raise
        finally:
            if not kept:
                Path(log.name).unlink(missing_ok=True)


@contextlib.contextmanager
def _own_java(
    url: str, settings: dict[str, str], scratch: Path, log: IO[bytes], record: bool
) -> Iterator[SparkSession]:
    """Start Java in ``scratch`` with its output in ``log``, and a session in it; end both."""
    from pyspark import SparkConf, SparkContext  # noqa: PLC0415
    from pyspark.java_gateway import launch_gateway  # noqa: PLC0415
    from pyspark.sql import SparkSession  # noqa: PLC0415

    if url.startswith("spark://"):
        _knock(url)
    java = find_java(os.environ)
    archive = Archive(java, spark_home() / "jars", os.environ, record=record)
    environ = java_environ(java.home_for_spark(scratch, archive.options), scratch, url)
    conf = SparkConf().setAll(list(settings.items()))
    conf.set("spark.master", with_attempts(settings["spark.master"]))
    # SparkSession.builder would start Java as well, but with our own output and directory.
    launch: Callable[..., Any] = launch_gateway  # it has no types
    interrupt = signal.getsignal(signal.SIGINT)
    gateway: Any = None
    context: Any = None
    try:
        with _one_line_failures(log):  # in here, as some have to be asked of Java
            os.environ.update(environ)  # put back at the end
            gateway = launch(conf, {"stdout": log, "stderr": log, "cwd": scratch})
            context = SparkContext(conf=conf, gateway=gateway)
            # Or it would print a stack when Java is gone; pyspark has no setting for it.
            context._accumulatorServer.handle_error = lambda *_: None
            if threading.current_thread() is threading.main_thread():
                # Spark's own handler asks Java in the middle of another question, and fails.
                signal.signal(signal.SIGINT, interrupt)
            if url.startswith("spark://"):
                _wait_for_executor(context)
            yield _sized(SparkSession.builder.getOrCreate(), settings)
    except BaseException:
        if gateway is not None and archive.recording:
            gateway.proc.kill()  # else it would write the archive now
        archive.abandon()
        raise
    finally:
        try:
            if gateway is not None:
                _end_java(gateway, context, SECONDS if archive.recording else JAVA_SECONDS)
        finally:
            if gateway is None or gateway.proc.returncode == -signal.SIGKILL:
                archive.abandon()  # it was not written to the end
            archive.finish()


def _end_java(gateway: Any, context: Any, seconds: float) -> None:
    """End our Java, whatever state it is in; its session ends with it.

    Java then leaves its cluster and removes its files without waiting for running jobs. Nothing is
    asked of it: it may be gone, or in the middle of an answer.
    """
    from pyspark import SparkContext  # noqa: PLC0415

    process = gateway.proc
    process.terminate()
    process.stdin.close()
    try:
        process.wait(seconds)
    except BaseException as error:
        process.kill()
        process.wait()
        if not isinstance(error, TimeoutExpired):  # Ctrl-C
            raise
    with contextlib.suppress(Exception):
        gateway.shutdown()
    if context is not None:
        with contextlib.suppress(Exception), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            context.stop()  # it asks Java, and fails
        context.stop()  # now it does the rest
    # Or the next session would be given this Java: pyspark keeps one for the life of a process.
    attributes: Any = SparkContext
    attributes._gateway = attributes._jvm = None


def _take(url: str | None, more: Mapping[str, str]) -> SparkSession:
    """Return a session that runs elsewhere: at a Spark Connect server, or in a Java that is there.

    Its own settings stand.
    """
    from pyspark.errors import PySparkImportError  # noqa: PLC0415
    from pyspark.sql import SparkSession  # noqa: PLC0415

    builder = SparkSession.builder.appName("pubsubd topology")
    for name, value in (session_settings() | dict(more)).items():
        builder = builder.config(name, value)
    try:
        session: SparkSession = (builder.remote(url) if url else builder).getOrCreate()
    except (ImportError, PySparkImportError) as error:
        raise TopologyError(
            "Spark Connect needs more packages: install them with"
            " \"pip install 'pyspark[connect]'\""
        ) from error
    if url is None:
        session.sparkContext.setLogLevel("WARN")
        _sized(session, more)
    return session


def _sized(session: SparkSession, more: Mapping[str, str]) -> SparkSession:
    """Shuffle into two partitions a core; Spark's 200 cost minutes where there are few rows."""
    partitions = "spark.sql.shuffle.partitions"
    context = session.sparkContext
    if partitions not in more and context.getConf().get(partitions) is None:
        session.conf.set(partitions, 2 * max(1, context.defaultParallelism))
    return session


def _knock(url: str) -> None:
    """Check that a master of a stand-alone cluster answers; Spark would take a minute for that.

    Raises:
        TopologyError: none does.
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


def _wait_for_executor(context: Any) -> None:
    """Wait until a stand-alone cluster has given an executor; without one nothing would happen.

    Raises:
        TopologyError: it gives none.
    """
    end = time.monotonic() + EXECUTOR_SECONDS
    # Only Java knows: pyspark has no public way to ask.
    while context._jsc.sc().getExecutorMemoryStatus().size() < 2:  # the driver is in it as well
        if time.monotonic() > end:
            raise TopologyError(
                f"the cluster gave no executor in {EXECUTOR_SECONDS} s: its workers are all in use,"
                " or have less memory or fewer cores than is asked for"
            )
        time.sleep(0.1)
