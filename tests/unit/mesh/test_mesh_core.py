"""The mesh in process: whatever the graph and the events, each message comes once."""

from __future__ import annotations

import gc
import json
import random
from itertools import combinations, pairwise, permutations

import pytest

from pubsubd.broker.peer import Peer
from pubsubd.mesh.adverts import parse_advert
from pubsubd.mesh.hello import HELLO, Hello, prove
from pubsubd.mesh.sim.dialler import Dialler
from pubsubd.mesh.window import Window
from pubsubd.protocol import wire
from tests.footprint import reached
from tests.webs import Connection, Node, Web, build


def chain(names: str) -> list[str]:
    return [a + b for a, b in pairwise(names)]


GRAPHS = {
    "two daemons": ["ab"],
    "both dial each other": ["ab", "ba"],
    "two parallel links": ["ab", "ab"],
    "a chain of ten": chain("abcdefghij"),
    "a ring of five": [*chain("abcde"), "ea"],
    "a triangle": ["ab", "bc", "ca"],
    "a full mesh of five": ["".join(pair) for pair in combinations("abcde", 2)],
    "a star of twenty": ["a" + other for other in "bcdefghijklmnopqrst"],
    "a daemon that dials itself": ["ab", "aa", "bb"],
}


def batches(connection: Connection) -> list[bytes]:
    """Return the batches that have crossed a connection, either way."""
    return [one for way in connection.carried for one in way if b"//pubsubd/relay" in one]


@pytest.mark.parametrize("name", GRAPHS)
def test_each_subscriber_gets_each_message_once(name: str) -> None:
    web = build(GRAPHS[name])
    for node in web.nodes.values():
        node.say("sub", b"sub //fwd/chat\nsub //fwd/chat/x\n")
    web.run()
    for node in web.nodes.values():
        node.hears("sub")
        node.say("pub", b"pub //chat/x 1 %b\npub local 1 x\n" % node.name.encode())
    web.run()
    for node in web.nodes.values():
        heard = node.hears("sub")
        assert sorted(heard) == [(b"//fwd/chat/x", one.encode()) for one in sorted(web.nodes)]
        assert node.mesh.counters.duplicates == 0


@pytest.mark.parametrize("name", GRAPHS)
def test_a_message_crosses_only_links_of_the_tree_once_and_traffic_stops(name: str) -> None:
    web = build(GRAPHS[name])
    first, last = web["a"], web[max(web.nodes)]
    last.say("sub", b"sub //fwd/x\n")
    web.run()
    first.say("pub", b"pub //x 1 1\n")
    web.run(30)
    hops = first.mesh.table.hops[last.name]
    connections = {one for node in web.nodes.values() for one in node.connections}
    assert sum(len(batches(one)) for one in connections) == hops
    assert max(len(batches(one)) for one in connections) == 1
    assert last.hears("sub") == [(b"//fwd/x", b"1")]


def test_one_link_stays_between_two_daemons_whoever_has_dialled() -> None:
    web = build(["ab", "ba", "ab"])
    assert list(web["a"].mesh.links) == ["b"]
    assert list(web["b"].mesh.links) == ["a"]
    assert len(web["a"].connections) == 1
    assert web["a"].connections == web["b"].connections
    assert web["a"].refused.get("duplicate-link", 0) + web["b"].refused.get("duplicate-link", 0)


def test_two_addresses_of_one_daemon_that_are_dialled_at_once_become_one_link() -> None:
    web = Web()
    web.add("a", "b")
    for _ in range(2):
        Dialler(web["a"], web["b"]).dial()
    web.run(60)
    assert list(web["a"].mesh.links) == ["b"]
    assert list(web["b"].mesh.links) == ["a"]
    assert len(web["a"].ends) == len(web["b"].ends) == 1


def test_a_daemon_that_dials_itself_is_refused_and_told() -> None:
    web = Web()
    web.add("a")
    (connection,) = web.link("aa")
    web.run(10)
    assert connection.refusal.code == "self-link"
    assert web["a"].mesh.links == {}
    assert web["a"].mesh.legacy.peers == {}
    assert not any(end.open for end in connection.ends)


@pytest.mark.parametrize("order", list(permutations(["ab", "bc", "ca"])))
@pytest.mark.parametrize("delay", [0.001, 2.0])
def test_a_triangle_works_in_every_order_of_starting(order: tuple[str, ...], delay: float) -> None:
    web = Web(delay)
    web.add("a", "b", "c")
    for edge in order:
        web.link(edge)
        web.run(0.5)
    web.run(40)
    for node in web.nodes.values():
        node.say("sub", b"sub //fwd/x\n")
    web.run(30)
    web["a"].say("pub", b"pub //x 1 1\n")
    web.run(30)
    assert [node.hears("sub") for node in web.nodes.values()] == [[(b"//fwd/x", b"1")]] * 3


@pytest.mark.parametrize("edges", [["ab", "bc"], ["ab", "bc", "ac"]])
def test_the_same_message_three_times_is_three_messages(edges: list[str]) -> None:
    web = build(edges)
    web["c"].say("sub", b"sub //fwd/x\n")
    web.run()
    for _ in range(3):
        web["a"].say("pub", b"pub //x 4 same\n")
        web.run(0.1)
    assert web["c"].hears("sub") == [(b"//fwd/x", b"same")] * 3


def test_names_under_fwd_go_as_they_are_and_local_names_stay() -> None:
    web = build(["ab"])
    web["b"].say("sub", b"sub //fwd/\nsub x\n")
    web.run()
    web["a"].say("pub", b"pub //fwd/x 1 1\npub x 1 2\npub /x 1 3\npub //x 1 4\n")
    web.run()
    assert web["b"].hears("sub") == [(b"//fwd/x", b"1"), (b"//fwd/x", b"4")]


def test_what_comes_from_another_daemon_is_for_those_who_ask_for_forwarded_names() -> None:
    """Otherwise it would depend on others what a subscription of anything else brings."""
    web = build(["ab"])
    web["b"].say("sub", b"sub //fwd/x\n")
    web["b"].say("other", b"sub x\nsub fwd\nsub //\n")
    web.run()
    web["a"].say("pub", b"pub //x 1 1\n")
    web.run()
    assert web["b"].hears("sub") == [(b"//fwd/x", b"1")]
    assert web["b"].hears("other") == []
    assert web["b"].mesh.links["a"].messages_in == 1


def test_sub_alone_is_for_what_is_published_here_and_not_for_what_other_daemons_have() -> None:
    web = build(["ab"])
    web["b"].say("sub", b"sub\n")
    web["b"].say("both", b"sub\nsub //fwd/\n")
    web.run()
    web["a"].say("pub", b"pub //x 1 1\n")
    web["b"].say("pub", b"pub //x 1 2\npub y 1 3\n")
    web.run()
    here = [(b"//x", b"2"), (b"y", b"3")]
    assert web["b"].hears("sub") == here
    assert sorted(web["b"].hears("both")) == sorted([(b"//fwd/x", b"1"), *here])


def test_runs_keep_their_order_whoever_wants_them() -> None:
    web = build(["ab", "bc"])
    web["b"].say("sub", b"sub //fwd/x\n")
    web["c"].say("sub", b"sub //fwd/x/2\nsub //fwd/x/4\n")
    web.run()
    web["a"].say("pub", b"".join(b"pub //x/%d 1 %d\n" % (n % 5, n) for n in range(10)))
    web.run()
    assert [data for _, data in web["b"].hears("sub")] == [b"%d" % n for n in range(10)]
    assert [data for _, data in web["c"].hears("sub")] == [b"2", b"4", b"7", b"9"]


def test_a_burst_around_a_ring_crosses_each_link_once_at_most() -> None:
    web = build(["ab", "bc", "ca"])
    for name in "bc":
        web[name].say("sub", b"sub //fwd/x\n")
    web.run()
    for start in range(0, 50_000, 5_000):
        numbers = range(start, start + 5_000)
        web["a"].say("pub", b"".join(b"pub //x 5 %05d\n" % number for number in numbers))
    web.run()
    expected = [(b"//fwd/x", b"%05d" % number) for number in range(50_000)]
    for name in "bc":
        assert web[name].hears("sub") == expected
        assert web[name].mesh.links["a"].messages_in == 50_000
        assert web[name].mesh.links["cb"["bc".index(name)]].messages_in == 0


def test_interest_that_is_withdrawn_is_gone_everywhere_and_stops_the_traffic() -> None:
    web = build([*chain("abcdef"), "fa"])
    web["d"].say("sub", b"sub //fwd/x\n")
    web.run()
    assert all(b"//fwd/x" in node.mesh.table.adverts["d"].interests for node in web.nodes.values())
    web["d"].say("sub", b"unsub //fwd/x\n")
    web.run(1.0)
    for node in web.nodes.values():
        assert all(advert.interests == () for advert in node.mesh.table.adverts.values())
        assert node.broker.router.subscriptions == 0
    before = [node.mesh.counters.originated for node in web.nodes.values()]
    web["a"].say("pub", b"pub //x 1 1\n")
    web.run()
    assert [node.mesh.counters.originated for node in web.nodes.values()] == before


def test_interest_of_a_client_that_leaves_is_withdrawn_too() -> None:
    web = build(["ab"])
    web["b"].say("sub", b"sub //fwd/x\nsub //fwd/y\n")
    web.run()
    web["b"].leave("sub")
    web.run(1.0)
    assert web["a"].mesh.table.adverts["b"].interests == ()


def test_a_link_that_swallows_everything_is_given_up_and_another_path_used() -> None:
    web = build(["ab", "bc", "cd", "da"])
    web["b"].say("sub", b"sub //fwd/x\n")
    web.run()
    direct = next(one for one in web["a"].connections if web["b"] in one.nodes)
    direct.deaf = True
    web.run(3.0)  # three heartbeats
    assert list(web["a"].mesh.links) == ["d"]
    assert {event["event"] for event in web["a"].events} == {"link-up", "link-down"}
    web["a"].say("pub", b"pub //x 1 1\n")
    web.run(2.0)
    assert web["b"].hears("sub") == [(b"//fwd/x", b"1")]


def test_after_a_death_delivery_goes_on_and_nothing_comes_twice() -> None:
    web = build([*chain("abcde"), "ea"])
    web["c"].say("sub", b"sub //fwd/x\n")
    web.run()
    for number in range(200):
        web["a"].say("pub", b"pub //x 3 %03d\n" % number)
        web.run(0.005)
        if number == 50:
            web.kill("b")
    web.run()
    heard = [int(data) for _, data in web["c"].hears("sub")]
    assert heard == sorted(set(heard))
    assert set(range(60, 200)) <= set(heard)
    assert set(range(50)) <= set(heard)


def test_a_partition_that_heals_is_whole_again() -> None:
    web = build([*chain("abcd"), "da"])
    for node in web.nodes.values():
        node.say("sub", b"sub //fwd/x\n")
    web.run()
    for connection in list(web["a"].connections) + list(web["c"].connections):
        if {one.name for one in connection.nodes} in ({"a", "d"}, {"b", "c"}):
            connection.close()
    web.run(60)
    web["a"].say("pub", b"pub //x 1 1\n")
    web["d"].say("pub", b"pub //x 1 2\n")
    web.run()
    assert [node.hears("sub") for node in web.nodes.values()] == [
        [(b"//fwd/x", b"1")],
        [(b"//fwd/x", b"1")],
        [(b"//fwd/x", b"2")],
        [(b"//fwd/x", b"2")],
    ]
    web.link("ad")
    web.run(2.0)
    web["a"].say("pub", b"pub //x 1 3\n")
    web.run()
    assert [node.hears("sub") for node in web.nodes.values()] == [[(b"//fwd/x", b"3")]] * 4


@pytest.mark.parametrize("away", [0.05, 100.0, 400.0])
def test_a_daemon_that_was_away_hears_what_has_changed(away: float) -> None:
    """Also of daemons that could not be reached when a new neighbour came."""
    web = build(["ab", "bc", "cd"])
    web["d"].say("sub", b"sub //fwd/x\n")
    web.run()
    for connection in list(web["c"].connections):
        if web["b"] in connection.nodes:
            connection.close()
    web.run(away)
    web.add("e")
    web.link("eb")
    web.run(1.0)
    web.link("cb")
    web.run(2.0)
    web["e"].say("pub", b"pub //x 1 1\n")
    web.run()
    assert web["d"].hears("sub") == [(b"//fwd/x", b"1")]


# Ids and clocks


@pytest.mark.parametrize("skew", [0.0, 3600.0, -3600.0])
def test_a_restarted_daemon_is_back_at_once_whatever_its_clock_says(skew: float) -> None:
    web = build(["ab", "bc"])
    web["a"].say("sub", b"sub //fwd/x\n")
    web.run()
    web.kill("c")
    web.run(0.1)
    web.add("c", skew=skew)
    web.link("bc")
    web.run(2.0)
    web["c"].say("pub", b"pub //x 1 1\n")
    web["c"].say("sub", b"sub //fwd/y\n")
    web.run(1.0)
    web["a"].say("pub", b"pub //y 1 2\n")
    web.run(1.0)
    assert web["a"].hears("sub") == [(b"//fwd/x", b"1")]
    assert web["c"].hears("sub") == [(b"//fwd/y", b"2")]


def test_a_second_daemon_with_an_id_is_refused_with_the_reason() -> None:
    web = build(["ab", "bc"])
    twin = Node(web, "c")
    connection = Connection(twin, web["a"])
    web.run()
    assert connection.refusal.code == "duplicate-node"
    assert twin.mesh.links == {}
    assert web["a"].refused == {"duplicate-node": 1}
    assert web["a"].mesh.table.hops["c"] == 2


def test_of_two_daemons_with_one_id_that_meet_later_the_younger_withdraws() -> None:
    web = build(["ab", "ac"])
    web.add("d", "e")
    twin = Node(web, "c")
    Connection(twin, web["d"])
    web.link("de")
    web.run()
    web.link("bd")
    web.run(5.0)
    assert twin.mesh.links == {}
    assert twin.refused["duplicate-node"] >= 1
    assert list(web["c"].mesh.links) == ["a"]
    assert web["e"].mesh.table.hops["c"] == 4
    assert web["e"].mesh.table.adverts["c"].start == web["c"].mesh.state.start


# Who is let in


@pytest.mark.parametrize(
    ("ours", "theirs", "code"),
    [
        ({"secret": b"one secret"}, {"secret": b"another one"}, "bad-secret"),
        ({"secret": b"one secret"}, {}, "bad-secret"),
        ({}, {"secret": b"one secret"}, "bad-secret"),
        ({"mesh": "one"}, {"mesh": "two"}, "other-mesh"),
    ],
)
def test_strangers_are_refused_and_counted(
    ours: dict[str, object], theirs: dict[str, object], code: str
) -> None:
    web = Web()
    web.add("a", **ours)
    web.add("b", **theirs)
    (connection,) = web.link("ab")
    web.run()
    assert connection.refusal.code == code
    assert not any(end.open for end in connection.ends)
    assert web["a"].mesh.links == web["b"].mesh.links == {}
    assert code in web["a"].refused
    assert not any(b"one secret" in data for way in connection.carried for data in way)


def test_daemons_with_the_same_secret_are_linked() -> None:
    web = Web()
    web.add("a", "b", secret=b"one secret")
    web.link("ab")
    web.run()
    assert list(web["a"].mesh.links) == ["b"]


def test_a_hello_that_is_replayed_is_of_no_use() -> None:
    web = Web()
    web.add("a", "b", secret=b"one secret")
    (connection,) = web.link("ab")
    web.run()
    said = [data for data in connection.carried[0] if HELLO in data]
    connection.close()
    web.run()
    for data in said:
        web["b"].say("thief", data)
    assert web["b"].mesh.links == {}
    assert web["b"].refused == {"bad-secret": 1}
    name, error = web["b"].hears("thief")[-1]
    assert (name, error.split()[0]) == (b"//pubsubd/error", b"bad-secret")


def test_the_proof_of_one_side_is_not_the_proof_of_the_other() -> None:
    one, other = (Hello("m", node, 1, 1, "0" * 32) for node in "ab")
    proofs = {
        prove(secret, side, dialler, acceptor)
        for secret in (b"x", b"y")
        for side in ("dialler", "acceptor")
        for dialler, acceptor in ((one, other), (other, one))
    }
    assert len(proofs) == 8


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"1 m a",
        b"2 default z 1 1 " + b"0" * 32,
        b"1 default z x 1 " + b"0" * 32,
        b"1 default z 1 1 short",
        b"1 default " + b"z" * 65 + b" 1 1 " + b"0" * 32,
        b"1 default z%0a 1 1 " + b"0" * 32,
        b"1 default \xff 1 1 " + b"0" * 32,
        b"1 default z " + b"9" * 19 + b" 1 " + b"0" * 32,
        b"proof -",
        b"welcome",
    ],
)
def test_what_is_no_hello_is_refused_and_ends_the_connection(said: bytes) -> None:
    web = Web()
    web.add("a")
    web["a"].say("x", wire.frame(HELLO, said) + b"pub //pubsubd/ping 0 \n")
    ((name, error),) = web["a"].hears("x")
    assert (name, error.split()[0]) == (b"//pubsubd/error", b"bad-hello")
    assert web["a"].refused == {"bad-hello": 1}


def test_a_hello_that_is_not_finished_is_ended() -> None:
    web = Web()
    web.add("a")
    web["a"].say("x", wire.frame(HELLO, b"1 default z 1 1 " + b"0" * 32))
    web.run(20)
    assert web["a"].refused == {"bad-hello": 1}


def test_an_advert_by_a_client_is_refused_and_told_to_nobody() -> None:
    web = build(["ab"])
    for node in web.nodes.values():
        node.say("sub", b"sub //fwd/peers/\nsub //peers/\n")
    web.run()
    for node in web.nodes.values():
        node.hears_all("sub")
    advert = b"6.6.6.6 666\nnode 9999999999999 1 1\n"
    for name in (b"//peers/default/b", b"//fwd/peers/default/b", b"//peers/default/z"):
        web["a"].say("x", wire.frame(name, advert))
        ((_, error),) = web["a"].hears("x")
        assert error.split()[0] == b"forged-advert"
    web["a"].say("x", wire.frame(b"//peers/default/b", advert.ljust(500_000, b"x")))
    ((_, error),) = web["a"].hears("x")
    assert error.split()[0] == b"forged-advert"
    web.run(1)
    assert web["a"].refused == {"forged-advert": 4}
    for node in web.nodes.values():
        assert b"6.6.6.6" not in b"".join(data for _, data in node.hears_all("sub"))
        assert sorted(node.mesh.table.adverts) == ["a", "b"]
    web["a"].say("x", wire.frame(b"//peers/elsewhere/b", advert))
    web.run(1)
    assert [name for name, _ in web["b"].hears("sub")] == [b"//fwd/peers/elsewhere/b"]


def test_an_advert_that_cannot_be_read_is_counted_and_costs_the_link_nothing() -> None:
    web = build(["ab"])
    link = web["a"].mesh.links["b"]
    for data in (
        b"",
        b"x",
        b"h 1\nnode 1 1\n",
        b"h 99999\nnode 9999999999999999 1 1",
        b"h 1\nnode 9999999999999999 1 1\nwant x",
        b"h 1\nnode 9999999999999999 1 1\nlink b",
    ):
        link.say(b"//fwd/peers/default/b", data)
        link.say(b"//fwd/peers/default/q", data)
    link.say(b"//pubsubd/relay", b"nonsense")
    link.say(b"//pubsubd/relay", b"z@1 1 1 1\npub //fwd/x 1 1\n")
    link.say(b"//pubsubd/unheard-of", b"")
    web.run(1)
    counters = web["b"].mesh.counters
    assert counters.refused["bad-advert"] == 12
    assert (counters.broken, counters.unknown_origin) == (1, 1)
    assert list(web["b"].mesh.links) == ["a"]


# What can be seen


def test_adverts_can_be_read_by_a_client() -> None:
    web = build(["ab"])
    web["a"].say("nc", b"sub //fwd/peers/\nsub //peers/\n")
    web["b"].say("sub", b"sub //fwd/chat/\n")
    web.run(1)
    heard = dict(web["a"].hears_all("nc"))
    data = heard[b"//fwd/peers/default/b"]
    assert data.split(b"\n")[0] == b"b.example 9014"
    advert = parse_advert("b", data)
    assert [link.node for link in advert.links] == ["a"]
    assert advert.interests == (b"//fwd/chat/",)
    assert b"//peers/default/a" in heard


def test_edges_are_told_by_both_ends_and_links_that_ended_too() -> None:
    web = build(["ab", "bc"])
    rows = web["a"].report.edges()
    assert sorted((row["observer"], row["src"], row["dst"], row["state"]) for row in rows) == [
        ("a", "a", "b", "up"),
        ("b", "a", "b", "up"),
        ("b", "b", "c", "up"),
        ("c", "b", "c", "up"),
    ]
    web["b"].connections[0].close()
    web.run(1)
    rows = web["a"].report.edges()
    assert [(row["observer"], row["src"], row["dst"], row["state"]) for row in rows] == [
        ("a", "a", "b", "down")
    ]


# Peers that know three commands


def test_a_legacy_peer_is_asked_for_what_is_wanted_and_hears_what_it_asks_for() -> None:
    web = build(["ab"])
    web["b"].say("sub", b"sub //fwd/chat/\n")
    web.run()
    said: list[bytes] = []
    peer = web["a"].broker.join("legacy", lambda data: said.append(bytes(data)))  # type: ignore[arg-type]
    web["a"].mesh.greet(peer, "legacy")
    web["a"].broker.receive(peer, b"sub //fwd/news/\n")
    web.run(5)
    assert said[1:] == [b"sub //fwd/chat/\n"]
    web["a"].broker.receive(peer, b"pub //fwd/chat/x 1 1\npub //fwd/news/x 1 2\n")
    web["a"].say("pub", b"pub //news/x 1 3\n")
    web["b"].say("pub", b"pub //news/x 1 4\n")
    web.run(1)
    assert web["b"].hears("sub") == [(b"//fwd/chat/x", b"1")]
    assert said[2:] == [b"pub //fwd/news/x 1 3\n", b"pub //fwd/news/x 1 4\n"]
    web["b"].say("sub", b"unsub //fwd/chat/\n")
    web.run(1)
    assert said[4:] == [b"unsub //fwd/chat/\n"]


def test_a_peer_that_says_nothing_at_all_is_taken_for_a_legacy_one() -> None:
    web = Web()
    web.add("a")
    web["a"].say("sub", b"sub //fwd/x\n")
    said: list[bytes] = []
    peer = web["a"].broker.join("legacy", lambda data: said.append(bytes(data)))  # type: ignore[arg-type]
    web["a"].mesh.greet(peer, "legacy")
    web.run(6)
    assert said[1:] == [b"sub //fwd/x\n"]


# Anything at all


@pytest.mark.parametrize("seed", range(12))
def test_whatever_happens_nothing_comes_twice_and_all_is_well_afterwards(seed: int) -> None:
    rng = random.Random(seed)
    names = "abcdefgh"[: rng.randint(3, 8)]
    web = Web()
    web.add(*names)
    web.link(*chain(names))
    heard: dict[str, list[bytes]] = {name: [] for name in names}
    sent = 0

    def publish() -> None:
        nonlocal sent
        node = web[rng.choice(list(web.nodes))]
        node.say("pub", b"pub //x 4 %04d\n" % sent)
        sent += 1

    for name in names:
        web[name].say("sub", b"sub //fwd/x\n")
    for _ in range(120):
        event = rng.random()
        one, other = rng.sample(sorted(web.nodes), 2)
        if event < 0.2:
            web.link(one + other)
        elif event < 0.3 and web[one].connections:
            rng.choice(web[one].connections).close()
        elif event < 0.35 and web[one].connections:
            rng.choice(web[one].connections).deaf = True
        else:
            publish()
        web.run(rng.choice((0.0005, 0.01, 0.3)))
    web.run(4)  # until links that swallow are given up
    web.link(*chain("".join(web.nodes)))
    web.run(4)
    for node in web.nodes.values():
        heard[node.name] += [data for _, data in node.hears("sub")]
    assert all(len(set(all_heard)) == len(all_heard) for all_heard in heard.values())
    before = sent
    for _ in range(20):
        publish()
        web.run(0.01)
    web.run(2)
    for node in web.nodes.values():
        after = [int(data) for _, data in node.hears("sub")]
        assert after == list(range(before, sent))


def test_explain_tells_which_daemons_would_receive_a_name() -> None:
    web = build(["ab"])
    web["b"].say("sub", b"sub //fwd/x\n")
    web.run(1)
    web["a"].say("x", b"pub //pubsubd/explain 3 //x\n")
    ((_, answer),) = web["a"].hears("x")
    assert json.loads(answer)["receivers"] == [
        {
            "connection": None,
            "peer": "mesh/b",
            "substrings": ["//fwd/x"],
            "matching": 1,
            "as": "//fwd/x",
        }
    ]


def test_a_batch_of_much_work_is_worked_off_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    web = build(["ab"])
    web["b"].say("sub", b"sub //fwd/\n")
    web.run()
    frames = b"".join(b"pub //x/%d 1 x\n" % number for number in range(100))
    turns = 0
    receive = web["b"].broker.receive

    def count(peer: Peer, data: bytes) -> bool:
        nonlocal turns
        turns += not data
        return receive(peer, data)

    monkeypatch.setattr(web["b"].broker, "receive", count)
    web["a"].say("pub", frames)
    web["a"].say("pub", b"pub //y 1 y\n")
    monkeypatch.setattr("pubsubd.broker.broker.WORK_PER_TURN", 100)
    monkeypatch.setattr("pubsubd.broker.broker.WORK_PER_LOOK", 100)
    web.run(0.5)
    assert turns > 10
    heard = web["b"].hears("sub")
    assert len(heard) == 101
    assert heard[-1] == (b"//fwd/y", b"y")
    assert web["b"].mesh.counters.broken == 0


def test_a_large_message_is_carried_whatever_the_other_daemons_take_from_clients() -> None:
    web = build(["ab", "bc"])
    web["c"].say("sub", b"sub //fwd/x\n")
    web.run()
    data = b"x" * (1 << 20)
    web["a"].say("pub", b"pub //x %d %b\n" % (len(data), data))
    web["a"].say("pub", b"pub //fwd/x %d %b\n" % (len(data), data))
    web.run()
    assert web["c"].hears("sub") == [(b"//fwd/x", data)] * 2


# While the graph changes


def test_a_tree_that_changes_loses_nothing_and_doubles_nothing() -> None:
    """R moves from below q to below t, which q hears while messages of o are under way."""
    web = build(["op", "pq", "qr", "oa", "at"], delay=0.05)
    web["r"].say("sub", b"sub //fwd/x\n")
    web.run()
    for number in range(200):
        if number == 50:
            web.link("tr")
        web["o"].say("pub", b"pub //x 3 %03d\n" % number)
        web.run(0.01)
    web.run()
    heard = [int(data) for _, data in web["r"].hears("sub")]
    assert sorted(heard) == list(range(200))
    assert web["t"].mesh.counters.relayed > 0
    assert web["q"].mesh.counters.relayed > 0


def test_what_goes_over_all_links_crosses_none_back_and_is_taken_once() -> None:
    web = build(["ab", "bc", "ca"])
    for node in web.nodes.values():
        node.say("sub", b"sub //fwd/x\n")
    web.run()
    web.add("d")
    web.link("da")
    web.run(0.1)
    assert all(node.mesh.forwarding.flooding for node in web.nodes.values())
    web["a"].say("pub", b"pub //x 1 1\n")
    web.run()
    for name in "abc":
        assert web[name].hears("sub") == [(b"//fwd/x", b"1")]
    connections = {one for node in web.nodes.values() for one in node.connections}
    crossed = {
        "".join(node.name for node in one.nodes): [
            sum(b"//pubsubd/relay" in data for data in way) for way in one.carried
        ]
        for one in connections
    }
    assert crossed == {"ab": [1, 0], "bc": [1, 1], "ca": [0, 1], "da": [0, 1]}
    assert web["b"].mesh.counters.duplicates == web["c"].mesh.counters.duplicates == 1


def test_what_somebody_has_just_asked_for_is_found_in_a_batch_sent_before() -> None:
    web = build(["ab"])
    web["b"].say("sub", b"sub //fwd/x\n")
    web.run()
    web["b"].say("sub", b"unsub //fwd/x\nsub //fwd/x/2\n")
    web["a"].say("pub", b"pub //x/1 1 1\npub //x/2 1 2\n")
    web.run()
    assert web["b"].hears("sub") == [(b"//fwd/x/2", b"2")]


def test_a_daemon_is_not_sent_what_it_wants_while_it_cannot_be_reached() -> None:
    web = build(["ab", "bc"])
    web["c"].say("sub", b"sub //fwd/x\n")
    web.run()
    assert web["a"].broker.router.subscriptions == 1
    web.kill("c")
    web.run(1)
    assert web["a"].broker.router.subscriptions == 0


def test_a_daemon_with_an_older_incarnation_is_told_by_those_who_know_a_newer_one() -> None:
    """Its new neighbour knows nothing of it; those behind that one do."""
    web = build(["ab", "bc"])
    web.kill("c")
    web.run(100)
    web.add("n")
    web.link("nb")
    web.run(1)
    assert "c" not in web["n"].mesh.table.adverts
    web.add("c", skew=-3600.0)
    web.link("cn")
    web.run(2)
    assert web["a"].mesh.table.hops["c"] == 3


def test_new_neighbours_hear_of_a_daemon_that_comes_back_unchanged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In a large mesh, a daemon may be away for long without a new advert."""
    monkeypatch.setattr("pubsubd.mesh.news.LOST", 1.0)
    web = build(["ab", "bc", "cd"])
    for connection in list(web["c"].connections):
        if web["b"] in connection.nodes:
            connection.close()
    web.run(3)
    web.add("e")
    web.link("eb")
    web.run(0.5)
    assert "d" not in web["e"].mesh.table.adverts
    web.link("cb")
    web.run(0.5)
    assert web["e"].mesh.table.hops["d"] == 3


# Time


def test_links_stay_where_a_round_trip_takes_many_heartbeats() -> None:
    web = Web(0.5)
    web.add("a", "b", heartbeat=0.1)
    web.link("ab")
    web.run(20)
    assert [event["event"] for node in web.nodes.values() for event in node.events] == [
        "link-up",
        "link-up",
    ]
    assert web["a"].mesh.links["b"].rtt_ms == 1000


def test_adverts_come_as_seldom_as_their_number_makes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if there were few daemons when the next one was planned."""
    web = build(["ab"])
    monkeypatch.setattr("pubsubd.mesh.advertising.REFRESH_RATE", 1.0)
    web.run(60)
    before = web["a"].mesh.counters.adverts_out
    monkeypatch.setattr("pubsubd.mesh.advertising.REFRESH_RATE", 3_000.0)
    web.run(1_000)
    assert before <= 4
    assert 90 < web["a"].mesh.counters.adverts_out < 150


def test_a_legacy_peer_is_asked_at_once_for_what_it_wants_too() -> None:
    web = Web()
    web.add("a")
    said: list[bytes] = []
    peer = web["a"].broker.join("legacy", lambda data: said.append(bytes(data)))  # type: ignore[arg-type]
    web["a"].mesh.greet(peer, "legacy")
    web["a"].broker.receive(peer, b"sub //fwd/news/\n")
    web.run(1)
    assert said[1:] == []
    web["a"].say("sub", b"sub //fwd/news/\n")
    web.run(0.01)
    assert said[1:] == [b"sub //fwd/news/\n"]
    web["a"].say("sub", b"unsub //fwd/news/\n")
    web.run(0.01)
    assert said[2:] == [b"unsub //fwd/news/\n"]


def test_what_has_come_of_an_earlier_incarnation_is_not_kept() -> None:
    web = build(["ab"])
    web["a"].say("sub", b"sub //fwd/x\n")
    for incarnation in range(5):
        web.run(1)
        web["b"].say("pub", b"pub //x 1 %d\n" % incarnation)
        web.run(1)
        web.kill("b")
        web.add("b")
        web.link("ab")
    web.run(1)
    assert [data for _, data in web["a"].hears("sub")] == [b"0", b"1", b"2", b"3", b"4"]
    gc.collect()
    windows = [one for one in reached(web["a"].mesh.forwarding) if isinstance(one, Window)]
    assert len(windows) <= 1


def test_a_client_is_told_when_the_others_know_what_it_has_subscribed() -> None:
    web = build(["ab"])
    a, b = web["a"], web["b"]

    def ask() -> tuple[int, int]:
        a.say("ask", b"pub //pubsubd/advertised 0 \n")
        ((_, data),) = a.hears("ask")
        answer = json.loads(data)
        return answer["needed"], answer["sent"]

    needed, sent = ask()
    assert needed == sent
    a.say("new", b"sub //fwd/reply/1\n")
    needed = ask()[0]
    assert needed == sent + 1
    web.run(0.001)
    while ask()[1] < needed:
        a.say("other", b"sub //fwd/%d\n" % ask()[1])  # further adverts are not waited for
        web.run(0.01)
    b.say("pub", b"pub //fwd/reply/1 1 x\n")
    web.run(0.1)
    assert b"//fwd/reply/1" in b.mesh.table.adverts["a"].interests
    assert a.hears("new") == [(b"//fwd/reply/1", b"x")]


def test_who_wants_very_much_is_advertised_more_seldom() -> None:
    """What is told has to be made of all that is wanted, and nobody is served meanwhile."""
    web = build(["ab"])
    web["b"].say("sub", b"".join(b"sub //fwd/%d/x\n" % number for number in range(40_000)))
    web.run()
    assert web["a"].mesh.table.adverts["b"].interests == (b"//fwd/",)
    before = web["b"].mesh.counters.adverts_out
    for number in range(100):
        web["b"].say("sub", b"sub //fwd/new/%d\n" % number)
        web.run(0.01)
    assert 4 <= web["b"].mesh.counters.adverts_out - before <= 6
    web["a"].say("pub", b"pub //7/x 1 7\npub //nothing 1 8\n")
    web.run()
    assert web["b"].hears("sub") == [(b"//fwd/7/x", b"7")]


def test_a_batch_has_messages_and_nothing_else() -> None:
    web = build(["ab"])
    web["a"].say("sub", b"sub //fwd/\n")
    web.run()
    link = web["b"].mesh.links["a"]
    frames = b"pub //fwd/x 1 1\nsub //fwd/y\npub //pubsubd/ping 1 x\npub //fwd/x 1 2\n"
    link.say(b"//pubsubd/relay", b"b@%d 900 9 2\n" % web["b"].mesh.state.incarnation + frames)
    forged = b"pub //fwd/peers/default/z 1 1\n"
    link.say(b"//pubsubd/relay", b"b@%d 901 9 1\n" % web["b"].mesh.state.incarnation + forged)
    web.run(1)
    assert web["a"].hears("sub") == [(b"//fwd/x", b"1"), (b"//fwd/x", b"2")]
    assert dict(web["a"].broker.router.forwarded) == {b"//fwd/": 1}
    assert web["a"].mesh.counters.broken == 1
