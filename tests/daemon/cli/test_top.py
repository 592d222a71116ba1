"""``pubsubd top``, on a terminal and once, against real daemons."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
from functools import partial
from pathlib import Path

import pytest
import trio

from pubsubd.broker.connections import COLUMNS
from pubsubd.client import DaemonError, open_client
from tests.daemons import wait_until
from tests.running import pubsubd, serving
from tests.screens import on_screen


async def test_keys_change_what_is_shown_and_end_a_connection() -> None:
    async with serving() as port, open_client(port=port, reconnect=False) as client:
        await client.subscribe("chat")
        with on_screen("top", "--interval=0.2", "--filter=nobody", port=port) as screen:
            before = screen.modes()
            await screen.wait_seen('0 with "nobody", by rate')
            assert screen.modes() != before
            screen.type("\x1b")
            await screen.wait_seen(r"2 connections, by rate.*127\.0\.0\.1:\d+")
            screen.type("b")
            await screen.wait_seen("by backlog")
            screen.type("n")
            await screen.wait_seen("the busiest names")
            screen.type("m")
            await screen.wait_seen("no-mesh: this daemon is not part of a mesh")
            screen.type("c/line\n")
            # A picture that is frozen has no rows if they have not come.
            await screen.wait_seen(r'with "line", by backlog.*\n +1 +127\.0\.0\.1:\d+ ')
            screen.type("a h")
            await screen.wait_seen("by age.*frozen.*freeze, and go on")
            screen.type(" \x1b[Bk")
            await screen.wait_seen(r"end connection 1, 127\.0\.0\.1:\d+\? y/n")
            screen.type("n")
            await client.flush()
            screen.type("\x1b[B\x1b[5~ky")
            await screen.wait_seen(r"connection 1, 127\.0\.0\.1:\d+ is ended")
            with pytest.raises(DaemonError, match="killed: ended by 127"):
                await client.flush()
            screen.type("\x1b[Fk")
            await screen.wait_seen("that is the connection of this command")
            screen.type("e")
            await screen.wait_seen("events, the last one first.*closed.*killed")
            screen.type("q")
            assert await screen.wait_end() == 0
            assert screen.modes() == before


def is_stopped(pid: int) -> bool:
    """Return whether a process is stopped, as by Ctrl-Z."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


async def test_signals_stop_and_end_it_and_leave_the_terminal_as_it_was() -> None:
    async with serving() as port:
        with on_screen("top", "--view=names", port=port) as screen:
            before = screen.modes()
            await screen.wait_seen("the busiest names")
            os.kill(screen.process.pid, signal.SIGTSTP)
            stopped = partial(is_stopped, screen.process.pid)
            await trio.to_thread.run_sync(wait_until, stopped, "it is stopped")
            assert screen.modes() == before
            os.kill(screen.process.pid, signal.SIGCONT)
            screen.seen = b""
            await screen.wait_seen("the busiest names")
            assert screen.modes() != before
            os.kill(screen.process.pid, signal.SIGTERM)
            assert await screen.wait_end() == -signal.SIGTERM
            assert screen.modes() == before


async def test_one_connection_is_one() -> None:
    async with serving() as port:
        done = await pubsubd("top", "--once", port=port)
        assert "1 connection, by rate" in done.stdout.decode()


async def test_once_prints_one_picture_for_people_and_programs() -> None:
    async with serving() as port, open_client(port=port, reconnect=False) as client:
        await client.subscribe("chat")
        done = await pubsubd("top", "--once", port=port)
        assert (done.returncode, done.stderr) == (0, b"")
        told = done.stdout.decode()
        assert f" at 127.0.0.1:{port}, up 0:00:0" in told
        assert "connections 2   subscriptions 1" in told
        assert "2 connections, by rate" in told
        words = ("--format=json", "--sort=age", "--limit=1")
        found = json.loads((await pubsubd("top", "--once", *words, port=port)).stdout)
        assert found["totals"]["connections"] == 2
        assert found["connections"]["count"] == 2
        assert [row["connection"] for row in found["connections"]["rows"]] == [1]
        done = await pubsubd("top", "--once", "--format=csv", "--filter=:", port=port)
        shown = list(csv.DictReader(io.StringIO(done.stdout.decode())))
        assert (tuple(shown[0]), len(shown)) == (COLUMNS, 2)
        words = ("--format=json", "--view=names", "--interval=0.2")
        found = json.loads((await pubsubd("top", "--once", *words, port=port)).stdout)
        assert found["names"] == {"sampled": 1.0, "rows": []}
        done = await pubsubd("top", "--once", "--view=mesh", port=port)
        assert done.stderr == b"pubsubd: no-mesh: this daemon is not part of a mesh\n"
        done = await pubsubd("top", port=port)
        assert b"top needs a terminal; for a script there is --once." in done.stderr
        assert done.returncode == 2
