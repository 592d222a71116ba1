"""Completion, as the shells use it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pubsubd.cli import COMMANDS
from tests.daemons import ROOT, tool
from tests.running import environment
from tests.screens import Screen

SCRIPTS = ROOT / "contrib" / "completion"


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with a ``pubsubd`` in it."""
    path = tmp_path_factory.mktemp("bin") / "pubsubd"
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m pubsubd "$@"\n')
    path.chmod(0o755)
    return path.parent


def with_path(commands: Path) -> dict[str, str]:
    env = environment()
    return env | {"PATH": f"{commands}:{env['PATH']}"}


def complete(commands: Path, *words: str) -> list[str]:
    """Return what is proposed for the last of ``words``; ``@...`` is an option of the reply."""
    code = (
        'source "$0"; compopt() { echo "@${*: -1}"; }\n'
        'COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))\n'
        "function=$(complete -p pubsubd | sed 's/.*-F \\([^ ]*\\) .*/\\1/')\n"
        '"$function" pubsubd; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        ["bash", "--norc", "-c", code, str(SCRIPTS / "pubsubd.bash"), "pubsubd", *words],
        capture_output=True,
        text=True,
        check=True,
        env=with_path(commands),
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


def complete_in_fish(commands: Path, line: str) -> dict[str, str]:
    """Return what fish proposes for the end of ``line``, and what each means."""
    code = f'source "{SCRIPTS / "pubsubd.fish"}"; complete --do-complete "{line}"'
    done = subprocess.run(
        [tool("fish"), "--no-config", "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env=with_path(commands),
        cwd=ROOT,
    )
    assert done.stderr == ""
    return dict(line.partition("\t")[::2] for line in done.stdout.splitlines())


def test_fish_proposes_commands_options_values_and_files(commands: Path) -> None:
    assert complete_in_fish(commands, "pubsubd ") == COMMANDS
    assert list(complete_in_fish(commands, "pubsubd serve --max-p")) == [
        "--max-payload",
        "--max-pending",
        "--max-peers",
    ]
    assert list(complete_in_fish(commands, "pubsubd sub --format r")) == ["raw"]
    assert list(complete_in_fish(commands, "pubsubd pub x --file README")) == ["README.md"]


async def test_zsh_proposes_commands_options_values_and_files(commands: Path) -> None:
    screen = Screen(tool("zsh"), "-f", "-i", PATH=with_path(commands)["PATH"], TERM="dumb")
    try:
        screen.type(
            f"cd {ROOT}; fpath=({SCRIPTS} $fpath); PS1='> '; autoload -U compinit; "
            "compinit -u -D; echo rea''dy\n"
        )
        await screen.wait_seen("\nready\n")
        screen.type("pubsubd s\t")
        shown = [f"{name} +-- {COMMANDS[name]}" for name in ("serve", "sub", "stats", "schema")]
        await screen.wait_seen(r"\s+".join(shown))
        for typed, completed in (
            ("serve --max-p\t", r"--max-payload +-- .*--max-pending +-- .*--max-peers +-- "),
            ("sub --format r\t", "--format raw "),
            ("pub x --file READ\t", r"--file README\.md"),
        ):
            screen.type(f"\x15pubsubd {typed}")  # after Ctrl-U
            await screen.wait_seen(completed)
    finally:
        screen.close()
