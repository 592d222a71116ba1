"""``pubsubd stats``, ``explain`` and ``bench`` against the real daemon."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from typing import Any

import click
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from pubsubd.cli import bench
from pubsubd.cli.cycles import Check, Plan
from pubsubd.client import DaemonError, open_client
from tests.daemons import DEADLINE, MIB
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
            # Two answers within a moment are the same one: nothing has happened between them.
            while not any(stats["rates"]["messages_out"] > 0 for stats in whole_lines(said)):
                said += await process.stdout.receive_some()
        nursery.cancel_scope.cancel()
    assert {stats["connections"] for stats in whole_lines(said)} == {1}


def whole_lines(said: bytes) -> list[Any]:
    """Return what is said in the lines that have an end."""
    return [json.loads(line) for line in said.split(b"\n")[:-1]]


async def test_watched_stats_lose_nothing_on_a_narrow_terminal() -> None:
    async with serving() as port:
        with on_screen("stats", "-w", "0.05", port=port, columns=24) as screen:
            await screen.wait_seen("pid.*pid")
    assert "\u2026" not in screen.text()  # rich's mark for what it left out


@pytest.mark.parametrize("words", [["stats", "-w", "1000"], ["ping", "--interval=1000"]])
async def test_what_repeats_ends_as_soon_as_nobody_reads_it(words: list[str]) -> None:
    async with serving() as port, trio.open_nursery() as nursery:
        process = await start(nursery, *words, port=port, stdout=subprocess.PIPE)
        assert process.stdout is not None
        with trio.fail_after(DEADLINE):
            if words[0] == "ping":  # stats prints nothing before the first interval is over
                assert (await process.stdout.receive_some()).startswith(b"answer 1 ")
            await process.stdout.aclose()
            assert await process.wait() == 0


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


PATIENT = {"stall_timeout": DEADLINE, "stall_budget": DEADLINE}  # a bench may be slow to read
BENCH = ["--messages=100000", "--latency-messages=50"]


@pytest.mark.parametrize(
    "words",
    [
        BENCH,
        [*BENCH, "--publishers=3", "--subscribers=2", "--names=7"],
        [*BENCH, "--size=0", "--names=2", "--publishers=2"],
        ["--messages=20", "--latency-messages=1", "--size=2MiB"],
        ["--duration=0.1", "--latency-messages=1"],
    ],
)
async def test_bench_counts_every_message(words: list[str]) -> None:
    async with serving(max_payload=2 * MIB, **PATIENT) as port:
        done = await pubsubd("bench", "--json", *words, port=port)
    assert (done.returncode, done.stderr) == (0, b"")
    result = json.loads(done.stdout)
    assert result["delivered"] == result["messages"] * result["subscribers"]
    assert result["delivered_per_s"] > 0
    assert result["daemon_cores"] > 0
    assert result["bench_cores"] > 0
    assert set(result["limited_by"]) <= {"daemon", "bench", "machine", "network"}
    ranks = list(result["latency_us"].values())
    assert list(result["latency_us"]) == ["p50", "p90", "p99", "p99.9", "max"]
    assert ranks == sorted(ranks)
    assert ranks[0] > 0


async def test_bench_shows_a_table() -> None:
    async with serving(**PATIENT) as port:
        done = await pubsubd("bench", *BENCH, port=port)
    assert done.stderr == b""
    text = done.stdout.decode()
    for row in ("daemon used", "bench used", "limited by", "latency p99.9"):
        assert f"\n  {row} " in text


async def test_bench_asks_for_no_more_than_it_can_prepare() -> None:
    done = await pubsubd("bench", "--names=1000000", "--size=1KiB", port=1)
    assert done.returncode == 2
    assert b"make over 512 MiB of messages." in done.stderr


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
                elif line.startswith(b"pub //pubsubd/stats"):
                    await stream.send_all(b"pub //pubsubd/stats 2 {}\n")
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
            "--timeout=3",
            port=listener.socket.getsockname()[1],
        )
        nursery.cancel_scope.cancel()
    assert done.returncode == 1
    assert done.stderr == b"pubsubd: 99 of 100 messages have arrived, and nothing more for 3 s\n"


PLAN = Plan(publishers=3, subscribers=1, size=10, names=2)
CYCLES = [b"".join(PLAN.make(who, number) for number in range(4)) for who in range(3)]
runs = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 9)), min_size=1, max_size=8)


def published(runs: list[tuple[int, int]]) -> list[tuple[int, bytes]]:
    """Return the frames, with their publishers, of runs of so many frames of a publisher."""
    numbers = [0] * 3
    frames = []
    for who, count in runs:
        for _ in range(count):
            frames.append((who, PLAN.make(who, numbers[who] % 4)))
            numbers[who] += 1
    return frames


def feed(check: Check, stream: bytes, cuts: list[int]) -> None:
    for size in cuts:
        check.feed(stream[:size])
        stream = stream[size:]
    check.feed(stream)


@given(runs, st.lists(st.integers(1, 100)))
def test_bench_passes_what_is_due_however_it_is_mixed_and_cut(
    runs: list[tuple[int, int]], cuts: list[int]
) -> None:
    stream = b"".join(frame for _, frame in published(runs))
    check = Check(PLAN, CYCLES)
    feed(check, stream, cuts)
    assert check.bytes == len(stream)


@given(runs, st.lists(st.integers(1, 100)), st.data())
def test_bench_passes_nothing_that_is_lost_doubled_out_of_order_or_changed(
    runs: list[tuple[int, int]], cuts: list[int], data: st.DataObject
) -> None:
    frames = published(runs)
    at = data.draw(st.integers(0, len(frames) - 1))
    who, frame = frames[at]
    later = [i for i in range(at + 1, len(frames)) if frames[i][0] == who]
    how = data.draw(st.sampled_from(["changed", "doubled"] + ["lost", "swapped"] * bool(later)))
    if how == "changed":
        byte = data.draw(st.integers(0, len(frame) - 1))
        frames[at] = who, frame[:byte] + b"~" + frame[byte + 1 :]
    elif how == "doubled":
        frames.insert(at, frames[at])
    elif how == "lost":
        del frames[at]
    else:
        frames[at], frames[later[0]] = frames[later[0]], frames[at]
    stream = b"".join(frame for _, frame in frames)
    with pytest.raises(click.ClickException, match="lost, duplicated or out of order"):
        feed(Check(PLAN, CYCLES), stream, cuts)


def test_bench_tells_the_daemon_s_reason_to_close() -> None:
    with pytest.raises(DaemonError, match="slow-consumer: too slow"):
        Check(PLAN, CYCLES).feed(b"pub //pubsubd/error 22 slow-consumer too slow\n")


@pytest.mark.parametrize(
    ("daemon", "busiest", "own", "idle", "expected"),
    [
        (0.99, 0.99, 0.5, 0.5, ["daemon"]),
        (1.5, 0.99, 0.5, 0.5, ["daemon"]),
        (1.5, 0.75, 0.5, 0.5, ["network"]),  # two workers
        (0.5, 0.5, 0.97, 0.5, ["bench"]),
        (0.9, 0.9, 0.9, 0.0, ["daemon", "bench"]),
        (0.5, 0.5, 0.5, 0.01, ["machine"]),
        (0.5, 0.5, 0.5, 1.0, ["network"]),
        (0.5, 0.5, 0.5, None, ["network"]),
        (None, None, 0.5, 1.0, ["unknown"]),
    ],
)
def test_bench_says_what_limited_it(
    daemon: float | None,
    busiest: float | None,
    own: float,
    idle: float | None,
    expected: list[str],
) -> None:
    assert bench.limits(bench.Run(1, 1.0, daemon, busiest, own, idle)) == expected


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
