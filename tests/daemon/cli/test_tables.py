"""``pubsubd stats``, ``explain`` and ``bench`` against the real daemon."""

from __future__ import annotations

import json
import re
import signal
import subprocess

import click
import pytest
import trio

from pubsubd.cli import bench
from pubsubd.client import open_client
from tests.daemons import DEADLINE
from tests.running import pubsubd, serving, start
from tests.screens import on_screen


async def test_stats_are_a_table() -> None:
    async with serving() as port, open_client(port=port) as client:
        for _ in range(1234):
            await client.publish("n", b"")
        await client.flush()
        done = await pubsubd("stats", port=port)
    assert done.returncode == 0
    assert re.search(r"^ +messages_in +1,234 *$", done.stdout.decode(), re.MULTILINE)


async def test_stats_are_the_daemons_json_object_on_request() -> None:
    async with serving() as port:
        done = await pubsubd("stats", "--json", port=port)
    assert done.stdout.count(b"\n") == 1
    assert json.loads(done.stdout)["connections"] == 1


async def test_watched_stats_are_a_line_with_rates_per_interval() -> None:
    async with serving() as port, trio.open_nursery() as nursery:
        words = ("stats", "--watch=0.01")
        process = await start(nursery, *words, port=port, stdout=subprocess.PIPE)
        assert process.stdout is not None
        said = b""
        with trio.fail_after(DEADLINE):
            while said.count(b"\n") < 2:
                said += await process.stdout.receive_some()
        nursery.cancel_scope.cancel()
    for line in said.decode().splitlines()[:2]:
        assert re.fullmatch(
            r"time=\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ connections=1 messages_in_s=0\.0"
            r" messages_out_s=[\d.]+ bytes_in_s=[\d.]+ bytes_out_s=[\d.]+ backlog_bytes=0",
            line,
        )


async def test_watched_stats_are_the_daemons_json_objects_with_rates_on_request() -> None:
    async with serving() as port, trio.open_nursery() as nursery:
        words = ("stats", "--json", "--watch=0.01")
        process = await start(nursery, *words, port=port, stdout=subprocess.PIPE)
        assert process.stdout is not None
        said = b""
        with trio.fail_after(DEADLINE):
            while b"\n" not in said:
                said += await process.stdout.receive_some()
        nursery.cancel_scope.cancel()
    stats = json.loads(said.splitlines()[0])
    assert stats["connections"] == 1
    assert stats["rates"]["messages_out"] > 0


async def test_watched_stats_replace_each_other_on_a_terminal() -> None:
    async with serving() as port:
        with on_screen("stats", "-w", "0.05", port=port) as screen:
            await screen.wait_seen(r"total +a second.*messages_out +\d+ +[1-9][\d.]*")
            screen.process.send_signal(signal.SIGINT)
            assert await screen.wait_end() == 130
    assert b"\x1b[?1049h" in screen.seen
    assert b"\x1b[?1049l" in screen.seen


async def test_explain_shows_who_would_receive_a_name_and_why() -> None:
    async with serving() as port, open_client(port=port) as client:
        await client.subscribe("a", "[red]b", "//fwd/x/")
        done = await pubsubd("explain", "a[red]b", port=port)
        assert done.returncode == 0
        text = done.stdout.decode()
        assert text.endswith("1 connection would receive a[red]b\n")
        assert re.search(
            r"127\.0\.0\.1:\d+ +a\[red\]b +(a \[red\]b|\[red\]b a) *$", text, re.MULTILINE
        )
        done = await pubsubd("explain", "//x/y", port=port)
        assert re.search(r" //fwd/x/y +//fwd/x/ *$", done.stdout.decode(), re.MULTILINE)
        done = await pubsubd("explain", "nobody", port=port)
        assert done.stdout == b"no connection would receive nobody\n"


async def test_explain_is_the_daemons_json_object_on_request() -> None:
    async with serving() as port:
        done = await pubsubd("explain", "n", "--json", port=port)
    assert json.loads(done.stdout) == {"name": "n", "receivers": [], "count": 0}


async def test_explain_of_a_name_that_is_not_legal_is_one_clear_line() -> None:
    async with serving() as port:
        done = await pubsubd("explain", "a b", port=port)
    assert done.returncode == 1
    assert done.stderr.startswith(b"pubsubd: bad-request: ")
    assert done.stderr.count(b"\n") == 1


BENCH = ["--messages=2000", "--latency-messages=50"]


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--publishers=3", "--subscribers=2", "--names=7"],
        ["--size=0"],
        ["--size=64KiB", "--messages=100"],
    ],
)
async def test_bench_counts_every_message(words: list[str]) -> None:
    async with serving() as port:
        done = await pubsubd("bench", "--json", *BENCH, *words, port=port)
    assert (done.returncode, done.stderr) == (0, b"")
    result = json.loads(done.stdout)
    assert result["delivered"] == result["messages"] * result["subscribers"]
    assert result["delivered_per_s"] > 0
    ranks = list(result["latency_us"].values())
    assert list(result["latency_us"]) == ["p50", "p90", "p99", "p99.9", "max"]
    assert ranks == sorted(ranks)
    assert ranks[0] > 0


async def test_bench_shows_a_table() -> None:
    async with serving() as port:
        done = await pubsubd("bench", *BENCH, port=port)
    assert done.stderr == b""
    assert "latency p99.9" in done.stdout.decode()


async def forget(listener: trio.SocketListener, kept: int) -> None:
    """Serve as a daemon would that delivers only so many messages; data has no line feeds."""
    listeners: set[trio.abc.Stream] = set()

    async def serve(stream: trio.SocketStream) -> None:
        nonlocal kept
        lines = b""
        while True:
            try:
                part = await stream.receive_some()
            except trio.BrokenResourceError:
                return
            if not part:
                return
            *whole, lines = (lines + part).split(b"\n")
            for line in whole:
                if line.startswith(b"sub "):
                    listeners.add(stream)
                elif line.startswith(b"pub //pubsubd/ping"):
                    await stream.send_all(line + b"\n")
                elif kept:
                    kept -= 1
                    for other in listeners:
                        await other.send_all(line + b"\n")

    await trio.serve_listeners(serve, [listener])


async def test_bench_does_not_pass_a_daemon_that_loses_messages() -> None:
    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(forget, listener, 99)
        done = await pubsubd(
            "bench",
            "--size=4",
            "--messages=100",
            "--timeout=0.1",
            port=listener.socket.getsockname()[1],
        )
        nursery.cancel_scope.cancel()
    assert done.returncode == 1
    assert done.stderr == (
        b"pubsubd: 99 of 100 messages have arrived, and nothing more for 0.1 s\n"
    )


def test_bench_does_not_pass_what_is_out_of_order() -> None:
    plan = bench.Bench(publishers=2, subscribers=1, size=16, names=["n"], messages=10)
    expected = [0, 0]
    plan.check(plan.data(1, 0), expected)
    plan.check(plan.data(0, 0), expected)
    plan.check(plan.data(1, 1), expected)
    for wrong in (plan.data(1, 1), plan.data(1, 3), plan.data(0, 2), plan.data(1, 2) + b"x", b""):
        with pytest.raises(click.ClickException):
            plan.check(wrong, list(expected))


def test_percentiles_are_those_of_the_nearest_rank() -> None:
    latencies = [number / 1e6 for number in range(1000, 0, -1)]
    assert bench.percentiles(latencies) == {
        "p50": 500.0,
        "p90": 900.0,
        "p99": 990.0,
        "p99.9": 999.0,
        "max": 1000.0,
    }
    assert bench.percentiles([0.001]) == dict.fromkeys(["p50", "p90", "p99", "p99.9", "max"], 1000)
    assert bench.percentiles([]) == {}
