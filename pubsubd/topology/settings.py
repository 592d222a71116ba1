"""Settings that Spark is started with: memory, compilers, addresses, environment."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from pathlib import Path

import pubsubd

LOCAL = "local[*]"
"""The master when none is named: this machine, with all its cores."""

HEAP = 2 * 1024
"""MiB of Java's heap by default; at most half of the machine's memory."""

LEAST_HEAP = 512
"""MiB: Spark does not start with less than 450."""

BRIEF = 64 * 2**20
"""Bytes of input, unpacked, up to which a job spends most of its time on starting Java.

Measured on 2 cores, processor time: start and first actions 12.0 s, and 7.1 s without Java's second
compiler; 20 million rows aggregated 110 s, and 244 s without.
"""

LISTED = 1 * 2**20
"""Bytes of lists from which on Spark generates code to read them, though the job is brief.

Measured on 2 cores, processor time: reading a list of 1.8 MB takes 9.3 s without, 7.3 s with that;
one of a few links 2.6 s and 4.1 s. To reconcile reports, there is much more code to generate.
"""

COMPILED = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}
"""Settings with which it does; Spark's own, otherwise."""

ATTEMPTS = 2
"""Attempts at a task in local mode, so that the job survives a worker killed by the kernel."""


def spark_settings(master: str, heap: str, scratch: Path, *, brief: bool = False) -> dict[str, str]:
    """Return Spark's settings for ``master``.

    Args:
        master: a URL that Spark takes.
        heap: the size of Java's heap, as Java takes it: ``2g``.
        scratch: a directory for what Spark writes on this machine.
        brief: start soon, and compute slowly if it lasts.
    """
    # The plain collectors take 15-20 % less processor time here than the default one. C2, the
    # second compiler, takes its time from the start.
    java = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1" if brief else "-XX:+UseParallelGC"
    settings = {
        "spark.master": master,
        "spark.app.name": "pubsubd topology",
        "spark.driver.memory": heap,
        # Before what a user's spark-defaults.conf adds. No file of counters in /tmp either.
        "spark.driver.defaultJavaOptions": (
            f"{java} -XX:-UsePerfData -Djava.io.tmpdir={java_quoted(scratch)}"
        ),
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
    """Return the variables that Java and the workers need beside those of our environment."""
    ours = os.environ
    paths = [*filter(None, [ours.get("PYTHONPATH")]), str(Path(pubsubd.__file__).parent.parent)]
    changes = {
        "JAVA_HOME": str(java),
        "PYSPARK_PYTHON": ours.get("PYSPARK_PYTHON", sys.executable),
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_HOME": str(spark_home()),
        # Workers do not run where we do, and find the package all the same.
        "PYTHONPATH": os.pathsep.join(paths),
        "SPARK_LOCAL_DIRS": ours.get("SPARK_LOCAL_DIRS", str(scratch)),
        # Many cores would each have 64 MiB of it.
        "MALLOC_ARENA_MAX": ours.get("MALLOC_ARENA_MAX", "2"),
    }
    if _is_here(master):
        changes["SPARK_LOCAL_IP"] = ours.get("SPARK_LOCAL_IP", "127.0.0.1")
    return changes


def spark_home() -> Path:
    """Return the environment's ``SPARK_HOME`` if it is the same Spark as pyspark's, else that."""
    import pyspark  # noqa: PLC0415  (the daemon is installed without it)

    own, told = Path(pyspark.__file__).parent, Path(os.environ.get("SPARK_HOME", "/nowhere"))
    # A Spark of another version would not understand this one's Python.
    core = next((own / "jars").glob("spark-core_*.jar"), Path("none"))
    return told if (told / "jars" / core.name).exists() else own


def java_quoted(text: str | Path) -> str:
    """Return ``text`` as Spark takes it in a list of Java's options, spaces and all."""
    return '"' + str(text).replace("\\", "\\\\").replace('"', '\\"') + '"'


def _is_here(master: str) -> bool:
    """Tell whether all of Spark is on this machine."""
    return master.startswith("local") or bool(
        re.match(r"spark://(?:localhost|127\.[\d.]+):\d+$", master)
    )


def with_attempts(master: str) -> str:
    """Return a local master that tries a task more than once."""
    if master == "local":
        return f"local[1,{ATTEMPTS}]"
    return re.sub(r"^local\[(\*|\d+)\]$", rf"local[\1,{ATTEMPTS}]", master)


def default_heap() -> str:
    """Return the default size of Java's heap, as Java takes it."""
    half = _memory() // 2 // 2**20
    return f"{max(LEAST_HEAP, min(HEAP, half))}m"


def _memory() -> int:
    """Return the bytes of memory that this process may use: of the machine, or of its group."""
    sizes = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for limit in ("memory.max", "memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):  # "max", or no groups here
            sizes.append(int(Path("/sys/fs/cgroup", limit).read_text(encoding="ascii")))
    return min(sizes)
