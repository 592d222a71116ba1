"""Several workers as one daemon: what clients, operators and the service manager see of them."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import resource
import signal
import socket
import struct
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from pubsubd.access.users import make_token
from tests.daemons import (
    DEADLINE,
    KIB,
    Daemon,
    Dial,
    Line,
    Start,
    error_codes,
    frame,
    frames,
    wait_until,
)
from tests.forks import run
from tests.hubs import Lines, message_b

LIBC = ctypes.CDLL(None)
PIDFD_GETFD = 438
"""The number of the system call, on all machines."""


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon of two workers that the tests of this file share."""
    daemon = Daemon(tmp_path_factory.mktemp("pair"), "--workers=2", "--hub-max-wildcards=1")
    yield daemon
    daemon.stop()


def workers(daemon: Daemon) -> list[int]:
    """Return the processes of its workers."""
    text = Path(f"/proc/{daemon.pid}/task/{daemon.pid}/children").read_text(encoding="ascii")
    return [int(word) for word in text.split()]


def across(daemon: Daemon, dial: Dial, count: int = 4) -> list[Line]:
    """Return connections, of which those in a row are at different workers."""
    lines = [dial(daemon) for _ in range(count)]
    for line in lines:
        line.ping()
    return lines


def test_who_has_an_answer_to_a_ping_receives_what_any_worker_publishes(
    pair: Daemon, dial: Dial
) -> None:
    lines = across(pair, dial)
    for number in range(20):
        for subscriber, publisher in (lines[:2], lines[1::-1], lines[:3:2]):
            subscriber.say(b"sub a%d/\n" % number)
            subscriber.ping()
            publisher.say(b"pub a%d/ 1 x\n" % number)
            publisher.ping()
            assert subscriber.ping() == b"pub a%d/ 1 x\n" % number
            subscriber.say(b"unsub a%d/\n" % number)
            subscriber.ping()


def test_all_subscribers_get_a_publishers_messages_in_order_and_once(
    pair: Daemon, dial: Dial
) -> None:
    *subscribers, publisher = across(pair, dial, 5)
    for line in subscribers:
        line.say(b"sub order/\nsub der/\n")
        line.ping()
    sent = b"".join(frame(f"order/{n % 7}", b"%d" % n) for n in range(20_000))
    publisher.say(sent)
    for line in subscribers:
        assert line.hear(len(sent)) == sent


def test_what_has_happened_at_one_worker_is_told_by_all(pair: Daemon, dial: Dial) -> None:
    watchers = across(pair, dial, 2)
    for line in watchers:
        line.say(b"sub //pubsubd/events\n")
        line.ping()
    bad = dial(pair)
    bad.say(b"pub x 3 abcd\n")
    for line in watchers:
        name, data = line.hear_frame()
        told = json.loads(data)
        assert (name, told["reason"]) == ("//pubsubd/events", "wrong-length")
    pair.wait_log("reason=wrong-length")
    assert " worker=" in pair.log


def test_a_worker_that_is_killed_costs_its_own_connections_and_is_started_again(
    start: Start, dial: Dial
) -> None:
    daemon = start("--workers", "2", "--hub-port", "0")
    before = workers(daemon)
    lines = across(daemon, dial, 4)
    for line in lines:
        line.say(b"sub a\nsub //pubsubd/events\n")
        line.ping()
    os.kill(before[0], signal.SIGKILL)
    daemon.wait_log("event=worker-started")
    heard = [_hear_until(line, b'"worker-started"') for line in lines]
    assert heard[::2] == [b"", b""] or heard[1::2] == [b"", b""]
    for told in filter(None, heard):
        event = json.loads(frames(told[: told.index(b"}") + 2])[0][1])
        assert (event["event"], event["connections"]) == ("worker-died", 2)
        assert event["detail"] == "killed by SIGKILL; started again in 0.1 s"
    assert len(set(workers(daemon)) - set(before)) == 1
    lines = [line for line, told in zip(lines, heard, strict=True) if told] + [dial(daemon)]
    lines[2].say(b"sub a\n")
    lines[2].ping()
    lines[0].say(b"pub a 1 x\n")
    for line in lines:
        assert b"pub a 1 x\n" in line.ping()
    daemon.signal()
    assert daemon.wait() == 0
    daemon.log_file.write_text("")  # with what it had to log as an error


def test_no_counter_of_the_metrics_goes_down_when_a_worker_dies(start: Start, dial: Dial) -> None:
    daemon = start("--workers", "2", "--hub-port", "0")
    for line in across(daemon, dial, 4):
        line.say(b"pub a 1 x\nbogus\n")
        assert line.ping()
    before = _counters(daemon)
    name = "pubsubd_messages_received_total"
    assert (before[name], before['pubsubd_errors_total{code="unknown-command"}']) == (4, 4)
    os.kill(workers(daemon)[0], signal.SIGKILL)
    daemon.wait_log("event=worker-started")
    line = dial(daemon)
    line.say(b"pub a 1 x\n")
    line.ping()
    after = _counters(daemon)
    assert [one for one, count in before.items() if after[one] < count] == []
    assert after[name] == 5
    daemon.signal()
    assert daemon.wait() == 0
    daemon.log_file.write_text("")  # with what it had to log as an error


def _counters(daemon: Daemon) -> dict[str, float]:
    """Return what the metrics count, except what is of single processes."""
    rows = [row.rpartition(" ") for row in _scrape(daemon).splitlines()]
    ends = "_total", "_count", "_sum", "_bucket"
    return {
        name: float(value)
        for name, _, value in rows
        if name[0] != "#"
        and name.partition("{")[0].endswith(ends)
        and not name.startswith("process_")
    }


def test_a_worker_that_cannot_be_started_again_is_so_later(start: Start, dial: Dial) -> None:
    daemon = start("--workers", "2")
    lines = across(daemon, dial, 2)
    before = workers(daemon)
    most = resource.prlimit(daemon.process.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(daemon.process.pid, resource.RLIMIT_NOFILE, (3, most[1]))
    os.kill(before[1], signal.SIGKILL)
    daemon.wait_log("event=fault place=daemon.workers.supervisor.Supervisor._start")
    assert lines[0].ping() == b""
    resource.prlimit(daemon.process.pid, resource.RLIMIT_NOFILE, most)
    daemon.wait_log("event=worker-started")
    assert len(set(workers(daemon)) & set(before)) == 1
    newcomer = dial(daemon)
    newcomer.say(b"sub a\n")
    newcomer.ping()
    lines[0].say(b"pub a 1 x\n")
    assert newcomer.hear(len(b"pub a 1 x\n")) == b"pub a 1 x\n"
    daemon.signal()
    assert daemon.wait() == 0
    daemon.log_file.write_text("")  # with what it had to log as an error


def test_a_worker_that_stands_still_is_named_and_holds_up_no_answer(
    start: Start, dial: Dial
) -> None:
    daemon = start("--workers", "2")
    lines = across(daemon, dial, 2)
    stopped = workers(daemon)[1]
    os.kill(stopped, signal.SIGSTOP)
    try:
        lines[0].say(frame("//pubsubd/stats", b"") * 2)
        for _ in range(2):
            name, data = lines[0].hear_frame()
            assert (name, json.loads(data)["silent"]) == ("//pubsubd/stats", [1])
    finally:
        os.kill(stopped, signal.SIGCONT)


def test_a_worker_that_stands_still_is_passed_no_more_connections(start: Start, dial: Dial) -> None:
    daemon = start("--workers", "2")
    stopped = workers(daemon)[1]
    os.kill(stopped, signal.SIGSTOP)
    answered: list[bool] = []

    def four_are_answered() -> bool:
        line = dial(daemon)
        line.say(b"help\n")
        line.sock.settimeout(1.0)
        try:
            answered.append(bool(line.sock.recv(1)))
        except TimeoutError:
            answered.append(False)
        return answered[-4:] == [True] * 4

    try:
        wait_until(four_are_answered, "all come to the other worker")
        assert "event=worker-silent" not in daemon.log
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(stopped, signal.SIGCONT)


def test_workers_whose_link_has_ended_are_given_another(start: Start, dial: Dial) -> None:
    daemon = start("--workers", "2")
    lines = across(daemon, dial, 2)
    for line in lines:
        line.say(b"sub a\n")
        line.ping()
    for link in links(daemon, workers(daemon)[0]):
        with link:
            link.shutdown(socket.SHUT_RDWR)
    daemon.wait_log("event=link-lost workers=0,1")
    for one, other in (lines, lines[::-1]):

        def crosses(one: Line = one, other: Line = other) -> bool:
            one.say(b"pub a 1 x\n")
            one.ping()
            return b"pub a 1 x\n" in other.ping()

        wait_until(crosses, "messages cross again")
    daemon.signal()
    assert daemon.wait() == 0
    daemon.log_file.write_text("")  # with what it had to log as an error


def test_a_worker_that_is_started_again_is_linked_once(start: Start, dial: Dial) -> None:
    daemon = start("--workers", "2")
    late, killed = workers(daemon)
    os.kill(late, signal.SIGSTOP)  # it sees the end of the other one when that is there again
    try:
        os.kill(killed, signal.SIGKILL)
        daemon.wait_log("event=worker-died")
        wait_until(lambda: len(workers(daemon)) == 2, "it is started again")
    finally:
        os.kill(late, signal.SIGCONT)
    daemon.wait_log("event=worker-started")
    one, other = across(daemon, dial, 2)
    other.say(b"sub a\n")
    other.ping()
    one.say(b"pub a 1 x\n")
    one.ping()
    assert other.ping() == b"pub a 1 x\n"
    _reload(daemon)  # by then all that was said before has been done
    daemon.signal()
    assert daemon.wait() == 0
    assert "event=link-lost" not in daemon.log
    daemon.log_file.write_text("")  # with what it had to log as an error


def links(daemon: Daemon, worker: int) -> Iterator[socket.socket]:
    """Yield the sockets of a worker that only it and another worker have."""
    known = {os.readlink(path) for path in Path(f"/proc/{daemon.pid}/fd").iterdir()}
    process = os.pidfd_open(worker)
    try:
        for path in Path(f"/proc/{worker}/fd").iterdir():
            what = os.readlink(path)
            if not what.startswith("socket:") or what in known:
                continue
            copied = LIBC.syscall(PIDFD_GETFD, process, int(path.name), 0)
            if copied < 0:
                pytest.skip("descriptors of other processes cannot be had here")
            sock = socket.socket(fileno=copied)
            made_by, _, _ = struct.unpack(
                "iII", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
            )
            if sock.type == socket.SOCK_STREAM and made_by == daemon.pid:
                yield sock
            else:
                sock.close()
    finally:
        os.close(process)


def _hear_until(line: Line, text: bytes) -> bytes:
    """Return what a connection hears up to a text; nothing if it ends before."""
    try:
        return line.hear_until(text)
    except ConnectionError:
        return b""


def test_what_workers_have_received_is_delivered_before_they_end(start: Start, dial: Dial) -> None:
    daemon = start("--workers", "2")
    *subscribers, publisher, other = across(daemon, dial, 6)
    for line in subscribers:
        line.say(b"sub a\n")
        line.ping()
    sent = b"".join(frame("a", b"%d" % n) for n in range(50_000))
    publisher.say(sent)
    daemon.signal()
    for line in subscribers:
        heard = line.hear_end()
        assert heard.startswith(sent)
        assert error_codes(heard[len(sent) :]) == ["shutting-down"]
    assert error_codes(other.hear_end()) == ["shutting-down"]
    assert daemon.wait() == 0
    assert not daemon.ports_file.exists()
    assert "event=draining connections=6" in daemon.log
    assert "event=stopped" in daemon.log


def test_the_supervisors_end_is_that_of_its_workers(start: Start, dial: Dial) -> None:
    daemon = start("--workers", "2")
    lines = across(daemon, dial, 2)
    pids = workers(daemon)
    daemon.process.kill()
    for line in lines:
        assert error_codes(line.hear_end()) == ["shutting-down"]
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), "workers end")
    daemon.process.wait()


def test_a_reload_reaches_all_workers_and_limits_hold_for_all_together(
    tmp_path: Path, start: Start, dial: Dial
) -> None:
    path = tmp_path / "pubsubd.toml"
    path.write_text("workers = 2\nmax_connections = 5\nmax_payload = 100\n", encoding="utf-8")
    daemon = start("--config", str(path))
    lines = across(daemon, dial, 5)
    refused = dial(daemon)
    ((_, data),) = frames(refused.hear_end())
    assert data == b"too-many-connections there are 5 connections, which is the limit"
    path.write_text("workers = 2\nmax_connections = 6\nmax_payload = 200\n", encoding="utf-8")
    assert "event=reloaded" in _reload(daemon)
    lines += across(daemon, dial, 1)
    for line in lines:
        line.say(frame("x", bytes(200)))
        assert line.ping() == b""
    path.write_text("workers = 3\n", encoding="utf-8")
    assert "a change that needs a restart: workers" in _reload(daemon)
    path.write_text('max_payload = "no"\n', encoding="utf-8")
    assert "reload-failed" in _reload(daemon)
    lines.pop().close()
    wait_until(lambda: _let_in(daemon, dial), "who has gone makes room")
    daemon.signal()
    assert daemon.wait() == 0
    daemon.log_file.write_text("")  # with what it had to log as errors


def test_what_is_wrong_with_settings_or_their_files_is_logged_once(
    tmp_path: Path, start: Start
) -> None:
    users, path = tmp_path / "users", tmp_path / "pubsubd.toml"
    users.write_text(f"ann:{make_token()[1]}\n", encoding="utf-8")
    users.chmod(0o644)
    path.write_text(
        f'workers = 2\nusers_file = "{users}"\n[[acl]]\nwho = ["bob"]\npublish = ["#"]\n',
        encoding="utf-8",
    )
    daemon = start("--config", str(path))

    def logged() -> tuple[int, int]:
        return tuple(daemon.log.count(f"event={one}") for one in ("readable-users", "settings-w"))

    assert logged() == (1, 1)
    _reload(daemon)
    wait_until(lambda: logged() == (2, 2), "and once more")
    daemon.signal()
    assert daemon.wait() == 0
    assert logged() == (2, 2)


def _let_in(daemon: Daemon, dial: Dial) -> bool:
    line = dial(daemon)
    try:
        return line.ping() == b""
    except ConnectionError:
        return False
    finally:
        line.close()


def _reload(daemon: Daemon) -> str:
    before = daemon.log.count("event=reload")
    daemon.signal(signal.SIGHUP)
    wait_until(lambda: daemon.log.count("event=reload") > before, "the settings are read again")
    return [line for line in daemon.log.splitlines() if "event=reload" in line][-1]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--users-file", "/none"), "/none: No such file"),
        (("--host", "192.0.2.1", "--insecure"), "cannot listen on 192.0.2.1:0"),
        (("--ports-file", "/none/ports"), "/none/ports: No such file"),
    ],
)
def test_a_daemon_that_cannot_start_says_why_and_leaves_no_workers(
    flags: tuple[str, ...], said: str
) -> None:
    command = [sys.executable, "-m", "pubsubd", "serve", "--workers=2", "--port=0", "--no-hub"]
    done = run([*command, *flags], capture_output=True, timeout=DEADLINE)
    assert said in done.stderr.decode()
    assert done.returncode in (1, 2)


def test_a_signal_before_all_workers_are_ready_ends_the_daemon_without_a_fault(
    tmp_path: Path,
) -> None:
    ports = tmp_path / "ports"
    command = [sys.executable, "-m", "pubsubd", "serve", "--workers=2", "--port=0", "--no-hub"]
    with subprocess.Popen(
        [*command, "--ports-file", str(ports)], stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        wait_until(lambda: len(children.read_text().split()) == 2, "workers are started")
        late = int(children.read_text().split()[0])
        os.kill(late, signal.SIGSTOP)
        try:
            process.terminate()
            assert "event=draining" in process.stderr.readline()
        finally:
            os.kill(late, signal.SIGCONT)
        assert "fault" not in process.stderr.read()
        assert process.wait(DEADLINE) == 0
    assert not ports.exists()


def test_a_second_signal_ends_all_at_once(start: Start, dial: Dial) -> None:
    daemon = start("--workers", "2", "--drain-timeout", "60")
    slow, publisher = dial(daemon, buffer=4 * KIB), dial(daemon)
    slow.say(b"sub a\n")
    slow.ping()
    publisher.say(frame("a", bytes(1 << 20)) * 6)
    pids = workers(daemon)
    daemon.signal()
    daemon.signal()  # within a moment, as some send it, that is no second one
    daemon.wait_log("event=draining")
    wait_until(lambda: daemon.process.poll() is not None or daemon.signal(), "it ends at once")
    assert daemon.wait() == 1
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    assert "ended by a second signal" in daemon.log
    daemon.log_file.write_text("")  # its last line is for who has started it


def test_actors_and_topics_of_the_hub_port_are_those_of_all_workers(
    pair: Daemon, dial: Dial
) -> None:
    with contextlib.ExitStack() as stack:
        names = ("ann", "bob")
        clients = {name: stack.enter_context(contextlib.closing(Lines(pair))) for name in names}
        for name, client in clients.items():
            payload = {"actorAddress": f"x/{name}", "capabilities": []}
            client.say(message_b("hub:register", payload, me=f"x/{name}"))
            assert client.hear()["type"] == "hub:registered"
        payload |= {"ttl": 3_000_000}  # the details are the same, and so nobody is told
        clients["bob"].say(message_b("hub:register", payload, me="x/bob"))
        assert clients["bob"].hear()["type"] == "hub:registered"
        for name, other in (names, names[::-1]):
            client, payload = clients[name], {"to": f"x/{other}", "type": "t", "data": name}
            client.say(message_b("hub:send", payload, me=f"x/{name}"))
            heard = clients[other].hear()
            assert (heard["from"], heard["payload"]) == (f"x/{name}", name)
            client.say(message_b("hub:subscribe", {"topic": "news"}, me=f"x/{name}"))
            assert client.hear()["type"] == "hub:subscribed"
        payload = {"topic": "news", "type": "n", "data": 1}
        clients["ann"].say(message_b("hub:publish", payload, me="x/ann"))
        heard = [clients[name].hear() for name in ("ann", "ann", "bob")]
        assert {one["type"] for one in heard} == {"n", "hub:delivery_ack"}
        assert heard[2]["from"] == "x/ann"
        for name, answer in (("ann", "hub:subscribed"), ("bob", "hub:error")):  # one is the limit
            clients[name].say(message_b("hub:subscribe", {"topic": "w/+"}, me=f"x/{name}"))
            assert clients[name].hear()["type"] == answer
        listed = [_list(client) for client in clients.values()]
        for one in listed:
            assert one["x/ann"] < listed[0]["x/bob"] - 1_000_000
        assert listed[0].keys() == listed[1].keys() == {"x/ann", "x/bob"}
        line = dial(pair)
        line.say(b"pub news 5 plain\n")
        assert clients["bob"].hear()["from"] == clients["ann"].hear()["from"] == f"tcp/{line.label}"
        metrics, statistics = [], []
        clients["ann"].say({"command": "pubsub.publish", "payload": {"topic": "s", "data": 1}})
        assert clients["ann"].hear()["success"]
        for client in clients.values():
            client.say(message_b("hub:metrics", {}))
            counts = client.hear()["payload"]
            metrics.append([counts[name] for name in ("actors", "connections", "topics")])
            client.say({"command": "pubsub.stats", "payload": {}})
            counts = client.hear()["payload"]
            top = counts["top_topics"]
            statistics.append((counts["total_topics"], counts["messages_published"], top))
        assert metrics == [[2, 2, 2]] * 2
        assert re.search(r"^pubsubd_hub_topics 2\.0$", _scrape(pair), flags=re.MULTILINE)
        both = {"topic": "news", "subscribers": 2, "messages": 1}
        alone = {"topic": "s", "subscribers": 0, "messages": 1}
        assert [one[:2] for one in statistics] == [(2, 1)] * 2
        assert all(sorted(one[2], key=str) == [both, alone] for one in statistics)


def _scrape(daemon: Daemon) -> str:
    url = f"http://{daemon.hub[0]}:{daemon.hub[1]}/metrics"
    with urllib.request.urlopen(url, timeout=DEADLINE) as answer:
        return str(answer.read().decode())


def _list(client: Lines) -> dict[str, int]:
    """Return when the actors that a client is told of expire."""
    client.say(message_b("hub:list_actors", {}))
    return {one["address"]: one["expiresAt"] for one in client.hear()["payload"]["actors"]}


def test_subscribers_of_synap_are_those_of_all_workers(pair: Daemon) -> None:
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(contextlib.closing(Lines(pair))) for _ in range(4)]
        http = stack.enter_context(contextlib.closing(HTTPConnection(*pair.hub, timeout=DEADLINE)))

        def post(command: str, **payload: Any) -> Any:
            http.request("POST", f"/pubsub/{command}", json.dumps(payload))
            with http.getresponse() as response:
                return json.load(response)

        def give(client: Lines, command: str, **payload: Any) -> Any:
            client.say({"command": f"pubsub.{command}", "payload": payload})
            return client.hear()

        # Connections in a row are at different workers, and that of HTTP is at one of these.
        for number, client in enumerate(clients[:2]):
            name = f"s{number}"
            assert post("subscribe", topics=["http"], subscriber_id=name)["subscription_count"] == 1
            found = give(client, "subscribe", topics=["own"], subscriber_id=name)
            assert found["payload"]["subscription_count"] == 2
            for other in clients[2:]:
                refused = give(other, "subscribe", topics=["own"], subscriber_id=name)
                text = f"Invalid request: Subscriber '{name}' is connected elsewhere"
                assert refused["error"] == text
            assert post("subscribe", topics=["more"], subscriber_id=name)["subscription_count"] == 3
            found = give(clients[2], "publish", topic="http", payload=number)
            assert found["payload"]["subscribers_matched"] == number + 1
            assert client.hear()["topic"] == "http"
        for name in ("s0", "s1"):
            assert post("unsubscribe", subscriber_id=name) == {"unsubscribed": 3}


def test_any_worker_answers_for_all(start: Start, dial: Dial) -> None:
    daemon = start("--workers", "2")
    lines = across(daemon, dial, 4)
    for line in lines:
        line.say(b"sub views/\n")
        line.ping()
    numbers = {line.label: set[int]() for line in lines}
    for line in lines:
        rows = json.loads(_request(line, "connections"))["connections"]
        for row in rows:
            if row["peer"] in numbers:
                numbers[row["peer"]].add(row["connection"])
        line.say(frame("//pubsubd/explain", b"views/x"))
        explained = json.loads(line.hear_frame()[1])
        assert explained["count"] == 4
        assert {one["peer"] for one in explained["receivers"]} == set(numbers)
        assert {one["connection"] for one in explained["receivers"]} <= {
            row["connection"] for row in rows
        }
    assert all(len(found) == 1 for found in numbers.values())
    found = [json.loads(_request(line, "stats")) for line in lines]
    assert {one["pid"] for one in found} == {daemon.pid}
    assert {one["connections"] for one in found} == {len(rows)}
    before = found[-1]["messages_in"]
    lines[0].say(b"pub views/x 1 x\n" * 100)
    for line in lines:
        line.ping()
    for name, victim in ((lines[0], lines[1]), (lines[0], lines[2])):
        (number,) = numbers[victim.label]
        name.say(frame("//pubsubd/kill", b"%d" % number))
        assert json.loads(name.hear_frame()[1])["peer"] == victim.label
        assert error_codes(victim.hear_end()) == ["killed"]
    for line in (lines[0], lines[3]):
        assert json.loads(_request(line, "stats"))["messages_in"] >= before + 100
    metrics = _scrape(daemon)
    assert re.search(r"^pubsubd_connections\{.*\} [2-9]", metrics, flags=re.MULTILINE)
    assert 'worker="0"' in metrics
    assert 'worker="1"' in metrics


def test_a_reload_whose_files_do_not_answer_holds_up_nothing(
    tmp_path: Path, start: Start, dial: Dial
) -> None:
    path, silent = tmp_path / "pubsubd.toml", tmp_path / "silent"
    path.write_text("workers = 2\n", encoding="utf-8")
    os.mkfifo(silent)
    daemon = start("--config", str(path))
    path.write_text(f"workers = 2\nusers_file = {json.dumps(str(silent))}\n", encoding="utf-8")
    daemon.signal(signal.SIGHUP)
    wait_until(lambda: len(workers(daemon)) == 3, "a process reads the settings")
    dial(daemon).ping()
    pids = workers(daemon)
    daemon.signal()
    assert daemon.wait() == 0
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_failed_logins_are_counted_for_all_workers(
    tmp_path: Path, start: Start, dial: Dial
) -> None:
    path = tmp_path / "users"
    path.write_text(f"tom:{make_token()[1]}\n", encoding="utf-8")
    path.chmod(0o600)
    daemon = start("--workers", "2", "--users-file", str(path))
    begun, failed = time.monotonic(), 0
    while _knock(daemon, dial) == "login-failed":
        failed += 1
    # One of ten is forgotten every six seconds; each worker would let in ten.
    assert 10 <= failed <= 11 + (time.monotonic() - begun) / 6


def _knock(daemon: Daemon, dial: Dial) -> str:
    line = dial(daemon)
    line.say(frame("//pubsubd/auth", b"no-token-of-anybody"))
    code = line.hear_frame()[1].split(b" ")[0].decode()
    line.close()
    return code


def test_at_any_worker_one_is_told_when_other_daemons_know_what_was_subscribed(
    start: Start, dial: Dial
) -> None:
    many = start("--workers=2", "--node=many", "--mesh=m")
    one = start("--node=one", "--mesh=m", f"--peer={many.address[0]}:{many.address[1]}")
    many.wait_log("event=link-up")
    far = dial(one)
    far.say(b"sub //fwd/ask/\n")
    near = across(many, dial, 2)
    wait_until(lambda: b"one" in _request(near[0], "explain", b"//fwd/ask/0"), "one is known")
    for number, line in enumerate(near):
        line.say(b"sub //fwd/reply/%d\n" % number)
        line.ping()
        needed = json.loads(_request(line, "advertised"))["needed"]

        def are_told(line: Line = line, needed: int = needed) -> bool:
            sent: int = json.loads(_request(line, "advertised"))["sent"]
            return sent >= needed

        wait_until(are_told, "the others are told")
        line.say(b"pub //ask/%d 1 x\n" % number)
        assert far.hear_frame() == (f"//fwd/ask/{number}", b"x")
        far.say(b"pub //reply/%d 1 y\n" % number)
        assert line.hear_frame() == (f"//fwd/reply/{number}", b"y")


def test_the_mesh_sees_one_daemon(start: Start, dial: Dial) -> None:
    flags = ("--mesh=m", "--mesh-heartbeat=60", "--hub-mesh=news")
    many = start("--workers=2", "--node=many", *flags)
    near = across(many, dial, 3)  # so that the link comes in at the second worker
    one = start("--node=one", *flags, f"--peer={many.address[0]}:{many.address[1]}")
    many.wait_log("event=link-up")
    one.wait_log("event=link-up")
    far = dial(one)
    for number, line in enumerate([*near, far]):
        line.say(b"sub //fwd/a/\nsub b%d\n" % number)
        line.ping()
    for publisher in (*near, far):
        others = [line for line in (*near, far) if line is not publisher]
        _publish_until_heard(publisher, others)
    assert [link["node"] for link in json.loads(_request(far, "peers"))["links"]] == ["many"]
    for line in near:
        answer = json.loads(_request(line, "peers"))
        assert [link["node"] for link in answer["links"]] == ["one"]
        assert {daemon["node"] for daemon in answer["daemons"]} == {"many", "one"}
        assert len(_request(line, "edges")) > 100
    for line in (*near, far):
        found = json.loads(_request(line, "trace", b'{"name": "//fwd/a/x"}'))
        receivers = {hop["node"]: hop["receivers"] for hop in found["hops"]}
        assert receivers == {"many": 3, "one": 1}
    for line in near:
        line.say(frame("//pubsubd/live", b'{"mesh": true, "interval": 60}'))
        assert json.loads(_answer(line, "live"))["n"] == 0
        mesh = json.loads(_answer(line, "live"))["mesh"]
        assert mesh["node"] == "many"
        assert {row["node"] for row in mesh["daemons"]["rows"]} == {"many", "one"}
        assert [row["link"] for row in mesh["links"]["rows"]] == ["many one"]
        line.say(frame("//pubsubd/live/stop", b""))
        _answer(line, "live/stop")
    rows = [
        row
        for line in near
        for row in json.loads(_request(line, "connections"))["connections"]
        if row["node"] is not None
    ]
    assert {row["node"] for row in rows} == {"one"}
    assert len({row["connection"] for row in rows}) == 1
    assert len(rows) == len(near)
    with contextlib.closing(Lines(many)) as ann, contextlib.closing(Lines(one)) as bob:
        for name, client in (("ann", ann), ("bob", bob)):
            payload = {"actorAddress": f"x/{name}", "capabilities": []}
            client.say(message_b("hub:register", payload, me=f"x/{name}"))
            assert client.hear()["type"] == "hub:registered"
        wait_until(lambda: _reaches(ann, bob), "an actor of the other daemon is reached")
        bob.sock.settimeout(DEADLINE)
        for client, name in ((bob, "bob"), (ann, "ann")):
            client.say(message_b("hub:subscribe", {"topic": "news"}, me=f"x/{name}"))
            while client.hear()["type"] != "hub:subscribed":
                pass
            wait_until(lambda: _hears_news(near[1], bob), "a topic reaches the other daemon")
        near[1].say(b"pub news 4 last\n")
        for client in (ann, bob):
            while (heard := client.hear())["payload"] != {"name": "news", "data": "last"}:
                pass
            assert heard["from"].endswith(near[1].label if client is ann else "many")
    near[2].say(frame("//pubsubd/kill", b"%d" % rows[0]["connection"]))
    one.wait_log("the other daemon: killed ended by ")


def _publish_until_heard(publisher: Line, others: list[Line]) -> None:
    """Publish until all others hear it, each publication once; links take a moment to learn."""
    heard: list[list[bytes]] = [[] for _ in others]
    for number in range(1_000):
        publisher.say(b"pub //a/x %d %d\n" % (len(b"%d" % number), number))
        publisher.ping()
        for line, found in zip(others, heard, strict=True):
            found += [data for _, data in frames(line.ping())]
        if all(found and found[-1] == b"%d" % number for found in heard):
            break
        time.sleep(0.02)
    for found in heard:
        assert len(found) == len(set(found))
        assert found == sorted(found, key=int)
    assert all(heard)


def _hears_news(publisher: Line, receiver: Lines) -> bool:
    publisher.say(b"pub news 1 x\n")
    receiver.sock.settimeout(0.1)
    try:
        while receiver.hear()["payload"] != {"name": "news", "data": "x"}:
            pass  # what was sent to it before
        return True
    except TimeoutError:
        return False
    finally:
        receiver.sock.settimeout(DEADLINE)


def _request(line: Line, name: str, data: bytes = b"") -> bytes:
    line.say(frame(f"//pubsubd/{name}", data))
    return _answer(line, name)


def _answer(line: Line, name: str) -> bytes:
    while True:
        answered, data = line.hear_frame()
        if answered == f"//pubsubd/{name}":
            return data


def _reaches(sender: Lines, receiver: Lines) -> bool:
    payload = {"to": "x/bob", "type": "t", "data": 1}
    sender.say(message_b("hub:send", payload, me="x/ann", pattern="ask"))
    receiver.sock.settimeout(0.05)
    try:
        return bool(receiver.hear()["payload"] == 1)
    except TimeoutError:
        return False
