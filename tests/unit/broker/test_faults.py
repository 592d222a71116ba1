"""A mistake of this program's costs the one it belongs to: the core, without sockets."""

from __future__ import annotations

import contextlib
import gc
import itertools
import logging
import weakref
from functools import partial
from typing import Any

import pytest

from pubsubd.broker import broker as broker_module
from pubsubd.broker import delivery
from pubsubd.broker.faults import Faults, locate
from pubsubd.broker.unsent import Unsent
from pubsubd.routing.answers import Answers
from pubsubd.routing.router import Router
from pubsubd.routing.substrings import SubstringIndex
from pubsubd.routing.tables import SubscriptionTable
from pubsubd.routing.wildcards import Pattern
from tests.tables import Table


class Label(str):
    """A text that a weak reference can be had of."""


def broken(*_: object, **__: object) -> Any:
    raise RuntimeError("on purpose")


def once(function: Any) -> Any:
    """Return ``function``, which fails the first time."""
    failed = False

    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal failed
        if not failed:
            failed = True
            raise RuntimeError("on purpose")
        return function(*args, **kwargs)

    return call


# Places


def test_a_place_is_the_innermost_function_of_this_package() -> None:
    with pytest.raises(AttributeError) as caught:
        Router().subscribe(None, b"x")  # type: ignore[arg-type]
    assert locate(caught.value) == "routing.tables.SubscriptionTable.add"
    assert locate(RuntimeError()) == "unknown"


def test_a_traceback_is_logged_once_per_place_and_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now = 0.0
    faults = Faults(lambda: now)
    for moment in (0.0, 1.0, 59.0, 60.0, 61.0):
        now = moment
        try:
            Router().subscribe(None, b"x")  # type: ignore[arg-type]
        except AttributeError as error:
            faults.note(error, "peer7")
    assert faults.counts == {"routing.tables.SubscriptionTable.add": 5}
    assert [record.levelno for record in caplog.records] == [logging.ERROR] * 2
    assert all(record.exc_info for record in caplog.records)
    assert "place=routing.tables.SubscriptionTable.add whose=peer7" in caplog.text


def test_what_ends_a_connection_may_fail_as_well() -> None:
    faults, ended = Faults(), []

    class Peer:
        label = "p"
        end = staticmethod(once(lambda code, _text: ended.append(code)))

    faults.end(Peer(), RuntimeError())
    assert ended == ["internal-error"]
    Peer.end = staticmethod(broken)
    faults.end(Peer(), RuntimeError())  # raises nothing


# Receivers


@pytest.fixture
def table() -> Table:
    table = Table("pub", "a", "b", "c")
    for name in ("a", "b", "c"):
        table.say(name, b"sub n\n")
    return table


def ends(table: Table, name: str) -> list[str]:
    ended: list[str] = []
    table.peers[name].end = lambda code, _text: ended.append(code)
    return ended


@pytest.mark.parametrize("data", [b"pub n 1 x\n", b"pub n 300000 " + b"x" * 300_000 + b"\n"])
def test_a_receiver_that_fails_ends_alone(table: Table, data: bytes) -> None:
    ended = ends(table, "b")
    table.peers["b"].send = broken
    table.say("pub", data)
    table.say("pub", b"pub n 1 y\n")
    assert ended == ["internal-error"] * 2
    for name in ("a", "c"):
        assert table.hears(name) == data + b"pub n 1 y\n"
    assert sum(table.broker.faults.counts.values()) == 2


def test_a_fault_leaves_nothing_that_was_put_behind_and_sends_nothing_twice(table: Table) -> None:
    table.broker.requests[b"//pubsubd/fail"] = broken
    with pytest.raises(RuntimeError):
        table.say("pub", b"pub n 1 x\npub n 2 yy\npub //pubsubd/fail 0 \npub n 1 z\n")
    for name in ("a", "b", "c"):
        assert table.hears(name) == b"pub n 1 x\npub n 2 yy\n"
        assert not table.peers[name].pending
    table.say("a", b"pub n 1 w\n")
    assert table.hears("c") == b"pub n 1 w\n"


@pytest.mark.parametrize("place", ["made", "queued", "queued again"])
def test_a_fault_while_the_rest_of_a_turn_is_put_aside_costs_no_receiver_anything(
    table: Table, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    names, waiting = [f"r{number}" for number in range(100)], list[Unsent]()

    class Once(Unsent):
        """One that cannot be told to be little where it is queued for the first or second time."""

        looks = itertools.count(0 if place == "queued" else -1)

        @property
        def little(self) -> bool:
            assert place == "made" or next(self.looks), "on purpose"
            return super().little

    monkeypatch.setattr(delivery, "Unsent", once(Once) if place == "made" else Once)

    def wait(unsent: Unsent) -> None:
        waiting.append(unsent)
        unsent.done = partial(waiting.remove, unsent)

    table.broker.delivery.on_unsent = wait
    turn = table.broker.delivery.turn
    turn.clock = itertools.count().__next__  # no turn is long enough
    for name in names:
        table.join(name)
        table.say(name, b"sub n\n")
        table.hears(name)
    table.say("pub", b"pub n 1 x\n")
    if place == "queued again":
        turn.begin()
        table.broker.delivery.send_some()
    turn.clock = lambda: 0.0
    turn.begin()
    while table.broker.delivery.unsent:
        table.broker.delivery.send_some()
    for name in names:
        assert table.hears(name) == b"pub n 1 x\n", name
    assert waiting == []
    assert sum(table.broker.faults.counts.values()) == 1


@pytest.mark.parametrize("name", ["n", "//n"])
def test_a_fault_where_messages_of_the_hub_port_are_put_loses_and_doubles_none(
    table: Table, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.say("a", b"sub //fwd/n\n")
    core, said = table.broker.delivery, name.encode()
    monkeypatch.setattr(core, "deliver", once(core.deliver))
    core.enqueue(table.peers["pub"], said, b"x")
    core.enqueue(table.peers["pub"], said, b"y")
    core.flush()
    for peer in ("a", "b", "c"):
        heard = table.hears(peer)
        assert heard.count(b"pub %b 1 x\n" % said) == 1, peer
        assert heard.count(b"pub %b 1 y\n" % said) == 1, peer
        assert heard.count(b"pub //fwd/n 1 x\n") <= 1
    assert sum(core.faults.counts.values()) == 1


@pytest.mark.parametrize("name", ["n", "//n"])
def test_a_receiver_that_fails_costs_no_other_one_a_message_of_the_hub_port(name: str) -> None:
    table, said = Table("pub", "a", "b", "c"), name.encode()
    core, b = table.broker.delivery, table.peers["b"]
    b.enqueue = once(b.pending.append)
    for peer in "abc":
        table.say(peer, b"sub //fwd/n\n" if name == "//n" else b"sub n\n")
    core.enqueue(table.peers["pub"], said, b"x")
    core.flush()
    core.flush()
    copy = b"pub //fwd/n 1 x\n" if name == "//n" else b"pub n 1 x\n"
    assert [table.hears(peer) for peer in "abc"] == [copy] * 3


@pytest.mark.parametrize("place", ["learn", "index"])
def test_a_fault_while_a_name_is_looked_up_spares_what_came_before(
    table: Table, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.say("c", b"".join(b"sub many/%d\n" % number for number in range(100)))  # an index
    table.say("pub", b"pub n 1 x\n" * 3)
    for name in ("a", "b", "c"):
        table.hears(name)
    if place == "learn":
        monkeypatch.setattr(Router, "learn", broken)
    else:
        monkeypatch.setattr(SubstringIndex, "search", broken)
    with pytest.raises(RuntimeError):
        table.say("pub", b"pub n 1 x\n" * 100 + b"pub fresh.n 1 y\n" + b"pub n 1 z\n")
    assert table.hears("a") == b"pub n 1 x\n" * 100


def test_a_put_that_fails_again_ends_that_receiver_and_leaves_the_others_whole() -> None:
    table, ended = Table("pub", "a", "b", "c"), list[str]()
    table.peers["b"].enqueue = broken
    table.peers["b"].end = lambda code, _text: ended.append(code)
    for name in ("a", "b", "c"):
        table.say(name, b"sub n\n")
    table.say("pub", b"pub n 1 x\n")
    assert ended == ["internal-error"]
    assert [table.hears(name) for name in ("a", "b", "c")] == [b"pub n 1 x\n", b"", b"pub n 1 x\n"]
    assert all(not peer.pending for peer in table.peers.values())


def test_one_that_could_not_join_is_abandoned_and_nobody_else(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    access, broker = table.broker.access, table.broker
    for owner, name in ((broker_module, "Peer"), (access, "meet")):
        before, peers = broker.counters.connections_total, dict(broker.peers)
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, broken)
            with pytest.raises(RuntimeError):
                broker.join("new", lambda _data: None)
        broker.abandon(before)
        assert broker.peers == peers


# Leaving


def test_a_peer_that_leaves_throws_away_what_it_is_given_from_the_first_step_on() -> None:
    table = Table("pub", "a", "b")
    table.say("a", b"".join(b"sub %d.n\n" % i for i in range(5_000)) + b"sub n\n")
    table.say("b", b"sub n\n")
    steps = table.broker.leave(table.peers.pop("a"))
    table.peers["pub"].send = broken  # it must not be given anything either
    seen = 0
    for _ in steps:
        table.say("pub", b"pub n 1 x\n")
        seen += 1
    assert seen > 3
    assert table.hears("a") == b""
    assert table.hears("b") == b"pub n 1 x\n" * seen
    assert table.broker.router.subscriptions == 1


@pytest.mark.parametrize(
    ("owner", "place"),
    [
        (SubscriptionTable, "pop"),
        (Answers, "drop_name"),
        (Answers, "drop_substring"),
        (Answers, "drop_pattern"),
        (Router, "on_forwarded"),
    ],
)
def test_what_a_leaver_leaves_behind_after_a_fault_is_repaired(
    owner: Any, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Table("pub", "a", "b")
    router = table.broker.router
    for name in ("a", "b"):
        table.say(name, b"sub n\nsub //fwd/x\nsub nm\n")
        router.subscribe_name(table.peers[name], b"//fwd/exact")
        router.subscribe_pattern(table.peers[name], Pattern.slashes("//fwd/+"))
    if owner is Router:
        router.on_forwarded = once(lambda _added: None)
    else:
        monkeypatch.setattr(owner, place, once(getattr(owner, place)))
    gone = table.peers.pop("a")
    with pytest.raises(RuntimeError):
        for _ in table.broker.leave(gone):
            pass
    table.broker.repair(gone)
    assert router.subscriptions == 5
    assert router.forwarded == {b"//fwd/x": 1, b"//fwd/exact": 1, b"//fwd/": 1}
    table.say("pub", b"pub //exact 1 x\npub n 1 y\n")
    assert [name for name, _ in table.messages("b")] == [b"//fwd/exact", b"n"]
    table.leave("b")
    assert router.subscriptions == router.substrings == 0
    assert not router.forwarded


def test_who_has_left_goes_at_once_without_a_search_for_cycles() -> None:
    gc.collect()
    gc.disable()
    try:
        table = Table("pub", "stays")
        table.say("stays", b"sub n\n")
        gone = []
        for i in range(50):
            table.join("x")
            table.say("x", b"sub n\nsub only%d\nsub //fwd/\n" % i)
            said = b"pub n 1 x\npub n 2 xx\npub only%d 1 y\npub //a/n%d 1 z\n" % (i, i)
            table.say("pub", said * 3)
            table.say("x", b"pub n 1 x\n")
            label = table.peers["x"].label = Label("x")  # of which nobody else knows
            gone.append(weakref.ref(label))
            del label
            table.leave("x")
        assert [one() for one in gone] == [None] * 50
    finally:
        gc.enable()


def test_a_fault_keeps_nothing_of_the_read_that_has_led_to_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class MistakeError(RuntimeError):
        """Unlike the frames of its traceback, it can be asked whether it is still there."""

    raised: list[weakref.ref[MistakeError]] = []

    def fail(*_: object) -> None:
        error = MistakeError()
        raised.append(weakref.ref(error))
        try:
            raise error
        finally:
            del error

    gc.collect()
    gc.disable()
    try:
        table = Table("a")
        monkeypatch.setattr(table.broker.router, "learn", fail)
        with contextlib.suppress(MistakeError):
            table.say("a", b"pub n 1 x\n")
        assert [one() for one in raised] == [None]
    finally:
        gc.enable()


@pytest.mark.parametrize(
    "wrong",
    [
        b"quit\n",
        b"pub a 1 xx\n",
        b"pub //pubsubd/ping 1 xx\n",
        b"pub a 99999999 x\n",
        b"pub //pubsubd/auth 1 x\n" * 3,
        b"sub " + b"x" * 3_000,
        b"GET / HTTP/1.1\r\nhost: x\r\n\r\n",
    ],
    ids=lambda said: said[:19].decode().strip(),
)
def test_who_is_ended_goes_at_once_and_what_it_said_before(wrong: bytes) -> None:
    gc.collect()
    gc.disable()
    try:
        table = Table("stays")
        gone = []
        for _ in range(3):
            table.join("x")
            table.say("x", b"sub n\n" + wrong)
            ending = table.peers["x"].ending
            assert ending is not None
            assert ending.__traceback__ is ending.__context__ is None  # these hold what was read
            label = table.peers["x"].label = Label("x")
            gone.append(weakref.ref(label))
            del label, ending
            table.leave("x")
        assert [one() for one in gone] == [None] * 3
    finally:
        gc.enable()
