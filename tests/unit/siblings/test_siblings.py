"""Messages, subscriptions and acknowledgements across the workers of one daemon."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from pubsubd.broker.turn import Turn
from pubsubd.protocol.limits import TURN
from pubsubd.routing.wildcards import Pattern
from pubsubd.siblings import frames
from pubsubd.siblings.questions import PATIENCE
from pubsubd.siblings.sibling import AHEAD
from tests.unit.siblings.webs import Workers, known


@pytest.fixture
def two() -> Workers:
    workers = Workers(2)
    workers[0].join("ann")
    workers[1].join("bob")
    return workers


def test_a_name_reaches_the_subscribers_of_all_workers_once():
    workers = Workers(3)
    for number in range(3):
        workers[number].join("sub")
        workers[number].join("both")
        workers[number].say("sub", b"sub chat\n")
        workers[number].say("both", b"sub chat\nsub main\n")
    workers.settle()
    workers[1].join("pub")
    workers[1].say("pub", b"pub chat/main 2 hi\n")
    workers.settle()
    for number in range(3):
        assert workers[number].hears("sub") == b"pub chat/main 2 hi\n"
        assert workers[number].hears("both") == b"pub chat/main 2 hi\n"


def test_who_does_not_want_a_message_is_sent_nothing(two):
    two[1].say("bob", b"sub chat\n")
    two.settle()
    two[0].say("ann", b"pub news 1 x\npub news 1 y\n")
    assert not two[0].links[1][1]


def test_what_one_read_leads_to_is_one_batch_a_sibling(two):
    two[1].say("bob", b"sub a\nsub b\n")
    two[0].say("ann", b"sub a\n")
    two.settle()
    two[0].say("ann", b"pub a 1 1\npub b 1 2\npub x 1 -\npub a 1 3\n" * 50)
    assert len(two[0].links[1][1]) == 1
    two.settle()
    assert two[1].hears("bob") == b"pub a 1 1\npub b 1 2\npub a 1 3\n" * 50
    assert two[0].hears("ann") == b"pub a 1 1\npub a 1 3\n" * 50


def test_however_many_receivers_take_turns_a_sibling_is_sent_one_thing_in_few_pieces(two):
    two[1].say("bob", b"sub a\n")
    two[0].say("ann", b"sub b\n")
    two.settle()
    sent = []
    two[0].links[1][0].peer.send = sent.append
    two[0].say("ann", b"pub a 1 1\npub b 1 2\n" * 500)
    (batch,) = sent
    assert len(batch.parts) <= 64  # what a connection sends with one call
    assert batch.whole().count(b"pub a 1 1\n") == 500


def test_nothing_is_made_for_each_of_many_short_runs(two):
    two[1].say("bob", b"sub a\n")
    two[0].say("ann", b"sub b\n")
    two.settle()
    objects = []
    two[0].links[1][0].peer.send = lambda _: objects.append(gc.get_count()[0])
    gc.disable()
    try:
        before = gc.get_count()[0]
        two[0].say("ann", b"pub a 1 1\npub b 1 2\n" * 2_000)
    finally:
        gc.enable()
    assert objects[0] - before < 500  # that the collector looks through


def test_the_last_subscriber_takes_the_interest_along(two):
    worker = two[1]
    worker.join("eve")
    worker.say("bob", b"sub a\n")
    worker.say("eve", b"sub a\n")
    worker.say("bob", b"unsub a\n")
    two.settle()
    sibling = two[0].links[1][0]
    assert known(sibling) == {b"a"}
    worker.leave("eve")
    assert worker.woken
    two.settle()
    assert not known(sibling)
    two[0].say("ann", b"pub a 1 x\n")
    assert not two[0].links[1][1]


def test_many_changes_are_told_in_several_turns_and_then_marked(two):
    two[1].say("bob", b"".join(b"sub s%d\n" % number for number in range(3_000)))
    assert two[1].siblings.act()
    assert len(two[1].links[0][1]) == 1
    two[1].say("bob", b"pub //pubsubd/ping 0 \n")
    two.settle()
    assert len(known(two[0].links[1][0])) == 3_000
    assert two[1].hears("bob") == b"pub //pubsubd/ping 0 \n"


def test_names_and_wildcards_are_known_to_siblings(two):
    router, bob = two[1].broker.router, two[1].peers["bob"]
    router.subscribe_name(bob, b"exact")
    router.subscribe_pattern(bob, Pattern.dots("a.*.c"))
    router.subscribe_pattern(bob, Pattern.slashes("b/#"))
    two.settle()
    two[0].say("ann", b"pub exact 1 1\npub exacts 1 2\npub a.x.c 1 3\npub b/y/z 1 4\n")
    two.settle()
    assert two[1].messages("bob") == [(b"exact", b"1"), (b"a.x.c", b"3"), (b"b/y/z", b"4")]
    router.unsubscribe_pattern(bob, Pattern.slashes("b/#"))
    router.unsubscribe_name(bob, b"exact")
    two.settle()
    sibling = two[0].links[1][0]
    assert known(sibling) == {Pattern.dots("a.*.c")}


def test_a_copy_goes_to_who_wants_only_that(two):
    two[1].join("eve")
    two[1].say("bob", b"sub //fwd/x\n")
    two[1].say("eve", b"sub //x\n")
    two.settle()
    two[0].say("ann", b"pub //x/y 1 1\n")
    two.settle()
    assert two[1].hears("bob") == b"pub //fwd/x/y 1 1\n"
    assert two[1].hears("eve") == b"pub //x/y 1 1\n"
    two[1].leave("eve")
    two.settle()
    two[0].say("ann", b"pub //x/y 1 2\n")
    two.settle()
    assert two[1].hears("bob") == b"pub //fwd/x/y 1 2\n"


def test_a_large_message_crosses_in_pieces(two):
    two[1].say("bob", b"sub big\n")
    two.settle()
    data = bytes(range(256)) * 4000
    message = b"pub big %d %b\n" % (len(data), data)
    for start in range(0, len(message), 262_144):
        two[0].say("ann", message[start : start + 262_144])
    (batch,) = two[0].links[1][1]
    two[0].links[1][1].clear()
    for start in range(0, len(batch), 100_000):
        two.carry(0, 1, batch[start : start + 100_000])
    assert two[1].hears("bob") == message


def test_a_subscription_is_in_force_everywhere_before_its_client_knows(two):
    two[1].say("bob", b"sub a\npub //pubsubd/ping 1 1\n")
    assert two[1].hears("bob") == b""
    assert two.step(1)  # the other worker has it, and has said so
    assert two[1].hears("bob") == b""
    two[0].say("ann", b"pub a 1 x\n")
    assert two.step(0)
    heard = two[1].hears("bob")
    assert sorted(heard.splitlines()) == [b"pub //pubsubd/ping 1 1", b"pub a 1 x"]


def test_a_ping_says_that_siblings_have_what_came_before(two):
    two[1].say("bob", b"sub a\n")
    two.settle()
    two[0].say("ann", b"pub a 1 x\npub //pubsubd/ping 0 \n")
    assert two[0].hears("ann") == b""
    two.step(0)
    assert two[1].hears("bob") == b"pub a 1 x\n"
    assert two[0].hears("ann") == b""
    two.step(1)
    assert two[0].hears("ann") == b"pub //pubsubd/ping 0 \n"
    two[0].say("ann", b"pub //pubsubd/ping 0 \n")  # nothing new: nobody has to be asked
    assert two[0].hears("ann") == b"pub //pubsubd/ping 0 \n"


def test_a_sibling_that_is_silent_holds_nobody_for_ever(two):
    two[1].say("bob", b"sub a\npub //pubsubd/ping 1 1\n")
    two.step(1)
    two[0].links[1][1].clear()  # its answer is lost
    two.now = two[1].siblings.due
    two[1].siblings.expire()
    assert two[1].hears("bob") == b"pub //pubsubd/ping 1 1\n"


def test_a_worker_that_dies_takes_only_its_own_along():
    workers = Workers(3)
    for number in range(3):
        workers[number].join("sub")
        workers[number].say("sub", b"sub a\n")
    workers.settle()
    workers[1].say("sub", b"sub b\npub //pubsubd/ping 0 \n")
    workers.kill(2)
    workers.settle()
    assert workers[1].hears("sub") == b"pub //pubsubd/ping 0 \n"
    workers[0].say("sub", b"pub a 1 x\n")
    workers.settle()
    assert [workers[number].hears("sub") for number in (0, 1)] == [b"pub a 1 x\n"] * 2
    assert not workers[0].broker.router.index.values.keys() - {b"a", b"b"}


def test_what_fails_while_a_dead_sibling_is_forgotten_holds_nobody(two, monkeypatch):
    one, lost = two[1].siblings, []
    one.on_gone.insert(0, broken)
    one.on_lost = lost.append
    monkeypatch.setattr(one.questions, "forget", broken)
    two[1].say("bob", b"sub b\npub //pubsubd/ping 0 \n")
    two.kill(0)
    two.settle()
    assert two[1].hears("bob") == b"pub //pubsubd/ping 0 \n"
    assert lost == [0]
    assert sum(two[1].broker.faults.counts.values()) == 2


def test_a_new_worker_learns_everything(two):
    for number in range(2_000):
        two[1].say("bob", b"sub s%d\n" % number)
    two.settle()
    two.kill(0)
    two.all[0] = type(two[1])(two, 0)
    two[0].join("ann")
    two[0].link(1)
    two[1].link(0)
    assert not two[0].siblings.introduced
    two.settle()
    assert two[0].siblings.introduced
    two[0].say("ann", b"pub s1999 1 x\n")
    two.settle()
    assert two[1].hears("bob") == b"pub s1999 1 x\n"


def test_messages_are_counted_once(two):
    two[1].say("bob", b"sub a\n")
    two[0].say("ann", b"sub a\n")
    two.settle()
    two[0].say("ann", b"pub a 1 x\n" * 10)
    two.settle()
    counters = [worker.broker.counters for worker in two.all]
    assert [one.messages_in for one in counters] == [10, 0]
    assert [one.messages_out for one in counters] == [10, 10]


def test_the_daemons_own_names_stay_with_their_worker(two):
    two[1].say("bob", b"sub //pubsubd/events\nsub\n")
    two.settle()
    two[0].broker.delivery.publish(b"//pubsubd/events", b"{}")
    two.settle()
    assert two[1].hears("bob") == b""
    assert known(two[0].links[1][0]) == {b""}


def test_the_way_of_a_message_says_who_has_published_it(two):
    two[1].say("bob", b"sub a\n")
    two.settle()
    two[0].join("eve")
    two[0].say("ann", b"pub a 1 x\n")
    two[0].say("eve", b"pub a 1 y\n")
    heads = [frames.open_batch([memoryview(one)[5:]])[:4] for one in two[0].links[1][1]]
    number = two[0].peers["ann"].number, two[0].peers["eve"].number
    assert heads == [(0, 1, number[0], b"tcp/ann"), (0, 1, number[1], b"tcp/eve")]
    ann = two[0].peers["ann"]
    two[0].broker.delivery.enqueue(ann, b"a", b"z")
    two[0].broker.delivery.flush()
    batch = memoryview(two[0].links[1][1][-1])
    assert frames.open_batch([batch[5:]])[:4] == (frames.VOUCHED, 1, number[0], b"tcp/ann")


def test_what_all_peers_want_alike_is_not_looked_into(two):
    worker, ann = two[1], two[0]
    worker.say("bob", b"sub a\nsub //fwd/b\n")
    two.settle()
    lookups = worker.broker.router.lookups
    ann.say("ann", b"".join(b"pub a%d 1 x\npub //b/%d 1 y\npub b 1 z\n" % (n, n) for n in range(9)))
    two.settle()
    heard = b"".join(b"pub a%d 1 x\npub //fwd/b/%d 1 y\n" % (n, n) for n in range(9))
    assert worker.hears("bob") == heard
    assert worker.broker.router.lookups == lookups
    assert worker.peers["bob"].messages_out == 18
    worker.join("eve")
    worker.say("eve", b"sub //fwd/b\nsub a\n")
    two.settle()
    ann.say("ann", b"pub a9 1 x\npub b 1 z\n")
    two.settle()
    assert worker.hears("bob") == worker.hears("eve") == b"pub a9 1 x\n"
    assert worker.broker.router.lookups == lookups
    worker.say("eve", b"unsub a\nunsub //fwd/b\nsub a8\n")
    two.settle()
    ann.say("ann", b"pub a8 1 x\npub a7 1 x\n")
    two.settle()
    assert worker.hears("eve") == b"pub a8 1 x\n"
    assert worker.hears("bob") == b"pub a8 1 x\npub a7 1 x\n"


@pytest.mark.parametrize(("receivers", "copied"), [(1, False), (8, False), (9, True)])
def test_what_a_few_peers_want_alike_is_sent_to_them_as_it_was_read(two, receivers, copied):
    worker, sent = two[1], []
    for number in range(receivers):
        worker.join(str(number))
        worker.say(str(number), b"sub a\n")
        worker.peers[str(number)].send = sent.append
    two.settle()
    two[0].say("ann", b"pub a 1 x\npub a 2 yy\n")
    two.settle()
    assert len(sent) == receivers
    assert all(one is sent[0] for one in sent)
    assert isinstance(sent[0], bytes) == copied
    whole = sent[0] if copied else sent[0].whole()
    assert whole == b"pub a 1 x\npub a 2 yy\n"
    assert {worker.peers[str(number)].messages_out for number in range(receivers)} == {2}


def test_what_is_under_way_is_not_given_to_who_has_unsubscribed(two):
    worker = two[1]
    worker.join("eve")
    for name in ("bob", "eve"):
        worker.say(name, b"sub a\nsub b\n")
    two.settle()
    two[0].say("ann", b"pub a 1 x\npub b 1 y\n")
    (batch,) = two[0].links[1][1]
    two[0].links[1][1].clear()
    for name in ("bob", "eve"):
        worker.say(name, b"unsub a\n")
    two.carry(0, 1, batch)
    assert worker.hears("bob") == worker.hears("eve") == b"pub b 1 y\n"
    two.settle()
    lookups = worker.broker.router.lookups
    two[0].say("ann", b"pub b2 1 x\n")
    two.settle()
    assert worker.hears("bob") == worker.hears("eve") == b"pub b2 1 x\n"
    assert worker.broker.router.lookups == lookups


def test_what_has_been_read_together_is_delivered_together(two):
    worker = two[1]
    worker.join("eve")
    worker.say("bob", b"sub a\n")
    worker.say("eve", b"sub b\n")
    two[0].join("amy")
    two.settle()
    for size in (1 << 20, 50, 1):
        for number in range(9):
            two[0].say(("ann", "amy")[number % 2], b"pub a 1 %d\npub b 1 y\npub c 1 z\n" % number)
        stream = b"".join(two[0].links[1][1])
        two[0].links[1][1].clear()
        worker.sends = dict.fromkeys(worker.sends, 0)
        for start in range(0, len(stream), size):
            two.carry(0, 1, stream[start : start + size])
        assert worker.hears("bob") == b"".join(b"pub a 1 %d\n" % number for number in range(9))
        assert worker.hears("eve") == b"pub b 1 y\n" * 9
        if size > len(stream):
            assert worker.sends == {"bob": 1, "eve": 1}


def said_apart(two: Workers, *said: bytes) -> bytes:
    """Return what is sent for what ann says, with something between that is no message."""
    queue = two[0].links[1][1]
    two[0].say("ann", b"".join(b"sub %d\n" % number for number in range(len(said))))
    two.settle()
    for number, data in enumerate(said):
        two[0].say("ann", data)
        two[0].say("ann", b"unsub %d\n" % number)
        two[0].siblings.act()
    sent = b"".join(queue)
    queue.clear()
    return sent


def take_as_a_link(two: Workers, data: bytes) -> int:
    """Let bob's worker take what ann's has sent, as a connection does; return in how many turns."""
    delivery, (sibling, _) = two[1].broker.delivery, two[1].links[0]
    turns, more = 1, sibling.receive(data)
    while more or delivery.unsent:
        while delivery.unsent:
            delivery.turn.begin()
            delivery.send_some()
        turns, more = turns + 1, sibling.receive(b"")
    return turns


def test_what_a_turn_could_not_send_is_not_overtaken_by_what_was_read_with_it(two):
    names = [f"s{number}" for number in range(50)]
    for number, name in enumerate(names):
        two[1].join(name)
        two[1].say(name, b"sub a\n" + b"sub b\n" * (number % 10 == 9))
    two.settle()
    sent, now = said_apart(two, b"pub a 1 1\n", b"pub b 1 2\n"), [0.0]
    for name in names:
        two[1].peers[name].send = partial(_send_slowly, two[1].peers[name].send, now)
    two[1].broker.delivery.turn = Turn(lambda: now[0])
    assert take_as_a_link(two, sent) > 1
    for number, name in enumerate(names):
        assert two[1].hears(name) == b"pub a 1 1\n" + b"pub b 1 2\n" * (number % 10 == 9)


def _send_slowly(send: Callable[[bytes], None], now: list[float], data: bytes) -> None:
    now[0] += TURN / 10
    send(data)


def test_nor_is_it_while_others_are_sent_to(two):
    two[1].join("far")
    two[1].say("far", b"sub a\n")
    sent: list[bytes] = []
    two[1].peers["far"].render = lambda part: sent.append(part) or True
    two[1].peers["far"].send = sent.append
    for number in range(50):
        two[1].join(f"s{number}")
        two[1].say(f"s{number}", b"sub b\n")
    two.settle()
    data, delivery = said_apart(two, b"pub a 1 1\n" * 200, b"pub a 1 2\n"), two[1].broker.delivery
    delivery.turn = Turn(itertools.count(step=TURN / 10).__next__)
    two[1].say("bob", b"pub b 1 x\n")
    assert delivery.unsent
    delivery.turn = Turn(lambda: 0.0)  # no time goes by
    take_as_a_link(two, data)
    assert b"".join(sent) == b"pub a 1 1\n" * 200 + b"pub a 1 2\n"


def test_questions_are_answered_by_all_who_can(two):
    two[1].siblings.questions[b"twice"] = lambda data: data * 2
    answers = two[0].siblings.questions.send(b"twice", b"ab")
    assert answers.waiting == {1}
    two.settle()
    assert (answers.got, answers.silent) == ({1: b"abab"}, [])
    answers = two[0].siblings.questions.send(b"nothing", b"")
    two.settle()
    assert (answers.got, answers.silent) == ({}, [1])
    answers = two[0].siblings.questions.send(b"twice", b"")
    two.kill(1)
    assert answers.silent == [1]


def test_frames_come_out_however_they_are_cut():
    stream = b"".join(frames.frame(kind, bytes((kind - 1) * 100)) for kind in range(1, 9))
    for size in (1, 3, 7, 100, len(stream)):
        reader, found = frames.Frames(), []
        for start in range(0, len(stream), size):
            reader.feed(stream[start : start + size])
            while (one := reader.take()) is not None:
                kind, data = one
                found.append((kind, b"".join(data)))
        assert found == [(kind, bytes((kind - 1) * 100)) for kind in range(1, 9)]
        assert reader.size == 0


def test_what_is_under_way_is_not_given_to_who_has_come_since(two):
    worker = two[1]
    worker.join("eve")
    worker.say("bob", b"sub secret\n")
    two.settle()
    two[0].say("ann", b"pub secret 1 x\n")
    worker.leave("bob")
    worker.say("eve", b"sub other\n")
    (batch,) = two[0].links[1][1]
    two[0].links[1][1].clear()
    two.carry(0, 1, batch)
    assert worker.hears("eve") == b""
    two.settle()
    two[0].say("ann", b"pub other 1 x\n")
    two.settle()
    assert worker.hears("eve") == b"pub other 1 x\n"


def test_messages_do_not_wait_for_answers_and_late_questions_are_left_out(two):
    asked = []

    def never(data: bytes) -> Iterator[None]:
        asked.append(data)
        while True:
            yield

    questions = two[1].siblings.questions
    questions[b"never"] = never
    two[1].say("bob", b"sub a\n")
    two.settle()
    two[0].siblings.questions.send(b"never", b"1")
    two[0].siblings.questions.send(b"never", b"2")
    two[0].say("ann", b"pub a 1 x\n")
    _, queue = two[0].links[1]
    while queue:
        two.carry(0, 1, queue.popleft())
    assert two[1].hears("bob") == b"pub a 1 x\n"
    assert asked == []
    two.now += PATIENCE
    assert not questions.work()
    assert asked == []


@pytest.mark.parametrize(("means", "others"), [("hand", 0), ("deliver", 9)])
def test_what_fails_of_messages_costs_these_and_not_the_link(two, monkeypatch, means, others):
    for name in ("bob", *map(str, range(others))):
        if name != "bob":
            two[1].join(name)
        two[1].say(name, b"sub n\n")
    two.settle()
    with monkeypatch.context() as patch:
        patch.setattr(two[1].broker.delivery, means, broken)
        two[0].say("ann", b"pub n 1 x\n")
        two.settle()
    two[0].say("ann", b"pub n 1 y\n")
    two.settle()
    assert two[1].hears("bob") == b"pub n 1 y\n"
    assert sum(two[1].broker.faults.counts.values()) == 1
    assert list(two[1].siblings.others) == [0]


@pytest.mark.parametrize("late", [False, True], ids=["at once", "in steps"])
def test_what_fails_of_anything_else_a_sibling_tells_ends_the_link(two, late):
    def fail_later(*_: object) -> Iterator[None]:
        yield
        broken()

    two[1].siblings.told[b"x"] = fail_later if late else broken
    two[0].siblings.tell(b"x", b"")
    with pytest.raises(RuntimeError):
        two.settle()


def broken(*_: object) -> None:
    raise RuntimeError("on purpose")


def test_who_causes_much_waits_for_siblings_that_are_behind(two):
    two[1].say("bob", b"sub a\n")
    two.settle()
    siblings = two[0].siblings
    assert siblings.behind() is None  # nothing is under way
    two[0].say("ann", b"pub a 1 x\n")
    assert siblings.behind() is None  # from now on it is known what is
    two.now += 0.9 * AHEAD
    assert siblings.behind() is None
    two.now += 0.2 * AHEAD
    held = siblings.behind()
    assert held is not None
    assert not held.over
    assert two[0].woken  # to ask the other worker to say when it has done it
    two.settle()
    assert held.over
    assert siblings.behind() is None


def test_a_sibling_is_full_long_before_messages_for_it_are_lost(two):
    sibling, _ = two[0].links[1]
    assert sibling.full <= sibling.max_pending // 100


def test_who_causes_much_waits_once_for_a_sibling_that_is_stuck(two):
    two[1].say("bob", b"sub a\n")
    two.settle()
    siblings = two[0].siblings
    two[0].say("ann", b"pub a 1 x\n")
    siblings.behind()
    two.now += 2 * AHEAD
    assert siblings.behind() is not None
    siblings.act()
    two.now = siblings.due
    siblings.expire()
    for _ in range(3):  # it goes on being stuck
        two[0].say("ann", b"pub a 1 x\n")
        siblings.act()
        two.now += 2 * AHEAD
        assert siblings.behind() is None
    two.settle()
    two[0].say("ann", b"pub a 1 x\n")
    assert siblings.behind() is None
    two.now += 2 * AHEAD
    assert siblings.behind() is not None


def test_siblings_that_keep_up_are_asked_nothing(two):
    two[1].say("bob", b"sub a\n")
    two.settle()
    for _ in range(3):
        two[0].say("ann", b"pub a 1 x\n")
        assert two[0].siblings.behind() is None
        assert not two[0].woken
        two.settle()
        two.now += 2 * AHEAD


def test_who_causes_much_goes_on_when_a_sibling_says_that_it_has_done_all(two, monkeypatch):
    monkeypatch.setattr(two.progress, "note", broken_note)  # it is not seen to
    two[1].say("bob", b"sub a\n")
    two.settle()
    siblings = two[0].siblings
    for _ in range(3):
        two[0].say("ann", b"pub a 1 x\n")
        siblings.behind()
        two.now += 2 * AHEAD
        held = siblings.behind()
        assert held is not None
        two.settle()
        assert held.over
        assert siblings.behind() is None


def broken_note(_worker: int, _source: int, _done: int) -> None:
    """Note nothing."""
