"""The completion for bash, as bash uses it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pubsubd.cli import COMMANDS
from tests.daemons import ROOT
from tests.running import environment

SCRIPT = ROOT / "contrib" / "completion" / "pubsubd.bash"

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash here")


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with a ``pubsubd`` in it."""
    path = tmp_path_factory.mktemp("bin") / "pubsubd"
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m pubsubd "$@"\n')
    path.chmod(0o755)
    return path.parent


def complete(commands: Path, *words: str) -> list[str]:
    """Return what is proposed for the last of ``words``; ``@...`` is an option of the reply."""
    code = (
        'source "$0"; compopt() { echo "@${*: -1}"; }\n'
        'COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))\n'
        "function=$(complete -p pubsubd | sed 's/.*-F \\([^ ]*\\) .*/\\1/')\n"
        '"$function" pubsubd; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    env = environment()
    env["PATH"] = f"{commands}:{env['PATH']}"
    done = subprocess.run(
        ["bash", "--norc", "-c", code, str(SCRIPT), "pubsubd", *words],
        capture_output=True,
        text=True,
        check=True,
        env=env,
    )
    assert done.stderr == ""
    return done.stdout.split()


def test_commands_are_proposed(commands: Path) -> None:
    assert complete(commands, "") == list(COMMANDS)
    assert complete(commands, "s") == ["serve", "sub", "stats", "schema"]
    assert complete(commands, "nonsense") == []


def test_options_are_proposed(commands: Path) -> None:
    assert complete(commands, "serve", "--max-p") == [
        "--max-payload",
        "--max-pending",
        "--max-peers",
    ]
    assert "--reconnect" in complete(commands, "sub", "x", "--")


def test_values_are_proposed(commands: Path) -> None:
    slow = complete(commands, "serve", "--slow-consumer", "")
    assert slow == ["throttle", "disconnect", "drop"]
    assert complete(commands, "sub", "--format", "r") == ["raw"]


def test_files_are_left_to_bash(commands: Path) -> None:
    assert complete(commands, "pub", "x", "--file", "") == ["@default"]
    assert complete(commands, "serve", "--unix", "") == ["@default"]
