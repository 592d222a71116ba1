"""What is printed where the encoding of a stream lacks characters."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout

import click
import pytest
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pubsubd.cli import COMMANDS, group
from pubsubd.cli.formats import parse_format
from pubsubd.cli.streams import echo, open_streams, visible
from pubsubd.cli.tables import drawn, show
from pubsubd.client import Message

NAME = "café/☃"


@contextmanager
def in_ascii() -> Iterator[Callable[[], tuple[bytes, bytes]]]:
    """Let both streams have the encoding ASCII; the block gets what returns the output."""
    files = io.BytesIO(), io.BytesIO()
    with (
        redirect_stdout(io.TextIOWrapper(files[0], "ascii")),
        redirect_stderr(io.TextIOWrapper(files[1], "ascii")),
    ):
        open_streams()

        def printed() -> tuple[bytes, bytes]:
            sys.stdout.flush()
            sys.stderr.flush()
            return files[0].getvalue(), files[1].getvalue()

        yield printed


def test_what_a_stream_lacks_is_escaped() -> None:
    with in_ascii() as printed:
        echo(f"<{NAME}\udcff>")
        echo(NAME, err=True, nl=False)
        assert printed() == (rb"<caf\xe9/\u2603\udcff>" + b"\n", rb"caf\xe9/\u2603")


def test_what_a_stream_has_is_printed_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    echo(NAME)
    assert capsys.readouterr().out == f"{NAME}\n"
    assert visible(NAME) == NAME
    assert visible("a\x1b\n") == r"a\x1b\n"


def test_a_table_is_aligned_and_has_no_other_characters() -> None:
    with in_ascii() as printed:
        table = Table(box=box.SIMPLE)
        for title in ("name", "other"):
            table.add_column(title)
        for name in (NAME, "cafe"):
            table.add_row(Text(visible(name)), Text(visible(name)))
        show(table)
        lines = printed()[0].decode("ascii").splitlines()
    assert r"caf\xe9/\u2603" in "".join(lines)
    assert len({len(line) for line in lines if line.strip()}) == 1


@pytest.mark.parametrize(
    ("form", "there", "elsewhere"),
    [
        ("text", rb"caf\xe9/\u2603 na\xefve\x00", "café/☃ naïve\0".encode()),
        ("ü {name}", rb"\xfc caf\xe9/\u2603", "ü café/☃".encode()),
    ],
)
def test_a_message_on_a_terminal_is_escaped_and_in_a_pipe_it_is_as_it_came(
    form: str, there: bytes, elsewhere: bytes
) -> None:
    message = Message(NAME, "naïve\0".encode())
    with in_ascii():
        assert parse_format(form, terminal=True)(message) == there + b"\n"
        assert parse_format(form, terminal=False)(message) == elsewhere + b"\n"
        assert parse_format("raw", terminal=True)(message) == message.data
        assert parse_format("json", terminal=False)(message).isascii()


def test_a_table_that_is_too_wide_leaves_nothing_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pubsubd.cli.tables.console", lambda: Console(width=20))
    table = Table(box=box.SIMPLE)
    table.add_column("name")
    table.add_row(Text("0123456789" * 3))
    text = drawn(table)
    assert "".join(text.split()).endswith("0123456789" * 3)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_is_for_every_terminal(name: str) -> None:
    command = group.get_command(click.Context(group), name)
    assert command is not None
    assert command.get_help(click.Context(command)).isascii()
