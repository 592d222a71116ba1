"""``pubsubd peers`` and ``edges``, against daemons that are linked and against made-up answers.

The made-up ones come from a real daemon too, one with requests of this file's: names and errors
there are what no honest daemon would tell.
"""

from __future__ import annotations

import csv
import html
import io
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from pubsubd import __version__
from pubsubd.broker.broker import Broker
from pubsubd.client import open_client
from pubsubd.mesh.edges import COLUMNS
from pubsubd.protocol.errors import ProtocolError
from tests.daemons import DEADLINE, tool
from tests.rows import row
from tests.running import command_line, environment, linked, pubsubd, serving
from tests.screens import on_screen

LINK = {
    "node": "b",
    "peer": "10.0.0.2:9014",
    "dialled": True,
    "since": time.time() - 10 * 86_400,
    "rtt_ms": 1.5,
    "messages_in": 1234567,
    "messages_out": 7,
    "bytes_in": 3 * 1024 * 1024,
    "bytes_out": 12,
    "backlog_bytes": 0,
    "interests": ["//fwd/chat/", "//fwd/logs"],
    "interest_count": 12,
}
PEERS = {
    "node": "a",
    "mesh": "m",
    "host": "10.0.0.1",
    "port": 9014,
    "life": 1,
    "sequence": 1,
    "flooding": False,
    "links": [LINK],
    "plain": [{"peer": "10.0.0.9:40000", "connection": 8}],
    "dialling": [{"address": "10.0.0.3:9014", "attempts": 4, "error": "connection refused"}],
    "daemons": [
        {"node": "a", "host": "10.0.0.1", "port": 9014, "hops": 0, "links": 1, "interests": 0},
        {"node": "b", "host": "::2", "port": 9014, "hops": 1, "links": 1, "interests": 12}
        | {"actors": 12345, "hub_connections": 678},
        {"node": "z", "host": "10.0.0.4", "port": 9014, "hops": None, "links": 0, "interests": 0},
    ],
    "counters": {"relayed": 12345, "refused": {"bad-secret": 3}},
}
WEAK = {
    "node": "a",
    "mesh": "m",
    "daemons": 1_214,
    "links": 1_300,
    "next": None,
    "articulation_daemons": [{"node": "d", "cut_off": 1_200, "daemons": ["e", "f", "g"]}],
    "bridges": [
        {"src": "d", "dst": "e", "cut_off": 1_200, "daemons": ["e", "f", "g"]},
        {"src": "e", "dst": "f", "cut_off": 1, "daemons": ["f"]},
    ],
    "add": [{"node": "a", "to": "f", "peer": "[::6]:9014"}],
    "unreachable": [{"node": "z", "peer": "10.0.0.4:9014", "seconds": 61.5}],
}
HOSTILE = "\x1b[31m\x9b[red]\n"


@asynccontextmanager
async def answering(monkeypatch: pytest.MonkeyPatch, **answers: Any) -> AsyncIterator[int]:
    """Run a daemon with these answers, which are what becomes JSON, errors, or made of the data."""

    def answer(given: Any) -> Any:
        def request(_peer: Any, data: bytes) -> bytes:
            found = given(data) if callable(given) else given
            if isinstance(found, Exception):
                raise found
            return found if isinstance(found, bytes) else json.dumps(found).encode()

        return request

    made = Broker.__init__

    def make(self: Broker, *args: Any, **more: Any) -> None:
        made(self, *args, **more)
        for name, given in answers.items():
            self.requests[b"//pubsubd/" + name.encode()] = answer(given)

    monkeypatch.setattr(Broker, "__init__", make)
    async with serving() as port:
        yield port


def words_of(text: str) -> list[str]:
    """Return the lines of ``text`` with single spaces."""
    return [" ".join(line.split()) for line in text.splitlines() if line.strip()]


# peers


async def test_peers_shows_links_of_real_daemons() -> None:
    async with linked() as (first, second), open_client(port=second) as client:
        await client.subscribe("//fwd/chat/")
        await client.flush()
        with trio.fail_after(DEADLINE):
            while b"//fwd/chat/" not in (done := await pubsubd("peers", port=first)).stdout:
                pass
        assert (done.returncode, done.stderr) == (0, b"")
        text = done.stdout.decode()
        assert text.startswith(f"a of the mesh m, at 127.0.0.1:{first}: 1 link, 2 daemons known")
        (link,) = (line for line in words_of(text) if "//fwd/chat/" in line)
        assert re.fullmatch(
            r"b 127\.0\.0\.1:\d+ by them 0:\d\d:\d\d ([\d.]+ ms )?//fwd/chat/", link
        )
        assert f"b 1 1 1 {__version__} 127.0.0.1:{second}" in words_of(text)
        done = await pubsubd("peers", port=second)
        assert re.search(rf" a +127\.0\.0\.1:{first} +by us ", done.stdout.decode())


async def test_peers_is_the_daemons_json_object_on_request() -> None:
    async with linked() as (port, _):
        done = await pubsubd("peers", "--json", port=port)
    assert done.stdout.count(b"\n") == 1
    answer = json.loads(done.stdout)
    assert (answer["node"], answer["mesh"], answer["links"][0]["node"]) == ("a", "m", "b")


async def test_peers_shows_everything_that_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    async with answering(monkeypatch, peers=PEERS) as port:
        done = await pubsubd("peers", port=port)
    assert done.returncode == 0
    lines = words_of(done.stdout.decode())
    assert lines[0] == "a of the mesh m, at 10.0.0.1:9014: 1 link, 3 daemons known"
    for pattern in (
        r"b 10\.0\.0\.2:9014 by us 10d 0:\d\d:\d\d 1\.50 ms //fwd/chat/ //fwd/logs and 10 more",
        r"b 1,234,567 7 3\.0 MiB 12 B 0 B",
        r"10\.0\.0\.9:40000 8",
        r"10\.0\.0\.3:9014 4 connection refused",
        r"relayed 12,345",
        r"bad-secret 3",
        r"a 0 1 0 10\.0\.0\.1:9014",
        r"b 1 1 12 12,345 678 \[::2\]:9014",
        r"z unreachable 0 0 10\.0\.0\.4:9014",
    ):
        assert any(re.fullmatch(pattern, line) for line in lines), pattern


async def test_peers_of_a_lonely_daemon_are_few_words(monkeypatch: pytest.MonkeyPatch) -> None:
    few = {"node": "a", "mesh": "m", "host": "h", "port": 1, "flooding": True}
    async with answering(monkeypatch, peers=few) as port:
        done = await pubsubd("peers", port=port)
    assert done.stdout == (
        b"a of the mesh m, at h:1: no links, no daemons known (the mesh is changing)\n"
    )


@pytest.mark.parametrize("form", ["dot", "mermaid"])
async def test_a_graph_has_the_links_of_real_daemons(form: str) -> None:
    async with linked() as (port, _):
        done = await pubsubd("peers", "--graph", form, port=port)
    assert (done.returncode, done.stderr) == (0, b"")
    if form == "dot":
        drawn = await trio.run_process(
            [tool("dot"), "-Tplain"], stdin=done.stdout, capture_stdout=True
        )
        kinds = [line.split()[:3] for line in drawn.stdout.decode().splitlines()]
        assert [one[:2] for one in kinds if one[0] == "node"] == [["node", "a"], ["node", "b"]]
        assert ["edge", "a", "b"] in kinds
    else:
        text = re.sub(r'\|"[\d.]+ ms"\|', "", done.stdout.decode())
        assert words_of(text)[1:4] == ['n0["a"]', 'n1["b"]', "n0 --- n1"]


async def test_dot_reads_hostile_names_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    name = 'a"]; "b\\'
    hostile = hostile_peers() | {"node": name, "daemons": []}
    edges = {"edges": [row(src=name, dst=HOSTILE)], "next": None}
    async with answering(monkeypatch, peers=hostile, edges=edges) as port:
        done = await pubsubd("peers", "--graph=dot", port=port)
    drawn = await trio.run_process([tool("dot"), "-Tsvg"], stdin=done.stdout, capture_stdout=True)
    labels = re.findall(r"<text[^>]*>(.*?)</text>", drawn.stdout.decode())
    shown = [html.unescape(label) for label in labels]
    assert sorted(shown) == sorted([r"\x1b[31m\x9b[red]\n", 'a"]; "b\\\\', "0.25 ms"])


def hostile_peers() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(PEERS))
    found["node"] = found["mesh"] = found["host"] = HOSTILE
    found["links"][0] |= {"node": HOSTILE, "peer": HOSTILE, "interests": [HOSTILE]}
    found["plain"][0]["peer"] = HOSTILE
    found["dialling"][0] |= {"address": HOSTILE, "error": HOSTILE}
    found["daemons"][1] |= {"node": HOSTILE, "host": HOSTILE}
    found["counters"] = {HOSTILE: 1, "refused": {HOSTILE: 2}}
    return found


async def test_peers_escapes_all_that_others_say(monkeypatch: pytest.MonkeyPatch) -> None:
    async with answering(monkeypatch, peers=hostile_peers()) as port:
        done = await pubsubd("peers", port=port)
        with on_screen("peers", port=port, columns=200) as screen:
            assert await screen.wait_end() == 0
    assert done.returncode == 0
    for text in (done.stdout.decode(), screen.text()):
        assert text.count(r"\x1b[31m\x9b[red]\n") >= 12
        assert "\x1b" not in text
        assert "\x9b" not in text


@pytest.mark.parametrize("columns", [100, 80, 60, 40, 20])
async def test_peers_loses_nothing_on_a_narrow_terminal(
    monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    async with answering(monkeypatch, peers=PEERS) as port:
        with on_screen("peers", port=port, columns=columns) as screen:
            assert await screen.wait_end() == 0
    text = screen.text()
    assert max(map(len, text.split("\n"))) <= columns
    assert "\u2026" not in text  # rich's mark for what it left out
    words = [
        "1,234,567",
        "3.0 MiB",
        "1.50 ms",
        "12,345",
        "10.0.0.2:9014",
        "//fwd/chat/",
        "bad-secret",
    ]
    if columns == 20:
        # Words are folded there, and go on below in their own column.
        words = ["1,234,", "3.0", "1.50", "12,345", "10.0.0", "//fwd/", "times"]
    for word in words:
        assert word in text, word


async def test_peers_in_eighty_columns_are_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    async with answering(monkeypatch, peers=PEERS) as port:
        with on_screen("peers", port=port, columns=80) as screen:
            assert await screen.wait_end() == 0
    assert "node address dialled for round trip interests" in words_of(screen.text())
    assert "node messages in messages out data in data out waiting" in words_of(screen.text())


async def test_peers_can_be_watched_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = 0

    def count(_data: bytes) -> Any:
        nonlocal asked
        asked += 1
        return {**PEERS, "node": f"node{asked}"}

    async with answering(monkeypatch, peers=count) as port:
        with on_screen("peers", "-w", "0.05", port=port, columns=80) as screen:
            await screen.wait_seen("node1 .*node2 .*node3 ")
            screen.process.send_signal(signal.SIGINT)
            assert await screen.wait_end() == 130
    assert screen.seen.count(b"\x1b[?1049h") == 1  # the screen that it is drawn on
    assert screen.seen.count(b"\x1b[?1049l") == 1
    assert screen.seen.count(b"\x1b[?25h") >= 1  # the cursor is back
    assert "Traceback" not in screen.text()


@pytest.mark.parametrize("words", [["--watch=0.05"], ["--watch", "0.05", "--json"], ["-w0.05"]])
async def test_peers_that_are_watched_by_a_program_come_one_after_the_other(
    monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    async with answering(monkeypatch, peers=PEERS) as port:
        process = await trio.lowlevel.open_process(
            command_line("peers", *words, port=port),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(),
        )
        assert process.stdout is not None
        assert process.stderr is not None
        seen = b""
        with trio.fail_after(DEADLINE):
            async with process.stdout:
                while seen.count(b"bad-secret") < 3:
                    part = await process.stdout.receive_some()
                    assert part
                    seen += part
            # Who reads it has seen enough.
            assert await process.wait() == 0
            async with process.stderr:
                assert await process.stderr.receive_some() == b""
    if "--json" in words:
        assert json.loads(seen.splitlines()[1]) == PEERS
    else:
        assert b"\x1b" not in seen


async def test_peers_can_be_watched_without_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    async with answering(monkeypatch, peers=PEERS) as port:
        with on_screen("peers", "-w", port=port, columns=80) as screen:
            await screen.wait_seen("bad-secret")
            screen.process.send_signal(signal.SIGINT)
            assert await screen.wait_end() == 130
        done = await pubsubd("peers", "--watch=0", port=port)
        assert done.returncode == 2


async def test_a_watch_ends_with_one_line_when_the_daemon_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = 0

    def count(_data: bytes) -> Any:
        nonlocal asked
        asked += 1
        return PEERS if asked < 3 else ProtocolError("shutting-down", "the daemon is ending")

    async with answering(monkeypatch, peers=count) as port:
        done = await pubsubd("peers", "--watch=0.01", port=port)
    assert done.returncode == 1
    assert done.stderr == b"pubsubd: shutting-down: the daemon is ending\n"


@pytest.mark.parametrize("answer", [b"[]", b"{", b'{"node": 1}', b"\xff", {**PEERS, "links": [{}]}])
async def test_peers_that_make_no_sense_are_told_in_one_line(
    monkeypatch: pytest.MonkeyPatch, answer: Any
) -> None:
    async with answering(monkeypatch, peers=answer) as port:
        done = await pubsubd("peers", port=port)
    assert done.returncode == 1
    assert done.stderr.startswith(b"pubsubd: the daemon's answer has no peers: ")
    assert done.stderr.count(b"\n") == 1


# peers --weak


async def test_weak_points_of_real_daemons_are_shown() -> None:
    async with linked() as (port, other):
        done = await pubsubd("peers", "--weak", port=port)
        told = json.loads((await pubsubd("peers", "--weak", "--json", port=other)).stdout)
    assert (done.returncode, done.stderr) == (0, b"")
    lines = words_of(done.stdout.decode())
    assert lines[:2] == [
        "the mesh m as a knows it: 2 daemons, 1 link",
        "1 link is a single point of failure; a third daemon would help",
    ]
    assert "a - b 1 b" in lines
    assert told["bridges"] == [{"src": "a", "dst": "b", "cut_off": 1, "daemons": ["a"]}]


async def test_weak_points_come_with_what_can_be_pasted(monkeypatch: pytest.MonkeyPatch) -> None:
    async with answering(monkeypatch, weak=WEAK) as port:
        done = await pubsubd("peers", "--weak", port=port)
        both = await pubsubd("peers", "--weak", "--graph=dot", port=port)
    lines = words_of(done.stdout.decode())
    assert lines[0] == "the mesh m as a knows it: 1,214 daemons, 1,300 links"
    assert lines[1] == (
        "1 daemon and 2 links are single points of failure; 1 new link removes all of them"
    )
    for line in (
        "d 1,200 e f g and 1,197 more",
        "d - e 1,200 e f g and 1,197 more",
        "e - f 1 f",
        "a f --peer [::6]:9014",
        "z 0:01:01 10.0.0.4:9014",
    ):
        assert line in lines
    assert (both.returncode, both.stdout) == (2, b"")


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        ({"daemons": 1, "links": 0}, "this daemon has no links"),
        ({"daemons": 3, "links": 3}, "there is no single point of failure"),
    ],
)
async def test_a_mesh_without_weak_points_is_told_in_two_lines(
    monkeypatch: pytest.MonkeyPatch, answer: Any, verdict: str
) -> None:
    async with answering(monkeypatch, weak={"node": "a", "mesh": "m", **answer}) as port:
        done = await pubsubd("peers", "--weak", port=port)
    assert words_of(done.stdout.decode())[1:] == [verdict]


async def test_weak_points_are_read_page_by_page_and_escaped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def page(data: bytes) -> Any:
        at = int(data)
        hostile = [{"node": HOSTILE, "cut_off": 1, "daemons": [HOSTILE]}]
        following = at + 1 if at < 3 else None
        return {**WEAK, "mesh": HOSTILE, "articulation_daemons": hostile, "next": following}

    async with answering(monkeypatch, weak=page) as port:
        done = await pubsubd("peers", "--weak", "--json", port=port)
        with on_screen("peers", "--weak", port=port, columns=100) as screen:
            assert await screen.wait_end() == 0
    answer = json.loads(done.stdout)
    assert [len(answer[key]) for key in ("articulation_daemons", "bridges", "add")] == [4, 8, 4]
    assert answer["next"] is None
    assert screen.text().count(r"\x1b[31m\x9b[red]\n") == 9
    assert "\x9b" not in screen.text()


# edges


async def test_edges_are_those_of_real_daemons() -> None:
    async with linked() as (first, second):
        for port in (first, second):
            done = await pubsubd("edges", port=port)
            assert (done.returncode, done.stderr) == (0, b"")
            rows = [json.loads(line) for line in done.stdout.splitlines()]
            assert [list(one) for one in rows] == [list(COLUMNS)] * 2
            assert [one["observer"] for one in rows] == ["a", "b"]
            for one in rows:
                assert (one["src"], one["dst"], one["state"]) == ("b", "a", "up")
                assert (one["mesh"], one["version"]) == ("m", __version__)
                assert one["address"] == f"127.0.0.1:{first if one['observer'] == 'a' else second}"
                assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", one["ts"])


ROWS = [row(dst=f"n{number}") for number in range(25)]


def page(data: bytes) -> dict[str, Any]:
    """Return ten rows at a time."""
    at = int(data)
    return {"edges": ROWS[at : at + 10], "next": at + 10 if at + 10 < len(ROWS) else None}


async def test_edges_come_page_by_page(monkeypatch: pytest.MonkeyPatch) -> None:
    async with answering(monkeypatch, edges=page) as port:
        done = await pubsubd("edges", port=port)
    assert [json.loads(line) for line in done.stdout.splitlines()] == ROWS


async def test_edges_end_well_when_their_reader_has_seen_enough(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    many = {"edges": [row(dst=f"n{number}") for number in range(2_000)], "next": None}
    async with answering(monkeypatch, edges=many) as port:
        reading, writing = os.pipe()
        os.close(reading)
        try:
            done = await trio.run_process(
                command_line("edges", port=port),
                stdout=writing,
                capture_stderr=True,
                check=False,
                env=environment(),
            )
        finally:
            os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")


async def test_edges_as_csv(monkeypatch: pytest.MonkeyPatch) -> None:
    async with answering(monkeypatch, edges=page) as port:
        done = await pubsubd("edges", "--format", "csv", port=port)
    found = list(csv.DictReader(io.StringIO(done.stdout.decode())))
    assert found == [
        {key: "" if value is None else str(value) for key, value in one.items()} for one in ROWS
    ]


async def test_edges_as_parquet_in_a_file_and_in_a_pipe(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, parquet: Any
) -> None:
    path = tmp_path / "edges.parquet"
    async with answering(monkeypatch, edges=page) as port:
        done = await pubsubd("edges", "--format=parquet", "--output", str(path), port=port)
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
        assert parquet.read_table(path).column("dst").to_pylist() == [one["dst"] for one in ROWS]
        done = await pubsubd("edges", "--format=parquet", port=port)
    assert done.stdout == path.read_bytes()


async def test_parquet_is_not_for_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    async with answering(monkeypatch, edges=page) as port:
        for more in ([], ["--output=-"]):
            with on_screen("edges", "--format=parquet", *more, port=port, columns=80) as screen:
                assert await screen.wait_end() == 2
            assert "Parquet cannot be shown on a terminal" in screen.text()


async def test_without_pyarrow_one_line_tells_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "pyarrow.py").write_text('raise ModuleNotFoundError("No module named pyarrow")')
    path = tmp_path / "edges.parquet"
    search = os.pathsep.join([str(tmp_path), environment()["PYTHONPATH"]])
    async with answering(monkeypatch, edges=page) as port:
        done = await pubsubd(
            "edges", "--format=parquet", f"--output={path}", port=port, PYTHONPATH=search
        )
    assert done.returncode == 1
    assert done.stderr.startswith(b"pubsubd: Parquet needs pyarrow ")
    assert done.stderr.endswith(b"pip install '.[parquet]', in a checkout of pubsubd\n")
    assert done.stderr.count(b"\n") == 1
    assert not path.exists()


async def test_edges_go_to_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "edges.jsonl"
    async with answering(monkeypatch, edges=page) as port:
        done = await pubsubd("edges", f"--output={path}", port=port)
        assert (done.returncode, done.stdout) == (0, b"")
        assert [json.loads(line) for line in path.read_bytes().splitlines()] == ROWS
        done = await pubsubd("edges", f"--output={path}/below", port=port)
    assert done.returncode == 1
    assert done.stderr == f"pubsubd: {path}/below: Not a directory\n".encode()


async def test_a_file_is_left_as_it_was_when_the_rows_do_not_come(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "edges.jsonl"
    path.write_text("before")

    def fail(data: bytes) -> Any:
        return page(data) if data == b"0" else ProtocolError("bad-request", "no more")

    async with answering(monkeypatch, edges=fail) as port:
        done = await pubsubd("edges", f"--output={path}", port=port)
    assert (done.returncode, done.stderr) == (1, b"pubsubd: bad-request: no more\n")
    assert path.read_text() == "before"


@pytest.mark.parametrize("form", ["jsonl", "csv"])
async def test_edges_are_escaped_on_a_terminal(monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    hostile = {"edges": [row(mesh=HOSTILE, src=HOSTILE, dst="\x7f")], "next": None}
    async with answering(monkeypatch, edges=hostile) as port:
        with on_screen("edges", "--format", form, port=port, columns=80) as screen:
            assert await screen.wait_end() == 0
    text = screen.seen.decode().replace("\r\n", "\n")
    assert all(char.isprintable() for char in text.replace("\n", ""))
    assert text.count("\n") == (1 if form == "jsonl" else 2)
    assert text.count("[red]") == 2


@pytest.mark.parametrize(
    "answer",
    [
        b"[]",
        b"{",
        {"edges": []},
        {"edges": [{}], "next": None},
        {"edges": [row(messages=-1)], "next": None},
        {"edges": [row(bytes=2**63)], "next": None},
        {"edges": [row(state="sideways")], "next": None},
        {"edges": [row(rtt_ms=HOSTILE)], "next": None},
    ],
)
async def test_edges_that_make_no_sense_are_told_in_one_line(
    monkeypatch: pytest.MonkeyPatch, answer: Any
) -> None:
    async with answering(monkeypatch, edges=answer) as port:
        done = await pubsubd("edges", port=port)
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.startswith(b"pubsubd: the daemon's answer has no edges: ")
    assert done.stderr.count(b"\n") == 1


async def test_pages_that_do_not_go_on_are_not_asked_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with answering(monkeypatch, edges={"edges": [], "next": 7}) as port:
        done = await pubsubd("edges", port=port)
    assert done.returncode == 1
    assert done.stderr == b"pubsubd: the daemon's pages of edges do not advance\n"


# Both


@pytest.mark.parametrize(
    "words", [["peers"], ["peers", "--json"], ["peers", "-w"], ["edges"], ["edges", "--format=csv"]]
)
async def test_a_daemon_without_a_mesh_is_told_in_one_line(words: list[str]) -> None:
    async with serving() as port:
        done = await pubsubd(*words, port=port)
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr == b"pubsubd: no-mesh: this daemon is not part of a mesh\n"


@pytest.mark.parametrize("command", ["peers", "edges"])
async def test_no_daemon_is_told_in_one_line(command: str) -> None:
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listener.socket.getsockname()[1]
    await listener.aclose()
    done = await pubsubd(command, port=port)
    assert done.returncode == 1
    assert b"is the daemon running?" in done.stderr
    assert done.stderr.count(b"\n") == 1


# trace


async def test_trace_follows_a_name_to_another_daemon_and_delivers_what_it_is_told_to() -> None:
    async with linked() as (first, second), open_client(port=second) as client:
        await client.subscribe("//fwd/chat")
        with trio.fail_after(DEADLINE):
            while (
                b"1 connection on 2 daemons would receive"
                not in (done := await pubsubd("trace", "//chat/main", port=first)).stdout
            ):
                pass
        lines = words_of(done.stdout.decode())
        assert lines[0] == "a 0 of 1 connection"
        assert re.fullmatch(r"└── b [\d.]+ ms 1 of 1 connection", lines[1])
        assert re.fullmatch(r"└── \d+ 127\.0\.0\.1:\d+ line as //fwd/chat/main", lines[2])
        assert lines[3].endswith("(on links: //fwd/chat/main); nothing was delivered")
        done = await pubsubd("trace", "//chat/main", "--deliver", "tea", port=first)
        assert done.stdout.endswith(b"; it was published\n")
        message = await client.__anext__()
        assert (message.name, message.data) == ("//fwd/chat/main", b"tea")
        answer = json.loads((await pubsubd("trace", "//x", "--json", port=first)).stdout)
        assert [hop["node"] for hop in answer["hops"]] == ["a"]
        assert answer["not_asked"] == {"count": 1, "daemons": ["b"]}


async def test_trace_answers_in_order_also_to_who_sends_nothing_more() -> None:
    async with linked() as (first, second), open_client(port=second) as client:
        await client.subscribe("//fwd/chat")
        stream = await trio.open_tcp_stream("127.0.0.1", first)
        async with stream:
            await stream.send_all(
                b'pub //pubsubd/trace 24 {"name": "//fwd/chat/x"}\npub //pubsubd/ping 2 hi\n'
            )
            await stream.send_eof()
            heard = b"".join([data async for data in stream])
    assert re.findall(rb"^pub (\S+)", heard, re.MULTILINE) == [
        b"//pubsubd/trace",
        b"//pubsubd/ping",
    ]


async def test_trace_of_a_name_that_is_not_legal_is_one_clear_line() -> None:
    async with serving() as port:
        done = await pubsubd("trace", "a b", port=port)
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr == b'pubsubd: bad-request: a space in the name "a b"\n'


async def test_trace_shows_hostile_names_of_others_as_text(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nasty = "\x1b[2J\u202e[red]"
    listed = {
        "connection": 1,
        "user": nasty,
        "peer": nasty,
        "listener": None,
        "dialect": nasty,
        "as": "x",
    }
    hops = [
        {"node": "a", "connections": 2, "refused": 2, "next": ["b", "c"]},
        {"node": "b", "from": "a", "receivers": 30, "connections": 40, "listed": [listed]},
        {"node": "b", "from": "c", "again": True, "rtt_ms": 1.0},
    ]
    told = {
        "name": "x",
        "receivers": 30,
        "hops": hops,
        "node": "a",
        "unanswered": [{"node": nasty, "from": "a", "version": nasty}],
        "waited": 2.0,
        "left_out": 3,
        "unreachable": {"count": 30, "daemons": [nasty] * 30},
    }
    async with answering(monkeypatch, trace=told) as port:
        done = await pubsubd("trace", "x", port=port)
    text = done.stdout.decode()
    assert done.returncode == 0
    assert "\x1b[2J" not in text
    assert "\u202e" not in text
    assert "0 of 2 connections, 2 more subscribe it without the right to receive it" in text
    assert "29 connections more" in text
    assert "had it already, by another way" in text
    assert ": no answer within 2 s" in text
    assert "left out, as the answer is too large: 3 daemons" in text
    assert " and 20 more" in text
