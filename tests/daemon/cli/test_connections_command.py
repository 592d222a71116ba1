"""``pubsubd connections`` and ``kill``, against real daemons and against made-up answers."""

from __future__ import annotations

import csv
import io
import json
import re
import time
from typing import Any

import pytest

from pubsubd.broker.connections import COLUMNS
from pubsubd.client import DaemonError, open_client
from pubsubd.protocol.errors import ProtocolError
from tests.daemon.cli.test_cli_mesh import HOSTILE, answering, words_of
from tests.running import pubsubd, serving
from tests.screens import on_screen


def row(**more: Any) -> dict[str, Any]:
    """Return the row of a client that is slow, with some of its columns changed."""
    return {
        "connection": 7,
        "user": "ann",
        "peer": "10.0.0.2:41932",
        "listener": "line",
        "transport": "line",
        "dialect": "line",
        "node": None,
        "subscriptions": 1234,
        "messages_in_rate": 0.4,
        "messages_out_rate": 12345.6,
        "bytes_in_rate": 12.0,
        "bytes_out_rate": 3_145_728.0,
        "backlog_bytes": 2_048,
        "dropped": 0,
        "since": time.time() - 90_061,
        **more,
    }


LINK = row(connection=8, user=None, listener=None, dialect="mesh", node="b", subscriptions=None)
HUB = row(connection=9, transport="websocket", dialect="hub", dropped=3)
ANSWER = {"count": 5, "connections": [row(), LINK, HUB], "next": None}


def lines_of(text: str) -> list[str]:
    """Return the lines with single spaces, and without the age of a connection."""
    return [re.sub(r"\b1d [0-9:]+$", "<age>", line) for line in words_of(text)]


async def test_who_is_connected_is_shown_and_ended() -> None:
    async with serving() as port, open_client(port=port, reconnect=False) as client:
        await client.subscribe("chat")
        done = await pubsubd("connections", port=port)
        assert (done.returncode, done.stderr) == (0, b"")
        told = words_of(done.stdout.decode())
        assert re.fullmatch(
            r"1 127\.0\.0\.1:\d+ line line 1 0 [01] [\d,]+ B [\d,]+ B 0 B 0:00:\d\d", told[2]
        )
        assert told[-1] == "2 connections"
        done = await pubsubd("kill", "1", "99", port=port)
        assert re.fullmatch(rb"ended connection 1: 127\.0\.0\.1:\d+\n", done.stdout)
        assert done.stderr == b"Error: unknown-connection: there is no connection 99\n"
        assert done.returncode == 1
        with pytest.raises(DaemonError, match="killed: ended by 127"):
            await client.flush()
        done = await pubsubd("connections", "--format=csv", "--sort=rate", "--limit=1", port=port)
        (shown,) = csv.DictReader(io.StringIO(done.stdout.decode()))
        assert tuple(shown) == COLUMNS
        assert int(shown["connection"]) > 2
    assert done.returncode == 0


async def test_all_that_is_told_is_shown_and_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def answer(data: bytes) -> Any:
        asked.append(json.loads(data))
        return ANSWER

    async with answering(monkeypatch, connections=answer) as port:
        done = await pubsubd("connections", "--sort", "backlog", "--limit", "3", port=port)
        assert asked == [{"sort": "backlog", "limit": 3}]
        where, traffic = "10.0.0.2:41932", "0 12,346 12 B 3.0 MiB"
        assert lines_of(done.stdout.decode())[2:] == [
            f"7 ann {where} line line 1,234 {traffic} 0 2.0 KiB <age>",
            f"8 mesh/b {where} dialled mesh {traffic} 0 2.0 KiB <age>",
            f"9 ann 10.0.0.2:41932 line hub over websocket 1,234 {traffic} 3 2.0 KiB <age>",
            "5 connections, of which 3 are shown",
        ]
        done = await pubsubd("connections", "--format=json", port=port)
        assert json.loads(done.stdout) == ANSWER
        done = await pubsubd("connections", "--format=jsonl", port=port)
        assert [json.loads(line) for line in done.stdout.splitlines()] == ANSWER["connections"]


async def test_a_narrow_terminal_has_the_most_important_columns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with answering(monkeypatch, connections=ANSWER) as port:
        with on_screen("connections", port=port, columns=80) as screen:
            await screen.wait_seen("of which 3 are shown")
            assert await screen.wait_end() == 0
            told = lines_of(screen.text())
    assert "number user address in/s out/s waiting for" in told
    assert "7 ann 10.0.0.2:41932 0 12,346 2.0 KiB <age>" in told


@pytest.mark.parametrize("form", ["table", "csv"])
async def test_on_a_terminal_names_are_escaped(monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    rows = [row(user=HOSTILE, peer=HOSTILE)]
    async with answering(monkeypatch, connections={**ANSWER, "connections": rows}) as port:
        with on_screen("connections", f"--format={form}", port=port, columns=300) as screen:
            await screen.wait_seen(r"\[red\]")
            assert await screen.wait_end() == 0
            assert r"\x1b[31m\x9b[red]\n" in screen.text()
            assert "\x9b" not in screen.text()


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (("connections",), "the daemon's answer has no connections: "),
        (("kill", "3"), "the daemon's answer has no connection: "),
    ],
)
async def test_an_answer_that_makes_no_sense_is_told_in_one_line(
    monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], told: str
) -> None:
    async with answering(monkeypatch, connections=b"[]", kill=b"ok") as port:
        done = await pubsubd(*command, port=port)
    assert done.returncode == 1
    assert done.stderr.decode().startswith(f"pubsubd: {told}")
    assert done.stderr.count(b"\n") == 1


async def test_the_right_that_is_missing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    error = ProtocolError("not-allowed", "connection 3: that needs an access rule")
    async with answering(monkeypatch, kill=lambda _data: error) as port:
        done = await pubsubd("kill", "3", port=port)
    assert done.returncode == 1
    assert done.stderr == b"Error: not-allowed: connection 3: that needs an access rule\n"


@pytest.mark.parametrize(
    "words", [("kill",), ("kill", "0"), ("kill", "x"), ("connections", "--limit=1001")]
)
async def test_wrong_usage_is_told_before_anything_is_asked(words: tuple[str, ...]) -> None:
    done = await pubsubd(*words, port=1)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith(b"Error: ")
