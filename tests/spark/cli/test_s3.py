"""The analysis with its input and output on an S3 server of this machine."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.analyses import LONGEST, run

pytestmark = pytest.mark.longest(LONGEST)

LIBRARIES = sorted((Path(sys.prefix) / "share" / "s3").glob("*.jar"))
OLDER = {
    "threads.keepalivetime": "60",
    "connection.establish.timeout": "5000",
    "connection.timeout": "200000",
    "connection.ttl": "300000",
    "multipart.purge.age": "86400",
    "aws.credentials.provider": "com.amazonaws.auth.EnvironmentVariableCredentialsProvider",
}
"""What a client of Hadoop 3.3 needs beside a later Hadoop, whose defaults have units."""
ACCOUNT = {"AWS_ACCESS_KEY_ID": "somebody", "AWS_SECRET_ACCESS_KEY": "something"}


@pytest.fixture
def server() -> Iterator[str]:
    """Yield the URL of a server with an empty bucket called ``mesh``."""
    found = pytest.importorskip("moto.server", reason="no S3 server is here: run scripts/setup-s3")
    if not LIBRARIES:
        pytest.skip("Hadoop's client for S3 is not here: run scripts/setup-s3")
    running = found.ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    yield f"http://{host}:{port}"
    running.stop()


@pytest.fixture
def bucket(server: str) -> Any:
    boto3 = pytest.importorskip("boto3")
    made = boto3.resource(
        "s3", "us-east-1", endpoint_url=server, **{name.lower(): v for name, v in ACCOUNT.items()}
    ).Bucket("mesh")
    made.create()
    return made


def analyse(server: str, *words: str, cwd: Path) -> Any:
    conf = {"endpoint": server, "path.style.access": "true"} | OLDER
    settings = [f"--conf=spark.hadoop.fs.s3a.{name}={value}" for name, value in conf.items()]
    settings.append(f"--conf=spark.jars={','.join(map(str, LIBRARIES))}")
    return run(*words, *settings, cwd=cwd, **ACCOUNT)


def test_edge_lists_are_read_from_a_bucket_and_the_report_is_put_there(
    server: str, bucket: Any, tmp_path: Path
) -> None:
    bucket.put_object(Key="edges/ring.txt", Body=b"a b\nb c\nc a\n")
    bucket.put_object(Key="edges/line.txt", Body=b"x y\ny z\n")
    bucket.put_object(Key="other/line.txt", Body=b"no mesh\n")
    done = analyse(server, "s3a://mesh/edges/", "--out", "s3a://mesh/report/new", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "2 meshes, 5 rows, none rejected" in done.stdout
    report = json.loads(bucket.Object("report/new/report.json").get()["Body"].read())
    cut = {each["mesh"]: each["articulation_daemons"]["total"] for each in report["meshes"]}
    assert cut == {"line": 1, "ring": 0}
    names = {each.key for each in bucket.objects.all() if each.key.startswith("report/")}
    assert {f"report/new/{name}" for name in ("report.html", "daemons.parquet")} <= names
    assert not [name for name in names if ".topology-" in name]  # nothing of what Spark wrote


def test_a_folder_that_is_not_in_the_bucket_is_told(
    server: str, bucket: Any, tmp_path: Path
) -> None:
    done = analyse(server, "s3a://mesh/none/", "--out", "s3a://mesh/report", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    told = done.stderr.splitlines()[-1]
    assert told == "pubsubd: s3a://mesh/none/: there is no such file or folder"
