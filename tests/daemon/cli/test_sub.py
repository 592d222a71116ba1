"""``pubsubd sub`` against the real daemon, and its formats."""

from __future__ import annotations

import base64
import itertools
import json
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import click
import pytest
import trio

from pubsubd.cli.dump import Dump
from pubsubd.cli.formats import parse_format
from pubsubd.cli.summary import MAX_NAMES, SHOWN, Summary
from pubsubd.cli.tables import drawn
from pubsubd.client import Client, Message, open_client
from tests.daemons import DEADLINE
from tests.running import (
    command_line,
    environment,
    pubsubd,
    serve_until_stopped,
    serving,
    start,
    wait_subscribed,
)
from tests.screens import on_screen


class Sub:
    """A running ``pubsubd sub``."""

    def __init__(self, process: trio.Process) -> None:
        self.process = process

    async def read(
        self, stream: trio.abc.ReceiveStream | None, until: bytes | None = None
    ) -> bytes:
        """Return what comes up to ``until``, or to the end."""
        assert stream is not None
        heard = b""
        while until is None or not heard.endswith(until):
            part = await stream.receive_some()
            if not part:
                break
            heard += part
        return heard

    async def out(self, until: bytes | None = None) -> bytes:
        return await self.read(self.process.stdout, until)

    async def err(self, until: bytes | None = None) -> bytes:
        return await self.read(self.process.stderr, until)


@asynccontextmanager
async def subscribing(port: int, *words: str, stdout: int = subprocess.PIPE) -> AsyncIterator[Sub]:
    """Run ``pubsubd sub n``; starts when the daemon knows it, ends with the process."""
    async with trio.open_nursery() as nursery:
        process = await start(
            nursery, "sub", "n", *words, port=port, stdout=stdout, stderr=subprocess.PIPE
        )
        await wait_subscribed(port, "n")
        yield Sub(process)
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def publishing() -> AsyncIterator[tuple[int, Client]]:
    async with serving() as port, open_client(port=port) as client:
        yield port, client


async def say(client: Client, messages: Sequence[bytes]) -> None:
    for data in messages:
        await client.publish("n/1", data)
    await client.flush()


async def test_messages_are_printed_a_line_each_until_the_count_is_reached() -> None:
    async with publishing() as (port, client), subscribing(port, "--count=2") as sub:
        await say(client, [b"one", b"tw\x1bo", b"three"])
        assert await sub.out() == b"n/1 one\nn/1 tw\x1bo\n"
        assert await sub.process.wait() == 0
        assert await sub.err() == b""


async def test_a_message_is_printed_at_once() -> None:
    async with publishing() as (port, client), subscribing(port) as sub:
        for data in (b"1", b"2"):
            await say(client, [data])
            assert await sub.out(until=b"\n") == b"n/1 " + data + b"\n"


async def test_raw_output_is_the_data_and_nothing_else() -> None:
    data = [os.urandom(200_000) for _ in range(5)]
    async with (
        publishing() as (port, client),
        subscribing(port, "--count=5", "--format=raw") as sub,
    ):
        await say(client, data)
        assert await sub.out() == b"".join(data)


async def test_more_than_one_substring_may_be_given() -> None:
    async with publishing() as (port, client), subscribing(port, "m", "--count=2") as sub:
        await client.publish("m", b"x")
        await client.publish("nm", b"y")  # matches both and comes once
        assert await sub.out() == b"m x\nnm y\n"


async def seen_on_a_terminal(*words: str, data: bytes, **env: str) -> bytes:
    """Return what a terminal of 40 columns gets of a message ``n`` with a control in its name."""
    async with publishing() as (port, client):
        with on_screen("sub", "n", "--count=1", *words, port=port, columns=40, **env) as screen:
            await wait_subscribed(port, "n")
            await client.publish("n\x1b]0;x", data)
            assert await screen.wait_end() == 0
    return screen.seen.removeprefix(b"pubsubd: subscribed\r\n")


async def test_on_a_terminal_control_characters_are_escaped() -> None:
    for words in ([], ["--format=text"]):
        seen = await seen_on_a_terminal(*words, data=b"\x1b[2J\xff\r\n", NO_COLOR="1")
        assert seen == b"n\\x1b]0;x \\x1b[2J\\xff\\r\\n\r\n"


async def test_on_a_terminal_json_is_indented_and_coloured() -> None:
    data = b'{"type": "note", "payload": [1, true]}'
    seen = await seen_on_a_terminal(data=data)
    assert seen.startswith(b'\x1b[36mn\\x1b]0;x\x1b[0m {\r\n  \x1b[1;34m"type"\x1b[0m: \x1b[32m')
    assert seen.count(b"\r\n") == 7
    seen = await seen_on_a_terminal("--format=text", data=data)
    assert seen == b"n\\x1b]0;x " + data + b"\r\n"


async def test_in_a_pipe_the_data_stays_as_it_is_whatever_forces_colours() -> None:
    data = b'{"a":\x1b[1]}'
    async with publishing() as (port, client), trio.open_nursery() as nursery:
        process = await trio.lowlevel.open_process(
            command_line("sub", "n", "--count=1", port=port),
            stdout=subprocess.PIPE,
            env=environment(FORCE_COLOR="1"),
        )
        nursery.start_soon(process.wait)
        await wait_subscribed(port, "n")
        await client.publish("n", data)
        assert process.stdout is not None
        assert b"".join([part async for part in process.stdout]) == b"n " + data + b"\n"


async def test_on_a_terminal_it_says_when_it_is_subscribed() -> None:
    ours, theirs = os.openpty()
    try:
        async with serving() as port, trio.open_nursery() as nursery:
            await start(nursery, "sub", "n", port=port, stderr=theirs)
            said = await trio.to_thread.run_sync(os.read, ours, 1000)
            assert said == b"pubsubd: subscribed\r\n"
            nursery.cancel_scope.cancel()
    finally:
        os.close(ours)
        os.close(theirs)


async def test_a_timeout_fails_when_a_count_was_wanted() -> None:
    async with serving() as port:
        done = await pubsubd("sub", "n", "--count=1", "--timeout=0.01", port=port)
        assert (done.returncode, done.stderr) == (1, b"pubsubd: timed out after 0.01 s\n")


async def test_a_timeout_is_a_good_end_when_no_count_was_wanted() -> None:
    async with serving() as port:
        done = await pubsubd("sub", "n", "--timeout=0.01", port=port)
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


async def test_a_closed_output_ends_it_quietly() -> None:
    async with publishing() as (port, client), subscribing(port) as sub:
        assert sub.process.stdout is not None
        await sub.process.stdout.aclose()
        await say(client, [b"x"])
        assert await sub.process.wait() == 0
        assert await sub.err() == b""


async def test_a_closed_output_ends_it_at_once_although_nothing_more_comes() -> None:
    async with publishing() as (port, client), subscribing(port) as sub:
        await say(client, [b"x"])
        assert await sub.out(until=b"\n") == b"n/1 x\n"
        assert sub.process.stdout is not None
        await sub.process.stdout.aclose()
        with trio.fail_after(DEADLINE):
            assert await sub.process.wait() == 0
        assert await sub.err() == b""


async def test_a_broken_connection_is_renewed_and_told() -> None:
    async with trio.open_nursery() as nursery:
        port, stop = await nursery.start(serve_until_stopped)
        async with subscribing(port, "--count=1") as sub:
            await stop()
            told = await sub.err(until=b"\n")
            assert told.startswith(b"pubsubd: disconnected: ")
            port, _ = await nursery.start(serve_until_stopped, port)
            assert await sub.err(until=b"\n") == b"pubsubd: reconnected\n"
            await wait_subscribed(port, "n")
            async with open_client(port=port) as client:
                await client.publish("n/1", b"back")
            assert await sub.out() == b"n/1 back\n"
        nursery.cancel_scope.cancel()


async def test_a_broken_connection_ends_it_if_that_is_wanted() -> None:
    async with trio.open_nursery() as nursery:
        port, stop = await nursery.start(serve_until_stopped)
        async with subscribing(port, "--no-reconnect") as sub:
            await stop()
            assert await sub.process.wait() == 1
            told = await sub.err()
            assert told.startswith(b"pubsubd: ")
            assert told.count(b"\n") == 1
        nursery.cancel_scope.cancel()


async def test_a_substring_that_is_not_legal_is_one_clear_line() -> None:
    async with serving() as port:
        done = await pubsubd("sub", "a b", port=port)
        assert done.returncode == 1
        assert done.stderr == b'pubsubd: bad-name a space in the substring "a b"\n'


async def test_all_messages_of_the_daemon_are_printed_but_those_that_are_excluded() -> None:
    async with publishing() as (port, client), trio.open_nursery() as nursery:
        words = ["sub", "--all", "--not=log/", "--not=\u00e9", "--count=2"]
        process = await start(nursery, *words, port=port, stdout=subprocess.PIPE)
        await wait_subscribed(port, "anything")
        for name in ("log/web", "a/log/", "caf\u00e9", "x", "\u732b"):
            await client.publish(name, b"1")
        await client.flush()
        assert await Sub(process).out() == "x 1\n\u732b 1\n".encode()
        assert await process.wait() == 0


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ([], "Give a SUBSTRING, or --all for all messages."),
        ([""], "A SUBSTRING is empty; --all is for all messages."),
        (["x", "--not="], "--not excludes everything if its SUBSTRING is empty."),
        (["x", "--every=1"], "--every is for --summary."),
        (["x", "--dump=d", "--format=raw"], "--dump writes the data as it is, without --format."),
        (["x", "--summary", "--format=raw"], "--summary has the formats text and json."),
    ],
)
async def test_options_that_make_no_sense_are_wrong_usage(words: list[str], text: str) -> None:
    done = await pubsubd("sub", *words, port=1)
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.decode().endswith(f"Error: {text}\n")


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
async def test_a_summary_is_printed_at_intervals_and_when_it_is_interrupted(
    number: int, status: int
) -> None:
    words = ["--summary", "--every=0.01", "--format=json"]
    async with publishing() as (port, client), subscribing(port, *words) as sub:
        await say(client, [b"one", b"three"])
        heard = b""
        while b'"messages": 2' not in heard:
            heard = await sub.out(until=b"\n")
        sub.process.send_signal(number)
        *_, last = (await sub.out()).splitlines()
        assert await sub.process.wait() == status
    report = json.loads(last)
    seconds = report.pop("seconds")
    rates = {
        "messages_per_s": pytest.approx(2 / seconds, rel=0.1),
        "bytes_per_s": pytest.approx(8 / seconds, rel=0.1),
    }
    nothing = dict.fromkeys(("messages", "bytes", "messages_per_s", "bytes_per_s"), 0)
    counts = {"messages": 2, "bytes": 8, **rates}
    assert report == {**counts, "names": [{"name": "n/1", **counts}], "other_names": nothing}


async def test_no_summary_is_printed_after_the_last_one() -> None:
    words = ["--summary", "--every=0.000001", "--format=json"]
    async with publishing() as (port, client):
        for _ in range(6):
            async with subscribing(port, *words) as sub:
                await say(client, [b"one"])
                while b'"messages": 1' not in await sub.out(until=b"\n"):
                    pass
                sub.process.send_signal(signal.SIGINT)
                *_, last = (await sub.out()).splitlines()
            assert json.loads(last)["messages_per_s"] > 0  # of all time, not since the one before


def test_a_summary_tells_rates_since_the_last_one_and_in_the_end_of_all_time() -> None:
    now = 0.0
    summary = Summary(clock=lambda: now)
    told = []
    for seconds, messages, last in ((2, 8, False), (1, 1, False), (1, 0, True)):
        now += seconds
        summary.add([Message("a", b"xyz")] * messages)
        report = json.loads(summary.as_json(last=last))
        told.append((report["seconds"], report["messages"], report["messages_per_s"]))
        assert report["bytes_per_s"] == 3 * report["messages_per_s"]
    assert told == [(2, 8, 4), (3, 9, 1), (4, 9, 2.25)]


def test_the_seconds_of_a_summary_are_those_of_its_rates_however_long_it_takes() -> None:
    summary = Summary(clock=itertools.count().__next__)
    summary.add([Message("a", b"xyz")] * 4)
    report = json.loads(summary.as_json(last=True))
    assert (report["seconds"], report["messages_per_s"]) == (1, 4)


def test_a_summary_counts_so_many_names_and_shows_the_busiest() -> None:
    summary = Summary()
    summary.add([Message(f"name{number}", b"x") for number in range(MAX_NAMES + 5)])
    summary.add([Message("name7", b"x"), Message("name\x1b8", b"x")])
    assert len(summary.names) == MAX_NAMES
    report = json.loads(summary.as_json(last=True))
    assert (report["messages"], report["other_names"]["messages"]) == (MAX_NAMES + 7, 6)
    lines = drawn(summary.table(last=True)).split("\n")
    rows = [line.split()[:3] for line in lines if line.strip(" \u2500")]
    assert rows[:2] == [["name", "messages", "bytes"], ["name7", "2", "2"]]
    assert len(rows) == SHOWN + 3
    assert rows[-2:] == [["other", "names", "9,966"], ["total", "10,007", "10,007"]]
    few = Summary()
    few.add([Message("\x1b[2J", b"")])
    assert "\\x1b[2J" in drawn(few.table(last=True))


NAMES = [
    "../../x",
    "/etc/passwd",
    "n/\u00e9",
    "a\x1b[2J\0",
    "n" * 1024,
    "\u00e9" * 500,
    ".",
    "-rf",
    "~",
]


async def test_each_message_is_a_file_whatever_its_name(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    words = ["sub", "--all", f"--dump={folder}", f"--count={len(NAMES)}"]
    (tmp_path / "x").write_text("untouched")
    async with publishing() as (port, client), trio.open_nursery() as nursery:
        process = await start(nursery, *words, port=port, stdout=subprocess.PIPE)
        await wait_subscribed(port, "n")
        for number, name in enumerate(NAMES):
            await client.publish(name, b"%d\n\0" % number)
        await client.flush()
        told = [Path(os.fsdecode(line)) for line in (await Sub(process).out()).splitlines()]
        assert await process.wait() == 0
    assert sorted(told) == sorted(folder.iterdir())
    assert [path.read_bytes() for path in told] == [b"%d\n\0" % n for n in range(len(NAMES))]
    assert [path.name for path in told[:4]] == [
        "00000001-..%2F..%2Fx",
        "00000002-%2Fetc%2Fpasswd",
        "00000003-n%2F%C3%A9",
        "00000004-a%1B%5B2J%00",
    ]
    assert (tmp_path / "x").read_text() == "untouched"
    assert sorted(os.listdir(tmp_path)) == ["in", "x"]


def test_a_dump_goes_on_after_what_is_there_and_writes_over_nothing(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    folder = tmp_path / "in"
    for expected in ("00000001-n", "00000002-n"):
        with Dump(str(folder), 1, 10) as dump:
            assert dump.write(Message("n", b"data")) == folder / expected
    (folder / "00000003-n").symlink_to(outside)
    with Dump(str(folder), 2, 10) as dump:
        assert dump.write(Message("n", b"data")) == folder / "00000004-n"
        (folder / "00000005-n").symlink_to(outside)
        assert dump.write(Message("n", b"x")) == folder / "00000006-n"
    assert not outside.exists()


def test_two_dumps_may_share_a_folder(tmp_path: Path) -> None:
    with Dump(str(tmp_path), 2, 10) as one, Dump(str(tmp_path), 2, 10) as other:
        written = [dump.write(Message("n", b"data")).name for dump in (one, other, one)]
    assert written == ["00000001-n", "00000002-n", "00000003-n"]


def test_a_dump_has_so_many_files_and_bytes(tmp_path: Path) -> None:
    with Dump(str(tmp_path), 2, 10) as dump:
        dump.write(Message("n", b"12345"))
        with pytest.raises(click.ClickException, match=r"over 10 bytes in .*; --dump-size allows"):
            dump.write(Message("n", b"123456"))
    with Dump(str(tmp_path), 2, 10) as dump:
        dump.write(Message("n", b""))
        dump.write(Message("n", b""))
        with pytest.raises(click.ClickException, match=r"2 files in .* are the most without --c"):
            dump.write(Message("n", b""))
    assert len(list(tmp_path.iterdir())) == 3


# Formats


def shown(text: str, name: str, data: bytes, *, terminal: bool = False) -> bytes:
    return parse_format(text, terminal=terminal)(Message(name, data))


def test_json_has_text_as_text_and_anything_else_in_base64() -> None:
    def parsed(data: bytes) -> dict[str, Any]:
        line = shown("json", "n\u00e9", data)
        assert line.endswith(b"\n")
        assert line.count(b"\n") == 1
        found: dict[str, Any] = json.loads(line)
        assert found.pop("time").endswith("Z")
        return found

    assert parsed("gr\u00fc\u00df\n".encode()) == {
        "name": "n\u00e9",
        "length": 7,
        "data": "gr\u00fc\u00df\n",
    }
    assert parsed(b"\xff\n") == {
        "name": "n\u00e9",
        "length": 2,
        "data_base64": base64.b64encode(b"\xff\n").decode(),
    }


def test_json_has_nothing_that_acts_on_a_terminal() -> None:
    line = shown("json", "n", "\x1b[2J\u009b2J\u202e".encode(), terminal=True)
    assert line.decode().rstrip("\n").isprintable()


def test_a_template_puts_the_fields_where_they_are_named() -> None:
    assert shown("{length:>4} {name}\\t{data}", "n", b"a\\tb") == b"   4 n\ta\\tb\n"
    assert shown("{{{name}}}\\\\n", "n", b"") == b"{n}\\n\n"
    assert shown("{data}", "n", b"\xff\x00") == b"\xff\x00\n"
    assert shown("{time}", "n", b"").endswith(b"Z\n")


def test_a_template_is_escaped_on_a_terminal_and_its_own_text_is_not() -> None:
    assert shown("\x1b[1m{name}|{data}", "\x1b", b"\n", terminal=True) == b"\x1b[1m\\x1b|\\n\n"


@pytest.mark.parametrize(
    "text", ["yaml", "", "{nonsense}", "{}", "{0}", "{name.upper}", "{name", "}{name}", "{name:d}"]
)
def test_a_format_that_cannot_be_used_is_refused_before_it_is_needed(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_format(text, terminal=False)
