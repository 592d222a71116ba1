"""Traces of names through the mesh, with the real code of all daemons and no sockets."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pubsubd.access.rules import Acl, AclRule
from pubsubd.access.users import Users
from pubsubd.mesh.link import Link
from pubsubd.protocol import wire
from tests.webs import Web, build

TRACE = b"//pubsubd/trace"


def ask(web: Web, node: str, name: str, client: str = "asker", **more: object) -> None:
    data = json.dumps({"name": name, **more}).encode()
    web[node].say(client, wire.frame(TRACE, data))


def answer(web: Web, node: str, client: str = "asker") -> Any:
    """Return the one thing that a client has heard: an answer, or the text of an error."""
    ((name, data),) = web[node].hears(client)
    return json.loads(data) if name == TRACE else data.decode()


def trace(web: Web, node: str, name: str, **more: object) -> Any:
    ask(web, node, name, **more)
    web.run(0.5)
    return answer(web, node)


def way(found: Any) -> list[tuple[str, str | None, int]]:
    """Return each hop: the daemon, the one before it, and how many connections there get it."""
    return [(hop["node"], hop.get("from"), hop.get("receivers", 0)) for hop in found["hops"]]


def test_a_probe_goes_to_those_who_want_the_name_and_is_delivered_to_nobody() -> None:
    web = build(["ab", "bc", "bd"], delay=0.01)
    web["c"].say("ann", b"sub //fwd/x\n")
    web["c"].say("bob", b"sub nothing\n")
    web["a"].say("eve", b"sub x\n")
    web.run()
    found = trace(web, "a", "//fwd/x")
    assert way(found) == [("a", None, 1), ("b", "a", 0), ("c", "b", 1)]
    assert found["receivers"] == 2
    assert found["hops"][2]["connections"] == 2
    assert found["not_asked"] == {"count": 1, "daemons": ["d"]}
    assert found["unanswered"] == []
    assert found["waited"] is None
    assert [hop.get("rtt_ms") for hop in found["hops"]] == [None, 20, 20]
    for node, client in (("c", "ann"), ("a", "eve")):
        assert web[node].hears(client) == []


def test_the_name_that_travels_is_the_copy_s() -> None:
    web = build(["ab"])
    web["b"].say("ann", b"sub //fwd/x\n")
    web.run()
    found = trace(web, "a", "//x")
    assert found["travels_as"] == "//fwd/x"
    assert way(found) == [("a", None, 0), ("b", "a", 1)]
    (listed,) = found["hops"][1]["listed"]
    assert listed["as"] == "//fwd/x"
    assert listed["dialect"] == "line"
    here = trace(web, "a", "x")
    assert here["travels_as"] is None
    assert way(here) == [("a", None, 0)]


def test_a_ring_has_the_probe_once_and_says_where_it_came_again() -> None:
    web = build(["ab", "bc", "cd", "da"])
    for node in "bcd":
        web[node].say("ann", b"sub //fwd/x\n")
    web.run()
    assert len(way(trace(web, "a", "//fwd/x"))) == 4
    web["a"].mesh.forwarding.flood()
    web["b"].mesh.forwarding.flood()
    web["c"].mesh.forwarding.flood()
    web["d"].mesh.forwarding.flood()
    found = trace(web, "a", "//fwd/x")
    again = [hop for hop in found["hops"] if hop.get("again")]
    assert found["receivers"] == 3
    assert len(found["hops"]) - len(again) == 4
    assert again
    assert found["unanswered"] == []


def test_a_daemon_that_does_not_answer_is_named_after_the_time_that_was_asked_for() -> None:
    web = build(["ab", "bc"])
    web["c"].say("ann", b"sub //fwd/x\n")
    web.run()
    web["b"].mesh.trace = lambda _link, _data: None  # as a version that knows no traces
    ask(web, "a", "//fwd/x", timeout=1.5)
    web.run(1.4)
    assert web["a"].hears("asker") == []
    web.run(0.2)
    found = answer(web, "a")
    assert found["unanswered"] == [
        {"node": "b", "from": "a", "version": web["a"].mesh.table.adverts["b"].version or None}
    ]
    assert found["waited"] == 1.5
    assert way(found) == [("a", None, 0)]


def test_a_daemon_that_is_gone_is_named() -> None:
    web = build(["ab", "bc"])
    web["c"].say("ann", b"sub //fwd/x\n")
    web.run()
    web.kill("c")
    web.run()
    found = trace(web, "a", "//fwd/x")
    assert found["unreachable"] == {"count": 1, "daemons": ["c"]}
    assert found["not_asked"] == {"count": 1, "daemons": ["b"]}


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "bad-request"),
        (b'{"name": "a b"}', "bad-request"),
        (b'{"name": "x", "timeout": 11}', "bad-request"),
        (b'{"name": "x", "more": 1}', "bad-request"),
        (b'{"name": "//pubsubd/stats"}', "bad-request"),
        (b'{"name": "//fwd/peers/default/a"}', "bad-request"),
        (b"[" * 2_000, "bad-request"),
        (b'{"name": "' + b"x" * 3_000 + b'"}', "bad-request"),
    ],
)
def test_what_cannot_be_traced_is_refused(data: bytes, text: str) -> None:
    web = build(["ab"])
    web["a"].say("asker", wire.frame(TRACE, data))
    web.run(0.1)
    assert answer(web, "a").startswith(text)
    assert way(trace(web, "a", "x")) == [("a", None, 0)]


def test_traces_at_once_are_bounded() -> None:
    web = build(["ab"])
    web["b"].say("ann", b"sub //fwd/x\n")
    web.run()
    web["b"].mesh.trace = lambda _link, _data: None
    for number in range(17):
        ask(web, "a", "//fwd/x", f"client{number}")
    web.run(3)
    heard = [answer(web, "a", f"client{number}") for number in range(17)]
    assert [one for one in heard if isinstance(one, str)] == [
        "rate-limited 16 traces are under way"
    ]


def test_rights_hold_for_the_name_and_for_what_is_listed() -> None:
    web = build(["ab"])
    for node in "ab":
        access = web[node].broker.access
        rules = (AclRule("*", ("//pubsubd/trace", "//fwd/x"), ("//fwd/x",)),)
        access.replace(users=Users({}), acl=Acl(rules), authority=None)
        web[node].say("ann", b"sub //fwd/\n")
    web.run()
    found = trace(web, "a", "//fwd/x")
    assert found["receivers"] == 2
    assert all(hop["listed"] for hop in found["hops"])
    assert trace(web, "a", "//fwd/y").startswith("not-allowed")


# What another daemon may do


def tell(web: Web, node: str, source: str, data: bytes) -> None:
    """Let the neighbour ``source`` of a daemon say something."""
    peer = web[node].mesh.links[source].peer
    while web[node].broker.receive(peer, wire.frame(TRACE, data)):
        data = b""


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"probe",
        b"probe a@x 1 255 open //fwd/x",
        b"probe a@1 1 255 all //fwd/x",
        b"probe a@1 1 255 open x",
        b"probe a@1 1 255 open //fwd/x y",
        b"probe a@1 1 255 open //fwd/" + b"x" * 2_000,
        b"probe a@%d 1 255 open //fwd/\xff",
        b"probe a@%d 1 255 open x",
        b"hop a@1 1",
    ],
)
def test_what_is_neither_probe_nor_hop_is_counted_and_the_link_stays(data: bytes) -> None:
    web = build(["ab", "bc"])
    life = web["a"].mesh.state.incarnation
    counters = web["b"].mesh.counters
    before = counters.broken + counters.unknown_origin
    tell(web, "b", "a", data.replace(b"%d", b"%d" % life))
    web.run(0.1)
    assert counters.broken + counters.unknown_origin == before + 1
    assert "a" in web["b"].mesh.links
    assert way(trace(web, "a", "//x")) == [("a", None, 0)]


def test_a_probe_of_an_origin_in_another_life_is_passed_on_to_nobody() -> None:
    web = build(["ab", "bc"])
    web["c"].say("ann", b"sub //fwd/x\n")
    web.run()
    tell(web, "b", "a", b"probe a@1 1 255 open //fwd/x")
    assert web["b"].mesh.counters.unknown_origin == 1
    assert web["b"].mesh.traces.remembered == 0


def test_a_hop_is_taken_only_from_a_daemon_that_was_passed_the_probe() -> None:
    web = build(["ab", "ac"])
    web["b"].say("ann", b"sub //fwd/x\n")
    web.run()
    web["b"].mesh.trace = lambda _link, _data: None
    ask(web, "a", "//fwd/x", timeout=1)
    web.run(0.1)
    life = web["a"].mesh.state.incarnation
    hop = b'{"node": "c", "receivers": 1000000}'
    tell(web, "a", "c", b"hop a@%d 1 - %b" % (life, hop))
    tell(web, "a", "b", b"hop a@%d 1 - %b" % (life, b"x" * 10_000))
    tell(web, "a", "b", b"hop a@%d 1 - [[" % life)
    tell(web, "a", "b", b"hop a@%d 2 - %b" % (life, hop))
    assert web["a"].mesh.counters.broken == 3
    web.run(1)
    found = answer(web, "a")
    assert found["receivers"] == 0
    assert [one["node"] for one in found["unanswered"]] == ["b"]


def test_probes_are_rated_for_each_link_and_remembered_for_a_while() -> None:
    web = build(["ab", "bc"])
    life = web["a"].mesh.state.incarnation
    traces, counters = web["b"].mesh.traces, web["b"].mesh.counters
    for number in range(1_200):
        tell(web, "b", "a", b"probe a@%d %d 255 counts //fwd/x" % (life, number))
    assert counters.refused["trace"] == 200
    assert traces.remembered == 1_000
    web.run(0.5)
    for number in range(2_000, 2_100):
        tell(web, "b", "a", b"probe a@%d %d 255 counts //fwd/x" % (life, number))
    assert traces.remembered == 1_024
    web.run(20)
    ask(web, "b", "y")
    web.run(1)
    assert traces.remembered <= 1


def test_hops_are_kept_up_to_their_room_and_the_rest_is_counted() -> None:
    web = build(["ab"])
    web["b"].say("ann", b"sub //fwd/x\n")
    web.run()
    web["b"].mesh.trace = lambda _link, _data: None
    ask(web, "a", "//fwd/x", timeout=1)
    web.run(0.1)
    life = web["a"].mesh.state.incarnation
    for number in range(200):
        hop = json.dumps({"node": f"n{number}", "from": "b", "next": ["z" * 8_000, "y"]}).encode()
        tell(web, "a", "b", b"hop a@%d 1 - %b" % (life, hop))
    web.run(1)
    found = answer(web, "a")
    assert found["left_out"] > 50
    assert len(json.dumps(found)) < 2_500_000


def test_hops_that_name_too_many_next_ones_are_dropped() -> None:
    web = build(["ab"])
    web["b"].say("ann", b"sub //fwd/x\n")
    web.run()
    web["b"].mesh.trace = lambda _link, _data: None
    ask(web, "a", "//fwd/x", timeout=1)
    web.run(0.1)
    life = web["a"].mesh.state.incarnation
    for number in range(50):
        nodes = {"node": "b" if number == 0 else f"n{number}", "from": "a" if number == 0 else "b"}
        more = [f"{number}.{next_hop}" for next_hop in range(900)]
        hop = json.dumps(nodes | {"next": more}, separators=(",", ":")).encode()
        tell(web, "a", "b", b"hop a@%d 1 - %b" % (life, hop))
        tell(web, "a", "b", b"hop a@%d 1 - %b" % (life, hop))
    assert web["a"].mesh.counters.broken == 2 * 50 - 4
    web.run(1)
    assert len(answer(web, "a")["unanswered"]) == 4 * 900


def test_a_daemon_whose_next_hops_answer_before_it_is_waited_for() -> None:
    web = build(["ab", "bc"])
    web["c"].say("ann", b"sub //fwd/x\n")
    web.run()
    take, hops = web["a"].mesh.trace, list[bytes]()

    def take_both_last_first(link: Link, data: bytes) -> None:
        hops.append(data)
        if len(hops) == 2:
            take(link, hops[1])
            take(link, hops[0])

    web["a"].mesh.trace = take_both_last_first
    found = trace(web, "a", "//fwd/x")
    assert way(found) == [("a", None, 0), ("b", "a", 0), ("c", "b", 1)]
    assert found["unanswered"] == []


def test_users_of_a_daemon_with_logins_are_not_listed_to_one_without() -> None:
    web = build(["ab"])
    web["b"].say("ann", b"sub //fwd/x\n")
    web.run()
    assert trace(web, "a", "//fwd/x")["hops"][1]["listed"]
    users = Users(lines=frozenset({("ann", "of whom there is a password")}))
    web["b"].broker.access.replace(users=users, acl=Acl(()), authority=None)
    found = trace(web, "a", "//fwd/x")
    assert "listed" not in found["hops"][1]
