"""What is for a single receiver at another worker is handed on there without being read."""

from __future__ import annotations

import random

import pytest

from pubsubd.broker.delivery import NO_ROUTE
from pubsubd.broker.peer import Peer, discard
from pubsubd.siblings import frames
from pubsubd.siblings.shares import unite
from pubsubd.siblings.waiting import Speaker
from tests.unit.siblings.webs import Worker, Workers


@pytest.fixture
def two() -> Workers:
    """Ann publishes at one worker; bob and eve subscribe at the other one."""
    workers = Workers(2)
    workers[0].join("ann")
    workers[1].join("bob")
    workers[1].join("eve")
    return workers


def kinds(worker: Worker) -> list[int]:
    """Return the kinds of frames that are under way to the second worker."""
    return [one[4] for one in worker.links[1][1]]


def carry(two: Workers, number: int = 0) -> None:
    """Let what is under way from a worker arrive, and nothing be told meanwhile."""
    _, queue = two[number].links[1 - number]
    while queue:
        two.carry(number, 1 - number, queue.popleft())


def test_each_gets_what_it_alone_wants_and_nobody_looks_into_it(two):
    two[1].say("bob", b"sub bob\n")
    two[1].say("eve", b"sub eve\n")
    two.settle()
    router, lookups = two[1].broker.router, two[1].broker.router.lookups
    two[0].say(
        "ann", b"".join(b"pub bob%d 1 b\npub x 1 -\npub eve%d 1 e\n" % (n, n) for n in range(99))
    )
    assert kinds(two[0]) == [frames.ADDRESSED]
    two.settle()
    assert two[1].hears("bob") == b"".join(b"pub bob%d 1 b\n" % n for n in range(99))
    assert two[1].hears("eve") == b"".join(b"pub eve%d 1 e\n" % n for n in range(99))
    assert two[1].sends == {"bob": 1, "eve": 1}
    assert (router.lookups, len(router.routes)) == (lookups, 0)
    assert [one.broker.counters.messages_in for one in two.all] == [297, 0]
    assert [one.broker.counters.messages_out for one in two.all] == [0, 198]
    assert two[1].peers["bob"].messages_out == two[1].peers["eve"].messages_out == 99
    assert two[1].links[0][0].messages_in == two[0].links[1][0].messages_out == 198


def test_what_several_want_is_one_message_in_its_place(two):
    two[1].say("bob", b"sub b\n")
    two[1].say("eve", b"sub e\n")
    two.settle()
    two[0].say("ann", b"pub b 1 1\npub be 1 2\npub e 1 3\npub b 1 4\n")
    assert kinds(two[0]) == [frames.ADDRESSED]
    two.settle()
    assert two[1].hears("bob") == b"pub b 1 1\npub be 1 2\npub b 1 4\n"
    assert two[1].hears("eve") == b"pub be 1 2\npub e 1 3\n"
    assert two[1].links[0][0].messages_in == 4
    two[0].say("ann", b"pub b 1 5\n")
    assert kinds(two[0]) == [frames.ADDRESSED]
    two.settle()
    assert two[1].links[0][0].messages_in == 5


def test_a_key_that_another_one_subscribes_too_is_theirs(two):
    two[1].say("bob", b"sub a\n")
    two.settle()
    two[1].say("eve", b"sub a\n")
    two.settle()
    two[0].say("ann", b"pub a 1 x\n")
    two.settle()
    assert two[1].hears("bob") == two[1].hears("eve") == b"pub a 1 x\n"


@pytest.mark.parametrize("told", [False, True])
def test_a_key_goes_from_one_to_the_other(two, told):
    two[1].say("bob", b"sub a\n")
    two.settle()
    two[1].say("bob", b"unsub a\n")
    if told:
        two.settle()
    two[1].say("eve", b"sub a\n")
    two.settle()
    two[0].say("ann", b"pub a 1 x\n")
    two.settle()
    assert (two[1].hears("bob"), two[1].hears("eve")) == (b"", b"pub a 1 x\n")


@pytest.mark.parametrize("other", [False, True])
def test_what_is_under_way_is_not_given_to_who_wants_it_no_more(two, other):
    two[1].say("bob", b"sub a\nsub b\n")
    two.settle()
    two[0].say("ann", b"pub a 1 x\npub b 1 y\n")
    if other:  # the key stays
        two[1].say("eve", b"sub a\n")
    two[1].say("bob", b"unsub a\n")
    carry(two)
    assert two[1].hears("bob") == b"pub b 1 y\n"
    two.settle()
    two[0].say("ann", b"pub b 1 z\n")
    two.settle()
    assert two[1].hears("bob") == b"pub b 1 z\n"


def test_after_somebody_has_unsubscribed_messages_are_soon_handed_on_again(two):
    two[1].say("bob", b"sub a\nsub b\n")
    two[1].say("eve", b"sub e\n")
    two.settle()
    two[1].say("bob", b"unsub b\n")
    two.settle()
    two[0].say("ann", b"pub a 1 x\n")
    two.settle()
    lookups = two[1].broker.router.lookups
    two[0].say("ann", b"pub a1 1 x\npub e1 1 y\n")
    two.settle()
    assert two[1].hears("bob") == b"pub a 1 x\npub a1 1 x\n"
    assert two[1].broker.router.lookups == lookups


def test_what_came_from_its_worker_is_not_counted_as_sent_back_to_an_owner(two):
    two[0].say("ann", b"sub a\nsub d\n")
    two[1].say("bob", b"sub a\nsub b\n")
    two[1].say("eve", b"sub a\nsub e\n")
    two.settle()
    two[0].say("ann", b"pub a 1 x\n" * 9)
    two.settle()
    assert two[0].peers["ann"].messages_out == 9
    two[1].say("bob", b"pub d 1 x\n")
    two.settle()
    assert two[0].peers["ann"].messages_out == 10
    assert [worker.broker.counters.messages_out for worker in two.all] == [10, 18]


@pytest.mark.parametrize("more", [b"", b"pub ab 1 3\n"])
@pytest.mark.parametrize("waits", [False, True])
def test_what_is_under_way_to_others_does_not_come_out_of_order(two, more, waits):
    waiting: list[Speaker] = []
    two[1].siblings.relieve = waiting.append
    two[1].say("bob", b"sub a\nsub c\n")
    two[1].say("eve", b"sub b\n")
    two.settle()
    if waits:
        two[1].links[0][0].waiting.strain(two[0].peers["ann"].number, "somebody")
    two[0].say("ann", b"pub b 1 1\npub a 1 2\n" if waits else b"pub a 1 2\npub b 1 1\n")
    two[0].say("ann", b"pub a 1 4\npub b 1 5\npub c 1 6\npub a 1 7\n" + more)
    two[1].say("eve", b"sub a\n")
    two[1].say("bob", b"unsub c\n")
    carry(two)
    for speaker in waiting:
        speaker.take()
        while not speaker.done:
            speaker.work(lambda: True)
        speaker.go_on()
    two.settle()
    assert two[1].hears("eve") == b"pub b 1 1\npub b 1 5\n" + more
    assert two[1].hears("bob") == b"pub a 1 2\npub a 1 4\npub a 1 7\n" + more
    assert two[1].links[0][0].messages_in == 6 + bool(more)
    two[0].say("ann", b"pub a 1 8\n")
    two.settle()
    assert two[1].hears("eve") == two[1].hears("bob") == b"pub a 1 8\n"


def test_who_has_left_owns_nothing(two):
    two[1].say("bob", b"sub a\n")
    two[1].say("eve", b"sub \n")
    two.settle()
    two[1].leave("eve")
    two.settle()
    two[0].say("ann", b"pub a 1 x\n")
    two[1].leave("bob")
    two[1].join("amy")
    two[1].say("amy", b"sub a\n")
    carry(two)
    two.settle()
    assert two[1].hears("amy") in (b"", b"pub a 1 x\n")
    interests = two[1].siblings.interests
    assert list(interests.by_owner.values()) == [two[1].peers["amy"]]
    assert list(two[0].links[1][0].shares.by_owner) == list(interests.by_owner)


def test_a_worker_that_dies_takes_its_shares_along(two):
    two[1].say("bob", b"".join(b"sub s%d\n" % number for number in range(100)))
    two.settle()
    assert two[0].broker.router.subscriptions == 100
    assert two[0].broker.router.own_subscriptions == 0
    two.kill(1)
    assert two[0].broker.router.subscriptions == 0


def test_a_new_worker_learns_who_owns_what(two):
    two[1].say("bob", b"sub a\nsub c\n")
    two[1].say("eve", b"sub b\nsub c\n")
    two.settle()
    two.kill(0)
    two.all[0] = Worker(two, 0)
    two[0].join("ann")
    two[0].link(1)
    two[1].link(0)
    two.settle()
    two[0].say("ann", b"pub a 1 x\npub b 1 y\n")
    assert kinds(two[0]) == [frames.ADDRESSED]
    two.settle()
    two[0].say("ann", b"pub c 1 z\n")
    two.settle()
    assert two[1].hears("bob") == b"pub a 1 x\npub c 1 z\n"
    assert two[1].hears("eve") == b"pub b 1 y\npub c 1 z\n"


def test_only_so_many_are_owners(two):
    for number in range(1_100):
        two[1].join(str(number))
        two[1].say(str(number), b"sub <%d>\n" % number)
    two.settle()
    assert len(two[1].siblings.interests.by_owner) == 1_024
    assert len(two[0].links[1][0].shares.by_owner) == 1_024
    two[0].say("ann", b"".join(b"pub <%d> 1 x\n" % number for number in range(1_100)))
    two.settle()
    for number in range(1_100):
        assert two[1].hears(str(number)) == b"pub <%d> 1 x\n" % number


def test_large_messages_reach_their_owner_in_their_place(two):
    two[1].say("bob", b"sub a\n")
    two[1].say("eve", b"sub e\n")
    two.settle()
    large = b"pub a 100000 %b\n" % bytes(100_000)
    two[0].say("ann", b"pub a 1 1\n")
    two[0].say("ann", large)
    two[0].say("ann", b"pub a 1 2\npub e 1 3\n")
    two.settle()
    assert two[1].hears("bob") == b"pub a 1 1\n" + large + b"pub a 1 2\n"
    assert two[1].hears("eve") == b"pub e 1 3\n"
    assert two[1].links[0][0].messages_in == 4


def test_each_batch_says_who_has_published_it(two):
    two[1].say("bob", b"sub a\n")
    two[0].join("amy")
    two.settle()
    delivery, frame = two[0].broker.delivery, b"pub a 1 x\n"
    speakers = [two[0].peers[name] for name in ("ann", "ann", "amy")]
    for delivery.speaker in speakers:
        targets = two[0].broker.router.receivers(b"a")
        delivery.deliver(targets, NO_ROUTE, frame, 0, len(frame), 1)
    delivery.send()
    (sent,) = two[0].links[1][1]
    reader, numbers = frames.Frames(), []
    reader.feed(sent)
    while (found := reader.take()) is not None:
        numbers.append(frames.open_batch(found[1])[2])
    assert numbers == [speaker.number for speaker in speakers[1:]]
    two.settle()
    assert two[1].hears("bob") == 3 * frame


def test_what_a_read_brings_for_an_owner_is_sent_at_once(two):
    two[1].say("bob", b"sub a\n")
    two[1].say("eve", b"sub e\n")
    two[0].join("amy")
    two.settle()
    for size in (1 << 20, 50, 1):
        for number in range(40):
            two[0].say(("ann", "amy")[number % 2], b"pub a 1 1\npub e 1 2\npub a 1 3\n")
        stream = b"".join(two[0].links[1][1])
        two[0].links[1][1].clear()
        two[1].sends = dict.fromkeys(two[1].sends, 0)
        for start in range(0, len(stream), size):
            two.carry(0, 1, stream[start : start + size])
        assert two[1].hears("bob") == b"pub a 1 1\npub a 1 3\n" * 40
        assert two[1].hears("eve") == b"pub e 1 2\n" * 40
        if size > len(stream):
            assert two[1].sends == {"bob": 1, "eve": 1}


def test_a_receiver_that_fails_costs_nobody_else_anything(two):
    def broken(_data: object) -> None:
        raise RuntimeError("on purpose")

    two[1].say("bob", b"sub a\n")
    two[1].say("eve", b"sub e\n")
    two.settle()
    two[1].peers["bob"].send = broken
    two[0].say("ann", b"pub a 1 1\npub e 1 2\n")
    two.settle()
    assert two[1].hears("eve") == b"pub e 1 2\n"
    assert sum(two[1].broker.faults.counts.values()) == 1
    assert list(two[1].siblings.others) == [0]


def test_what_comes_of_one_that_waits_is_kept_and_delivered_later(two):
    waiting: list[Speaker] = []
    two[1].siblings.relieve = waiting.append
    two[1].say("bob", b"sub a\n")
    two[1].say("eve", b"sub e\n")
    two.settle()
    two[1].links[0][0].waiting.strain(two[0].peers["ann"].number, "somebody")
    two[0].say("ann", b"pub a 1 1\npub e 1 2\npub a 1 3\n")
    assert kinds(two[0]) == [frames.ADDRESSED]
    two.settle()
    assert two[1].hears("bob") == two[1].hears("eve") == b""
    (speaker,) = waiting
    speaker.consumers.clear()
    speaker.work(lambda: False)
    speaker.go_on()
    assert two[1].hears("bob") == b"pub a 1 1\npub a 1 3\n"
    assert two[1].hears("eve") == b"pub e 1 2\n"


@pytest.mark.parametrize("looked", [False, True])
def test_who_wants_a_copy_gets_it_once(two, looked):
    two[1].join("amy")
    two[1].say("bob", b"sub //fwd/x\n")
    two[1].say("eve", b"sub //x\n")
    two[1].say("amy", b"sub //x/y\nsub y\n")
    two.settle()
    two[0].say("ann", b"pub //x/y 1 1\npub //x/z 1 2\npub y 1 3\n")
    if looked:
        two[1].say("amy", b"unsub y\n")
    carry(two)
    two.settle()
    assert two[1].hears("bob") == b"pub //fwd/x/y 1 1\npub //fwd/x/z 1 2\n"
    assert two[1].hears("eve") == b"pub //x/y 1 1\npub //x/z 1 2\n"
    assert two[1].hears("amy") == b"pub //x/y 1 1\n" + b"pub y 1 3\n" * (not looked)


def test_a_topic_of_another_daemon_reaches_who_wants_it_or_its_copy_once(two):
    for worker in two.all:
        worker.broker.router.copies.carry(b"m", (b"",))
    copy = two[0].broker.router.copies.of(b"t")
    two[1].broker.router.subscribe_name(two[1].peers["bob"], b"t")
    two[1].say("eve", b"sub %b\n" % copy)
    two.settle()
    link = Peer(0, "link", discard)
    link.relayed = True
    two[0].broker.receive(link, b"pub %b 1 x\n" % copy)
    two.settle()
    assert two[1].hears("bob") == b"pub t 1 x\n"
    assert two[1].hears("eve") == b"pub %b 1 x\n" % copy


def test_two_shares_of_a_sibling_are_the_sibling(two):
    two[1].say("bob", b"sub a\n")
    two[1].say("eve", b"sub e\n")
    two[0].say("ann", b"sub a\n")
    two.settle()
    ann, (sibling, _) = two[0].peers["ann"], two[0].links[1]
    one, other = sibling.shares.by_owner.values()
    assert unite(frozenset({ann, one})) == {ann, one}
    assert unite(frozenset({ann, one, other})) == {ann, sibling}
    assert unite(frozenset({one, sibling})) == {sibling}


@pytest.mark.parametrize("seed", range(40))
def test_everybody_gets_the_same_as_from_one_worker(seed):
    """Random subscriptions, messages and reads, beside a model."""
    chance = random.Random(seed)
    workers = Workers(2)
    names = [f"p{number}" for number in range(5)]
    for name in names:
        workers[1].join(name)
    workers[0].join("ann")
    keys: dict[str, set[str]] = {name: set() for name in names}
    due: dict[str, list[bytes]] = {name: [] for name in names}
    under_way: list[tuple[str, bytes]] = []
    for step in range(60):
        if chance.random() < 0.4:
            name, key = chance.choice(names), chance.choice("abcd")
            there = key not in keys[name]
            if not there:
                workers[1].say(name, f"unsub {key}\n".encode())
                keys[name].remove(key)
                for topic, frame in under_way:  # what it wants no more, it is not given
                    if frame in due[name] and not any(key in topic for key in keys[name]):
                        due[name].remove(frame)
            else:
                workers.settle()
                workers[1].say(name, f"sub {key}\n".encode())
                keys[name].add(key)
            if there or chance.random() < 0.5:  # else what is told arrives after what follows
                workers.settle()
                under_way.clear()
        batch = b""
        for number in range(chance.randrange(6)):
            topic = "".join(chance.sample("abcdxy", chance.choice((1, 1, 1, 2))))
            frame = f"pub {topic} 4 {step:02}{number:02}\n".encode()
            batch += frame
            under_way.append((topic, frame))
            for name in names:
                if any(key in topic for key in keys[name]):
                    due[name].append(frame)
        if batch:
            workers[0].say("ann", batch)
        if chance.random() < 0.5:
            carry(workers)
            under_way.clear()
    workers.settle()
    assert {name: workers[1].hears(name) for name in names} == {
        name: b"".join(frames) for name, frames in due.items()
    }


@pytest.mark.parametrize("seed", range(20))
def test_whoever_subscribes_meanwhile_gets_what_it_gets_in_order_and_once(seed):
    """Random subscriptions, of which the publisher's worker hears at random times."""
    chance = random.Random(seed)
    workers = Workers(2)
    names = [f"p{number}" for number in range(4)]
    for name in names:
        workers[1].join(name)
    workers[0].join("ann")
    keys: dict[str, set[str]] = {name: set() for name in names}
    number = 0
    for _ in range(80):
        name, key = chance.choice(names), chance.choice("abcd")
        workers[1].say(name, f"{'un' * (key in keys[name])}sub {key}\n".encode())
        keys[name] ^= {key}
        batch = b""
        for _ in range(chance.randrange(6)):
            number += 1
            topic = "".join(chance.sample("abcdx", chance.choice((1, 1, 2))))
            batch += f"pub {topic} 4 {number:04}\n".encode()
        workers[0].say("ann", batch)
        if chance.random() < 0.5:
            chance.choice((workers.settle, lambda: carry(workers)))()
    workers.settle()
    for name in names:
        numbers = [line.split()[3] for line in workers[1].hears(name).splitlines()]
        assert numbers == sorted(set(numbers))
        assert numbers


def test_who_cannot_be_made_to_wait_costs_the_link_nothing(two):
    def fail(_hold: object) -> None:
        raise RuntimeError("on purpose")

    two[1].say("bob", b"sub a\n")
    two.settle()
    two[0].siblings.hold_up = fail
    ended: list[tuple[str, ...]] = []
    two[0].links[1][0].peer.end = lambda *why: ended.append(why)
    two[1].links[0][0].say(frames.WAIT, b"%d" % two[0].peers["ann"].number)
    two.settle()
    two[0].say("ann", b"pub a 1 x\n")
    two.settle()
    assert two[1].hears("bob") == b"pub a 1 x\n"
    assert not ended
    assert sum(two[0].broker.faults.counts.values()) == 1
