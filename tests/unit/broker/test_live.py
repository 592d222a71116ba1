"""What observers of ``//pubsubd/live`` are sent, who may see what, and what that costs."""

from __future__ import annotations

import json
import random
from itertools import count
from typing import Any

import pytest

from pubsubd.access.rules import Acl, AclRule
from pubsubd.broker.events import KEPT
from pubsubd.broker.live.names import Sampler
from pubsubd.broker.live.observers import MAX_OBSERVERS
from pubsubd.broker.live.states import Table, difference
from pubsubd.broker.peer import Peer
from pubsubd.broker.traffic import INTERVAL
from pubsubd.broker.turn import finish
from pubsubd.protocol.errors import ProtocolError
from pubsubd.protocol.wire import Decoder
from tests.rights import rules_in
from tests.unit.broker.test_connections import Place

LIVE = b"//pubsubd/live"


class Theatre(Place):
    """A broker with observers; ticks cost nothing unless the test says so.

    Attributes:
        answers: what who has asked last was told at once.
    """

    def __init__(self) -> None:
        super().__init__()
        self.broker.live.cost = lambda: 0.0
        self.answers: list[Any] = []

    def watch(self, peer: Peer, **request: Any) -> None:
        self.told(peer)
        self.broker.receive(peer, b"pub %b - %b\n" % (LIVE, json.dumps(request).encode()))
        if isinstance(sampler := self.broker.delivery.sampler, Sampler):
            sampler.cost = lambda: 0.0  # or some reads would not be looked at
        self.answers = self.told(peer)

    def tick(self, seconds: float = 1.0) -> None:
        """Let time pass, and a tick if one is due."""
        self.now += seconds
        if self.broker.live.due <= self.now:
            finish(self.broker.live.tick())

    def told(self, peer: Peer) -> list[Any]:
        """Return what a peer was told: messages of live, and errors by their codes."""
        heard, self.heard[peer.number] = self.heard[peer.number], b""
        return [
            json.loads(data) if name == LIVE else data.split(b" ")[0].decode()
            for name, data in Decoder(1 << 30).feed(heard)
        ]

    def next(self, peer: Peer, seconds: float = 1.0) -> Any:
        """Return the one message that comes at the next tick."""
        self.tick(seconds)
        (message,) = self.told(peer)
        return message


@pytest.fixture
def place() -> Theatre:
    return Theatre()


def merged(state: dict[Any, Any], section: dict[str, Any], key: str) -> None:
    """Merge a section as the page says."""
    for row in section.get("rows", []):
        state.setdefault(row[key], {}).update(row)
    for gone in section.get("gone", []):
        del state[gone]


# Messages


def test_the_first_message_is_whole_and_the_next_ones_have_what_has_changed(place: Theatre) -> None:
    ann, bob = place.join(user="ann"), place.join("127.0.0.1:6000")
    place.watch(ann, connections=True)
    (answer,) = place.answers
    assert answer | {"at": 0} == {"n": 0, "at": 0, "interval": 1.0, "own": 1, "may_kill": True}
    first = place.next(ann)
    assert (first["n"], "own" in first) == (1, False)
    assert [row["user"] for row in first["connections"]["rows"]] == ["ann", None]
    assert first["connections"]["count"] == first["connections"]["matching"] == 2
    bob.outbox.put(b"x" * 10)
    second = place.next(ann)
    rows = {row["connection"]: row for row in second["connections"].pop("rows")}
    assert rows.pop(2) == {"connection": 2, "backlog_bytes": 10}
    assert set(rows.get(1, {})) <= {"connection", "messages_out_rate", "bytes_out_rate"}
    assert (second["n"], second["connections"]) == (2, {})
    eve = place.join()
    for _ in place.broker.leave(bob):
        pass
    third = place.next(ann)["connections"]
    assert third["gone"] == [2]
    assert [row["peer"] for row in third["rows"] if row["connection"] == eve.number] == [eve.label]


def test_a_message_comes_each_interval_though_nothing_changes(place: Theatre) -> None:
    ann = place.join()
    place.watch(ann, events=True, interval=0.2)
    numbers = []
    for _ in range(10):
        place.tick(0.1)
        numbers += [set(message) - {"at"} for message in place.told(ann)]
    assert numbers[1:] == [{"n", "interval"}] * 5


def test_a_request_replaces_the_one_before_and_stop_ends_it(place: Theatre) -> None:
    ann = place.join()
    place.watch(ann, totals=True)
    place.next(ann)
    place.watch(ann, connections={"sort": "age", "limit": 1})
    message = place.next(ann)
    assert message["n"] == 1
    assert message.keys() == {"n", "at", "interval", "connections"}
    place.broker.receive(ann, b"pub //pubsubd/live/stop 0 \n")
    assert place.heard[1] == b'pub //pubsubd/live/stop 15 {"messages": 1}\n'
    place.told(ann)
    place.tick(60)
    assert place.told(ann) == []
    assert place.broker.live.due == float("inf")


def test_without_data_there_are_totals_and_events(place: Theatre) -> None:
    ann = place.join()
    place.broker.receive(ann, b"pub //pubsubd/live 0 \n")
    place.told(ann)
    assert place.next(ann).keys() >= {"totals", "events"}


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"[]", 'the data is not JSON like {"totals": true}'),
        (b"[" * 1000, 'the data is not JSON like {"totals": true}'),
        (b'{"totals": true, "x": "%b"}' % (b"x" * 1024), "the data is not JSON"),
        (b"{}", "nothing of totals, connections, names, events, mesh is named"),
        (b'{"totals": false}', "nothing of totals"),
        (b'{"totals": 1}', "totals is true or an object"),
        (b'{"totals": {"a": 1}}', "a: totals has no keys"),
        (b'{"to\\u001btals": true}', "to\\x1btals is not one of interval, totals"),
        (b'{"interval": 0.1, "totals": true}', "interval is a number from 0.2 to 60"),
        (b'{"interval": "1", "totals": true}', "interval is a number from 0.2 to 60"),
        (b'{"interval": NaN, "totals": true}', "interval is a number from 0.2 to 60"),
        (b'{"connections": {"sort": "size"}}', "sort is one of age, backlog, rate, dropped"),
        (b'{"connections": {"sort": []}}', "sort is one of age, backlog, rate, dropped"),
        (b'{"connections": {"limit": 501}}', "limit is a whole number from 1 to 500"),
        (b'{"connections": {"limit": 1.5}}', "limit is a whole number from 1 to 500"),
        (b'{"connections": {"match": 7}}', "match is a text of 256 characters at most"),
        (b'{"connections": {"order": 7}}', "order: connections has sort, limit, match"),
        (b'{"names": {"limit": 0}}', "limit is a whole number from 1 to 100"),
        (b'{"events": {"limit": 257}}', "limit is a whole number from 0 to 256"),
    ],
)
def test_a_request_that_cannot_be_used_is_told_why(place: Theatre, data: bytes, told: str) -> None:
    ann = place.join()
    place.watch(ann, totals=True)
    with pytest.raises(ProtocolError) as caught:
        place.broker.live.request(ann, data)
    assert caught.value.code == "bad-request"
    assert caught.value.text.startswith(told)
    assert place.next(ann)["n"] == 1  # what was shown is shown


def test_rows_that_are_merged_are_the_table_whatever_has_changed() -> None:
    rng = random.Random(7)
    known: dict[int, dict[str, Any]] = {}
    before: Table | None = None
    rows: dict[int, dict[str, Any]] = {}
    for _ in range(200):
        for _ in range(rng.randrange(5)):
            at = rng.randrange(8)
            if at in rows and rng.random() < 0.4:
                del rows[at]
            else:
                rows[at] = {"k": at, "a": rng.randrange(3), "b": rng.randrange(3)}
        now = Table("k", dict(rows))
        text = difference(before, now)
        if text:
            merged(known, json.loads(text), "k")
        assert known == rows
        before = now


# Cost


def test_while_nobody_looks_nothing_is_computed(place: Theatre) -> None:
    ann = place.join()
    place.broker.receive(ann, b"pub x 1 1\n")
    assert place.broker.delivery.sampler is None
    assert place.broker.live.due == float("inf")
    place.watch(ann, names=True)
    assert place.broker.delivery.sampler is not None
    for _ in place.broker.leave(ann):
        pass
    place.tick()
    assert place.broker.delivery.sampler is None
    assert place.broker.live.due == float("inf")


def test_reads_are_looked_at_until_the_last_who_wants_names_is_gone(place: Theatre) -> None:
    ann, bob = place.join(), place.join()
    for peer in (ann, bob, ann):
        place.watch(peer, names=True)
    sampler = place.broker.delivery.sampler
    place.broker.receive(ann, b"pub //pubsubd/live/stop 0 \n" * 2)
    assert place.broker.delivery.sampler is sampler is not None
    place.watch(bob, totals=True)
    assert place.broker.delivery.sampler is None


def test_observers_of_the_same_share_what_it_costs(place: Theatre) -> None:
    made = 0
    describe = place.broker.connections.describe

    def counted(peer: Peer) -> Any:
        nonlocal made
        made += 1
        return describe(peer)

    place.broker.connections.describe = counted  # type: ignore[method-assign]
    peers = [place.join() for _ in range(10)]
    for limit, peer in enumerate(peers, 1):
        place.watch(peer, connections={"limit": limit, "sort": "age"})
    place.tick()
    assert made == 10
    assert [len(place.told(peer)[0]["connections"]["rows"]) for peer in peers] == [*range(1, 11)]


def test_the_interval_is_at_least_one_hundred_times_the_cost(place: Theatre) -> None:
    ann = place.join()
    clock = count(0.0, 0.005)
    place.broker.live.cost = lambda: next(clock)
    place.watch(ann, totals=True, interval=0.2)
    place.next(ann)
    rest = place.broker.live.due - place.now
    assert rest >= 0.5  # of two steps at least, of 5 ms each
    place.tick(rest - 0.01)
    assert place.told(ann) == []
    assert place.next(ann, 0.02)["interval"] == pytest.approx(rest)


def test_a_tick_is_taken_in_steps_among_thousands(place: Theatre) -> None:
    ann = place.join()
    for _ in range(5_000):
        place.join()
    looks, most, before = 0, 0, 0

    def backlog(peer: Peer) -> float:
        nonlocal looks
        looks += 1
        return float(peer.number == 4_321)

    place.broker.connections.sorts["backlog"] = lambda: backlog
    place.watch(ann, connections={"sort": "backlog", "limit": 2})
    place.now += 1
    for _ in place.broker.live.tick():
        most, before = max(most, looks - before), looks
    rows = place.told(ann)[0]["connections"]["rows"]
    assert [row["connection"] for row in rows] == [4_321, 1]
    assert most <= 256


def test_there_are_so_many_observers_and_who_leaves_makes_room(place: Theatre) -> None:
    peers = [place.join() for _ in range(MAX_OBSERVERS + 1)]
    for peer in peers:
        place.watch(peer, totals=True)
    assert place.answers == ["too-many-observers"]
    place.watch(peers[0], events=True)  # not one more
    assert place.answers[0]["n"] == 0
    for _ in place.broker.leave(peers[0]):
        pass
    place.watch(peers[-1], totals=True)
    assert place.next(peers[-1])["n"] == 1


def test_who_is_slow_is_left_out_and_told_how_often(place: Theatre) -> None:
    ann, bob = place.join(), place.join()
    place.watch(ann, connections=True)
    place.next(ann)
    ann.outbox.put(b"x" * 70_000)
    for size in range(3):
        bob.outbox.put(b"x" * size)
        place.tick()
    assert place.told(ann) == []
    ann.outbox.sent(70_000)
    message = place.next(ann)
    assert message["missed"] == {"updates": 3, "why": "over 64 KiB waited for this connection"}
    rows = {row["connection"]: row for row in message["connections"]["rows"]}
    assert (message["n"], rows[2]["backlog_bytes"]) == (2, 3)
    assert "missed" not in place.next(ann)


# Sections


def test_totals_have_rates_from_the_first_message_on(place: Theatre) -> None:
    ann = place.join()
    place.now += INTERVAL
    place.broker.totals.note()
    place.now += 2
    place.broker.receive(ann, b"pub x 1 1\n" * 100)
    place.broker.totals.lag = lambda: 0.25
    place.watch(ann, totals=True)
    totals = place.next(ann, 0)["totals"]
    assert totals["messages_in_rate"] == 50
    assert (totals["messages_in"], totals["connections"], totals["loop_lag_ms"]) == (100, 1, 250)
    assert place.next(ann)["totals"]["messages_in_rate"] == 0


def test_connections_are_found_by_any_of_their_texts(place: Theatre) -> None:
    ann = place.join("192.0.2.1:7", user="Ann")
    place.join("192.0.2.2:8")

    def found(match: str) -> list[int]:
        place.watch(ann, connections={"match": match})
        section = place.next(ann)["connections"]
        assert section["matching"] == len(section["rows"])
        return [row["connection"] for row in section["rows"]]

    assert [found(text) for text in ("ANN", "192.0.2.2", "line", "nobody")] == [
        [1],
        [2],
        [1, 2],
        [],
    ]


def test_events_come_in_order_and_what_is_lost_is_counted(place: Theatre) -> None:
    ann = place.join()
    for number in range(3):
        place.broker.events.note({"event": "reloaded", "number": number})
    place.watch(ann, events={"limit": 2})
    rows = place.next(ann)["events"]["rows"]
    assert [(row["id"], row["event"], row["number"]) for row in rows] == [
        (2, "reloaded", 1),
        (3, "reloaded", 2),
    ]
    assert "events" not in place.next(ann)
    for number in range(KEPT + 5):
        place.broker.events.note({"event": "reloaded", "number": number})
    events = place.next(ann)["events"]
    assert [row["id"] for row in events["rows"]] == [*range(9, 3 + KEPT + 6)]
    assert events["missed"] == {"events": 5, "why": "only the last 256 are kept"}


def test_names_are_counted_exactly_while_that_costs_little(place: Theatre) -> None:
    ann, bob = place.join(), place.join()
    place.watch(ann, names={"limit": 10})
    sampler = place.broker.delivery.sampler
    assert isinstance(sampler, Sampler)
    sampler.cost = lambda: 0.0
    mixed = b"pub a 1 1\npub b 1 2\n" * 10
    for _ in range(10):
        place.broker.receive(bob, b"pub chat 2 hi\n" * 30 + mixed + b"pub half 5 12")
        place.broker.receive(bob, b"345\nPub typed - hi\nbogus\npub //pubsubd/ping 0 \n")
    place.broker.receive(bob, b"pub large 300000 %b\n" % bytes(300_000))
    place.broker.delivery.enqueue(None, b"hub", b"1")
    place.broker.delivery.flush()
    names = place.next(ann)["names"]
    counts = {row["name"]: round(row["rate"]) for row in names["rows"]}
    counted = {"chat": 300, "a": 100, "b": 100, "half": 10, "typed": 10, "large": 1, "hub": 1}
    assert place.broker.counters.messages_in == sum(counted.values())
    assert counts == counted  # in the second that has gone by
    assert all(row["error"] == 0 for row in names["rows"])
    for _ in range(60):
        last = place.next(ann).get("names", {})
    assert "rows" not in last  # long gone


def test_names_are_estimated_from_a_sample_when_there_is_much_to_do() -> None:
    now = 0.0

    def clock() -> float:
        nonlocal now
        now += 0.000_05  # so much does each look cost
        return now

    random.seed(1)
    sampler, rng = Sampler(clock, clock), random.Random(2)
    data = {name: b"\npub %b 1 x\n" % name for name in (b"often", b"rare")}
    for _ in range(100_000):
        name = b"often" if rng.random() < 0.9 else b"rare"
        sampler.read(None, data[name], 1)
    assert sampler.every > 100
    assert sampler.spent < 0.1
    assert sampler.names[b"often"] / sampler.total == pytest.approx(0.9, abs=0.15)


def test_a_read_of_many_names_is_looked_at_in_part() -> None:
    sampler = Sampler(lambda: 0.0, lambda: 0.0)
    data = b"\n" + b"".join(b"pub n%d 1 x\n" % number for number in range(10_000))
    sampler.read(None, data, 10_000)
    assert sampler.looked == len(sampler.names) == 128
    assert sum(sampler.names.values()) == pytest.approx(10_000)
    assert sampler.total == 10_000
    for start in range(0, 10_000, 100):
        some = b"\n" + b"".join(b"pub m%d 1 x\n" % (start + i) for i in range(100))
        sampler.read(None, some, 100)
    assert len(sampler.names) <= 4_096


# Rights


def test_each_section_needs_the_right_of_its_own(place: Theatre) -> None:
    ann, bob = place.join(user="ann"), place.join(user="bob")
    rules_in(
        place.broker,
        AclRule(("ann",), ("=//pubsubd/live", "//pubsubd/stats", "chat"), ("chat",)),
        AclRule(("bob",), ("#",), ("#",)),
        ann="a" * 8,
        bob="b" * 8,
    )
    place.watch(ann, totals=True, connections=True, names=True, events=True, mesh=True)
    place.watch(bob, totals=True)
    assert place.answers == ["not-allowed"]
    first = place.next(ann)
    for name in ("connections", "events", "mesh"):
        assert first[name].keys() == {"error"}
        assert first[name]["error"]["code"] == "not-allowed"
    assert "connections" in first["totals"]
    place.broker.receive(bob, b"pub chat 1 1\npub secret 1 1\n")
    assert [row["name"] for row in place.next(ann)["names"]["rows"]] == ["chat"]
    place.broker.access.replace(
        users=place.broker.access.users,
        acl=Acl([AclRule(("*",), ("//pubsubd/",), ("//pubsubd/",))]),
        authority=None,
    )
    message = place.next(ann)
    assert message["connections"]["error"] is None
    assert len(message["connections"]["rows"]) == 2
    assert message["mesh"] == {
        "error": {"code": "no-mesh", "text": "this daemon is not part of a mesh"}
    }


def test_names_that_were_refused_are_not_among_the_busiest(place: Theatre) -> None:
    ann, bob = place.join(user="ann"), place.join(user="bob")
    rules = AclRule(("ann",), ("//pubsubd/",), ("#",)), AclRule(("bob",), ("chat",))
    rules_in(place.broker, *rules, ann="a" * 8, bob="b" * 8)
    place.watch(ann, names=True)
    place.broker.receive(bob, b"pub chat 1 1\npub secret 1 1\n")
    assert [row["name"] for row in place.next(ann)["names"]["rows"]] == ["chat"]


def test_with_logins_and_no_rules_one_sees_what_is_ones_own(place: Theatre) -> None:
    place.broker.access.asked = True
    ann, _, again, nobody = (place.join(user=user) for user in ("ann", "bob", "ann", None))
    for number, user in ((2, "bob"), (3, "ann"), (4, None)):
        place.broker.events.note({"event": "closed", "connection": number, "user": user})
    place.broker.events.note({"event": "reloaded"})

    def shown(peer: Peer) -> tuple[list[int], list[int | None]]:
        place.watch(peer, connections={"sort": "age"}, events=True)
        message = place.next(peer)
        return (
            [row["connection"] for row in message["connections"]["rows"]],
            [row.get("connection") for row in message["events"]["rows"]],
        )

    assert shown(ann) == shown(again) == ([1, 3], [3, None])
    assert shown(nobody) == ([4], [4, None])


def test_who_has_lost_the_right_is_told_so_and_shown_no_more(place: Theatre) -> None:
    ann, bob = place.join(user="ann"), place.join(user="bob")
    place.broker.wall = lambda: place.now
    bob.expires_at = place.now + 2.5
    for peer in (ann, bob):
        place.watch(peer, totals=True)
    place.tick()
    place.broker.access.replace(
        users=place.broker.access.users,
        acl=Acl([AclRule(("bob",), ("//pubsubd/",), ())]),
        authority=None,
    )
    place.told(ann)
    place.tick()
    assert place.told(ann) == ["not-allowed"]
    place.told(bob)
    place.tick()
    assert place.told(bob) == ["login-required"]
    assert place.broker.live.due == float("inf")
    place.tick(60)
    assert place.told(ann) == place.told(bob) == []


def test_a_right_that_goes_in_the_middle_of_a_tick_is_gone(place: Theatre) -> None:
    ann = place.join(user="ann")
    place.watch(ann, connections=True)
    place.now += 1
    ticking = place.broker.live.tick()
    next(ticking)
    place.broker.access.replace(
        users=place.broker.access.users,
        acl=Acl([AclRule(("*",), ("=//pubsubd/live",), ())]),
        authority=None,
    )
    finish(ticking)
    assert place.told(ann) == []
    assert place.next(ann)["connections"]["error"]["code"] == "not-allowed"
