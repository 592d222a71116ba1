"""Settings that Spark is started with: memory, compilers, addresses, environment."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

import pubsubd

LOCAL = "local[*,2]"
"""The master when none is named: all cores of this machine, and two attempts at a task.

So the job survives a worker that the kernel has killed.
"""

HEAP = 2 * 1024
"""MiB of Java's heap by default; at most half of the machine's memory."""


def spark_settings(
    master: str, heap: str, scratch: Path, options: Sequence[str] = (), *, brief: bool = False
) -> dict[str, str]:
    """Return Spark's settings for ``master``.

    Args:
        master: a URL that Spark takes.
        heap: the size of Java's heap, as Java takes it: ``2g``.
        scratch: a directory for what Spark writes on this machine.
        options: for the Java of this machine.
        brief: start soon, and compute slowly if it lasts.
    """
    # The plain collectors take 15-20 % less processor time here than the default one. C2, the
    # second compiler, takes its time from the start.
    java = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1" if brief else "-XX:+UseParallelGC"
    # Room for classes, or there would be a full collection for it.
    flags = ["-XX:-UsePerfData", "-XX:MetaspaceSize=256m", f"-Djava.io.tmpdir={scratch}", *options]
    settings = {
        "spark.master": master,
        "spark.app.name": "pubsubd topology",
        "spark.driver.memory": heap,
        # Before what a user's spark-defaults.conf adds. No file of counters in /tmp either.
        "spark.driver.defaultJavaOptions": f"{java} {' '.join(map(_quoted, flags))}",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.catalogImplementation": "in-memory",  # no metastore_db
        "spark.sql.warehouse.dir": (scratch / "warehouse").as_uri(),
        "spark.python.worker.faulthandler.enabled": "true",
        # One task is one thread: the libraries below it start no others.
        "spark.executorEnv.OMP_NUM_THREADS": "1",
        "spark.executorEnv.OPENBLAS_NUM_THREADS": "1",
    } | session_settings()
    if brief:
        # To generate code takes longer than to do without.
        settings |= {
            "spark.executor.defaultJavaOptions": java,
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        }
    if _is_here(master):
        # Never the network, nor the name of a machine that no server knows.
        settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    return settings


def session_settings() -> dict[str, str]:
    """Return the settings that can be changed in a session that others have started."""
    return {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # It looks up where each expression was made: half of the calls to Java.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
    }


def java_environ(java: Path, scratch: Path, master: str) -> dict[str, str]:
    """Return the environment of Java and the workers: ours, and what they need beside it."""
    package = str(Path(pubsubd.__file__).parent.parent)
    defaults = {
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_DIRS": str(scratch),
        "SPARK_LAUNCHER_OPTS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        "MALLOC_ARENA_MAX": "2",  # many cores would each have 64 MiB of it
    } | ({"SPARK_LOCAL_IP": "127.0.0.1"} if _is_here(master) else {})
    return (
        defaults
        | os.environ
        | {
            "JAVA_HOME": str(java),
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "SPARK_HOME": str(spark_home()),
            # Workers do not run where we do, and find the package all the same.
            "PYTHONPATH": os.pathsep.join([*filter(None, [os.environ.get("PYTHONPATH")]), package]),
        }
    )


def spark_home() -> Path:
    """Return the environment's ``SPARK_HOME`` if it is the same Spark as pyspark's, else that."""
    import pyspark  # noqa: PLC0415  (the daemon is installed without it)

    own = Path(pyspark.__file__).parent
    named = Path(os.environ.get("SPARK_HOME", own))
    # A Spark of another version would not understand this one's Python.
    versions = [{jar.name for jar in one.glob("jars/spark-core_*")} for one in (own, named)]
    return named if versions[0] == versions[1] else own


def default_heap() -> str:
    """Return the default size of Java's heap: at most half of the machine's or group's memory."""
    sizes = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for limit in ("memory.max", "memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):  # "max", or no groups here
            sizes.append(int(Path("/sys/fs/cgroup", limit).read_text(encoding="ascii")))
    return f"{max(512, min(HEAP, min(sizes) // 2 // 2**20))}m"  # Spark wants 450 at least


def _quoted(option: str) -> str:
    """Return ``option`` as Spark takes it in a list of Java's options, spaces and all."""
    return '"' + option.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _is_here(master: str) -> bool:
    """Tell whether all of Spark is on this machine."""
    return re.match(r"local|spark://(?:localhost|127\.[\d.]+):\d+$", master) is not None
