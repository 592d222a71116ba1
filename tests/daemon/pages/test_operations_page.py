"""Does the operator's guide show what an operator sees? Its commands are run, on a terminal."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.daemon.pages.test_pages import OPERATIONS, command_of, source
from tests.daemons import KIB, Daemon, Line, frame
from tests.screens import Screen

SETTINGS = "/etc/pubsubd/pubsubd.toml"
SECTION = source(OPERATIONS).split(".Sh WHEN SOMETHING IS WRONG\n")[1].split("\n.Sh ")[0]
DISPLAYS = re.findall(r"^\.Bd -literal.*\n((?:.*\n)*?)\.Ed", SECTION, flags=re.MULTILINE)


def steps() -> Iterator[tuple[str, list[str]]]:
    """Yield the commands of the section, each with the lines that the page shows of its output."""
    for display in DISPLAYS:
        for part in re.split(r"^\$ ", display, flags=re.MULTILINE)[1:]:
            command, *printed = part.splitlines()
            yield command, printed


STEPS = list(steps())


@pytest.fixture
def troubled(start: Callable[..., Daemon], dial: Callable[..., Line]) -> Daemon:
    """A daemon that cannot reach another one, with a subscriber that does not read.

    There is a second subscriber that does, somebody has made a mistake, and a login has failed.
    """
    daemon = start("--node=a", "--mesh=m", "--peer=127.0.0.1:1")
    slow, publisher, wrong = dial(daemon, buffer=4 * KIB), dial(daemon), dial(daemon)
    slow.say(b"sub big\n")
    slow.ping()
    publisher.say(b"sub chat\n")
    publisher.ping()
    wrong.say(b"pub x 3 hello\n")
    wrong.hear_end()
    publisher.say(frame("//pubsubd/auth", b"eve guess"))
    publisher.hear_frame()
    for _ in range(3):  # less than makes the publisher wait
        publisher.say(frame("big", bytes(1_000 * KIB)))
        publisher.ping()
    assert publisher.stats()["backlog_bytes"] > 0
    daemon.wait_log("event=dial-failed")
    return daemon


def likeness(text: str) -> str:
    """Return a line without what differs each time: numbers, units and the space between cells."""
    text = re.sub(r"\d[\d,.:]*( (?=[KM]iB|B\b))?([KM]iB|B\b)?", "9", text)
    return " ".join(text.split())


async def test_the_guide_shows_what_its_commands_print(troubled: Daemon, tmp_path: Path) -> None:
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    (bin_ / "pubsubd").write_text(
        f'#!/bin/sh\nPUBSUBD_SCANNER=python exec "{sys.executable}" -m pubsubd "$@"\n'
    )
    (bin_ / "pubsubd").chmod(0o755)
    settings = tmp_path / "pubsubd.toml"
    settings.write_text("port = 0\nhub_port = 0\n")
    path, port = f"{bin_}{os.pathsep}{os.environ['PATH']}", str(troubled.address[1])
    for command, printed in STEPS:
        screen = Screen(
            "bash", "-c", command.replace(SETTINGS, str(settings)), PATH=path, PUBSUBD_PORT=port
        )
        try:
            status = await screen.wait_end()
            text = screen.text().replace(str(settings), SETTINGS)
            shown = iter([likeness(line) for line in text.splitlines()])
        finally:
            screen.close()
        assert status == 0, text
        for line in printed:  # in this order; the page leaves out others
            assert likeness(line) in shown, f"{command}: {line!r} not in {text}"


def test_the_guide_has_its_commands() -> None:
    assert len(STEPS) == len(re.findall(r"^\$ ", SECTION, flags=re.MULTILINE)) >= 10


@pytest.mark.parametrize(
    "command",
    sorted({*re.findall(r"^\.Ql (pubsubd .*?)(?: [.,])*$", SECTION, flags=re.MULTILINE)}),
)
def test_a_command_within_the_text_is_one(command: str) -> None:
    _, name, *words = shlex.split(command)
    command_of(name).make_context(name, words)


def test_every_part_says_what_to_run() -> None:
    parts = re.split(r"^\.Ss (.*)\n", SECTION, flags=re.MULTILINE)
    for title, text in zip(parts[1::2], parts[2::2], strict=True):
        assert re.search(r"^\$ pubsubd", text, flags=re.MULTILINE), title
