"""Workers whose clients fill slow consumers at other workers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from pubsubd.broker.peer import Peer
from pubsubd.protocol.limits import MIB
from pubsubd.routing.outbox import Hold, Pieces
from pubsubd.siblings import frames
from pubsubd.siblings.sibling import Sibling
from pubsubd.siblings.siblings import LONGEST
from pubsubd.siblings.waiting import MAX_KEPT, Speaker
from tests.hubs import message_b
from tests.unit.siblings.webs import HubWorker, Worker, Workers, known


class Consumer:
    """A connection that is filled."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer


class Busy(Worker):
    """A worker with peers that have no room for what they are sent.

    Attributes:
        full: their names.
        relieved: speakers of other workers that wait for them.
        held_up: what whoever speaks here has to wait for.
    """

    def __init__(self, workers: Workers, number: int) -> None:
        super().__init__(workers, number)
        self.full: set[str] = set()
        self.waiting: list[Speaker] = []
        self.held_up: list[Hold] = []
        self.siblings.relieve = self.waiting.append
        self.siblings.hold_up = self.held_up.append
        for _ in range(3 * number):  # numbers of connections are the daemon's, not a worker's
            self.broker.join("", lambda _data: None)
        for name in ("ann", "eve") if number == 0 else ("bob", "sue"):
            self.join(name)

    def join(self, name: str) -> None:
        super().join(name)
        peer, delivery = self.peers[name], self.broker.delivery
        send, consumer = peer.send, Consumer(peer)

        def fill(data: bytes | Pieces) -> None:
            send(data)
            speaker = delivery.speaker
            if name in self.full and speaker is not None and speaker.strain is not None:
                speaker.strain(consumer)

        peer.send = fill

    def relieve(self) -> None:
        """Let all that wait for consumers go on, in turns of one batch."""
        while self.waiting:
            speaker = self.waiting.pop(0)
            while not speaker.done:
                speaker.take()
                speaker.work(lambda: True)
            speaker.go_on()


@pytest.fixture
def two() -> Any:
    """Two workers: ann and eve at the first one; bob, who wants a, and sue, who wants b."""
    workers = Workers(2, Busy)
    workers[1].say("bob", b"sub a\n")
    workers[1].say("sue", b"sub b\n")
    workers.settle()
    workers[1].full.add("bob")
    return workers


def say(workers: Any, name: str, data: bytes) -> None:
    workers[0].say(name, data)
    workers.settle()


def test_what_comes_of_one_who_has_filled_a_consumer_is_kept_and_all_else_passes(two: Any) -> None:
    for number in range(4):
        say(two, "ann", b"pub a 1 %d\n" % number)
        say(two, "ann", b"pub b 1 %d\n" % number)
        say(two, "eve", b"pub b 1 x\n")
    assert two[1].hears("bob") == b"pub a 1 0\n"
    assert two[1].hears("sue") == 4 * b"pub b 1 x\n"
    assert len(two[1].waiting) == 1
    two[1].relieve()
    assert two[1].hears("bob") == b"".join(b"pub a 1 %d\n" % number for number in range(1, 4))
    assert two[1].hears("sue") == b"".join(b"pub b 1 %d\n" % number for number in range(4))
    say(two, "ann", b"pub b 1 y\n")
    assert two[1].hears("sue") == b"pub b 1 y\n"


def test_one_who_waits_for_a_consumer_of_a_sibling_is_not_read_until_that_has_room(
    two: Any,
) -> None:
    say(two, "ann", b"pub a 1 x\n")
    say(two, "eve", b"pub a1 1 y\npub c 1 z\n")
    assert two[0].held_up == []  # nobody knew before
    two[0].say("ann", b"pub c 1 x\n")  # nobody there wants it
    assert two[0].held_up == []
    two[0].say("ann", b"pub b 1 x\n")
    (ann,) = two[0].held_up
    two[0].say("eve", b"pub b 1 x\n")
    _, eve = two[0].held_up
    assert not ann.over
    assert not eve.over
    two[1].relieve()
    two.settle()
    assert ann.over
    assert eve.over
    two[0].say("ann", b"pub b 1 x\n")
    assert len(two[0].held_up) == 2


def test_an_answer_to_a_ping_waits_for_what_its_client_has_said_before(two: Any) -> None:
    ping = b"pub //pubsubd/ping 1 x\n"
    two[0].say("ann", b"pub a 1 x\npub a 1 y\n" + ping)
    two[0].say("ann", b"pub a 1 z\n" + ping)
    say(two, "eve", b"pub b 1 y\n" + ping)
    assert two[0].hears("eve") == ping
    say(two, "ann", ping)
    assert two[0].hears("ann") == b""
    two[1].relieve()
    assert two[1].hears("bob").endswith(b"pub a 1 z\n")
    two.settle()
    assert two[0].hears("ann") == 3 * ping


def test_one_who_is_known_to_wait_has_no_answer_before_what_it_has_said_last(two: Any) -> None:
    say(two, "ann", b"pub a 1 x\n")
    say(two, "ann", b"pub a 1 y\npub //pubsubd/ping 1 x\n")
    assert two[0].hears("ann") == b""
    two[1].relieve()
    two.settle()
    assert two[0].hears("ann") == b"pub //pubsubd/ping 1 x\n"


def test_a_lost_link_frees_who_waits_and_what_had_come_is_delivered(two: Any) -> None:
    say(two, "ann", b"pub a 1 x\n")
    say(two, "ann", b"pub a 1 y\n")
    (held,) = two[0].held_up
    sibling, _ = two[0].links.pop(1)
    for end in (sibling, two[1].links.pop(0)[0]):
        for step in end.leaving():
            for _ in step():
                pass
    assert held.over
    two[1].relieve()
    assert two[1].hears("bob") == b"pub a 1 x\npub a 1 y\n"


def test_who_waits_for_a_sibling_that_says_nothing_more_goes_on(two: Any) -> None:
    say(two, "ann", b"pub a 1 x\n")
    say(two, "ann", b"pub a 1 y\n")
    (held,) = two[0].held_up
    two.now += LONGEST / 2
    two[1].waiting[0].tell()
    two.settle()
    two.now += LONGEST * 0.9
    two[0].siblings.expire()
    assert not held.over
    two.now = two[0].siblings.due
    two[0].siblings.expire()
    assert held.over


def test_the_link_waits_while_too_much_is_kept(two: Any) -> None:
    say(two, "ann", b"pub a 1 x\n")
    frame = b"pub a %d %b\n" % (MIB, bytes(MIB))
    for _ in range(MAX_KEPT // MIB):
        say(two, "ann", frame)
        held_up = two[1].held_up
    assert [hold.over for hold in held_up] == [False]
    two[1].relieve()
    assert [hold.over for hold in held_up] == [True]


def test_a_worker_that_says_no_more_is_done_when_nothing_of_it_is_kept(two: Any) -> None:
    say(two, "ann", b"pub a 1 x\n")
    two[0].siblings.say_out()
    two.settle()
    (held,) = two[1].held_up
    assert not held.over
    two[1].relieve()
    assert held.over


def read_together(workers: Any, *said: tuple[str, bytes]) -> None:
    """Let what several clients of the first worker say be read by the second one at once."""
    _, queue = workers[0].links[1]
    for name, data in said:
        workers[0].say(name, data)
    stream = b"".join(queue)
    queue.clear()
    workers.carry(0, 1, stream)


def test_of_several_who_have_filled_a_consumer_together_those_wait_who_have_sent_to_it(
    two: Any,
) -> None:
    read_together(two, ("eve", b"pub b 1 1\n"), ("ann", b"pub a 1 1\n"))
    read_together(two, ("ann", b"pub a 1 2\n"), ("eve", b"pub b 1 2\n"))
    assert two[1].hears("bob") == b"pub a 1 1\n"
    assert two[1].hears("sue") == b"pub b 1 1\npub b 1 2\n"
    assert [speaker.number for speaker in two[1].waiting] == [two[0].peers["ann"].number]


def test_one_who_would_fill_a_consumer_further_waits_before_it_does(two: Any) -> None:
    say(two, "ann", b"pub a 1 x\n")
    say(two, "eve", b"pub a2 1 x\n")
    assert two[1].hears("bob") == b"pub a 1 x\n"
    assert len(two[1].waiting) == 2
    two[1].relieve()
    assert two[1].hears("bob") == b"pub a2 1 x\n"
    two[1].full.clear()
    two.settle()
    say(two, "eve", b"pub a3 1 x\n")
    assert two[1].hears("bob") == b"pub a3 1 x\n"


def test_the_rest_of_what_has_filled_a_consumer_waits_too(two: Any) -> None:
    delivery, bob, taken = two[1].broker.delivery, Consumer(two[1].peers["bob"]), []

    def take(_sibling: Sibling, letter: bytes) -> Iterator[None]:
        for number in range(3):
            taken.append(letter + b"%d" % number)
            delivery.speaker.strain(bob)
            yield

    two[1].siblings.open_letter = take
    sibling, _ = two[0].links[1]
    for letter in (b"a", b"b"):
        sibling.say(frames.LETTER, b"%d\n%b" % (two[0].peers["ann"].number, letter))
    two.settle()
    (speaker,) = two[1].waiting
    for count in range(1, 7):
        assert taken == [b"a0", b"a1", b"a2", b"b0", b"b1", b"b2"][:count]
        speaker.take()
        speaker.work(lambda: False)
    speaker.take()
    speaker.work(lambda: False)
    assert speaker.done


def test_what_a_sibling_tells_in_steps_does_not_wait_for_a_consumer(two: Any) -> None:
    say(two, "ann", b"pub a 1 x\n")
    two[0].say("eve", b"".join(b"sub e%d\n" % number for number in range(200)))
    two.settle()
    assert known(two[1].siblings.others[0]) == {b"e%d" % number for number in range(200)}


def test_while_a_consumer_is_full_speakers_are_kept_apart(two: Any) -> None:
    two[1].say("bob", b"sub b\n")  # it is no more to be known by the first message alone
    two.settle()
    said = b"pub c 1 x\npub a 1 x\n"
    two[1].join("tim")
    for name in ("sue", "tim"):
        two[1].say(name, b"sub c\n")
    two.settle()
    read_together(two, ("eve", said), ("ann", b"pub c 1 y\n"))
    assert two[1].waiting == []
    read_together(two, ("eve", said), ("ann", b"pub c 1 y\n"))
    assert [speaker.number for speaker in two[1].waiting] == [two[0].peers["eve"].number]


def test_a_subscription_that_is_no_more_gets_nothing_that_was_kept(two: Any) -> None:
    two[1].say("sue", b"unsub b\nsub a\n")
    two.settle()
    say(two, "ann", b"pub a 1 x\n")
    say(two, "ann", b"pub a 1 y\n")
    two[1].hears("sue")
    two[1].say("bob", b"unsub a\nsub c\n")
    two[1].say("sue", b"unsub a\nsub c\n")
    two.settle()
    two[1].full.clear()
    two[1].siblings.others[0].waiting.filled.clear()
    for _ in range(2):  # until all who are there are known to want the same
        say(two, "eve", b"pub c 1 x\n")
    two[1].hears("bob")
    two[1].hears("sue")
    two[1].relieve()
    assert two[1].hears("bob") == two[1].hears("sue") == b""


def test_an_owner_gets_nothing_that_was_kept_and_that_it_wants_no_more(two: Any) -> None:
    for number in range(9):
        two[1].join(str(number))
        two[1].say(str(number), b"sub <%d>\nsub more%d\n" % (number, number))
    two.settle()
    say(two, "ann", b"pub a 1 x\n" + b"".join(b"pub <%d> 1 x\n" % n for n in range(9)))
    (speaker,) = two[1].waiting
    assert not speaker.done
    two[1].say("7", b"unsub <7>\n")
    two.settle()
    say(two, "eve", b"pub <8> 1 y\n")  # until it is known that nothing more comes for who has left
    two[1].full.clear()
    two[1].relieve()
    assert [two[1].hears(str(n)).count(b"x") for n in range(9)] == [1] * 7 + [0, 1]


def publish(data: int) -> dict[str, Any]:
    payload = {"topic": "news", "type": "n", "data": data}
    return message_b("hub:publish", payload, me="x/ann")


def send(data: int) -> dict[str, Any]:
    return message_b("hub:send", {"to": "x/bob", "type": "t", "data": data}, me="x/ann")


def test_messages_to_actors_wait_in_order_with_what_their_sender_publishes() -> None:
    two = Workers(2, HubWorker)
    two[0].register("ann")
    two[0].register("eve")
    two[1].register("bob")
    two[1].say("bob", message_b("hub:subscribe", {"topic": "news"}, me="x/bob"))
    two.settle()
    two[1].hears("bob")
    delivery = two[1].broker.delivery
    waiting: list[Speaker] = []
    held_up: list[Hold] = []
    two[1].siblings.relieve, two[0].siblings.hold_up = waiting.append, held_up.append

    bob = Consumer(two[1].connections["bob"].peer)

    def fill(data: Any) -> None:
        two[1].heard["bob"] += data if isinstance(data, bytes) else data.whole()
        delivery.speaker.strain(bob)

    two[1].sends["bob"] = fill
    for number in range(0, 6, 2):
        two[0].say("ann", send(number), publish(number + 1))
        two.settle()
    assert [one["payload"] for one in two[1].hears("bob")] == [0]
    assert held_up
    (speaker,) = waiting
    assert speaker.number == two[0].connections["ann"].peer.number
    held_up.clear()
    two[0].say("ann", send(6))
    assert held_up  # who sends to actors alone waits, too
    two.settle()
    while not speaker.done:
        speaker.take()
        speaker.work(lambda: False)
    speaker.go_on()
    two.settle()
    assert [one["payload"] for one in two[1].hears("bob")] == [1, 2, 3, 4, 5, 6]
    assert all(hold.over for hold in held_up)
