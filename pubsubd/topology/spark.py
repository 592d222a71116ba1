"""A Spark session that starts quickly, prints nothing and leaves nothing behind.

Invariants:

- Java, and the Python workers that it starts, write to a log file; the terminal is the caller's.
- Spark writes its local files into one scratch directory, which is also where its processes run,
  and which is removed at the end.
- A failure in Spark leaves the session as one :class:`TopologyError` of one line.
- Afterwards no Java is left. A process starts one only once, as pyspark keeps it.

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
import traceback
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from subprocess import TimeoutExpired
from typing import IO, TYPE_CHECKING, Any

from pubsubd.topology.archive import SECONDS, Archive
from pubsubd.topology.errors import TopologyError
from pubsubd.topology.failures import explain_failure, is_of_spark
from pubsubd.topology.held import held_folder
from pubsubd.topology.java import find_java, home_for_spark
from pubsubd.topology.process import ended_in_order, quiet_loggers
from pubsubd.topology.settings import (
    LOCAL,
    default_heap,
    java_environ,
    session_settings,
    spark_home,
    spark_settings,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MASTER_SECONDS = 10
"""Longest wait for the first answer of a stand-alone master."""

EXECUTOR_SECONDS = 120
"""Longest wait for the first result of a stand-alone cluster."""

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
        brief: start soon, and compute slowly if it lasts.
        archive: make an archive of Java's classes at the end, if there is none.
        settings: more for Spark; they win.
        meanwhile: called in a thread while Java starts.

    Raises:
        TopologyError: there is no Java, it could not be started, or it failed in the block.
        ModuleNotFoundError: pyspark is not installed.
    """
    from pyspark.sql import SparkSession  # noqa: PLC0415  (the daemon is installed without it)

    more = dict(settings or {})
    if SparkSession.getActiveSession() is not None:  # somebody else will end it
        with _one_line_failures():
            yield _take(None, more)
        return
    url = master or os.environ.get("MASTER") or LOCAL
    with contextlib.ExitStack() as stack:
        stack.enter_context(ended_in_order())
        log = stack.enter_context(_log(log_file))
        quiet_loggers()
        thread = threading.Thread(target=meanwhile)
        thread.start()
        stack.callback(thread.join)
        with _one_line_failures(log):  # before Java ends, as it has to be asked about some
            if "PYSPARK_GATEWAY_PORT" in os.environ:  # set by spark-submit: Java is there already
                session = _take(None, more)
            elif url.startswith("sc://"):
                session = _take(url, more)
            else:
                on_cluster = url.startswith("spark://")
                if on_cluster:
                    _knock(url)
                parent = Path(tempfile.gettempdir())
                scratch = stack.enter_context(held_folder("pubsubd-java-", parent)).resolve()
                java = find_java(os.environ)
                classes = Archive(java, spark_home() / "jars", os.environ, record=archive)
                heap = heap or default_heap()
                conf = spark_settings(url, heap, scratch, classes.options, brief=brief) | more
                environ = java_environ(home_for_spark(java, scratch), scratch, url)
                gateway = stack.enter_context(_java(conf, environ, scratch, log, classes))
                session = _sized(_session(gateway, conf), more)
                if on_cluster:
                    _wait_for_executor(session)
            yield session
            session.stop()


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
        line = explain_failure(failure, Path(log.name) if log else None, start)
        if log:
            log.write(traceback.format_exc().encode(errors="backslashreplace"))
            line += f" (see {log.name})"
        raise _SparkError(line) from failure


@contextlib.contextmanager
def _log(log_file: Path | None) -> Iterator[IO[bytes]]:
    """Open the log; a temporary one is kept only if Spark fails."""
    kept = log_file is not None
    if log_file is None:
        handle, name = tempfile.mkstemp(".log", "pubsubd-topology-")
        os.close(handle)
        log_file = Path(name)
    try:
        with log_file.open("ab", buffering=0) as log:
            yield log
    except _SparkError:
        kept = True
        raise
    finally:
        if not kept:
            log_file.unlink(missing_ok=True)


@contextlib.contextmanager
def _java(
    conf: Mapping[str, str],
    environ: Mapping[str, str],
    scratch: Path,
    log: IO[bytes],
    archive: Archive,
) -> Iterator[Any]:
    """Start Java in ``scratch`` with its output in ``log``, and end it, whatever state it is in.

    It then leaves its cluster and removes its files without waiting for running jobs. Nothing is
    asked of it: it may be gone, or in the middle of an answer.
    """
    from pyspark import SparkConf  # noqa: PLC0415
    from pyspark.java_gateway import launch_gateway  # noqa: PLC0415

    launch: Callable[..., Any] = launch_gateway  # it has no types
    process, before = None, dict(os.environ)
    try:
        os.environ.update(environ)
        # SparkSession.builder would start Java as well, but with our own output and directory.
        how = {"stdout": log, "stderr": log, "cwd": scratch}
        gateway = launch(SparkConf().setAll(list(conf.items())), how)
        process = gateway.proc
        yield gateway
    except BaseException:
        if process and archive.recording:
            process.kill()  # else it would write the archive now
        raise
    finally:
        os.environ.clear()
        os.environ.update(before)
        try:
            if process:
                process.terminate()
                process.stdin.close()
                with contextlib.suppress(TimeoutExpired):
                    process.wait(SECONDS if archive.recording else JAVA_SECONDS)
        finally:
            if process:
                process.kill()  # if it has not ended, or at Ctrl-C
                process.wait()
                gateway.shutdown()
            archive.finish(whole=process is not None and process.returncode != -signal.SIGKILL)


def _session(gateway: Any, conf: Mapping[str, str]) -> SparkSession:
    """Make a session in a Java of our own."""
    from pyspark import SparkConf, SparkContext  # noqa: PLC0415
    from pyspark.accumulators import AccumulatorTCPServer  # noqa: PLC0415
    from pyspark.sql import SparkSession  # noqa: PLC0415

    # Or it would print a stack when Java is gone.
    AccumulatorTCPServer.handle_error = lambda *_: None  # type: ignore[method-assign]
    interrupt = signal.getsignal(signal.SIGINT)
    context = SparkContext(conf=SparkConf().setAll(list(conf.items())), gateway=gateway)
    if threading.current_thread() is threading.main_thread():
        # Spark's own handler asks Java in the middle of another question, and fails.
        signal.signal(signal.SIGINT, interrupt)
    return SparkSession(context)


def _take(url: str | None, more: Mapping[str, str]) -> SparkSession:
    """Return a session that runs elsewhere: at a Spark Connect server, or in a Java that is there.

    Its own settings stand.
    """
    from pyspark.sql import SparkSession  # noqa: PLC0415

    settings: dict[str, Any] = session_settings() | dict(more)
    builder = SparkSession.builder.appName("pubsubd topology").config(map=settings)
    if url:
        return builder.remote(url).getOrCreate()
    session: SparkSession = builder.getOrCreate()
    session.sparkContext.setLogLevel("WARN")
    return _sized(session, more)


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
    for address in url.removeprefix("spark://").split(","):
        host, _, port = address.rpartition(":")
        with contextlib.suppress(OSError, ValueError, OverflowError):
            socket.create_connection((host.strip("[]"), int(port)), MASTER_SECONDS).close()
            return
    raise TopologyError(f"no Spark master answers at {url}")


def _wait_for_executor(session: SparkSession) -> None:
    """Wait until a stand-alone cluster has given an executor; without one nothing would happen.

    Raises:
        TopologyError: it gives none.
    """
    pool = ThreadPoolExecutor(1)
    try:
        pool.submit(session.range(1).count).result(EXECUTOR_SECONDS)
    except TimeoutError as error:
        raise TopologyError(
            f"the cluster gave no executor in {EXECUTOR_SECONDS} s: its workers are all in use,"
            " or have less memory or fewer cores than is asked for"
        ) from error
    finally:
        pool.shutdown(wait=False)  # the question ends with Java
