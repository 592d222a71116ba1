"""``pubsubd pub`` against the real daemon, heard by the package's own client."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from pubsubd.client import Client, open_client
from tests.running import command_line, environment, pubsubd, serving, start


@asynccontextmanager
async def listening(substring: str = "n") -> AsyncIterator[tuple[int, Client]]:
    async with serving() as port, open_client(port=port) as client:
        await client.subscribe(substring)
        yield port, client


async def heard(client: Client) -> list[bytes]:
    """Return the data of all messages up to now."""
    await client.publish("n/end", b"")
    found: list[bytes] = []
    async for message in client:
        if message.name == "n/end":
            break
        found.append(message.data)
    return found


async def test_data_on_the_command_line_is_one_message() -> None:
    async with listening() as (port, client):
        done = await pubsubd("pub", "n", "h\u00e9llo\n", port=port)
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
        assert await heard(client) == ["h\u00e9llo\n".encode()]


async def test_data_may_be_empty_or_any_bytes() -> None:
    async with listening() as (port, client):
        assert (await pubsubd("pub", "n", "", port=port)).returncode == 0
        assert (await pubsubd("pub", "n", b"\xff\x1b", port=port)).returncode == 0
        assert await heard(client) == [b"", b"\xff\x1b"]


async def test_standard_input_is_one_message_byte_for_byte() -> None:
    data = os.urandom(300_000) + b"\r\n\x00"
    async with listening() as (port, client):
        assert (await pubsubd("pub", "n", port=port, stdin=data)).returncode == 0
        assert await heard(client) == [data]


async def test_a_file_is_one_message(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"of\nlines\n")
    async with listening() as (port, client):
        done = await pubsubd("pub", "n", "--file", str(path), "--count=2", port=port)
        assert done.returncode == 0
        assert await heard(client) == [b"of\nlines\n"] * 2


async def test_each_line_is_a_message() -> None:
    async with listening() as (port, client):
        done = await pubsubd("pub", "n", "--lines", port=port, stdin=b"one\r\n\ntw\ro\nthree")
        assert done.returncode == 0
        assert await heard(client) == [b"one", b"", b"tw\ro", b"three"]


async def test_lines_are_sent_as_they_come() -> None:
    async with listening() as (port, client), trio.open_nursery() as nursery:
        process = await start(nursery, "pub", "n", "--lines", port=port)
        assert process.stdin is not None
        for line in (b"one", b"two"):
            await process.stdin.send_all(line + b"\n")
            assert (await anext(client)).data == line
        await process.stdin.aclose()


async def test_input_is_cut_into_chunks() -> None:
    data = os.urandom(200_000)
    async with listening() as (port, client):
        done = await pubsubd("pub", "n", "--chunk=64KiB", port=port, stdin=data)
        assert done.returncode == 0
        found = await heard(client)
        assert [len(part) for part in found] == [65536, 65536, 65536, 3392]
        assert b"".join(found) == data
        assert (await pubsubd("pub", "n", "--chunk=1", port=port)).returncode == 0
        assert await heard(client) == []


@pytest.mark.parametrize("words", [["--max-payload=1000"], ["--max-payload=1000", "--lines"]])
async def test_input_over_max_payload_is_one_clear_line(words: list[str]) -> None:
    async with listening() as (port, client):
        done = await pubsubd("pub", "n", *words, port=port, stdin=b"x" * 5000)
        assert done.returncode == 1
        assert done.stderr.count(b"\n") == 1
        assert b"standard input has more than 1000 bytes" in done.stderr
        assert await heard(client) == []


async def test_what_the_daemon_refuses_is_one_clear_line() -> None:
    async with serving(max_payload=1000) as port:
        done = await pubsubd("pub", "n", port=port, stdin=b"x" * 5000)
    assert done.returncode == 1
    assert done.stderr.startswith(b"pubsubd: payload-too-large: ")
    assert done.stderr.count(b"\n") == 1


@pytest.mark.parametrize("name", ["a b", "", "//pubsubd/stats", "n" * 1025, b"\xff"])
async def test_a_name_that_is_not_legal_is_one_clear_line(name: str | bytes) -> None:
    async with serving() as port:
        done = await pubsubd("pub", name, "x", port=port)
    assert done.returncode == 1
    assert done.stderr.startswith((b"pubsubd: bad-name", b"pubsubd: name-too-long"))
    assert done.stderr.count(b"\n") == 1


async def test_a_template_has_the_number_and_the_time_and_leaves_other_braces() -> None:
    async with listening() as (port, client):
        words = ["n/{n}", '{"n": {n}, "at": "{time}", {x}}', "--template", "--count=2"]
        assert (await pubsubd("pub", *words, port=port)).returncode == 0
        for number in (1, 2):
            name, data = await anext(client)
            assert name == f"n/{number}"
            assert re.fullmatch(
                rf'{{"n": {number}, "at": "\d{{4}}-\d\d-\d\dT[\d:.]+Z", {{x}}}}', data.decode()
            )
        words = ["n", "--template", "--lines"]
        await pubsubd("pub", *words, port=port, stdin=b"a{n}\xff\nb{n}\n")
        assert await heard(client) == [b"a1\xff", b"b2"]
        assert (await pubsubd("pub", "n", "{n}{time}", port=port)).returncode == 0
        assert await heard(client) == [b"{n}{time}"]


async def test_an_interval_lies_between_two_messages() -> None:
    async with listening() as (port, client):
        began = trio.current_time()
        await pubsubd("pub", "n", "x", "--count=3", "--interval=0.2", port=port)
        assert trio.current_time() - began >= 0.4
        assert await heard(client) == [b"x"] * 3


async def test_a_long_stream_arrives_complete_with_memory_flat() -> None:
    size = 128 * 1024 * 1024
    block = os.urandom(1024 * 1024)
    wanted, found = hashlib.blake2b(), hashlib.blake2b()

    async def read(client: Client) -> None:
        left = size
        while left:
            for message in await client.receive():
                found.update(message.data)
                left -= len(message.data)

    code = (
        "import re, sys; from pubsubd.__main__ import main; status = main()\n"
        "print(re.search('VmHWM: *\\t *([0-9]+)', open('/proc/self/status').read())[1])\n"
        "sys.exit(status)"
    )
    words = [sys.executable, "-c", code, *command_line("pub", "n", "--chunk=256KiB")[3:]]
    async with listening() as (port, client), trio.open_nursery() as nursery:
        nursery.start_soon(read, client)
        process = await trio.lowlevel.open_process(
            [*words, f"--port={port}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment(),
        )
        assert process.stdin is not None
        assert process.stdout is not None
        for _ in range(size // len(block)):
            await process.stdin.send_all(block)
            wanted.update(block)
        await process.stdin.aclose()
        peak = int(b"".join([part async for part in process.stdout]))
        assert await process.wait() == 0
    assert found.digest() == wanted.digest()
    assert peak < 100 * 1024  # KiB


async def test_it_waits_until_so_many_would_receive_it() -> None:
    async with (
        serving() as port,
        open_client(port=port) as first,
        open_client(port=port) as second,
        trio.open_nursery() as nursery,
    ):
        await first.subscribe("n")
        process = await start(nursery, "pub", "n/1", "x", "--wait-for=2", port=port)
        # It has asked for the receivers and found one: it is another connection by then.
        while json.loads(await first.request("//pubsubd/stats"))["connections"] < 3:  # noqa: ASYNC110
            await trio.sleep(0.01)
        await second.subscribe("/1")
        assert await process.wait() == 0
        assert await heard(first) == [b"x"]
        assert (await second.receive())[0].data == b"x"


async def test_it_waits_no_longer_than_it_may() -> None:
    async with listening() as (port, client):
        done = await pubsubd("pub", "n", "x", "--wait-for=2", "--timeout=0.1", port=port)
        assert (done.returncode, done.stdout) == (1, b"")
        assert done.stderr == b"pubsubd: timed out after 0.1 s: 1 of 2 would receive n\n"
        assert await heard(client) == []


async def test_a_timeout_alone_is_a_mistake() -> None:
    done = await pubsubd("pub", "n", "x", "--timeout=1", port=1)
    assert done.returncode == 2
    assert b"--timeout is for --wait-for" in done.stderr
