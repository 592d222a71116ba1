"""What one connection may do in a turn, counted: the clock is the test's."""

from __future__ import annotations

import contextlib
import json

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from pubsubd.broker.turn import Shared, Turn
from pubsubd.protocol import limits
from pubsubd.protocol.errors import ProtocolError
from pubsubd.protocol.limits import Limits
from pubsubd.protocol.wire import count_frames
from pubsubd.routing import substrings as matching
from pubsubd.routing.lookups import Unfinished
from pubsubd.routing.router import Router
from pubsubd.routing.targets import CopyTargets, Targets
from pubsubd.transport.server import Server
from tests.examples import examples
from tests.tables import Table
from tests.unit.routing.test_router import Ear


class Clock:
    """A clock that goes on by ``tick`` seconds each time it is looked at."""

    def __init__(self, tick: float) -> None:
        self.tick = tick
        self.now = 0.0

    def __call__(self) -> float:
        self.now += self.tick
        return self.now


def turns(table: Table, name: str, data: bytes) -> int:
    """Return how many turns ``data`` takes."""
    count = 1
    while table.broker.receive(table.peers[name], data):
        count += 1
        data = b""
    return count


@pytest.mark.parametrize("few", [1, 12])
def test_long_names_that_long_substrings_nearly_match_are_worked_off_in_turns(few: int) -> None:
    table = Table("sub", "pub")
    for number in range(few):
        half = b"a" * (500 - number)
        table.say("sub", b"sub %bb%b\n" % (half[number:], half))
    table.broker.delivery.turn = Turn(Clock(limits.TURN))
    names = [b"%b%d" % (b"a" * 1_000, number) for number in range(200)]
    taken = turns(table, "pub", b"".join(b"pub %b 1 x\n" % name for name in names))
    assert taken >= (10 if few == 1 else 100)


def test_a_turn_ends_by_the_clock_and_by_the_bytes_made() -> None:
    clock = Clock(0.0)
    turn = Turn(clock)
    turn.begin()
    assert not turn.over()
    turn.made = limits.BYTES_PER_TURN + 1
    assert turn.over()
    turn.begin()
    assert not turn.over()
    clock.now += limits.TURN * 1.01
    assert turn.over()


def test_uncommon_commands_end_a_turn_by_the_clock() -> None:
    table = Table("a")
    table.broker.delivery.turn = Turn(Clock(limits.TURN / 10))
    assert turns(table, "a", b"".join(b"sub %d\n" % i for i in range(100))) == pytest.approx(10, 2)
    assert len(table.peers["a"].substrings) == 100
    assert turns(table, "a", b"unsub nothing\n" * 100) >= 8
    assert table.hears("a").count(b"not-subscribed") == 100


def test_answers_end_a_turn_by_their_bytes() -> None:
    table = Table("a")
    table.broker.requests[b"//pubsubd/long"] = lambda _peer, _data: b"x" * 100_000
    count = turns(table, "a", b"pub //pubsubd/long 0 \n" * 100)
    assert count >= 9
    assert table.sends["a"] == count
    assert len(table.hears("a")) > 10_000_000


def test_an_answer_that_takes_long_is_made_in_steps_and_the_rest_of_the_input_waits() -> None:
    table = Table("a", "b")
    table.say("b", b"sub n\n")

    def slow(_peer, _data):
        for _ in range(50):
            if table.broker.delivery.turn.over():
                yield
        return b"there"

    table.broker.requests[b"//pubsubd/slow"] = slow
    table.broker.delivery.turn = Turn(Clock(limits.TURN / 5))
    assert turns(table, "a", b"pub //pubsubd/slow 0 \npub n 1 x\n") >= 10
    assert table.hears("a") == b"pub //pubsubd/slow 5 there\n"
    assert table.hears("b") == b"pub n 1 x\n"


def test_an_answer_in_steps_may_be_an_error() -> None:
    table = Table("a")

    def refuse(_peer, _data):
        yield
        raise ProtocolError("bad-request", "no")

    table.broker.requests[b"//pubsubd/refuse"] = refuse
    table.say("a", b"pub //pubsubd/refuse 0 \nsub x\n")
    assert table.messages("a") == [("error", "bad-request")]
    assert table.peers["a"].substrings == {b"x"}


def test_new_names_end_a_turn_by_the_clock_however_few_they_are() -> None:
    table = Table("pub", "a")
    table.say("a", b"".join(b"sub %03x\nsub x%d\nsub x\n" % (i, i % 10) for i in range(100)))
    table.broker.delivery.turn = Turn(Clock(limits.TURN / 3))
    data = b"".join(b"pub %0999d 1 x\n" % i for i in range(200))
    index = table.broker.router.index
    before, most, count = index.work, 0, 0
    while table.broker.receive(table.peers["pub"], data):
        most = max(most, index.work - before)
        before, data, count = index.work, b"", count + 1
    assert count > 10
    # Four times as far as the next look at the clock, and on to the end of a name.
    assert most <= 4 * (limits.WORK_PER_LOOK + 4_000)


def test_what_is_looked_for_in_a_name_byte_by_byte_is_counted_for_each_length() -> None:
    index = matching.SubstringIndex[int]()
    for text in (b"x", b"xx", b"xxx"):
        index.add(text, 1)
    index.find(b"-" * 1_000)
    assert index.work >= 4_000


@pytest.mark.parametrize(
    ("receivers", "frames"),
    [
        (2, [b"pub n0 1 x\n", b"pub n1 1 x\n"]),  # of one shape: dealt out many at a time
        (1, [b"pub n0 1 x\n", b"pub n0%d 1 x\n" % 10**9]),
        (2, [b"pub n0 1 x\n", b"pub n1%d 1 x\n" % 10**9]),
        (2, [b"pub n0 1 x\n", b"pub n1 2000 %b\n" % (b"x" * 2_000)]),
        (1, [b"pub n0 1 x\r\n"]),
    ],
    ids=["shape", "widths", "widths to two", "long", "crlf"],
)
def test_known_frames_to_one_receiver_each_end_a_turn_by_the_clock(
    receivers: int, frames: list[bytes]
) -> None:
    names = [f"s{i}" for i in range(receivers)]
    table = Table("pub", *names)
    table.broker.scan = None
    for number, name in enumerate(names):
        table.say(name, b"sub n%d\n" % number)
    for _ in range(3):
        table.say("pub", b"".join(frames))
    for name in names:
        table.hears(name)
    table.broker.delivery.turn = Turn(Clock(2 * limits.TURN))
    assert turns(table, "pub", b"".join(frames) * 10_000) >= 2
    expected = [
        b"".join(f.replace(b"\r", b"") for f in frames if f[5:6] == b"%d" % number)
        for number in range(receivers)
    ]
    assert [table.hears(name) for name in names] == [text * 10_000 for text in expected]


def test_frames_that_alternate_between_many_receivers_are_worked_off_in_turns() -> None:
    names = [f"s{i}" for i in range(200)]
    table = Table("pub", *names)
    for number, name in enumerate(names):
        table.say(name, b"sub n%d\n" % (number % 2))
    data = b"pub n0 1 x\npub n1 1 x\n" * 2_000
    table.say("pub", data)
    assert turns(table, "pub", data) >= 4_000 * 100 // limits.WORK_PER_TURN
    assert table.hears("s0") == b"pub n0 1 x\n" * 4_000


def test_frames_that_have_to_be_put_one_by_one_are_worked_off_in_turns() -> None:
    names = [f"s{i}" for i in range(100)]
    table = Table("pub", *names)
    for name in names:
        table.say(name, b"sub //fwd/\nsub n\n" if name == "s0" else b"sub //fwd/\n")
    data = b"pub //n 1 x\r\n"
    assert turns(table, "pub", data * 3_000) >= 3_000 * 100 // limits.WORK_PER_TURN
    assert table.hears("s1") == b"pub //fwd/n 1 x\n" * 3_000


# Many receivers


def test_receivers_that_are_too_many_for_a_turn_get_theirs_in_further_ones() -> None:
    names = [f"s{i}" for i in range(50)]
    table = Table("pub", "other", *names)
    for name in names:
        table.say(name, b"sub n\n")
    table.broker.delivery.turn = Turn(Clock(limits.TURN / 10))
    table.say("pub", b"pub n 1 x\n")
    reached = sum(bool(table.sends[name] > 0) for name in names)
    assert 0 < reached < 50
    assert len(table.broker.delivery.unsent) == 1
    done: list[bool] = []
    table.broker.delivery.unsent[0].done = lambda: done.append(True)
    slices = 0
    while table.broker.delivery.unsent:
        assert not done
        table.broker.delivery.turn.begin()
        table.broker.delivery.send_some()
        slices += 1
    assert done == [True]
    assert slices >= 2
    assert all(table.hears(name) == b"pub n 1 x\n" for name in names)


def renderer(table: Table, name: str, steps: int = 0) -> list[bytes]:
    """Make a peer one that renders, in as many steps; return what it is sent."""
    rendered: list[bytes] = []
    sent: list[bytes] = []

    def render(part: bytes) -> bool:
        if rendered:
            assert rendered[-1] is part
        if len(rendered) < steps:
            rendered.append(part)
            return False
        rendered.clear()
        sent.append(part)
        return True

    table.peers[name].render = render
    table.peers[name].send = sent.append  # type: ignore[assignment]
    return sent


def test_those_who_render_messages_are_given_them_in_parts_and_others_in_one_piece() -> None:
    table = Table("pub", "plain", "one", "two")
    for name in ("plain", "one", "two"):
        table.say(name, b"sub n\n")
    one, two = renderer(table, "one"), renderer(table, "two")
    data = b"pub n 1 x\npub nn 3 1\n3\n" * 1_200
    table.say("pub", data)
    while table.broker.delivery.unsent:
        table.broker.delivery.turn.begin()
        table.broker.delivery.send_some()
    assert table.hears("plain") == data
    assert table.sends["plain"] == 1
    assert b"".join(one) == data
    assert max(count_frames(part) for part in one) == count_frames(one[0]) == 2048
    # The same objects: what is known of a part by its id serves all who render it.
    assert all(a is b for a, b in zip(one, two, strict=True))


def test_messages_are_rendered_in_the_turn_that_read_them_while_it_lasts() -> None:
    table = Table("pub", "one")
    table.say("one", b"sub n\n")
    one = renderer(table, "one", steps=9)
    table.broker.delivery.turn = Turn(lambda: 0.0)  # no time goes by
    table.say("pub", b"pub n 1 x\n" * 3_000)
    assert not table.broker.delivery.unsent
    assert b"".join(one) == b"pub n 1 x\n" * 3_000


def test_rendering_takes_turns_and_one_part_is_done_before_another_is_begun() -> None:
    table = Table("first", "second", "a", "b", "plain")
    for name in ("a", "b"):
        table.say(name, b"sub n\n")
    table.say("plain", b"sub x\n")
    a, b = renderer(table, "a", steps=9), renderer(table, "b", steps=9)
    delivery = table.broker.delivery
    delivery.turn = Turn(Clock(limits.TURN / 4))
    one, two = b"pub n 1 1\n" * 200, b"pub n 1 2\n" * 200
    for name, data in (("first", one), ("second", two)):
        delivery.turn.begin()
        table.say(name, data)
    assert len(delivery.unsent) == 2
    turns = 0
    while delivery.unsent:
        delivery.turn.begin()
        delivery.send_some()
        turns += 1
        assert len(b) >= len(a) - 1  # b has each part before a is given the next one
    assert a == b == [one, two]
    assert turns > 4


def test_a_receiver_that_fails_in_a_further_turn_ends_alone() -> None:
    names = [f"s{i}" for i in range(50)]
    table = Table("pub", *names)
    ended = []
    for name in names:
        table.say(name, b"sub n\n")

    def fail(_data: object) -> None:
        raise RuntimeError("on purpose")

    for peer in table.peers.values():
        peer.end = lambda _code, _text, peer=peer: ended.append(peer)
    table.broker.delivery.turn = Turn(Clock(limits.TURN / 10))
    table.say("pub", b"pub n 1 x\n")
    rest = [one for one in names if not table.sends[one]]
    table.peers[rest[3]].send = fail
    while table.broker.delivery.unsent:
        table.broker.delivery.turn.begin()
        table.broker.delivery.send_some()
    assert ended == [table.peers[rest[3]]]
    assert all(table.hears(one) == b"pub n 1 x\n" for one in rest if one != rest[3])


class Slow:
    """A consumer that notes that it has been waited for."""

    def __init__(self) -> None:
        self.waited_for = 0

    async def wait_relief(self, begun: float) -> None:
        self.waited_for += 1


async def test_who_has_published_waits_for_those_whom_a_further_turn_has_filled() -> None:
    slow = Slow()
    async with trio.open_nursery() as nursery:
        server = Server(Limits(), nursery)
        server.start()
        broker = server.broker
        for number in range(50):
            peer = broker.join(str(number), lambda _data: server.pressed.append(slow))
            broker.receive(peer, b"sub n\n")
        publisher = broker.join("pub", lambda _data: None)
        broker.delivery.turn = Turn(Clock(limits.TURN / 10))
        broker.receive(publisher, b"pub n 1 x\n")
        sendings = [one for one in server.pressed if one is not slow]
        assert len(sendings) == 1
        server.pressed = []
        await sendings[0].wait_relief(0.0)
        nursery.cancel_scope.cancel()
    assert slow.waited_for == 1
    assert server.pressed == []  # the next who reads waits for nobody


def test_the_daemon_s_own_messages_are_dropped_when_too_many_sends_are_under_way() -> None:
    names = [f"s{i}" for i in range(50)]
    table = Table("pub", *names)
    for name in names:
        table.say(name, b"sub //pubsubd/events\n")
    table.broker.delivery.turn = Turn(Clock(limits.TURN / 10))
    for _ in range(100):
        table.broker.delivery.turn.begin()
        table.broker.delivery.publish(b"//pubsubd/events", b"{}")
    assert len(table.broker.delivery.unsent) == 64
    assert table.broker.counters.dropped == 36


# Names that are costly to look up


NAME = bytes(97 + i * i % 23 for i in range(1_000))


def crowd(router: Router, count: int) -> list[Ear]:
    """Let one receiver subscribe as many substrings of NAME."""
    listener = Ear()
    subs = {NAME[i:j] for i in range(900) for j in range(i + 5, min(i + 60, 1_000))}
    for one in sorted(subs)[:count]:
        router.subscribe(listener, one)
    return [listener]


def finish(router: Router, name: bytes) -> tuple[int, Targets | CopyTargets]:
    """Return how often one has to ask for the receivers of a name, and who they are."""
    for count in range(1, 1_000):
        before = router.index.work
        try:
            return count, router.receivers(name)
        except Unfinished:
            assert router.index.work - before < 3 * matching.STEPS
    raise AssertionError


def test_a_costly_name_is_looked_up_in_steps() -> None:
    router = Router()
    (listener,) = crowd(router, 20_000)
    count, targets = finish(router, NAME)
    assert count > 1
    assert targets.members == (listener,)
    assert not len(router.interrupted)


def test_what_changes_while_a_name_is_looked_up_counts() -> None:
    router = Router()
    (first,) = crowd(router, 20_000)
    with pytest.raises(Unfinished):
        router.receivers(NAME)
    late, gone = Ear(), Ear()
    router.subscribe(late, NAME[:4])  # where the search has been already
    router.subscribe(gone, NAME[1:5])
    router.unsubscribe(gone, NAME[1:5])
    assert set(finish(router, NAME)[1].members) == {first, late}


def test_searches_that_nobody_goes_on_with_are_forgotten() -> None:
    router = Router()
    crowd(router, 20_000)
    for number in range(300):
        with pytest.raises(Unfinished):
            router.receivers(NAME + b"%d" % number)
    assert len(router.interrupted) <= 256
    assert router.interrupted.patterns <= 500_000


@pytest.mark.parametrize("verb", [b"pub", b"PUB"])
@pytest.mark.parametrize("size", [3, 400_000])
def test_a_costly_name_takes_turns_and_its_message_arrives_once(verb: bytes, size: int) -> None:
    table = Table("pub", "a", "b")
    crowd(table.broker.router, 20_000)
    table.say("b", b"sub before\nsub after\nsub " + NAME[:50] + b"\n")
    data = b"pub before 1 x\n%b %b %d %b\npub after 1 y\n" % (verb, NAME, size, b"z" * size)
    assert turns(table, "pub", data) > 1
    assert [name for name, _ in table.messages("b")] == [b"before", NAME, b"after"]


def test_many_subscriptions_at_once_cost_one_look_at_the_cache() -> None:
    router = Router()
    listener, other = Ear(), Ear()
    router.subscribe(other, b"n")
    for number in range(1_000):
        for _ in range(2):
            router.receivers(b"name%d" % number)
    assert router.cached_names == 1_000
    before = router.index.work
    with router.many():
        for number in range(1_000):
            router.subscribe(listener, b"me%d" % number)
    assert router.index.work - before < 1_000
    assert router.receivers(b"name7").members != (other,)
    assert set(router.receivers(b"name7").members) == {listener, other}


# Shared answers


def test_a_shared_answer_is_made_once_for_all_who_ask_within_a_moment() -> None:
    made, cost = 0, Clock(0.001)
    now = 0.0

    def make():
        nonlocal made
        for _ in range(3):
            yield
        made += 1
        return made

    shared = Shared(make, lambda: now, cost)
    one, other = shared.get(), shared.get()
    steps = [next(one, None), next(other, None), next(one, None)]
    assert steps == [None] * 3
    assert finished(other) == finished(one) == 1
    assert finished(shared.get()) == 1
    now = 0.2  # twenty times what making it took, and more
    assert finished(shared.get()) == 2


def test_a_shared_answer_that_fails_is_made_anew() -> None:
    fail = True

    def make():
        yield
        if fail:
            raise RuntimeError("on purpose")
        return 7

    shared = Shared(make, lambda: 0.0)
    with pytest.raises(RuntimeError):
        finished(shared.get())
    fail = False
    assert finished(shared.get()) == 7


def finished(steps):
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return done.value


# Limits and rates


def test_subscriptions_of_all_connections_together_are_limited() -> None:
    table = Table("a", "b", limits=Limits(max_subscriptions_total=3))
    table.say("a", b"sub 1\nsub 2\n")
    table.say("b", b"sub 1\nsub 3\nsub 1\n")
    assert table.messages("b") == [("error", "too-many-subscriptions")]
    table.leave("a")
    table.say("b", b"sub 3\n")
    assert table.messages("b") == []


def test_requests_have_a_rate_and_pings_have_none() -> None:
    table = Table("a", limits=Limits(request_rate=2))
    table.say("a", b"pub //pubsubd/stats 0 \n" * 25 + b"pub //pubsubd/ping 0 \n" * 100)
    heard = table.messages("a")
    assert heard.count(("error", "rate-limited")) == 5
    assert heard.count((b"//pubsubd/ping", b"")) == 100


def test_explain_of_many_receivers_takes_turns_and_stays_within_its_size() -> None:
    names = [f"s{i}" for i in range(2_000)]
    table = Table("asker", *names)
    for name in names:
        table.say(name, b"sub n\nsub na\n")
    table.broker.delivery.turn = Turn(Clock(limits.TURN / 100))
    assert turns(table, "asker", b"pub //pubsubd/explain 4 name\n") >= 20
    ((_, data),) = table.messages("asker")
    assert json.loads(data)["count"] == 2_000
    assert len(data) < 2 * limits.MAX_EXPLAINED


@given(st.data())
@settings(max_examples=examples(300), deadline=None)
def test_a_lookup_in_steps_tells_what_a_scan_tells_whatever_changes_meanwhile(
    data: st.DataObject,
) -> None:
    name = b"abcabdabcabeabcab"
    texts = sorted({name[i:j] for i in range(len(name)) for j in range(i + 4, len(name) + 1)})
    router, ears = Router(), [Ear() for _ in range(4)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pubsubd.routing.substrings.STEPS", 3)
        patch.setattr("pubsubd.routing.lookups.STEPS", 3)
        patch.setattr("pubsubd.routing.lookups.AT_ONCE", 2)
        for _ in range(data.draw(st.integers(1, 40))):
            ear = data.draw(st.sampled_from(ears))
            match data.draw(st.sampled_from(["sub", "sub", "unsub", "ask", "forget"])):
                case "sub":
                    router.subscribe(ear, data.draw(st.sampled_from(texts)))
                case "unsub" if ear.substrings:
                    router.unsubscribe(ear, data.draw(st.sampled_from(sorted(ear.substrings))))
                case "forget":
                    for _ in router.forget(ear):
                        pass
                case _:
                    with contextlib.suppress(Unfinished):
                        told = set(router.receivers(name).members)
                        assert told == {one for one in ears if one.substrings}
        for _ in range(1_000):
            with contextlib.suppress(Unfinished):
                assert set(router.receivers(name).members) == {e for e in ears if e.substrings}
                return
    raise AssertionError("it comes to no end")
