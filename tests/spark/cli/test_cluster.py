"""The analysis on a Spark cluster of this machine, and one that loses a worker."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.analyses import LONGEST, Ran
from tests.daemons import ROOT, environment

# Javas start sooner by these.
JAVA = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
QUICK = (
    f"--driver-java-options={JAVA}",
    f"--conf=spark.executor.extraJavaOptions={JAVA}",
    "--conf=spark.sql.codegen.wholeStage=false",
    "--conf=spark.sql.codegen.factoryMode=NO_CODEGEN",
)

KILLER = """\
import os, signal, sys
from pubsubd.topology.spark import spark_session

mark = sys.argv[1]

def once_killed(batches):
    # The first task that is run ends the worker that its executor belongs to.
    try:
        os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        pass
    else:
        executor = os.getppid()  # of the worker's Python: the daemon that forks them
        while os.path.basename(os.readlink(f"/proc/{executor}/exe")) != "java":
            executor = parent(executor)
        os.kill(parent(executor), signal.SIGKILL)
        os.kill(executor, signal.SIGKILL)
    yield from batches

def parent(pid):
    with open(f"/proc/{pid}/stat") as file:
        return int(file.read().rpartition(")")[2].split()[1])

with spark_session(brief=True, heap="600m") as spark:
    rows = spark.range(0, 100, 1, 8).mapInArrow(once_killed, "id long").collect()
    print(spark.sparkContext.master, sum(row.id for row in rows))
"""

BOTH = """\
place=$1
shift
spark-submit "$@" >"$place/submitted.out" 2>"$place/submitted.err"
echo $? >"$place/submitted.status"
"$PYSPARK_PYTHON" "$place/killer.py" "$place/killed" >"$place/killer.out" 2>"$place/killer.err"
echo $? >"$place/killer.status"
exit 7
"""


class Cluster:
    """What a cluster of two workers did: a job of spark-submit, then one that kills a worker.

    The first one is that of the command, in the same directory, with the report elsewhere.
    """

    def __init__(self, place: Path, where: Path) -> None:
        self.place = place
        self.temporary = place / "tmp"
        self.temporary.mkdir()
        (place / "killer.py").write_text(KILLER)
        job = ROOT / "contrib" / "spark" / "pubsubd_topology.py"
        # What is not the case, a partition, is no failure.
        words = ("mesh.txt", "--out", place / "report", "--quiet", "--fail-on", "partition")
        script = [sys.executable, ROOT / "scripts" / "spark-cluster", "--timeout", str(LONGEST)]
        self.done = subprocess.run(
            [*script, "sh", "-c", BOTH, "sh", place, *QUICK, job, *words],
            cwd=where,
            env=environment() | {"TMPDIR": str(self.temporary)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=LONGEST + 60,
        )

    def told(self, name: str) -> str:
        return (self.place / name).read_text()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, ran: Ran) -> Cluster:
    return Cluster(tmp_path_factory.mktemp("cluster"), ran[0])


def test_spark_submit_on_a_cluster_of_two_workers_makes_the_same_report(
    cluster: Cluster, ran: Ran
) -> None:
    assert cluster.told("submitted.status") == "0\n", cluster.told("submitted.err")
    assert "6 daemons, 7 links" in cluster.told("submitted.out")
    far, near = (
        {path.name: path.read_bytes() for path in folder.iterdir()}
        for folder in (cluster.place / "report", ran[0] / "report")
    )
    assert far == near


def test_a_cluster_whose_worker_is_killed_still_gives_the_result(cluster: Cluster) -> None:
    assert cluster.told("killer.status") == "0\n", cluster.told("killer.err")
    assert re.fullmatch(r"spark://127\.0\.0\.1:\d+ 4950\n", cluster.told("killer.out"))
    assert (cluster.place / "killed").exists()


def test_a_cluster_ends_with_the_status_of_its_command_and_leaves_nothing(cluster: Cluster) -> None:
    assert cluster.done.returncode == 7, cluster.done.stderr
    assert not list(cluster.temporary.iterdir())
    processes = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    assert str(cluster.temporary) not in processes.stdout
