"""Who is connected, how fast, who may see that, and who may end a connection; without sockets."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pubsubd.access.rules import Acl, AclRule
from pubsubd.access.users import Users
from pubsubd.broker.broker import Broker
from pubsubd.broker.connections import COLUMNS, MAX_ANSWER, MAX_ROWS, ROWS
from pubsubd.broker.listener_state import ListenerState
from pubsubd.broker.peer import Peer
from pubsubd.broker.traffic import INTERVAL
from pubsubd.broker.turn import Turn, finish
from pubsubd.protocol.errors import ProtocolError
from pubsubd.protocol.limits import Limits
from pubsubd.routing.outbox import Pieces
from tests.rights import rules_in

CONNECTIONS, KILL = b"//pubsubd/connections", b"//pubsubd/kill"


class Place:
    """A broker on a clock of the test.

    Attributes:
        now: seconds of all clocks.
        heard: number -> what a peer was sent.
        ended: number -> code and text, of those that were ended from outside of their input.
    """

    def __init__(self) -> None:
        self.now = 1_000.0
        self.broker = Broker(Limits(request_rate=1e6), clock=lambda: self.now)
        self.broker.wall = lambda: self.now + 5_000
        self.broker.delivery.turn = Turn(lambda: self.now)
        self.listener = ListenerState("line", Limits(request_rate=1e6))
        self.heard: dict[int, bytes] = {}
        self.ended: dict[int, tuple[str, str]] = {}

    def join(self, label: str = "127.0.0.1:5000", user: str | None = None) -> Peer:
        number = self.broker.counters.connections_total + 1
        self.heard[number] = b""

        def send(data: bytes | Pieces) -> None:
            self.heard[number] += data.whole() if isinstance(data, Pieces) else data

        def end(code: str, text: str) -> None:
            self.ended[number] = code, text

        peer = self.broker.join(label, send, end, self.listener)
        if user is not None:
            self.broker.access.enter(peer, user)
        return peer

    def rows(self, asker: Peer, **request: Any) -> list[dict[str, Any]]:
        """Return the rows that a peer gets."""
        found: list[dict[str, Any]] = self.answer(asker, **request)["connections"]
        return found

    def answer(self, asker: Peer, **request: Any) -> dict[str, Any]:
        data = json.dumps(request).encode() if request else b""
        found: dict[str, Any] = json.loads(finish(self.broker.connections.show(asker, data)))
        return found

    def numbers(self, asker: Peer, **request: Any) -> list[int]:
        return [row["connection"] for row in self.rows(asker, **request)]

    def kill(self, asker: Peer, number: int) -> str:
        """Return the code of the error, or the user that is ended."""
        try:
            answer = json.loads(self.broker.connections.kill(asker, b"%d" % number))
        except ProtocolError as error:
            return error.code
        return str(answer["user"])


@pytest.fixture
def place() -> Place:
    return Place()


# Rows


def test_a_row_says_who_it_is_and_since_when(place: Place) -> None:
    ann = place.join(user="ann")
    place.now += 60
    place.broker.receive(ann, b"sub a\nsub b\n")
    (row,) = place.rows(ann)
    assert tuple(row) == COLUMNS
    assert row == {
        "connection": 1,
        "user": "ann",
        "peer": "127.0.0.1:5000",
        "listener": "line",
        "transport": "line",
        "dialect": "line",
        "node": None,
        "subscriptions": 2,
        "messages_in_rate": 0.0,
        "messages_out_rate": 0.0,
        "bytes_in_rate": 0.0,
        "bytes_out_rate": 0.0,
        "backlog_bytes": 0,
        "dropped": 0,
        "since": 6_000.0,
    }


def test_a_rate_is_of_the_last_seconds_and_not_of_all_time(place: Place) -> None:
    ann = place.join()
    ann.messages_in, ann.bytes_in = 100_000, 5_000_000
    for _ in range(3):
        place.now += INTERVAL
        finish(place.broker.traffic.note())
    assert place.rows(ann)[0]["messages_in_rate"] == 0
    place.now += INTERVAL
    ann.messages_in += 300
    ann.bytes_out += 3_000
    row = place.rows(ann)[0]
    assert (row["messages_in_rate"], row["bytes_out_rate"]) == (30, 300)  # in 10 seconds
    for _ in range(2):
        finish(place.broker.traffic.note())
        place.now += INTERVAL
    assert place.rows(ann)[0]["messages_in_rate"] == 0


def test_the_first_message_of_a_connection_is_not_a_thousand_a_second(place: Place) -> None:
    place.now += 100
    ann = place.join()
    place.now += 0.001
    ann.messages_in = 1
    assert place.rows(ann)[0]["messages_in_rate"] == 1
    place.now += 4.999
    assert place.rows(ann)[0]["messages_in_rate"] == 0.2


def test_messages_out_are_counted_for_each_receiver(place: Place) -> None:
    ann, bob, eve = place.join(), place.join(), place.join()
    place.broker.receive(bob, b"sub x\nsub y\n")
    place.broker.receive(eve, b"sub y\n")
    place.broker.receive(ann, b"pub x 1 1\npub x 1 2\npub y 1 3\npub z 1 4\n")
    assert [peer.messages_out for peer in (ann, bob, eve)] == [0, 3, 1]
    large = b"pub y 300000 %b\n" % bytes(300_000)
    place.broker.receive(ann, large)
    assert [peer.messages_out for peer in (ann, bob, eve)] == [0, 4, 2]


def test_who_gets_no_echo_is_counted_without_it(place: Place) -> None:
    plain, bob = place.join(), place.join()
    plain.echo = False
    for peer in (plain, bob):
        place.broker.receive(peer, b"sub x\n")
    place.broker.receive(plain, b"pub x 1 1\npub x 1 2\n")
    place.broker.receive(bob, b"pub x 1 3\n")
    assert [peer.messages_out for peer in (plain, bob)] == [1, 3]
    assert place.broker.counters.messages_out == 4


# Orders and pages


def test_the_order_is_what_is_asked_for(place: Place) -> None:
    peers = [place.join() for _ in range(4)]
    peers[2].outbox.put(b"x" * 10)
    peers[1].outbox.put(b"x" * 20)
    peers[3].messages_in = 7
    peers[0].dropped = 1
    asker = peers[0]
    assert place.numbers(asker) == [1, 2, 3, 4]
    assert place.numbers(asker, sort="backlog") == [2, 3, 1, 4]  # of equals, the oldest
    assert place.numbers(asker, sort="rate", limit=2) == [4, 1]
    assert place.numbers(asker, sort="dropped", limit=1) == [1]


def test_pages_by_age_miss_nobody_who_stays(place: Place) -> None:
    asker = place.join()
    for _ in range(ROWS + 5):
        place.join()
    first = place.answer(asker)
    assert len(first["connections"]) == first["next"] == ROWS
    for _ in place.broker.leave(place.broker.peers[50]):
        pass
    place.join()
    second = place.answer(asker, after=first["next"])
    assert [row["connection"] for row in second["connections"]] == list(range(101, 108))
    assert (second["count"], second["next"]) == (ROWS + 6, None)


def test_among_thousands_the_first_are_found_in_steps_and_once_for_all_who_ask(
    place: Place,
) -> None:
    asker = place.join()
    for _ in range(10_000):
        place.join()
    looks = 0

    def backlog(peer: Peer) -> float:
        nonlocal looks
        looks += 1
        return peer.number == 7_777

    place.broker.connections.sorts["backlog"] = lambda: backlog
    most, before = 0, 0
    steps = place.broker.connections.show(asker, b'{"sort": "backlog", "limit": 3}')
    try:
        while True:
            next(steps)
            most, before = max(most, looks - before), looks
    except StopIteration as done:
        answer = json.loads(done.value)
    assert [row["connection"] for row in answer["connections"]] == [7_777, 1, 2]
    assert most <= 100
    assert looks == 10_001 + 3  # once more for the rows shown


def test_one_answer_has_so_many_rows_and_bytes_at_most(place: Place) -> None:
    asker = place.join(user="n" * 10_000)
    for _ in range(MAX_ROWS):
        place.join(user="n" * 10_000)
    answer = place.answer(asker, limit=MAX_ROWS)
    size = len(json.dumps(answer))
    assert MAX_ANSWER < size < MAX_ANSWER + 20_000
    assert answer["next"] == answer["connections"][-1]["connection"] < MAX_ROWS
    rest = place.answer(asker, limit=MAX_ROWS, after=answer["next"])
    assert rest["connections"][0]["connection"] == answer["next"] + 1


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"backlog", 'the data is not JSON like {"sort": "backlog"}'),
        (b"[]", 'the data is not JSON like {"sort": "backlog"}'),
        (b"\xff", 'the data is not JSON like {"sort": "backlog"}'),
        (b"[" * 250, 'the data is not JSON like {"sort": "backlog"}'),
        (b'{"limit": 1, "sort": "%b"}' % (b"x" * 256), "the data is not JSON like"),
        (b'{"sort": "size"}', "sort is one of age, backlog, rate, dropped"),
        (b'{"sort": ["age"]}', "sort is one of age, backlog, rate, dropped"),
        (b'{"limit": 0}', "limit is a number from 1 to 1000"),
        (b'{"limit": 1001}', "limit is a number from 1 to 1000"),
        (b'{"limit": true}', "limit is a number from 1 to 1000"),
        (b'{"limit": 1.5}', "limit is a number from 1 to 1000"),
        (b'{"after": -1}', "after is the number of a connection"),
        (b'{"after": 5, "sort": "rate"}', "after is for sort age alone"),
        (b'{"so\\nrt": "age"}', "so\\nrt is not one of sort, limit and after"),
    ],
)
def test_a_request_that_cannot_be_used_is_told_why(place: Place, data: bytes, told: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        finish(place.broker.connections.show(place.join(), data))
    assert caught.value.code == "bad-request"
    assert caught.value.text.startswith(told)


# Ending


def test_a_kill_ends_one_connection_with_a_reason_and_no_number_comes_again(place: Place) -> None:
    ann, bob = place.join(), place.join(user="bob")
    place.broker.receive(ann, b"pub //pubsubd/kill 1 2\n")
    assert place.ended == {2: ("killed", "ended by 127.0.0.1:5000")}
    assert b'"user": "bob"' in place.heard[1]
    for _ in place.broker.leave(bob):
        pass
    assert place.kill(ann, 2) == "unknown-connection"
    assert place.join().number == 3


def test_a_kill_of_oneself_comes_behind_what_was_said_before(place: Place) -> None:
    ann = place.join(user="ann")
    place.broker.receive(ann, b"sub x\npub x 1 a\npub //pubsubd/kill 1 1\npub x 1 b\n")
    assert place.heard[1] == b"pub x 1 a\npub //pubsubd/error 19 killed ended by ann\n"
    assert ann.ending is not None


@pytest.mark.parametrize("data", [b"", b"x", b"-1", b"1 2", b"9" * 16, "٣".encode()])
def test_what_is_no_number_is_told(place: Place, data: bytes) -> None:
    with pytest.raises(ProtocolError, match="bad-request the data is not the number"):
        place.broker.connections.kill(place.join(), data)


def test_a_connection_that_cannot_be_ended_costs_the_asker_nothing(place: Place) -> None:
    ann, bob = place.join(), place.join()
    codes = []

    def end(code: str, _text: str) -> None:
        codes.append(code)
        if code == "killed":
            raise RuntimeError("broken")

    bob.end = end
    assert place.kill(ann, 2) == "None"
    assert codes == ["killed", "internal-error"]


# Rights


def test_without_logins_everybody_sees_all_and_this_machine_ends_them(place: Place) -> None:
    here, there = place.join("[::1]:5000"), place.join("192.0.2.7:5000")
    mapped = place.join("[::ffff:127.0.0.1]:5000")
    for asker in (here, there, mapped):
        assert place.numbers(asker) == [1, 2, 3]
    assert place.kill(there, 1) == "not-allowed"
    assert place.kill(there, 2) == "killed"  # itself
    assert place.kill(mapped, 1) == "None"
    assert place.kill(here, 2) == "None"
    assert set(place.ended) == {1, 2}


@pytest.mark.parametrize("asked", [False, True], ids=["users", "certificates"])
def test_with_logins_one_sees_and_ends_what_is_ones_own(place: Place, asked: bool) -> None:
    if asked:
        place.broker.access.asked = True
    else:
        rules_in(place.broker, ann="a" * 8)
    ann, bob, again, nobody = (place.join(user=user) for user in ("ann", "bob", "ann", None))
    assert place.numbers(ann) == place.numbers(again, sort="rate") == [1, 3]
    assert place.answer(ann)["count"] == 2
    assert place.numbers(bob) == [2]
    assert place.numbers(nobody) == [4]
    assert place.kill(ann, 2) == place.kill(nobody, 1) == "unknown-connection"
    assert place.kill(nobody, 4) == "killed"
    assert place.kill(ann, 3) == "ann"
    assert set(place.ended) == {3}


def test_users_without_a_name_are_not_one_user(place: Place) -> None:
    place.broker.access.asked = True
    one, other = place.join(user=""), place.join(user="")
    assert place.numbers(one) == [1]
    assert place.kill(one, other.number) == "unknown-connection"


def test_operators_on_a_unix_socket_may_see_and_end_all(place: Place) -> None:
    rules_in(place.broker, ann="a" * 8)
    place.broker.access.operators = frozenset(("root", "pubsubd"))
    root, tom = place.join("unix", "root"), place.join("unix", "tom")
    fake, remote = place.join("unix", "tom"), place.join("192.0.2.7:1", "root")
    place.broker.access.enter(fake, "root", "a line of the users file")
    assert place.numbers(root) == [1, 2, 3, 4]
    assert 4 in place.numbers(remote)
    assert 2 not in place.numbers(remote)
    assert 2 not in place.numbers(fake)
    assert place.numbers(tom) == [2]
    assert place.kill(root, 2) == "tom"


def test_with_rules_the_right_to_ask_is_the_right_to_all(place: Place) -> None:
    names = CONNECTIONS.decode(), KILL.decode()
    rules = [AclRule(("boss",), names), AclRule(("*",), (), ("#",))]
    place.broker.access.replace(users=Users(), acl=Acl(rules), authority=None)
    boss, tom = place.join("192.0.2.7:1", "boss"), place.join(user="tom")
    root = place.join("unix", "root")
    place.broker.access.operators = frozenset(("root",))
    for other in (tom, root):
        place.broker.receive(other, b"pub //pubsubd/connections 0 \npub //pubsubd/kill 1 1\n")
        assert b"error" in place.heard[other.number]
        assert b"not-allowed" in place.heard[other.number]
        assert b'"count"' not in place.heard[other.number]
    assert place.numbers(boss) == [1, 2, 3]
    assert place.kill(boss, 2) == "tom"
    assert set(place.ended) == {2}
