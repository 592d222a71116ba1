"""The archive of Java's classes: when it is made, used, replaced and removed."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from pubsubd.topology.archive import LEFT, ROOM, UNUSED, Archive


@pytest.fixture
def java(tmp_path: Path) -> Path:
    """What an archive needs of a Java."""
    server = tmp_path / "java" / "lib" / "server"
    server.mkdir(parents=True)
    for name in ("libjvm.so", "classes.jsa"):
        (server / name).write_bytes(b"x")
    return tmp_path / "java"


@pytest.fixture
def jars(tmp_path: Path) -> Path:
    folder = tmp_path / "jars"
    folder.mkdir()
    (folder / "spark.jar").write_bytes(b"x")
    return folder


class Home:
    """A user who runs the analysis."""

    def __init__(self, java: Path, jars: Path, cache: Path) -> None:
        self.java, self.jars, self.cache = java, jars, cache

    def start(self, *, record: bool = True) -> Archive:
        return Archive(self.java, self.jars, {"XDG_CACHE_HOME": str(self.cache)}, record=record)

    def run(self, data: bytes = b"classes") -> None:
        """Run once, and have Java write ``data`` if it is asked to."""
        archive = self.start()
        if archive.recording:
            written_to(archive).write_bytes(data)
        archive.finish()

    def files(self) -> list[Path]:
        return sorted((self.cache / "pubsubd").iterdir())


def written_to(archive: Archive) -> Path:
    flag, _, path = archive.options[0].partition("=")
    assert flag == "-XX:ArchiveClassesAtExit"
    return Path(path)


def uses(file: Path) -> list[str]:
    return [f"-XX:SharedArchiveFile={file}", "-XX:+VerifySharedSpaces"]


@pytest.fixture
def home(java: Path, jars: Path, tmp_path: Path) -> Home:
    return Home(java, jars, tmp_path / "cache")


def test_the_first_run_makes_an_archive_and_the_second_uses_it(home: Home) -> None:
    home.run()
    (file,) = home.files()
    second = home.start()
    assert second.options == uses(file)
    assert not second.recording
    second.finish()
    assert home.files() == [file]


def test_only_who_may_make_one_does(home: Home) -> None:
    assert home.start(record=False).options == []
    assert not home.cache.exists()


@pytest.mark.parametrize("changed", ["java/lib/server/libjvm.so", "jars/spark.jar"])
def test_another_java_or_spark_has_another_archive(
    home: Home, tmp_path: Path, changed: str
) -> None:
    home.run()
    os.utime(tmp_path / changed, (1, 1))
    assert home.start().recording


def test_two_first_runs_beside_each_other_make_one_archive(home: Home) -> None:
    both = [home.start(), home.start()]
    assert len({written_to(one) for one in both}) == 2
    for one in both:
        written_to(one).write_bytes(b"classes")
        one.finish()
    assert len(home.files()) == 1


def test_what_failed_leaves_nothing(home: Home) -> None:
    home.start().finish(whole=False)  # the job
    home.run(b"")  # Java
    assert home.files() == []


def test_where_nothing_can_be_written_java_starts_without_one(home: Home) -> None:
    home.cache.write_bytes(b"")  # no folder
    assert home.start().options == []


def test_a_disk_that_is_almost_full_gets_no_archive(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage("/")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=ROOM - 1))
    assert home.start().options == []
    assert home.files() == []


def test_archives_that_are_no_longer_used_are_removed(home: Home, tmp_path: Path) -> None:
    home.run()
    (old,) = home.files()
    os.utime(old, (time.time() - UNUSED - 1,) * 2)
    used = home.start().options  # which is noted
    os.utime(tmp_path / "jars" / "spark.jar", (1, 1))
    home.run()
    assert len(home.files()) == 2
    assert used == uses(old)
    os.utime(old, (time.time() - UNUSED - 1,) * 2)
    os.utime(tmp_path / "jars" / "spark.jar", (2, 2))
    home.run()
    assert old not in home.files()


def test_what_killed_runs_have_left_is_removed_by_the_next_one(home: Home) -> None:
    home.run()
    (file,) = home.files()
    left, under_way = (file.with_name(f".new-{name}") for name in "ab")
    for one in (left, under_way):
        one.write_bytes(b"half of it")
    os.utime(left, (time.time() - LEFT - 1,) * 2)
    assert home.start().options == uses(file)
    assert home.files() == [under_way, file]
