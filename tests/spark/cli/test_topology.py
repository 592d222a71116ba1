"""``pubsubd topology`` as a user runs it."""

from __future__ import annotations

import gzip
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from pubsubd.cli import group
from pubsubd.mesh.edges import COLUMNS, write_jsonl
from pubsubd.topology.errors import TopologyError
from pubsubd.topology.metrics import METRICS
from tests.analyses import Ran, put_list, run
from tests.daemons import ROOT, environment
from tests.rows import row


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory with a list; there must be nothing else when the test is over."""
    return put_list(tmp_path)


def test_it_says_what_it_does_and_what_it_has_found_and_leaves_nothing_else(ran: Ran) -> None:
    place, done = ran
    assert done.returncode == 3
    stages = [line.split(" s  ")[1] for line in done.stderr.splitlines()[:-1]]
    assert stages[0] == "starting Spark"
    assert "analysing 1 graph" in stages
    assert done.stderr.splitlines()[-1] == "pubsubd: --fail-on spof: the condition holds"
    summary = done.stdout.splitlines()
    assert len(summary) == 10
    assert "6 daemons, 7 links" in summary[0]
    assert "2 articulation daemons, 1 bridge" in done.stdout
    assert sorted(path.name for path in place.iterdir()) == ["mesh.txt", "report"]


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["nothing.txt"], "nothing.txt: there is no such file or folder"),
        (["empty"], "empty"),
        (["pictures"], "pictures"),
        (["mesh.txt", "--nodes", "pictures/one.png"], "one.png"),
        (["mesh.txt", "--json", "no/where.json"], "no/where.json: there is no directory"),
    ],
    ids=["missing", "empty folder", "folder of another kind", "no node list", "no directory"],
)
def test_what_cannot_be_read_is_told_in_one_line(place: Path, words: list[str], error: str) -> None:
    (place / "empty").mkdir()
    (place / "pictures").mkdir()
    (place / "pictures" / "one.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR")
    done = run(*words, "--out", "report", "--quiet", cwd=place)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("pubsubd: ")
    assert error in line
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--out", "report"], "Missing argument 'INPUT...'"),
        (["mesh.txt", "--master", "spark://h:1"], "--master needs --out"),
        (["mesh.txt", "--without", "a,b,c"], "'a,b,c' is not NAME or NAME,NAME"),
        (["mesh.txt", "--with", "a,a"], "'a,a' is not NAME,NAME"),
        (["mesh.txt", "--out", "r", "--conf", "memory=4g"], "is not spark.NAME=VALUE"),
        (["mesh.txt", "--out", "r", "--window", "0h"], "is not a duration"),
        (["mesh.txt", "--out", "r", "--window", "5"], "is not a duration"),
        (["mesh.txt", "--out", "r", "--since", "yesterday"], "is not a time"),
        (
            ["mesh.txt", "--out", "r", "--fail-on", "rain"],
            "'rain' is none of left, new-spof",
        ),
        (["--explain", "beauty"], "'beauty' is none of daemons"),
    ],
)
def test_wrong_usage_is_told_before_anything_is_started(
    place: Path, words: list[str], error: str
) -> None:
    done = run(*words, cwd=place)
    assert done.returncode == 2
    assert error in done.stderr
    assert not (place / "report").exists()


@pytest.mark.parametrize("name", METRICS)
def test_a_metric_is_explained(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    done = CliRunner().invoke(group, ["topology", "--explain", name])
    assert done.exit_code == 0
    assert METRICS[name].label in done.output


def hide_spark(place: Path) -> str:
    """Return the PYTHONPATH of a Python without pyspark."""
    hidden = place / "hidden"
    (hidden / "pyspark").mkdir(parents=True)
    (hidden / "pyspark" / "__init__.py").write_text(
        "raise ModuleNotFoundError(\"No module named 'pyspark'\", name='pyspark')"
    )
    return os.pathsep.join([str(hidden), environment()["PYTHONPATH"]])


def test_what_is_not_installed_is_told_with_how_to_get_it(place: Path) -> None:
    done = run("mesh.txt", "--out", "report", "--quiet", cwd=place, PYTHONPATH=hide_spark(place))
    assert done.returncode == 1
    assert done.stderr == (
        "pubsubd: the analysis needs pyspark, which is not installed:"
        " pip install '.[topology]', in a checkout of pubsubd\n"
    )


def test_inputs_without_a_row_are_told_before_spark_is_even_loaded(place: Path) -> None:
    (place / "none.txt").write_text("# src dst\n\n")
    (place / "none.csv").write_text(",".join(COLUMNS) + "\n")
    (place / "none.jsonl").write_bytes(b"")
    inputs = ("none.txt", "none.csv", "none.jsonl")
    done = run(*inputs, "--out", "report", cwd=place, PYTHONPATH=hide_spark(place))
    assert done.returncode == 1
    assert done.stderr == "pubsubd: there is nothing to analyse: there are no rows\n"
    assert not (place / "report").exists()


def test_the_daemon_loads_nothing_of_the_analysis() -> None:
    program = (
        "import sys; import pubsubd.cli.serve, pubsubd.daemon.run;"
        "print(sorted({'pyspark', 'numpy', 'scipy', 'matplotlib', 'pandas'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "[]\n"


def test_what_networkit_would_draw_with_is_not_loaded_and_can_be(place: Path) -> None:
    program = (
        "import sys; import pubsubd.topology.kernel.snapshot;"
        "print(sorted({'matplotlib.pyplot', 'networkx', 'tabulate'} & set(sys.modules)));"
        "import networkx, matplotlib.pyplot"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment(),
        cwd=place,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "[]\n"


def test_a_short_job_compiles_no_code(tmp_path: Path) -> None:
    """The compiler is in no archive of classes, and loading it takes a tenth of a short job."""
    with (tmp_path / "edges-1.jsonl").open("wb") as file:
        write_jsonl([row(observer=end) for end in "ab"], file)
    classes = tmp_path / "classes"
    told = f"spark.driver.extraJavaOptions=-Xlog:class+load:file={classes}"
    done = run("edges-1.jsonl", "--json", "-", "--quiet", "--conf", told, cwd=tmp_path)
    assert "2 daemons, 1 link" in done.stderr
    loaded = classes.read_text()
    assert "org.apache.spark.sql.execution.SortExec" in loaded
    assert "org.codehaus.janino" not in loaded


@pytest.fixture
def small(place: Path) -> Iterator[Path]:
    """A file system of 200 KiB."""
    folder = place / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=200k", "none", folder]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("this user may not mount a small file system")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


@pytest.mark.usefixtures("spark")
def test_a_disk_that_is_full_is_told_in_one_line(place: Path, small: Path) -> None:
    command = ["topology", str(place / "mesh.txt"), "--out", str(small), "--quiet"]
    result = CliRunner().invoke(group, command, standalone_mode=False)
    assert isinstance(result.exception, TopologyError)
    (line,) = str(result.exception).splitlines()
    assert "a disk is full" in line
    assert (result.output, list(small.iterdir())) == ("", [])


def examples() -> list[list[str]]:
    """Return the words of the manual's examples that need neither a cluster nor a browser."""
    page = (ROOT / "man" / "pubsubd-topology.1").read_text(encoding="utf-8")
    shown = page.split(".Sh EXAMPLES")[1].replace(" \\e\n", " ")
    lines = re.findall(r"^(?:zcat \S+ \| )?pubsubd topology (.*)$", shown, flags=re.MULTILINE)
    commands = [shlex.split(line.partition(" || ")[0]) for line in lines]
    return [words for words in commands if "--master" not in words and words[0][0] != "/"]


def test_there_are_these_examples() -> None:
    assert [words[0] for words in examples()] == [
        "edges/",
        "--explain",
        "p2p-Gnutella31.txt.gz",
        "-",
    ]


@pytest.fixture
def table_in_a_pipe() -> Iterator[None]:
    """Standard input, as a pipe makes it: a table with links in its third and fourth column."""
    reading, writing = os.pipe()
    os.write(writing, b"1,x,a,b\n2,x,b,c\n3,x,c,a\n4,x,c,d\n")
    os.close(writing)
    before = os.dup(0)
    os.dup2(reading, 0)
    os.close(reading)
    yield
    os.dup2(before, 0)
    os.close(before)


@pytest.mark.parametrize("words", examples(), ids=lambda words: words[0].strip("-/") or "pipe")
@pytest.mark.usefixtures("spark", "table_in_a_pipe")
def test_the_examples_of_the_manual_work(
    place: Path, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "edges").mkdir()
    with (place / "edges" / "edges-1.jsonl").open("wb") as file:
        later = {"ts": "2026-11-28T06:01:00.250Z"}
        lost = {"src": "b", "dst": "c"}
        over = {"state": "down", "since": "2026-11-28T06:00:30.000Z"}
        ends = [row(**more, observer=end) for more in ({}, later) for end in "ab"]
        ends += [row(**lost, observer=end) for end in "bc"]
        write_jsonl([*ends, row(**lost, **over, **later, observer="b")], file)
    packed = gzip.compress((place / "mesh.txt").read_bytes())
    (place / "p2p-Gnutella31.txt.gz").write_bytes(packed)
    monkeypatch.chdir(place)
    result = CliRunner().invoke(group, ["topology", *words], standalone_mode=False)
    assert "vanished" not in result.output
    if "--fail-on" in words:
        assert (result.return_value, result.stdout.count("\n")) == (3, 11), result.output
        assert "c has been gone since 2026-11-28 06:00:30 UTC, lost by b." in result.stdout
    else:
        assert result.exception is None, result.output
        assert not result.return_value
        assert result.stdout.count("\n") > 1
    if "--export" in words:
        assert '"c" -- "d" [bridge="true"' in (place / "routers.dot").read_text()
    if "--out" in words:
        assert (place / words[words.index("--out") + 1] / "report.html").exists()
