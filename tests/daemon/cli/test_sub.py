"""``pubsubd sub`` against the real daemon, and its formats."""

from __future__ import annotations

import base64
import json
import os
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from pubsubd.cli.formats import parse_format
from pubsubd.client import Client, Message, open_client
from tests.daemons import DEADLINE
from tests.running import (
    pubsubd,
    serve_until_stopped,
    serving,
    start,
    wait_subscribed,
)


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


async def test_on_a_terminal_control_characters_are_escaped() -> None:
    ours, theirs = os.openpty()
    try:
        async with (
            publishing() as (port, client),
            subscribing(port, "--count=1", stdout=theirs) as sub,
        ):
            await client.publish("n\x1b]0;x", b"\x1b[2J\xff\r\n")
            await sub.process.wait()
        assert os.read(ours, 1000) == b"n\\x1b]0;x \\x1b[2J\\xff\\r\\n\r\n"
    finally:
        os.close(ours)
        os.close(theirs)


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
