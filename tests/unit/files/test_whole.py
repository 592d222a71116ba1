"""Files that are never half written: replaced, or written in place under a lock."""

from __future__ import annotations

import os
import resource
import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pubsubd.files.own import OwnFile
from pubsubd.files.whole import locked, read_whole, write_in_place, write_whole


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(b"before\n")
    return path


def test_a_file_is_replaced_in_one_step(file: Path) -> None:
    with file.open("rb") as opened:
        write_whole(file, b"now\n", prepare=lambda descriptor: os.fchmod(descriptor, 0o604))
        assert opened.read() == b"before\n"
    assert file.read_bytes() == b"now\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o604
    assert os.listdir(file.parent) == ["file"]


def test_a_new_file_has_the_mode_that_is_wanted_from_the_start(tmp_path: Path) -> None:
    modes = []
    for mode in (0o600, 0o666):
        path = tmp_path / f"{mode}"
        see = lambda descriptor: modes.append(stat.S_IMODE(os.fstat(descriptor).st_mode))  # noqa: E731
        write_whole(path, b"", mode=mode, prepare=see)
    umask = os.umask(0)
    os.umask(umask)
    assert modes == [0o600, 0o666 & ~umask]


def test_what_fails_leaves_the_file_as_it_was(file: Path) -> None:
    def fail(_descriptor: int) -> None:
        raise ValueError

    for write in (write_whole, write_in_place):
        with pytest.raises(ValueError):  # noqa: PT011
            write(file, b"now, and longer than before\n", prepare=fail)
        assert file.read_bytes() == b"before\n"
    assert os.listdir(file.parent) == ["file"]


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_nothing_but_a_plain_file_is_replaced(make: Callable[[Path], None], tmp_path: Path) -> None:
    path = tmp_path / "other"
    make(path)
    with pytest.raises(FileExistsError, match=r"no plain file.*other"):
        write_whole(path, b"now\n")
    assert not path.is_file()


def test_an_error_names_the_file_and_not_its_first_name(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as failed:
        write_whole(tmp_path / "none" / "file", b"")
    assert failed.value.filename == str(tmp_path / "none" / "file")


@pytest.mark.parametrize("now", [b"now\n", b"longer than before\n"])
def test_in_place_a_file_is_never_empty_nor_cut(
    now: bytes, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    cut = os.ftruncate

    def see(descriptor: int, size: int) -> None:
        seen.append(file.read_bytes())
        cut(descriptor, size)

    monkeypatch.setattr(os, "ftruncate", see)
    node = file.stat().st_ino
    write_in_place(file, now)
    assert [one.rstrip(b"\n") + b"\n" for one in seen] == [now]
    assert file.read_bytes() == now
    assert file.stat().st_ino == node


def test_in_place_a_full_disk_costs_nothing(file: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            write_in_place(file, b"longer than before\n")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert file.read_bytes() == b"before\n"


def test_who_reads_waits_for_who_writes(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waits, written = threading.Event(), threading.Event()

    def sleep(_seconds: float) -> None:
        waits.set()
        written.wait()

    monkeypatch.setattr(time, "sleep", sleep)
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.append(read_whole(file)[0]))
    with locked(file):
        reader.start()
        waits.wait()
        write_in_place(file, b"now\n")
    written.set()
    reader.join()
    assert found == [b"now\n"]


def test_who_holds_a_lock_for_ever_holds_nobody_up_but_other_writers(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []
    monkeypatch.setattr(time, "sleep", waited.append)
    with locked(file):
        assert read_whole(file)[0] == b"before\n"
        assert sum(waited) == pytest.approx(1.0)
        waited.clear()
        with locked(file, 0.1):
            assert sum(waited) == pytest.approx(0.1)


def test_what_is_not_there_needs_no_lock(tmp_path: Path) -> None:
    with locked(tmp_path / "none"):
        pass


def test_a_file_is_removed_by_who_made_it_alone(file: Path) -> None:
    own = OwnFile(file)
    write_whole(file, b"another's\n")
    own.remove()
    assert file.exists()
    OwnFile(file).remove()
    assert not file.exists()
    own.remove()
