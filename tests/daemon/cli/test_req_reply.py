"""``pubsubd req`` and ``reply`` with each other, with other clients, and across a mesh."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path

import pytest
import trio

from pubsubd.access.rules import AclRule
from pubsubd.client import Client, HubClient, open_client, open_hub_client
from pubsubd.daemon import run as daemon
from pubsubd.protocol.limits import MIB
from tests.daemons import DEADLINE
from tests.running import (
    linked,
    pubsubd,
    running,
    serve_until_stopped,
    serving,
    start,
    wait_subscribed,
)
from tests.screens import on_screen

BRIEF = ("--timeout=0.1",)
PATIENT = f"--timeout={DEADLINE}"  # for answers that have to come
WIDE = f"n/req/{chr(0x1F600) * 254}"  # the name of an answer to it would be too long


@asynccontextmanager
async def replying(
    port: int, *words: str, name: str = "n", **streams: int
) -> AsyncIterator[trio.Process]:
    """Run ``pubsubd reply n``; starts when the daemon knows it."""
    async with trio.open_nursery() as nursery:
        process = await start(nursery, "reply", name, *words, port=port, **streams)
        await wait_subscribed(port, f"{name}/req/x")
        yield process
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def asking(port: int) -> AsyncIterator[Client]:
    """Open a client that receives all answers."""
    async with open_client(port=port, max_payload=2 * MIB) as client:
        await client.subscribe("//reply/")
        yield client


async def answers(client: Client, least: int) -> list[tuple[str, bytes]]:
    """Return at least so many answers: their names, and their data."""
    found: list[tuple[str, bytes]] = []
    with trio.fail_after(DEADLINE):
        while len(found) < least:
            for name, data in await client.receive():
                found.append((name.removeprefix("//reply/"), data))
    return found


async def unanswered(port: int, *words: str) -> str:
    """Send a request that nobody answers; return the error, after as long as it takes to send."""
    for seconds in (0.1, 1, 10, DEADLINE):
        done = await pubsubd("req", "n", f"--timeout={seconds:g}", *words, port=port)
        assert done.returncode == 1
        error = done.stderr.decode().replace(f"{seconds:g} s", "SECONDS")
        if "would receive the request" not in error:
            break
    return error


async def test_any_bytes_reach_the_command_and_come_back(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(os.urandom(300_000) + b"\n\n")
    async with serving() as port, replying(port, "--exec=cat", name="a/b"):
        done = await pubsubd("req", "a/b", "--file", str(path), "--raw", PATIENT, port=port)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout == path.read_bytes()


async def test_a_fixed_text_is_printed_with_a_line_end() -> None:
    async with serving() as port, replying(port, "1.4.2"):
        for words, shown in ((["n"], b"1.4.2\n"), (["n", "x", "--raw"], b"1.4.2")):
            done = await pubsubd("req", *words, PATIENT, port=port)
            assert (done.returncode, done.stdout, done.stderr) == (0, shown, b"")


async def test_on_a_terminal_an_answer_is_lines_and_its_controls_are_escaped() -> None:
    async with serving() as port, replying(port, "--exec", r"printf 'a\tb\n\033[2Jc\n'"):
        with on_screen("req", "n", PATIENT, port=port) as screen:
            assert await screen.wait_end() == 0
    assert screen.seen == b"a\tb\r\n\\x1b[2Jc\r\n"


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--exec=exit 3"], "failed: the command ended with status 3"),
        (["--exec=kill -9 $$"], "failed: the command was ended by signal 9"),
        (
            ["--exec=sleep 60 & sleep 60", "--timeout=0.1"],
            "timeout: the command took more than 0.1 s",
        ),
        (
            ["--exec=exec >&-; sleep 60", "--timeout=0.1"],
            "timeout: the command took more than 0.1 s",
        ),
        (["--exec=yes", "--max-payload=64KiB"], "too-large: the answer has more than 65536 bytes"),
        (["x", "--max-payload=1"], "too-large: the request has more than 1 bytes"),
    ],
)
async def test_what_fails_is_answered_with_an_error(words: list[str], error: str) -> None:
    async with serving() as port, replying(port, *words):
        done = await pubsubd("req", "n", "data", PATIENT, port=port)
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.decode() == f"pubsubd: {error}\n"


async def test_a_command_need_not_read_its_input() -> None:
    async with serving() as port, replying(port, "--exec=echo done"), asking(port) as client:
        await client.publish("n/req/1", b"x" * MIB)
        assert await answers(client, 1) == [("1", b"done\n")]


async def test_no_more_commands_run_at_a_time_than_allowed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    script = f"echo + >>{log}; cat; echo - >>{log}"
    async with (
        serving() as port,
        replying(port, "--jobs=2", "--exec", script, "--count=8") as process,
        asking(port) as client,
    ):
        for number in range(8):
            await client.publish(f"n/req/{number}", str(number))
        found = await answers(client, 8)
        assert await process.wait() == 0
    assert sorted(found) == [(str(number), str(number).encode()) for number in range(8)]
    running = [0]
    for line in log.read_text().split():
        running.append(running[-1] + (1 if line == "+" else -1))
    assert max(running) <= 2


async def test_requests_over_8_mib_that_wait_are_refused(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    script = f"wc -c; cat {fifo}"
    async with (
        serving() as port,
        asking(port) as client,
        replying(port, "--jobs=1", "--exec", script),
    ):
        for number in range(10):
            await client.publish(f"n/req/{number}", b"x" * MIB)
            await client.flush()
        # One runs and seven wait: an eighth would be over, with what each counts besides.
        busy = [(f"{number}/error", b"busy too many requests are waiting") for number in (8, 9)]
        assert await answers(client, 2) == busy
        with trio.fail_after(DEADLINE):
            for number in range(8):
                await trio.to_thread.run_sync(fifo.write_bytes, b"")
                assert await answers(client, 1) == [(str(number), b"%d\n" % MIB)]


async def test_only_requests_to_exactly_this_name_are_answered() -> None:
    async with serving() as port, replying(port, "x"), asking(port) as client:
        for name in ("n/req/", "other/n/req/1", "n", "n/1", f"n/req/{'i' * 257}", "N/req/1", WIDE):
            await client.publish(name, b"")
        await client.publish("n/req/ann/1", b"")
        assert await answers(client, 1) == [("ann/1", b"x")]


async def test_nobody_who_answers_is_told_at_once() -> None:
    async with serving() as port:
        done = await pubsubd("req", "n", PATIENT, port=port)
        assert done.returncode == 1
        assert done.stderr == b'pubsubd: nobody answers requests to n ("pubsubd reply n ...")\n'
        done = await pubsubd("req", "n", "--wait-for=1", "--timeout=0.1", port=port)
        assert done.returncode == 1
        assert done.stderr == (
            b"pubsubd: timed out after 0.1 s: fewer than 1 would receive the request\n"
        )


async def test_an_answer_that_does_not_come_is_told() -> None:
    async with serving() as port, open_client(port=port) as client:
        await client.subscribe("n/req/")
        assert await unanswered(port) == "pubsubd: timed out after SECONDS: no answer\n"


async def test_all_who_answer_are_heard() -> None:
    async with serving() as port, replying(port, "one"), trio.open_nursery() as nursery:
        await start(nursery, "reply", "n", "two", port=port)
        done = await pubsubd("req", "n", "--count=2", "--wait-for=2", PATIENT, port=port)
        nursery.cancel_scope.cancel()
    assert sorted(done.stdout.split()) == [b"one", b"two"]


async def test_identifiers_cannot_be_guessed() -> None:
    async with serving() as port, open_client(port=port) as client:
        await client.subscribe("n/req/")
        for _ in range(2):
            await unanswered(port, "--inbox=ann")
        found: set[str] = set()
        with trio.fail_after(DEADLINE):
            while len(found) < 2:
                found |= {message.name for message in await client.receive()}
    assert all(re.fullmatch("n/req/ann/[0-9a-f]{32}", name) for name in found)


async def test_rules_say_who_may_ask_and_who_hears_an_answer() -> None:
    names = ("n/req/", "//reply/")
    rule = AclRule(("*",), publish=names, receive=("n/req/", "//reply/ann/"))
    config = daemon.Config(port=0, hub_port=None, acl=(rule,))
    async with running(config) as ports, trio.open_nursery() as nursery:
        port = ports["line"]
        await start(nursery, "reply", "n", "x", port=port)
        # Nobody may ask who would receive a name: so requests are sent until one is answered.
        with trio.fail_after(DEADLINE):
            while True:
                words = ("req", "n", "--timeout=1", "--inbox=ann")
                done = await pubsubd(*words, port=port)
                if done.returncode == 0:
                    break
        assert done.stdout == b"x\n"
        assert await unanswered(port) == "pubsubd: timed out after SECONDS: no answer\n"
        done = await pubsubd("req", "m", port=port)
        assert done.stderr.startswith(b'pubsubd: not-allowed: "m/req/')
        nursery.cancel_scope.cancel()


async def test_a_client_of_the_hub_port_can_answer() -> None:
    async def answer(hub: HubClient) -> None:
        async for message in hub:
            identifier = message.topic.removeprefix("n/req/")
            await hub.publish(f"//reply/{identifier}", "time:told", {"hour": 12})

    async with (
        running(daemon.Config(port=0, hub_port=0)) as ports,
        open_hub_client(port=ports["hub"], actor="@(python/me)", capabilities=["x"]) as hub,
        trio.open_nursery() as nursery,
    ):
        await hub.subscribe("n/req/+")
        nursery.start_soon(answer, hub)
        done = await pubsubd("req", "n", PATIENT, port=ports["line"])
        nursery.cancel_scope.cancel()
    assert done.returncode == 0
    assert b'"payload":{"hour":12}' in done.stdout


async def test_a_client_of_the_hub_port_can_ask() -> None:
    async with (
        running(daemon.Config(port=0, hub_port=0)) as ports,
        replying(ports["line"], "--exec=cat"),
        open_hub_client(port=ports["hub"], actor="@(python/me)", capabilities=["x"]) as hub,
    ):
        await hub.subscribe("//reply/4f9a")
        await hub.publish("n/req/4f9a", "time:ask", {"zone": "UTC"})
        with trio.fail_after(DEADLINE):
            message = await anext(aiter(hub))
    assert (message.topic, message.type, message.data) == (
        "//reply/4f9a",
        "time:ask",
        {"zone": "UTC"},
    )


async def test_requests_cross_the_mesh_and_the_first_answer_finds_its_way_back() -> None:
    async with linked() as (here, there), trio.open_nursery() as nursery:
        await start(nursery, "reply", "//n", "--exec=cat", port=there)
        for name in ("//n", "//fwd/n"):
            done = await pubsubd("req", name, "hello", "--wait-for=1", PATIENT, port=here)
            assert (done.returncode, done.stdout, done.stderr) == (0, b"hello\n", b"")
        done = await pubsubd("req", "//n", "hello", PATIENT, port=there)
        assert (done.returncode, done.stdout, done.stderr) == (0, b"hello\n", b"")
        nursery.cancel_scope.cancel()


async def test_a_request_is_sent_when_the_other_daemons_know_where_the_answer_goes() -> None:
    async def keep_busy(client: Client, many: str) -> None:
        # Adverts are large, so the daemon makes a long pause after each of them.
        await client.subscribe(*(f"//fwd/{many}/{number}" for number in range(900)))
        for number in count():
            await client.subscribe(f"//fwd/new/{number}")
            await client.unsubscribe(f"//fwd/new/{number}")
            await trio.sleep(0.02)

    async with (
        linked() as (here, there),
        open_client(port=here) as client,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(keep_busy, client, "x" * 50)
        await start(nursery, "reply", "//n", "x", port=there)
        for _ in range(3):
            done = await pubsubd("req", "//n", "--wait-for=1", PATIENT, port=here)
            assert (done.stdout, done.stderr) == (b"x\n", b"")
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_command_ends_with_the_one_that_runs_it(
    number: signal.Signals, tmp_path: Path
) -> None:
    path = tmp_path / "pid"
    os.mkfifo(path)
    script = f"sleep 1000 & echo $! >{path}; wait"
    async with serving() as port, replying(port, "--exec", script) as process:
        async with open_client(port=port) as client:
            await client.publish("n/req/1", b"")
            await client.flush()
        pid = int(await trio.to_thread.run_sync(path.read_text))
        process.send_signal(number)
        with trio.fail_after(DEADLINE):
            assert await process.wait() == (130 if number == signal.SIGINT else -number)
            while runs(pid):  # noqa: ASYNC110  (a process announces its end to its parent alone)
                await trio.sleep(0.01)


def runs(pid: int) -> bool:
    """Return whether a process is there, and is not just waiting to be forgotten."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


async def test_a_broken_connection_is_renewed_and_told() -> None:
    async with trio.open_nursery() as nursery:
        port, stop = await nursery.start(serve_until_stopped)
        async with replying(port, "x", stderr=subprocess.PIPE) as process:
            await stop()
            port, _ = await nursery.start(serve_until_stopped, port)
            done = await pubsubd("req", "n", "--wait-for=1", PATIENT, port=port)
            assert done.stdout == b"x\n"
            assert process.stderr is not None
            said = await process.stderr.receive_some()
        assert said.startswith(b"pubsubd: disconnected: ")
        assert b"reconnecting (requests in the meantime are lost)\n" in said
        nursery.cancel_scope.cancel()
