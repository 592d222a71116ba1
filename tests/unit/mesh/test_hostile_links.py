"""What a linked daemon can do to this one, in turns, bytes and entries; anybody can be one."""

from __future__ import annotations

import gc
import itertools
import json
from collections import Counter
from collections.abc import Iterator

import pytest

from pubsubd.broker.broker import Broker
from pubsubd.broker.peer import Peer
from pubsubd.broker.turn import finish
from pubsubd.mesh import adverts, forwarding, handshakes, linkstate, pages, report
from pubsubd.mesh.adverts import Advert, LinkReport, format_advert
from pubsubd.mesh.interests import MAX_INTERESTS, generalising
from pubsubd.mesh.remotes import Group, Remote
from pubsubd.protocol import wire
from pubsubd.protocol.limits import READ_SIZE, TURN
from pubsubd.routing.lookups import Unfinished
from pubsubd.routing.outbox import Pieces
from pubsubd.routing.router import Router
from tests.footprint import footprint
from tests.webs import Node, Web, build

LOOKS = 6  # at the clock that one turn has in these tests


def slow(node: Node) -> None:
    """Let each look at the clock take a fifth of a turn or so."""
    node.broker.delivery.turn.clock = itertools.count(0, TURN / (LOOKS - 1.5)).__next__


def groups_of(node: Node) -> list[Group]:
    """Return the groups of daemons that a daemon sends to."""
    outbound = node.mesh.forwarding.outbound
    found = [one for one in gc.get_objects() if isinstance(one, Group)]
    return [group for group in found if any(one is outbound for one in gc.get_referents(group))]


def advert(
    node: str,
    sequence: int = 1,
    links: tuple[LinkReport, ...] = (),
    interests: tuple[bytes, ...] = (),
) -> bytes:
    """Return the frame of an advert."""
    told = Advert(node, "h", 1, 1, sequence, 1, links, interests)
    return wire.frame(b"//fwd/peers/default/%b" % node.encode(), format_advert(told))


def tell(node: Node, source: str, data: bytes) -> int:
    """Let the neighbour ``source`` say something; return how many turns that took."""
    peer, turns = node.mesh.links[source].peer, 1
    while node.broker.receive(peer, data):
        data = b""
        turns += 1
    return turns


def settle(node: Node) -> int:
    """Let a daemon do what is due; return how many turns that took."""
    turns = 0
    while node.mesh.due <= node.world.now:
        node.mesh.act()
        turns += 1
    return turns


def relay(node: Node, sequence: int, frames: bytes, more: bytes = b"") -> bytes:
    """Return the frame of a batch of a daemon."""
    head = b"%b@%d %d 9 1%b\n" % (node.name.encode(), node.mesh.state.incarnation, sequence, more)
    return wire.frame(b"//pubsubd/relay", head + frames)


def crowd(web: Web, count: int, interests: int = 0, *, ring: bool = True) -> bytes:
    """Return adverts of a ring or a line of further daemons; the first one is linked to b."""
    names = [f"n{number}" for number in range(count)]
    told = []
    for number, name in enumerate(names):
        near = [names[number - 1], names[(number + 1) % count], *(["b"] if number == 0 else [])]
        if not ring:
            near = [*names[max(number - 1, 0) : number], *names[number + 1 : number + 2], *near[2:]]
        links = tuple(LinkReport(other, True, 0, 1.0) for other in near)
        wanted = tuple(b"//fwd/%b/%d" % (name.encode(), one) for one in range(interests))
        told.append(advert(name, 1, links, wanted))
    state = web["b"].mesh.state
    links = (LinkReport("a", False, 0), LinkReport("n0", True, 0))
    b = Advert("b", "h", 1, state.incarnation, 99, state.start, links, (b"//fwd/b",))
    return wire.frame(b"//fwd/peers/default/b", format_advert(b)) + b"".join(told)


# Batches


@pytest.mark.parametrize(
    "frames",
    [
        b"pub //fwd/\xff 1 1\n",
        b"pub x 1 1\n",
        b"sub //fwd/x\n",
        b"pub //fwd/peers/default/z 1 1\n",
        b"",
    ],
)
def test_a_batch_whose_first_message_is_not_legal_is_counted_and_leaves_nothing(
    frames: bytes,
) -> None:
    web = build(["ab", "bc"])
    for name in "bc":
        web[name].say("sub", b"sub //fwd/\n")
    web.run()
    a, b, c = (web[name] for name in "abc")
    for _ in range(3):
        tell(b, "a", relay(a, 900, frames))
    web.run(0.1)
    counters = b.mesh.counters
    assert (counters.broken, counters.received, counters.relayed) == (3, 0, 0)
    assert c.mesh.counters.received + c.mesh.counters.broken == 0
    assert not b.broker.router.relays
    tell(b, "a", relay(a, 900, b"pub //fwd/x 1 1\n"))
    web.run(0.1)
    assert b.hears("sub") == c.hears("sub") == [(b"//fwd/x", b"1")]


@pytest.mark.parametrize("size", [1, 1_000, 100_000])
def test_a_long_batch_is_given_to_subscribers_part_by_part(size: int) -> None:
    web = build(["ab", "bc"])
    for name in "bc":
        web[name].say("sub", b"sub //fwd/\n")
    web.run()
    b, given = web["b"], [0]
    peer = b.broker.join("sizes", lambda data: given.append(len(data)))
    b.broker.receive(peer, b"sub //fwd/\n")
    count = 3 * READ_SIZE // size + 1
    frames = wire.frame(b"//fwd/x", b"x" * size) * count
    slow(b)
    tell(b, "a", relay(web["a"], 900, frames) + relay(web["a"], 901, b"pub //fwd/y 1 y\n"))
    web.run(0.5)
    assert max(given) < READ_SIZE + size + 100  # all of it would be one step
    heard = b.hears("sub")
    assert len(heard) == count + 1
    assert heard[-1] == (b"//fwd/y", b"y")
    assert web["c"].hears("sub") == heard
    assert b.mesh.counters.broken == 0
    tell(b, "a", relay(web["a"], 902, frames + b"pub //fwd/x 9 half"))
    web.run(0.5)
    assert len(b.hears("sub")) == count
    assert b.mesh.counters.broken == 1


def test_a_batch_that_takes_long_to_find_its_way_is_taken_again_and_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    web = build(["ab"])
    web["b"].say("sub", b"sub //fwd/\n")
    web.run()
    real, tries = Router.learn_relayed, 0

    def learn(router: Router, key: bytes, name: bytes, size: int) -> object:
        nonlocal tries
        tries += 1
        if tries < 4:
            raise Unfinished
        return real(router, key, name, size)

    monkeypatch.setattr(Router, "learn_relayed", learn)
    b = web["b"]
    data = relay(web["a"], 900, b"pub //fwd/x 1 1\n") + relay(web["a"], 901, b"pub //fwd/x 1 2\n")
    assert tell(b, "a", data) == 4
    assert [data for _, data in b.hears("sub")] == [b"1", b"2"]
    assert b.mesh.counters.received == 2


def test_what_fails_at_one_link_ends_that_one_and_the_others_get_theirs() -> None:
    web = build(["ab", "ac", "ad"])
    for name in "bcd":
        web[name].say("sub", b"sub //fwd/x\n")
    web.run()
    a = web["a"]
    ended: list[str] = []
    peer = a.mesh.links["b"].peer

    def fail(data: bytes | Pieces) -> None:
        frame = data.whole() if isinstance(data, Pieces) else data
        if b"/relay " in frame or b"/peers/" in frame:
            raise RuntimeError("a mistake")

    peer.send, peer.end = fail, lambda code, _text: ended.append(code)
    a.say("pub", b"pub //x 1 1\n")
    web.run(0.5)
    assert web["c"].hears("sub") == web["d"].hears("sub") == [(b"//fwd/x", b"1")]
    assert set(ended) == {"internal-error"}
    a.say("sub", b"sub //fwd/y\n")
    web.run(0.5)
    for name in "cd":
        assert web[name].mesh.table.adverts["a"].interests == (b"//fwd/y",)


def test_a_fault_in_a_batch_is_the_links_and_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    web = build(["ab", "bc"])
    for name in "bc":
        web[name].say("sub", b"sub //fwd/\n")
    web.run()
    b = web["b"]
    real = Broker.receive

    def receive(broker: Broker, peer: Peer, data: bytes) -> bool:
        if peer.relayed:
            raise RuntimeError("a mistake")
        return real(broker, peer, data)

    batch = relay(web["a"], 900, b"pub //fwd/x 1 1\n")
    with monkeypatch.context() as patch:
        patch.setattr(Broker, "receive", receive)
        with pytest.raises(RuntimeError):
            b.mesh.links["a"].receive(batch)
    assert not b.mesh.forwarding.outbound.closed
    b.say("pub", b"pub //x 1 2\n")
    web.run(0.5)
    assert (b"//fwd/x", b"2") in web["c"].hears("sub")


def test_many_short_batches_to_other_daemons_take_many_turns() -> None:
    web = build(["ab", "ac"])
    web["b"].say("sub", b"sub //fwd/x/\n")
    web["c"].say("sub", b"sub //fwd/y/\n")
    web.run()
    a = web["a"]
    peer = a.broker.join("pub", lambda _data: None)
    data, turns = b"pub //fwd/x/ 1 x\npub //fwd/y/ 1 y\n" * 4_000, 1
    before = a.mesh.counters.originated
    most = 0
    while a.broker.receive(peer, data):
        data, turns = b"", turns + 1
        most, before = (
            max(most, a.mesh.counters.originated - before),
            a.mesh.counters.originated,
        )
    assert a.mesh.counters.originated == 8_000
    assert most < 500
    assert turns > 16


def test_a_local_name_that_holds_a_forwarded_one_keeps_nothing_from_other_daemons() -> None:
    web = build(["ab"])
    web["b"].say("sub", b"sub //fwd/x\n")
    web.run()
    web["a"].say("pub", b"pub local//fwd/x 1 1\npub //fwd/x 1 2\n")
    web.run()
    assert web["b"].hears("sub") == [(b"//fwd/x", b"2")]
    assert web["b"].mesh.links["a"].messages_in == 1


def test_what_was_vouched_for_stays_so_on_its_way_and_nothing_else_does() -> None:
    web = build(["ab", "bc"])
    web["c"].say("sub", b"sub //fwd/x\n")
    web.run()
    a, c = web["a"], web["c"]
    spoken: list[tuple[str, bool]] = []
    real = c.broker.receive

    def receive(peer: Peer, data: bytes) -> bool:
        if peer.relayed:
            spoken.append((peer.label, peer.vouched))
        return real(peer, data)

    c.broker.receive = receive  # type: ignore[method-assign]
    a.say("pub", b"pub //x 1 1\n")
    a.broker.delivery.enqueue(None, b"//x", b"2")  # as the hub port does it
    a.broker.delivery.flush()
    a.say("pub", b"pub //x 1 3\n")
    web.run(0.5)
    assert spoken == [("mesh/a", False), ("mesh/a", True), ("mesh/a", False)]
    assert [data for _, data in c.hears("sub")] == [b"1", b"2", b"3"]


def test_runs_that_leave_together_keep_their_marks_apart() -> None:
    web = build(["ab"])
    web["b"].say("sub", b"sub //fwd/x\n")
    web.run()
    broker = web["a"].broker
    frame = b"pub //fwd/x 1 1\n"
    targets = broker.router.receivers(b"//fwd/x")
    broker.delivery.deliver(targets, report_route(broker, targets), frame, 0, len(frame), 1)
    broker.delivery.enqueue(None, b"//fwd/x", b"2")
    broker.delivery.flush()
    (connection,) = web["a"].connections
    batches = [data for data in connection.carried[0] if b"//pubsubd/relay" in data]
    assert [b" vouched\n" in data for data in batches] == [False, True]


def report_route(broker: Broker, _targets: object) -> object:
    return broker.router.learn(b"\npub //fwd/x 1 ", b"//fwd/x", 1)


def test_ways_are_forgotten_with_the_sets_of_daemons_that_they_lead_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    web = build(["ab", "ac"])
    web["b"].say("sub", b"sub //fwd/\n")
    web.run()
    a = web["a"]
    gc.collect()
    gc.disable()
    try:
        for number in range(20):
            web["c"].say("sub", b"sub //fwd/%d\n" % number)
            web.run(0.2)
            a.say("pub", b"pub //%d 1 x\n" % number)
            web["c"].say("sub", b"unsub //fwd/%d\n" % number)
            web.run(0.2)
            a.say("pub", b"pub //%d 1 x\n" % number)
        assert len(groups_of(a)) <= 3  # one that the router knows of the last subscriber
    finally:
        gc.enable()
    monkeypatch.setattr(forwarding, "MAX_NEXT_HOPS", 3)
    web.run(3)
    for _ in range(3):
        for origin in range(10):
            group = groups_of(a)[0]
            a.mesh.forwarding.find_next_hops(f"x{origin}", group, None)
            assert len(group.next_hops) <= 4


# Adverts


def test_what_one_advert_may_tell_is_bounded() -> None:
    web = build(["ab"])
    a = web["a"]
    links = tuple(LinkReport(f"x{number}", True, 0) for number in range(adverts.MAX_LINKS + 1))
    interests = tuple(b"//fwd/%d" % number for number in range(MAX_INTERESTS + 1))
    large = tuple(b"//fwd/" + b"x" * 1_000 + b"%d" % number for number in range(70))
    for data in (
        advert("z", links=links),
        advert("z", interests=interests),
        advert("z", interests=large),
        wire.frame(b"//fwd/peers/default/z", b"h 1\nnode 1 1 1" + b"\n" * 5_000),
        wire.frame(b"//fwd/peers/default/z", b"h 1\nnode %d 1 1" % (adverts.MAX_INCARNATION + 1)),
    ):
        tell(a, "b", data)
    assert a.refused == {"bad-advert": 5}
    tell(a, "b", advert("z", links=links[:-1], interests=interests[:-1]))
    assert "z" in a.mesh.table.adverts


@pytest.mark.parametrize(("limit", "most"), [("MAX_TABLE", 40_000), ("MAX_ALL_LINKS", 12)])
def test_what_all_adverts_together_may_tell_is_bounded(
    limit: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(linkstate, limit, most)
    web = build(["ab"])
    a, table = web["a"], web["a"].mesh.table
    links = (LinkReport("q", True, 0), LinkReport("r", True, 0))
    for number in range(100):
        tell(a, "b", advert(f"x{number}", links=links))
    assert table.weight <= linkstate.MAX_TABLE
    assert table.links <= linkstate.MAX_ALL_LINKS
    assert a.refused["bad-advert"] > 50
    known = [node for node in table.adverts if node.startswith("x")]
    assert known
    tell(a, "b", advert(known[0], 2))  # one that becomes smaller is taken
    assert table.adverts[known[0]].links == ()
    for node in known:
        table.drop(node)
    web.run(1)
    assert table.links == 2
    assert table.weight == sum(map(linkstate.weigh, table.adverts.values()))


def test_adverts_of_one_read_are_worked_off_in_turns() -> None:
    web = build(["ab"])
    a = web["a"]
    data = b"".join(advert(f"x{number}") for number in range(200))
    slow(a)
    assert tell(a, "b", data) >= 200 // LOOKS
    assert len(a.mesh.table.adverts) == 202


def test_small_frames_of_a_link_are_cut_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    web = build(["ab"])
    a = web["a"]
    most = 0
    real = wire.Decoder.feed

    def feed(decoder: wire.Decoder, data: bytes, limit: int | None = None) -> object:
        nonlocal most
        found = real(decoder, data, limit)
        most = max(most, len(found))
        return found

    monkeypatch.setattr(wire.Decoder, "feed", feed)
    slow(a)
    assert tell(a, "b", b"pub y 0 \n" * 10_000) >= 10_000 // LOOKS
    assert most <= 256
    assert a.mesh.state.held == 0


def test_input_of_links_that_is_not_worked_off_is_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pubsubd.mesh.core.MAX_HELD", 1_000_000)
    web = build(["ab", "ac"])
    a = web["a"]
    ended: list[str] = []
    for name in "bc":
        peer = a.mesh.links[name].peer
        peer.end = lambda code, _text: ended.append(code)
        tell(a, name, b"pub //pubsubd/relay 5000000 " + b"x" * 600_000)
    assert ended == ["payload-too-large"]
    held = a.mesh.state.held
    assert held > 1_000_000
    for connection in list(a.connections):
        connection.close()
    assert a.mesh.state.held == 0


def test_a_change_of_thousands_of_daemons_is_acted_on_in_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    web = build(["ab"])
    a = web["a"]
    wanted: list[str] = []
    real = Remote.follow

    def want(remote: Remote, *args: object) -> bool:
        wanted.append(remote.node)
        return real(remote, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(Remote, "follow", want)
    tell(a, "b", crowd(web, 2_000, interests=1))
    web.now += 0.05
    slow(a)
    wanted.clear()
    most, turns = 0, 0
    while a.mesh.due <= web.now:
        before = len(wanted)
        a.mesh.act()
        most, turns = max(most, len(wanted) - before), turns + 1
    assert len(a.mesh.remotes) == 2_001
    assert a.broker.router.subscriptions == 2_001
    assert turns >= 2_000 // 64 // LOOKS
    assert most <= 64 * (LOOKS + 2)


def test_an_advert_with_many_interests_is_subscribed_in_turns() -> None:
    web = build(["ab"])
    a = web["a"]
    state = web["b"].mesh.state
    interests = tuple(b"//fwd/x/%d" % number for number in range(MAX_INTERESTS))
    links = (LinkReport("a", False, 0),)
    told = Advert("b", "h", 1, state.incarnation, 99, state.start, links, interests)
    slow(a)
    tell(a, "b", wire.frame(b"//fwd/peers/default/b", format_advert(told)))
    assert a.broker.router.subscriptions <= 16 * (LOOKS + 1)
    assert settle(a) >= MAX_INTERESTS // 16 // (LOOKS + 2)
    assert a.broker.router.subscriptions == MAX_INTERESTS


def test_a_large_graph_is_walked_over_in_steps_to_the_same_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    web = build(["ab"])
    tell(web["a"], "b", crowd(web, 800))
    table = web["a"].mesh.table
    expected = dict(table.subtree("n7") or {}), dict(table.hops)
    monkeypatch.setattr(linkstate, "WALKED_AT_ONCE", 10)
    table.put(Advert("n5", "h", 1, 1, 2, 1))
    table.put(Advert("n5", "h", 1, 1, 3, 1, (LinkReport("n4", True, 0), LinkReport("n6", True, 0))))
    before = table.hops
    assert table.subtree("n7", lambda: True) is None
    assert not table.find_hops(lambda: True)
    assert table.hops is before  # until the new ones are found
    looks = 0
    while (found := table.subtree("n7", lambda: True)) is None:
        looks += 1
    while not table.find_hops(lambda: True):
        looks += 1
    assert (found, table.hops) == expected
    assert looks >= 2 * 800 // 256


def test_trees_that_are_kept_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linkstate, "MAX_TREES", 1_000)
    web = build(["ab"])
    tell(web["a"], "b", crowd(web, 300))
    table = web["a"].mesh.table
    before, sizes = footprint(table), []
    for number in range(300):
        table.subtree("a" if number == 0 else f"n{number}")
        table.subtree("a")
        sizes.append(footprint(table) if number % 50 == 49 else 0)
    assert max(sizes) - before < 1_000 * 400  # bytes


def test_who_publishes_does_not_wait_for_a_walk_over_a_large_graph(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    web = build(["ab"])
    web["b"].say("sub", b"sub //fwd/b\n")
    web.run()
    a = web["a"]
    tell(a, "b", crowd(web, 2_000))
    a.mesh.forwarding.flood_until = 0.0
    monkeypatch.setattr(linkstate, "WALKED_AT_ONCE", 10)
    slow(a)
    a.say("pub", b"pub //b 1 1\n")
    assert a.mesh.table.walks
    web.run(0.1)
    assert web["b"].hears("sub") == [(b"//fwd/b", b"1")]


def test_a_new_neighbour_is_told_what_is_known_as_fast_as_it_takes_it() -> None:
    web = build(["ab"])
    a = web["a"]
    tell(a, "b", crowd(web, 500))
    web.run(1)
    web.add("c")
    (connection,) = web.link("ac")
    outbox = connection.ends[0].peer.outbox
    outbox.size = 10**9  # it takes nothing at present
    web.run(1)
    told = [data for data in connection.carried[0] if b"/peers/default/n" in data]
    assert told == []
    assert not a.mesh.links["c"].ready
    outbox.size = 0
    tell(a, "b", advert("n3", 2, interests=(b"//fwd/late",)))
    web.run(1)
    assert a.mesh.links["c"].ready
    assert len(web["c"].mesh.table.adverts) == 503
    assert web["c"].mesh.table.adverts["n3"].interests == (b"//fwd/late",)


def test_what_is_wanted_here_is_generalised_in_steps() -> None:
    wanted = [b"//fwd/" + b"a/" * 200 + b"%d" % number for number in range(3_000)]
    steps = generalising(wanted)
    looks = 2 * 3_000 // 256
    for _ in range(looks):
        next(steps)
    assert finish(steps) == (b"//fwd/" + b"a/" * 200,)
    assert finish(generalising(wanted[:10])) == tuple(sorted(wanted[:10]))


def test_hellos_that_are_not_finished_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshakes, "MAX_GREETINGS", 10)
    web = Web()
    web.add("a")
    for number in range(50):
        web["a"].say(f"x{number}", wire.frame(b"//pubsubd/hello", b"1 default z 1 1 " + b"0" * 32))
    assert web["a"].refused == {"bad-hello": 40}


def test_links_that_others_make_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshakes, "MAX_LINKS", 2)
    web = Web()
    web.add(*"abcde")
    web.link("ba", "ca", "da")
    web.run(1)
    assert sorted(web["a"].mesh.links) == ["b", "c"]
    assert web["a"].refused == {"too-many-connections": 1}
    web.link("ae")  # its own operator wants this one
    web.run(1)
    assert sorted(web["a"].mesh.links) == ["b", "c", "e"]


def test_a_stranger_with_the_last_incarnation_does_not_silence_a_daemon() -> None:
    web = build(["ab", "bc"])
    a, b, c = (web[name] for name in "abc")
    last = Advert("a", "h", 1, adverts.MAX_INCARNATION, 5, a.mesh.state.start + 1)
    tell(a, "b", wire.frame(b"//fwd/peers/default/a", format_advert(last)))
    a.say("sub", b"sub //fwd/x\n")
    web.run(1)
    for node in (b, c):
        assert node.mesh.table.adverts["a"].interests == (b"//fwd/x",)


# Answers


class Uncounted(Counter[bytes]):
    """What must be counted as a whole, and not be looked through."""

    def __iter__(self) -> Iterator[bytes]:
        raise AssertionError("it was looked through")


def ask(node: Node, request: bytes, times: int = 1) -> list[dict[str, object]]:
    node.say("ask", request * times)
    return [json.loads(data) for _, data in node.hears("ask")]


def test_what_is_wanted_here_is_counted_and_not_listed() -> None:
    web = build(["ab"])
    a = web["a"]
    a.broker.router.forwarded = Uncounted({b"//fwd/%d" % number: 1 for number in range(99)})
    (answer,) = ask(a, b"pub //pubsubd/peers 0 \n")
    assert [one["interests"] for one in answer["daemons"]] == [99, 0]  # type: ignore[attr-defined]


@pytest.mark.parametrize("request_", [b"//pubsubd/edges", b"//pubsubd/peers", b"//pubsubd/weak"])
def test_pages_are_made_once_for_all_who_ask_within_a_moment(
    request_: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "PAGE_SIZE", 15_000)
    web = build(["ab"])
    a = web["a"]
    tell(a, "b", crowd(web, 600, ring=False))
    web.run(1)
    made = 0
    real = json.dumps

    def dumps(value: object, *args: object) -> str:
        nonlocal made
        made += isinstance(value, dict)
        return real(value, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(report.json, "dumps", dumps)
    found: list[object] = []
    offset: object = 0
    count = 0
    while offset is not None:
        digits = str(offset).encode()
        command = b"pub %b %d %b\n" % (request_, len(digits), digits)
        answers = ask(a, command, times=20)
        assert all(answer == answers[0] for answer in answers)
        count += 1
        lists = [one for one in answers[0].values() if isinstance(one, list)]
        found += itertools.chain(*lists)
        offset = answers[0]["next"]
        assert len(real(answers[0])) < 30_000
    known = {"edges": len(a.report.edges()), "peers": 603, "weak": 600 + 601 + 1}
    rows = known[request_.decode().removeprefix("//pubsubd/")]
    assert len(found) == rows
    assert count > 3
    assert made < 2 * rows + 2 * count


def test_an_answer_about_many_daemons_is_made_in_turns() -> None:
    web = build(["ab"])
    a = web["a"]
    tell(a, "b", crowd(web, 2_000))
    web.run(1)
    slow(a)
    peer = a.broker.join("ask", lambda _data: None)
    for name in (b"edges", b"peers", b"weak"):
        request = b"pub //pubsubd/%b 0 \n" % name
        data, turns = request, 1
        while a.broker.receive(peer, data):
            data, turns = b"", turns + 1
        assert turns >= 2_000 // 64 // LOOKS


def test_an_edge_list_to_be_exported_is_the_same_made_in_steps() -> None:
    web = build(["ab"])
    a = web["a"]
    tell(a, "b", crowd(web, 200))
    web.run(1)
    steps, rows = a.report.listing(), a.report.edges()
    for _ in range(len(rows) // 64):
        next(steps)
    assert list(map(json.loads, finish(steps).splitlines())) == rows
