"""``pubsubd passwd``: what it makes of a users file."""

from __future__ import annotations

import os
import pty
import stat
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pubsubd.access.users import load_users
from tests import forks
from tests.daemons import DEADLINE, environment, tool
from tests.running import command_line

SECRET = "correct horse"


def passwd(*words: str | Path, said: str = "") -> subprocess.CompletedProcess[str]:
    return forks.run(
        command_line("passwd", *map(str, words)),
        input=said,
        capture_output=True,
        text=True,
        check=False,
        env=environment(),
        timeout=DEADLINE,
    )


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "users"


def test_a_file_is_made_that_nobody_else_can_read(file: Path) -> None:
    done = passwd("--stdin", file, "ann", said=f"{SECRET}\n")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert load_users(file).verify("ann", SECRET)
    assert os.listdir(file.parent) == ["users"]


@pytest.mark.parametrize("end", ["", "\n", "\r\n", "\nmore\n"])
def test_the_password_is_the_first_line(file: Path, end: str) -> None:
    assert passwd("--stdin", file, "ann", said=SECRET + end).returncode == 0
    assert load_users(file).verify("ann", SECRET)


def test_a_password_replaces_the_user_s_old_one_and_nothing_else(file: Path) -> None:
    token = passwd("--token", file, "ann").stdout.strip()
    for name, said in (("ann", SECRET), ("bob", SECRET), ("ann", "another one")):
        assert passwd("--stdin", file, name, said=said).returncode == 0
    found = load_users(file)
    assert found.find_token(token)
    assert found.verify("ann", "another one")
    assert not found.verify("ann", SECRET)
    assert found.verify("bob", SECRET)


def test_a_token_is_printed_once_and_added(file: Path) -> None:
    tokens = [passwd("--token", file, "ann").stdout for _ in range(2)]
    assert tokens[0] != tokens[1]
    for token in tokens:
        assert token.count("\n") == 1
        assert token.strip() not in file.read_text()
        owner = load_users(file).find_token(token.strip())
        assert owner is not None
        assert owner[0] == "ann"


def test_a_user_is_removed(file: Path) -> None:
    file.write_text("# people\n")
    for name in ("ann", "bob"):
        passwd("--token", file, name)
    passwd("--stdin", file, "ann", said=SECRET)
    assert passwd("--delete", file, "ann").returncode == 0
    assert not [line for line in file.read_text().splitlines() if line.startswith("ann:")]
    assert file.read_text().startswith("# people\nbob:sha256$")
    done = passwd("--delete", file, "ann")
    assert done.returncode == 1
    assert done.stderr == f"pubsubd: {file} has no user ann\n"


def test_the_group_of_a_file_goes_on_reading_it_and_others_do_not(file: Path) -> None:
    file.write_text("")
    file.chmod(0o644)
    passwd("--token", file, "ann")
    assert stat.S_IMODE(file.stat().st_mode) == 0o640


def test_a_link_goes_on_pointing_at_the_file(file: Path) -> None:
    link = file.with_name("link")
    link.symlink_to(file)
    passwd("--token", link, "ann")
    assert link.is_symlink()
    assert load_users(file)


def test_changes_at_the_same_time_are_all_made(file: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        done = list(pool.map(lambda number: passwd("--token", file, f"u{number}"), range(8)))
    assert [one.returncode for one in done] == [0] * 8
    found = load_users(file)
    for number, one in enumerate(done):
        owner = found.find_token(one.stdout.strip())
        assert owner is not None
        assert owner[0] == f"u{number}"


@pytest.mark.parametrize(
    ("words", "said", "status", "why"),
    [
        (["--stdin", "FILE", "ann"], "short\n", 2, "at least 8 characters"),
        (["--stdin", "FILE", "ann"], "", 2, "at least 8 characters"),
        (["--stdin", "FILE", "ann"], "x" * 2_000, 2, "at most 1024 bytes"),
        (["--stdin", "FILE", "a b"], SECRET, 2, "no space"),
        (["--token", "--stdin", "FILE", "ann"], SECRET, 2, "exclude each other"),
        (["--delete", "--token", "FILE", "ann"], SECRET, 2, "exclude each other"),
        (["--token", "FILE"], "", 2, "Missing argument"),
        (["--token", "none/users", "ann"], "", 1, "No such file"),
        (["--token", "/", "ann"], "", 2, "is a directory"),
    ],
)
def test_what_cannot_be_done_changes_nothing(
    file: Path, words: list[str], said: str, status: int, why: str
) -> None:
    file.write_text("# as it was\n")
    done = passwd(*[str(file) if word == "FILE" else word for word in words], said=said)
    assert done.returncode == status
    assert why in " ".join(done.stderr.split())
    assert file.read_text() == "# as it was\n"


@pytest.mark.parametrize(("text", "why"), [(b"ann", "line 1"), (b"\xff", "UTF-8")])
def test_a_file_that_is_no_users_file_is_left_alone(file: Path, text: bytes, why: str) -> None:
    file.write_bytes(text)
    done = passwd("--token", file, "ann")
    assert done.returncode == 2
    assert why in done.stderr
    assert done.stdout == ""
    assert file.read_bytes() == text


@pytest.mark.parametrize(("second", "status"), [(SECRET, 0), ("other horse", None)])
def test_a_password_is_asked_for_twice_and_not_shown(
    file: Path, second: str, status: int | None
) -> None:
    terminal, end = pty.openpty()
    with subprocess.Popen(
        [
            *(tool("setsid"), "--ctty", "--wait"),
            *(tool("env"), "--default-signal=INT"),  # it may be ignored where the tests run
            *command_line("passwd", str(file), "ann"),
        ],
        stdin=end,
        stdout=end,
        stderr=end,
        env=environment(),
    ) as process:
        os.close(end)
        shown = _read_until(terminal, b"ann: ")
        os.write(terminal, SECRET.encode() + b"\n")
        shown += _read_until(terminal, b": ")
        os.write(terminal, second.encode() + b"\n")
        if status is None:  # it asks again
            shown += _read_until(terminal, b"ann: ")
            os.write(terminal, b"\x03")
            assert process.wait(DEADLINE) == 130
        else:
            assert process.wait(DEADLINE) == status
    os.close(terminal)
    assert SECRET.encode() not in shown
    assert file.exists() == (status == 0)


def _read_until(terminal: int, ending: bytes) -> bytes:
    read = b""
    while not read.endswith(ending):
        read += os.read(terminal, 1_024)
    return read
