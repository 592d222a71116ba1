"""Messages to actors of other daemons arrive once and in order, or their sender is told."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from pubsubd.broker.actor_messages import ActorMessage
from pubsubd.broker.turn import finish
from pubsubd.mesh import incoming, outgoing
from pubsubd.protocol import wire
from pubsubd.protocol.steps import Later
from tests.federations import BareHub
from tests.webs import Web


class Told:
    """One who waits for what becomes of a message.

    Attributes:
        ended: why it was ended.
    """

    def __init__(self, take: Callable[[int | None], None]) -> None:
        self.peer = self
        self.ended: list[str] = []
        self._take = take

    def __call__(self, at: int | None) -> None:
        self._take(at)

    def end(self, code: str, _text: str) -> None:
        self.ended.append(code)


class Office:
    """The streams of one daemon, and what is delivered there.

    Attributes:
        absent: addresses that nobody has.
        pause: returns after how many seconds it is known what has become of a letter; None for
            at once.
        heard: sender and receiver -> what was delivered.
        told: message -> when it was delivered, or None.
    """

    def __init__(self, web: Web, name: str) -> None:
        self.mesh = web[name].mesh
        self.streams = self.mesh.streams
        self.streams.deliver = self._deliver
        self.absent: set[str] = set()
        self.pause: Callable[[], float] | None = None
        self._web = web
        self.heard: dict[str, list[int]] = {}
        self.told: dict[int, int | None] = {}
        BareHub(web[name])

    def _deliver(self, _node: str, key: str, body: bytes, _ask: bool) -> bool | Later:
        there = self._hand(key, body)
        if self.pause is None:
            return there
        later = Later()
        self._web.schedule(self._web.now + self.pause(), lambda: later.done(there))
        return later

    def _hand(self, key: str, body: bytes) -> bool:
        if body == b"bad":
            raise ValueError(body)
        if key in self.absent:
            return False
        sender, number = body.decode().split()
        self.heard.setdefault(f"{sender} {key}", []).append(int(number))
        return True

    def send(self, to: str, number: int, sender: str = "x/ann", key: str = "x/bob") -> bool:
        """Send a numbered message; what becomes of it is told once."""

        def take(at: int | None) -> None:
            assert number not in self.told
            self.told[number] = at

        answer = Told(take)
        body = b"%b %d" % (sender.encode(), number)
        message = ActorMessage((sender, key), body, number % 7 == 0, answer)
        sent = self.streams.send(to, message)
        self.mesh.letters.post()
        return sent


def start(*edges: str) -> tuple[Web, dict[str, Office]]:
    """Return a mesh that has settled."""
    web = Web()
    web.add(*sorted(set("".join(edges))))
    offices = {name: Office(web, name) for name in web.nodes}
    web.link(*edges)
    web.run()
    return web, offices


def disturb(office: Office, fate: Callable[[str], list[float]], web: Web, to: Office) -> None:
    """Let each letter of a daemon to another come after each of some seconds, as ``fate`` says."""
    (me,) = [name for name, node in web.nodes.items() if node.mesh is office.mesh]

    def send(_node: str | None, words: str, body: bytes = b"") -> None:
        for after in fate(words):
            web.schedule(web.now + after, come, words.split(" "), body)

    def come(words: list[str], body: bytes) -> None:
        finish(to.mesh.letters.kinds[words[0]](me, words, body) or iter(()))
        to.streams.incoming.confirm()

    office.mesh.letters.send = send  # type: ignore[method-assign]


def test_what_a_new_link_carries_faster_waits_for_what_was_sent_before() -> None:
    web, offices = start("ab", "bc")
    web.link("ca")
    direct = False
    for number in range(1, 400):
        offices["a"].send("c", number)
        direct = direct or web["a"].mesh.links["c"].ready if "c" in web["a"].mesh.links else False
        web.run(0.0003)
    web.run(0.1)
    assert direct
    assert offices["c"].heard == {"x/ann x/bob": list(range(1, 400))}
    assert offices["a"].told.keys() == set(range(1, 400))
    assert None not in offices["a"].told.values()
    assert offices["a"].streams.outgoing.repeated == 0


@pytest.mark.parametrize("passed_on", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_on_any_way_each_arrives_once_and_in_order_or_its_sender_is_told(
    seed: int, passed_on: bool
) -> None:
    rng = random.Random(seed)
    web, offices = start("ab")
    near, far = offices["a"], offices["b"]
    far.absent = {"x/nobody"}
    if passed_on:
        far.pause = lambda: rng.random() * 0.1

    def fate(_words: str) -> list[float]:
        return [rng.random() * 0.05 for _ in range(rng.choice((0, 1, 1, 1, 2)))]

    disturb(near, fate, web, far)
    disturb(far, fate, web, near)
    pairs = [(f"x/{one}", key) for one in "abc" for key in ("x/bob", "x/cid", "x/nobody")]
    sent: dict[str, list[int]] = {}
    lost = set()
    for number in range(300):
        sender, key = rng.choice(pairs)
        near.send("b", number, sender, key)
        if key in far.absent:
            lost.add(number)
        else:
            sent.setdefault(f"{sender} {key}", []).append(number)
        web.run(rng.choice((0.0, 0.0, 0.01)))
    web.run(outgoing.PATIENCE + 1)
    assert near.told.keys() == set(range(300))
    unconfirmed = {number for number, at in near.told.items() if at is None} - lost
    for pair, numbers in sent.items():
        heard = far.heard[pair]
        assert heard == sorted(set(heard))
        assert set(numbers) - set(heard) <= unconfirmed
    assert lost <= {number for number, at in near.told.items() if at is None}
    assert len(unconfirmed) < 3
    assert near.streams.outgoing.size == far.streams.incoming.held == 0
    assert near.streams.outgoing.lost == len(lost | unconfirmed)


def test_a_lost_letter_is_sent_again_and_holds_up_only_those_behind_it() -> None:
    web, offices = start("ab")
    near, far = offices["a"], offices["b"]
    fates = iter([[]])
    disturb(near, lambda _words: next(fates, [0.001]), web, far)
    near.send("b", 1)
    near.send("b", 2)
    near.send("b", 3, "x/eve")
    near.send("b", 4, key="x/cid")
    web.run(0.01)
    assert far.heard == {"x/eve x/bob": [3], "x/ann x/cid": [4]}
    assert far.streams.incoming.held > 0
    for number in range(5, 50):  # which are confirmed all the time
        near.send("b", number, "x/eve")
        web.run(outgoing.AGAIN / 40)
    assert far.heard["x/ann x/bob"] == [1, 2]
    web.run(incoming.CONFIRM + 0.01)
    assert near.told.keys() == set(range(1, 50))
    assert near.streams.outgoing.repeated < 5
    assert far.streams.incoming.held == near.streams.outgoing.size == 0


def test_what_is_passed_on_is_confirmed_when_its_fate_is_known_and_holds_up_nothing() -> None:
    web, offices = start("ab")
    near, far = offices["a"], offices["b"]
    pauses = iter([0.4, 0.1, 0.2])
    far.pause = lambda: next(pauses, 10.0)
    for number in (7, 14, 21, 28):
        near.send("b", number)
    web.run(0.01)
    assert far.heard == {"x/ann x/bob": [7, 14, 21, 28]}
    assert near.told == {}
    web.run(0.14)
    assert near.told.keys() == {14}
    web.run(0.4)  # what was not confirmed has come again meanwhile
    assert near.told.keys() == {7, 14, 21}
    assert far.heard == {"x/ann x/bob": [7, 14, 21, 28]}
    web.run(outgoing.PATIENCE)
    assert near.told[28] is None
    far.pause = None
    near.send("b", 35)
    web.run(10.0)  # what has become of the lost one is known too late
    assert near.told.keys() == {7, 14, 21, 28, 35}
    assert near.told[35] is not None


def test_letters_that_are_confirmed_late_are_not_sent_again_as_soon_as_others() -> None:
    web, offices = start("ab")
    near, far = offices["a"], offices["b"]
    far.pause = lambda: 0.4  # longer than AGAIN
    for number in range(500):
        near.send("b", number)
        web.run(0.01)
    web.run(1.0)
    assert near.told.keys() == set(range(500))
    assert far.heard == {"x/ann x/bob": list(range(500))}
    assert near.streams.outgoing.repeated < 100  # those sent before the first was confirmed
    far.pause = None
    for number in range(500, 600):
        near.send("b", number)
        web.run(0.01)
    repeated = near.streams.outgoing.repeated
    fates = iter([[]])
    disturb(near, lambda _words: next(fates, [0.001]), web, far)
    near.send("b", 600)
    web.run(outgoing.AGAIN + 0.1)  # soon again, as they are confirmed at once now
    assert near.streams.outgoing.repeated == repeated + 1
    assert far.heard["x/ann x/bob"][-1] == 600


def test_what_goes_nowhere_is_told_after_a_stated_time_and_those_behind_it_go_on() -> None:
    web, offices = start("ab")
    near, far = offices["a"], offices["b"]
    lost = {"1"}
    disturb(near, lambda words: [] if words.split()[2] in lost else [0.001], web, far)
    near.send("b", 1)
    web.run(outgoing.PATIENCE - 0.1)
    near.send("b", 2)
    web.run(0.05)
    assert near.told == {}
    assert far.heard == {}
    web.run(1.5)
    assert near.told[1] is None
    assert near.told[2] is not None
    assert far.heard == {"x/ann x/bob": [2]}
    lost.clear()
    near.send("b", 3)
    web.run(0.1)
    assert far.heard == {"x/ann x/bob": [2, 3]}


def test_what_an_earlier_start_of_a_daemon_has_not_confirmed_is_told_and_not_sent_again() -> None:
    web, offices = start("ab")
    web.run(11)
    near, far = offices["a"], offices["b"]
    disturb(near, lambda _words: [], web, far)
    near.send("b", 1)
    del near.mesh.letters.send  # type: ignore[method-assign]
    web.kill("b")
    web.add("b")
    again = Office(web, "b")
    web.link("ab")
    web.run(1.0)
    assert near.told == {1: None}
    assert again.heard == {}
    near.send("b", 2)
    web.run(0.1)
    assert again.heard == {"x/ann x/bob": [2]}


def test_a_fault_of_one_who_is_told_ends_that_one_alone() -> None:
    web, offices = start("ab")
    near = offices["a"]

    def fail(_at: int | None) -> None:
        raise RuntimeError

    told = Told(fail)
    near.streams.send("b", ActorMessage(("x/ann", "x/bob"), b"x/ann 1", True, told))
    near.send("b", 2)
    web.run(0.1)
    assert near.told.keys() == {2}
    assert told.ended == ["internal-error"]
    assert near.mesh.broker.faults.counts.total() == 1


def test_letters_out_of_any_bounds_are_not_taken() -> None:
    web, offices = start("ab")
    near, far = offices["a"], offices["b"]

    def post(words: str, body: bytes = b"x/ann 1") -> None:
        near.mesh.letters.send("b", words, body)
        near.mesh.letters.post()
        web.run(0.01)

    post("send 5 1 1 0 tell x/bob")
    post("send 4 2 1 1 tell x/bob")  # of an earlier stream
    post(f"send 5 {incoming.WINDOW + 9} 1 0 tell x/bob")
    for number in range(3, incoming.MAX_WAITING + 10, 1_000):
        post(f"send 5 {number} 1 {number - 1} tell x/bob")
    post("send 5 9 1 9 tell x/bob")  # waits for itself
    post("send 5 10 1 11 tell x/bob")
    assert far.heard == {"x/ann x/bob": [1]}
    assert 0 < far.streams.incoming.held < 20 * 600
    post(f"send 5 {10**17} {10**17} 0 tell x/bob", b"x/ann 2")
    assert far.heard == {"x/ann x/bob": [1, 2]} or far.heard["x/ann x/bob"][-1] == 2
    assert far.streams.incoming.held == 0
    post("send 6 1 1 0 tell x/bob", b"bad")
    post("send 6 2 1 1 tell x/bob", b"x/ann 3")
    assert far.heard["x/ann x/bob"][-1] == 3
    for words in ("send 6 x 1 0 tell k", "send 6", f"send 6 {'9' * 4_000} 1 0 tell k"):
        post(words)
    assert far.mesh.letters.ignored["malformed"] == 3
    web.run(1.0)
    assert near.told == {}


def test_what_is_confirmed_once_more_costs_nothing_and_no_time_is_out_of_bounds() -> None:
    web, offices = start("ab")
    near, far = offices["a"], offices["b"]
    streams: list[str] = []
    take = far.mesh.letters.kinds["send"]

    def taking(node: str, words: list[str], body: bytes) -> Any:
        streams.append(words[1])
        return take(node, words, body)

    far.mesh.letters.kinds["send"] = taking
    for number in range(1_000):
        near.send("b", number)
    web.run(1.0)
    assert len(near.told) == 1_000
    got = near.mesh.letters.kinds["got"]
    assert (
        list(got("b", ["got", streams[0], "1", "999999", "0"], b"\n" + b"1 " * 9_999) or ()) == []
    )
    with pytest.raises(ValueError, match="99"):
        got("b", ["got", streams[0], "1", "1", "9" * 400], b"")


def test_daemons_that_confirm_nothing_leave_room_for_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(outgoing, "MAX_EACH", 32_000)
    monkeypatch.setattr(outgoing, "MAX_UNCONFIRMED", 128_000)
    _web, offices = start("ab", "ac", "ad", "ae", "af")
    near, numbers = offices["a"], iter(range(10**6))
    for silent in "cdef":
        while near.send(silent, next(numbers)):
            pass
    assert 90_000 < near.streams.outgoing.size < 128_000 - 15_000
    assert all(near.send("b", next(numbers)) for _ in range(10))


def test_a_storm_of_letters_to_nobody_is_told_in_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incoming, "MAX_FAILED", 20)
    web, offices = start("ab")
    near, far = offices["a"], offices["b"]
    far.absent = {"x/bob"}
    for number in range(500):
        near.send("b", number, key="x/cid" if number % 3 else "x/bob")
        if number % 100 == 0:
            web.run(0.01)
    web.run(1.0)
    assert {number for number, at in near.told.items() if at is None} == set(range(0, 500, 3))
    assert near.told.keys() == set(range(500))
    assert near.streams.outgoing.repeated == 0


def test_a_batch_of_one_letter_is_taken_as_any_batch_is_whatever_its_head_says() -> None:
    web, offices = start("ab")
    mesh, far = web["b"].mesh, offices["b"]
    link, numbers = mesh.links["a"], iter(range(10**6, 10**7))

    def relay(frames: bytes, count: int = 1) -> None:
        incarnation = mesh.table.adverts["a"].incarnation
        head = b"a@%d %d 9 %d vouched\n" % (incarnation, next(numbers), count)
        while mesh.relay(link, head + frames):
            web.run(0.01)

    def letter(number: int, end: bytes = b"\n") -> bytes:
        data = b"send 1 %d 1 0 tell x/bob\nx/ann %d" % (number, number)
        return wire.frame(b"//fwd/hub/default/b/", data)[:-1] + end

    relay(letter(1))
    relay(letter(2) + letter(3))
    relay(letter(4) + letter(5), 2)
    assert far.heard == {"x/ann x/bob": [1, 2, 3, 4, 5]}
    before = mesh.counters.broken
    for frames in (letter(6, b""), letter(6, b"x"), letter(6)[:-9]):
        relay(frames)
    assert mesh.counters.broken == before + 3
    relay(letter(6).replace(b"/b/", b"/a/"))  # to another daemon
    assert far.heard == {"x/ann x/bob": [1, 2, 3, 4, 5]}
    relay(letter(6))
    assert far.heard == {"x/ann x/bob": [1, 2, 3, 4, 5, 6]}


def test_a_letter_that_has_arrived_goes_no_further_although_the_graph_has_just_changed() -> None:
    web, offices = start("ab", "bc")
    web["b"].mesh.forwarding.flood()
    for number in range(3):
        offices["a"].send("b", number)
    web.run(0.2)
    assert offices["b"].heard == {"x/ann x/bob": [0, 1, 2]}
    assert offices["a"].told.keys() == {0, 1, 2}
    assert web["b"].mesh.counters.relayed == 0


def test_what_is_sent_to_a_daemon_that_was_started_anew_is_confirmed_by_it() -> None:
    web, offices = start("ab")
    web.run(11)
    near = offices["a"]
    near.send("b", 1)
    web.run(1.0)
    web.kill("b")
    web.add("b")
    again = Office(web, "b")
    web.link("ab")
    web.run(2.0)
    for number in range(2, 60):
        near.send("b", number)
        web.run(0.01)
    web.run(1.0)
    assert again.heard == {"x/ann x/bob": list(range(2, 60))}
    assert None not in near.told.values()
    assert near.told.keys() == set(range(1, 60))


def test_a_message_to_a_daemon_that_was_started_anew_is_not_lost_with_those_before() -> None:
    web, offices = start("ab")
    near, adverts = offices["a"], offices["a"].mesh.table.adverts
    near.send("b", 0)
    web.run(1.0)
    before = adverts["b"].incarnation
    web.kill("b")
    near.send("b", 1)
    web.add("b")
    again = Office(web, "b")
    web.link("ab")
    while adverts["b"].incarnation == before:
        web.run(0.01)
    near.send("b", 2)
    web.run(3.0)
    assert near.told[1] is None
    assert near.told[2] is not None
    assert again.heard == {"x/ann x/bob": [2]}
    assert near.streams.outgoing.size == 0
