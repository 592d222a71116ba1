"""Files, pipes and devices are read within bounds of bytes and of time."""

from __future__ import annotations

import os
import re
import threading
from pathlib import Path

import pytest

from pubsubd.files import bounded
from pubsubd.files.bounded import check_regular, read_bounded


@pytest.fixture
def fifo(tmp_path: Path) -> Path:
    path = tmp_path / "fifo"
    os.mkfifo(path)
    return path


def test_a_file_is_read_whole_up_to_a_bound(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    assert read_bounded(path, 5) == b"12345"
    with pytest.raises(OSError, match="it has over 4 bytes"):
        read_bounded(path, 4)
    with pytest.raises(OSError, match="it has over 1000 bytes"):
        read_bounded(Path("/dev/zero"), 1_000)


def test_what_comes_from_a_pipe_is_read_until_it_is_closed(fifo: Path) -> None:
    def write() -> None:
        with fifo.open("wb", buffering=0) as file:
            file.write(b"a = 1\n")
            file.write(b"b = 2\n")

    writer = threading.Thread(target=write)
    writer.start()
    assert read_bounded(fifo) == b"a = 1\nb = 2\n"
    writer.join()


def test_a_pipe_is_not_waited_for_for_ever(fifo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded, "PATIENCE", 0.0)
    with pytest.raises(OSError, match="it is a pipe that had nothing within 0 s"):
        read_bounded(fifo)
    with fifo.open("r+b", buffering=0) as file:
        file.write(b"half")
        with pytest.raises(OSError, match="it is a pipe that was not closed within 0 s"):
            read_bounded(fifo)


def test_what_is_read_more_than_once_is_a_regular_file(fifo: Path, tmp_path: Path) -> None:
    for path in (fifo, tmp_path, Path("/dev/zero")):
        with pytest.raises(OSError, match=r"regular|directory"):
            check_regular(str(path))
    large = tmp_path / "large"
    large.touch()
    check_regular(str(large))
    os.truncate(large, bounded.MAX_FILE + 1)
    with pytest.raises(OSError, match=re.escape(f"it has over {bounded.MAX_FILE} bytes")):
        check_regular(str(large))
