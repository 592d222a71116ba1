"""The router and its caches against asking every peer."""

from __future__ import annotations

import gc
import sys
import weakref

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from pubsubd.access.rules import OUTSIDE, Acl, AclRule, Permission
from pubsubd.broker.explain import explain
from pubsubd.broker.peer import stay
from pubsubd.broker.turn import Turn
from pubsubd.protocol.limits import MAX_REASONS
from pubsubd.protocol.wire import OWN, copy_name, header
from pubsubd.routing.explanation import find_reasons
from pubsubd.routing.router import Router
from pubsubd.routing.targets import CopyTargets, Targets
from pubsubd.routing.wildcards import Pattern
from tests.examples import examples
from tests.model import Listener
from tests.rights import may
from tests.tables import Table

texts = st.text(alphabet="ab/.", min_size=1, max_size=6).map(str.encode)
substrings = st.one_of(
    texts, st.sampled_from([b"//", b"//fwd/", b"fwd", b"//a", b"/a/b", b"//pubsubd/", b"s", b""])
)
common = st.sampled_from([b"//fwd/a", b"//a", b"a.b", b"a/b", b"//pubsubd", b"//pubsubd/s"])
names = st.one_of(
    common,
    common,
    texts,
    texts.map(lambda text: b"//" + text),
    texts.map(lambda text: b"//fwd/" + text),
)
levels = st.sampled_from(["a", "b", "ab", "*", "*", "+", "+", "a*", "*b", "a*b", "", "", "fwd"])
patterns = st.one_of(
    st.builds(
        lambda separator, start, levels, end: (
            separator,
            (start + separator.join(levels) + end).replace("!", separator),
        ),
        st.sampled_from("./"),
        st.sampled_from(["", "", "//", "//fwd/"]),
        st.lists(levels, min_size=1, max_size=3),
        st.sampled_from(["", "", "!#", "!c"]),
    ),
    st.tuples(
        st.sampled_from("./"), st.sampled_from(["#", "//pubsubd/#", "//pubsubd/*", "//pubsubd/+"])
    ),
).filter(lambda pattern: pattern[1])
whos = st.integers(0, 5)


class Ear:
    """A receiver that does nothing."""

    remote = False
    render = None
    label = "ear"
    permission: Permission | None = None

    def __init__(self) -> None:
        self.substrings: set[bytes] = set()
        self.names: set[bytes] | None = None
        self.patterns: set[Pattern] | None = None
        self.pending: list[bytes] = []
        self.messages_out = 0
        self.enqueue = self.pending.append
        self.send = self.pending.append
        self.end = stay
        self.texts: tuple[str, ...] | None = None  # what it may receive; None for everything

    def may(self, name: bytes) -> bool:
        return self.texts is None or may([AclRule(("*",), (), self.texts)], None, "receive", name)


RIGHTS: list[tuple[str, ...] | None] = [None, (), ("#",), ("a", "//fwd/b"), ("//a", "//pubsubd/")]
PERMISSIONS = {
    rights: rights if rights is None else Acl([AclRule(("*",), (), rights)]).permission(None)
    for rights in RIGHTS
}
PERMISSIONS[()] = OUTSIDE


def compile_pattern(separator: str, text: str) -> Pattern:
    return Pattern.dots(text) if separator == "." else Pattern.slashes(text)


def receivers(targets: Targets | CopyTargets) -> tuple[set[object], set[object]]:
    """Return who gets the frame itself, and who its copy."""
    if isinstance(targets, CopyTargets):
        return set(targets.direct.peers), set(targets.copies.peers)
    return set(targets.peers), set()


class RouterAgainstScan(RuleBasedStateMachine):
    """Subscriptions come and go; every answer, cached or not, has to be right."""

    def __init__(self) -> None:
        super().__init__()
        self.router = Router(max_names=16, max_headers=40)
        self.peers = [Ear() for _ in range(6)]
        self.truth: dict[Ear, Listener] = {peer: Listener() for peer in self.peers}
        self.asked: set[bytes] = set()

    @rule(who=whos, substring=substrings)
    def subscribe(self, who: int, substring: bytes) -> None:
        peer, mine = self.peers[who], self.truth[self.peers[who]].substrings
        assert self.router.subscribe(peer, substring) == (substring not in mine)
        if substring not in mine:
            mine.append(substring)

    @rule(who=whos, substring=substrings)
    def unsubscribe(self, who: int, substring: bytes) -> None:
        peer, mine = self.peers[who], self.truth[self.peers[who]].substrings
        assert self.router.unsubscribe(peer, substring) == (substring in mine)
        if substring in mine:
            mine.remove(substring)

    @rule(who=whos, name=names)
    def subscribe_name(self, who: int, name: bytes) -> None:
        peer, mine = self.peers[who], self.truth[self.peers[who]].names
        assert self.router.subscribe_name(peer, name) == (name not in mine)
        mine.add(name)

    @rule(who=whos, data=st.data())
    def unsubscribe_name(self, who: int, data: st.DataObject) -> None:
        peer, mine = self.peers[who], self.truth[self.peers[who]].names
        name = data.draw(st.sampled_from(sorted(mine)) if mine else names)
        assert self.router.unsubscribe_name(peer, name) == (name in mine)
        mine.discard(name)

    @rule(who=whos, pattern=patterns)
    def subscribe_pattern(self, who: int, pattern: tuple[str, str]) -> None:
        peer, mine = self.peers[who], self.truth[self.peers[who]].patterns
        made = compile_pattern(*pattern)
        assert self.router.subscribe_pattern(peer, made) == (pattern not in mine)
        mine.add(pattern)

    @rule(who=whos, data=st.data())
    def unsubscribe_pattern(self, who: int, data: st.DataObject) -> None:
        peer, mine = self.peers[who], self.truth[self.peers[who]].patterns
        pattern = data.draw(st.sampled_from(sorted(mine)) if mine else patterns)
        made = compile_pattern(*pattern)
        assert self.router.unsubscribe_pattern(peer, made) == (pattern in mine)
        mine.discard(pattern)

    @rule(substring=substrings, name=names, pattern=patterns, kind=st.integers(0, 2))
    def everybody(self, substring: bytes, name: bytes, pattern: tuple[str, str], kind: int) -> None:
        for who in range(len(self.peers)):
            if kind == 0:
                self.subscribe(who, substring)
            elif kind == 1:
                self.subscribe_name(who, name)
            else:
                self.subscribe_pattern(who, pattern)

    @rule(who=whos, count=st.sampled_from([0, 0, 100]))
    def leave(self, who: int, count: int) -> None:
        peer = self.peers[who]
        for i in range(count):
            self.router.subscribe(peer, b"many%d" % i)
            self.router.subscribe_name(peer, b"many%d" % i)
            self.router.subscribe_pattern(peer, Pattern.dots(f"many{i}.#"))
        for _ in self.router.forget(peer):
            pass
        assert not peer.substrings
        assert peer.names is peer.patterns is None
        del self.truth[peer]
        self.peers[who] = Ear()
        self.truth[self.peers[who]] = Listener()

    @rule(who=whos, rights=st.sampled_from(RIGHTS))
    def limit(self, who: int, rights: tuple[str, ...] | None) -> None:
        """Let a peer have other rights."""
        peer = self.peers[who]
        peer.texts, peer.permission = rights, PERMISSIONS[rights]
        if peer.permission is not None and not self.router.guarded:
            self.router.guard(True)
        else:
            self.router.reconsider(peer)

    @rule(name=names, size=st.integers(0, 3))
    def ask(self, name: bytes, size: int) -> None:
        self.check(name, size)
        self.asked.add(name)

    @rule(name=names)
    def ask_without_a_header(self, name: bytes) -> None:
        assert receivers(self.router.receivers(name)) == self.wanted(name)
        self.asked.add(name)

    @rule()
    def ask_again(self) -> None:
        for name in self.asked:
            self.check(name, 1)
            assert receivers(self.router.receivers(name)) == self.wanted(name)

    @invariant()
    def every_cached_answer_is_right(self) -> None:
        for key, route in self.router.routes.items():
            _, name, digits, _ = key.split(b" ")
            assert receivers(route.targets) == self.wanted(name)
            assert route.width == len(key)
            assert route.length == len(key) + int(digits)
        for name, answer in self.router.answers.by_name.items():
            assert receivers(answer.targets) == self.wanted(name)
            assert b"\n%b" % name in b"\n" + self.router.answers.names

    @invariant()
    def counts_are_right(self) -> None:
        told = self.truth.values()
        assert self.router.subscriptions == sum(
            len(mine.substrings) + len(mine.names) + len(mine.patterns) for mine in told
        )
        assert self.router.substrings == len({s for mine in told for s in mine.substrings})
        assert self.router.cached_names <= 16
        assert len(self.router.routes) <= 40
        for peer, mine in self.truth.items():
            assert (peer.names or set()) == mine.names
            assert {p.text for p in peer.patterns or ()} == {text for _, text in mine.patterns}

    def check(self, name: bytes, size: int) -> None:
        direct, copies = self.wanted(name)
        if name.startswith(OWN):
            assert set(self.router.targets_of_own(name).peers) == direct
        else:
            key = b"\n" + header(name, size)
            route = self.router.routes.get(key) or self.router.learn(key, name, size)
            assert receivers(route.targets) == (direct, copies)
        explained = {
            peer: (seen, why) for peer, seen, why in filter(None, find_reasons(self.router, name))
        }
        assert {peer: seen for peer, (seen, _) in explained.items()} == dict.fromkeys(
            direct, name
        ) | dict.fromkeys(copies, copy_name(name))
        for peer, (seen, why) in explained.items():
            mine = self.truth[peer]
            assert why.exact == (seen in mine.names)
            matching = sorted(s for s in mine.substrings if Listener(substrings=[s]).wants(seen))
            assert (why.substrings, why.count) == (matching[:MAX_REASONS], len(matching))
            assert why.patterns == sorted(
                p[1] for p in mine.patterns if Listener(patterns={p}).wants(seen)
            )

    def wanted(self, name: bytes) -> tuple[set[Ear], set[Ear]]:
        told = {peer: mine for peer, mine in self.truth.items() if peer.may(name)}
        direct = {peer for peer, mine in told.items() if mine.wants(name)}
        copy = None if name.startswith(OWN) else copy_name(name)
        if copy is None:
            return direct, set()
        return direct, {
            peer for peer, mine in told.items() if peer not in direct and mine.wants(copy)
        }

    def teardown(self) -> None:
        for who in range(len(self.peers)):
            self.leave(who, 0)
        router = self.router
        for table in (router.by_pattern, router.by_name, router.by_substring):
            assert (table.count, table.index.values) == (0, {})
        self.router.guard(False)
        assert router.wildcards.empty


TestRouterAgainstScan = RouterAgainstScan.TestCase
TestRouterAgainstScan.settings = settings(
    max_examples=examples(150), stateful_step_count=50, deadline=None
)


def learn(router: Router, name: bytes, size: int = 1):
    return router.learn(b"\n" + header(name, size), name, size)


def test_equal_sets_of_receivers_are_the_same_object() -> None:
    router = Router()
    ann, bob = Ear(), Ear()
    for substring in (b"x", b"y"):
        router.subscribe(ann, substring)
        router.subscribe(bob, substring)
    assert learn(router, b"x1").targets is learn(router, b"y1").targets
    assert learn(router, b"x1") is learn(router, b"y1")
    assert learn(router, b"x1").targets is learn(router, b"xy").targets


def test_a_peer_that_left_is_not_kept_alive_by_a_cache() -> None:
    router = Router()
    ann, bob = Ear(), Ear()
    router.subscribe(ann, b"x")
    router.subscribe(bob, b"x")
    learn(router, b"x1")
    learn(router, b"//x1")
    for _ in router.forget(ann):
        pass
    gone = weakref.ref(ann)
    del ann
    gc.collect()
    assert gone() is None


def test_only_substrings_that_begin_so_bring_the_daemons_own_names() -> None:
    router = Router()
    ann, bob, eve = Ear(), Ear(), Ear()
    router.subscribe(ann, b"s")
    router.subscribe(bob, b"//pubsubd/")
    router.subscribe(eve, b"//pubsubd/stats")
    assert set(router.targets_of_own(b"//pubsubd/stats").peers) == {bob, eve}
    assert set(router.targets_of_own(b"//pubsubd/events").peers) == {bob}


def test_a_name_whose_copy_would_be_too_long_has_none() -> None:
    router = Router()
    ann = Ear()
    router.subscribe(ann, b"//fwd/")
    assert isinstance(learn(router, b"//" + b"n" * 1018).targets, CopyTargets)
    assert learn(router, b"//" + b"n" * 1019).targets is router.nobody


@pytest.mark.parametrize("kind", ["substring", "name", "dots", "slashes"])
def test_all_kinds_of_subscription_bring_the_copy(kind: str) -> None:
    router = Router()
    ann, bob = Ear(), Ear()
    router.subscribe(bob, b"//x/")
    subscribe = {
        "substring": lambda: router.subscribe(ann, b"//fwd/x/"),
        "name": lambda: router.subscribe_name(ann, b"//fwd/x/y"),
        "dots": lambda: router.subscribe_pattern(ann, Pattern.dots("//fwd/x/*")),
        "slashes": lambda: router.subscribe_pattern(ann, Pattern.slashes("//fwd/+/y")),
    }
    for _ in range(3):
        assert receivers(router.receivers(b"//x/y")) == ({bob}, set())
    assert subscribe[kind]()
    assert receivers(router.receivers(b"//x/y")) == ({bob}, {ann})
    assert receivers(learn(router, b"//x/y").targets) == ({bob}, {ann})


def test_a_peer_receives_once_whatever_it_subscribes() -> None:
    router = Router()
    ann = Ear()
    router.subscribe(ann, b"x")
    for pattern in (Pattern.dots("x.*"), Pattern.dots("#"), Pattern.slashes("+")):
        router.subscribe_pattern(ann, pattern)
    router.subscribe_name(ann, b"x.y")
    assert router.receivers(b"x.y") is router.only(ann)
    assert router.subscriptions == 5


@pytest.mark.parametrize("first", ["a", "ab", "abc"])
@pytest.mark.parametrize("second", ["c", "bd", "abc"])
def test_a_new_name_reaches_all_whose_subscriptions_match_however_many_each_has(
    first: str, second: str
) -> None:
    router = Router()
    ears = {one: Ear() for one in "abcd"}
    for substring, who in ((b"x", first), (b"y", second)):
        for one in who:
            router.subscribe(ears[one], substring)
    wanted = {ears[one] for one in first + second}
    assert receivers(learn(router, b"x.y").targets) == (wanted, set())


def test_those_who_come_to_a_crowd_or_leave_it_are_told_apart_from_those_who_stay() -> None:
    router = Router()
    ears = [Ear() for _ in range(5)]
    pattern = Pattern.dots("x.*")
    for subscribe, unsubscribe in (
        (lambda ear: router.subscribe(ear, b"x."), lambda ear: router.unsubscribe(ear, b"x.")),
        (
            lambda ear: router.subscribe_name(ear, b"x.y"),
            lambda ear: router.unsubscribe_name(ear, b"x.y"),
        ),
        (
            lambda ear: router.subscribe_pattern(ear, pattern),
            lambda ear: router.unsubscribe_pattern(ear, pattern),
        ),
    ):
        for count in range(5):
            assert receivers(router.receivers(b"x.y")) == (set(ears[:count]), set())
            subscribe(ears[count])
        for count in range(5):
            assert receivers(router.receivers(b"x.y")) == (set(ears[count:]), set())
            unsubscribe(ears[count])


def filled(count: int) -> Router:
    """Return a router that remembers ``//room/0/x`` and so on."""
    router = Router()
    for i in [*range(count), *range(count)]:
        learn(router, b"//room/%d/x" % i)
    assert router.cached_names == len(router.routes) == count
    return router


def test_a_name_that_is_subscribed_costs_its_own_answer_and_no_other() -> None:
    router = filled(500)
    work = router.index.work
    ann = Ear()
    for change in (router.subscribe_name, router.unsubscribe_name):
        change(ann, b"//room/7/x")
        change(ann, b"//fwd/room/8/x")
        change(ann, b"room/9/x")
        assert router.cached_names == len(router.routes) == 498
        for i in (7, 8):
            learn(router, b"//room/%d/x" % i)
    assert router.index.work == work


def test_a_wildcard_that_is_subscribed_costs_the_answers_it_changes_and_no_other() -> None:
    router = filled(500)
    ann = Ear()
    for change in (router.subscribe_pattern, router.unsubscribe_pattern):
        change(ann, Pattern.slashes("//room/7/+"))
        change(ann, Pattern.slashes("//fwd/+/8/#"))
        change(ann, Pattern.dots("//room/4*9/x"))
        change(ann, Pattern.slashes("+/room/+/x"))
        assert router.cached_names == len(router.routes) == 500 - 1 - 1 - 11
        for i in range(500):
            router.receivers(b"//room/%d/x" % i)
            learn(router, b"//room/%d/x" % i)


def test_wildcards_that_come_by_the_thousand_are_not_looked_for_one_by_one() -> None:
    for text in ("//room/{}/+", "+/never/{}/x", "room.{}.*"):
        router = filled(8_000)
        ann = Ear()
        before = router.index.work
        many = [Pattern.slashes(text.format(i)) for i in range(10_000)]
        for change in (router.subscribe_pattern, router.unsubscribe_pattern):
            for pattern in many:
                change(ann, pattern)
        assert router.index.work - before < 600_000  # 60 ms
        assert receivers(router.receivers(b"//room/7/x")) == (set(), set())


def test_a_peer_with_many_subscriptions_leaves_in_steps_and_harms_nobody_meanwhile() -> None:
    router = Router()
    ann, bob = Ear(), Ear()
    asked = [b"a.%d" % i for i in range(0, 3_000, 50)]
    for i in range(3_000):
        router.subscribe(ann, b"a.%d" % i)
        router.subscribe_name(ann, b"a.%d" % i)
        router.subscribe_pattern(ann, Pattern.dots(f"*.{i}"))
    router.subscribe_pattern(bob, Pattern.dots("*.50"))
    router.subscribe_name(bob, b"a.100")
    steps = 0
    wanted = {b"a.50", b"a.100"}
    for _ in router.forget(ann):
        steps += 1
        router.subscribe(bob, b"a.%d" % (steps * 150))
        wanted |= {name for name in asked if b"a.%d" % (steps * 150) in name}
        for name in asked:
            peers = set(router.receivers(name).peers)
            assert peers | {ann} == ({bob, ann} if name in wanted else {ann})
    assert steps >= 3 + 3 + 30
    for name in asked:
        assert set(router.receivers(name).peers) == ({bob} if name in wanted else set())
    assert router.subscriptions == 2 + len(bob.substrings)


def test_who_leaves_after_a_fault_while_it_subscribed_takes_nothing_from_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("broken on purpose")

    router = Router()
    stays, leaves = Ear(), Ear()
    router.subscribe(stays, b"x")
    with monkeypatch.context() as patch:
        patch.setattr("pubsubd.routing.tables.SubscriberSet.__init__", fail)
        with pytest.raises(RuntimeError):
            router.subscribe(leaves, b"x")
    for _ in router.forget(leaves):
        pass
    assert router.subscriptions == 1
    assert router.unsubscribe(stays, b"x")


def test_the_table_of_names_shrinks_when_most_have_gone() -> None:
    router = Router()
    ann = Ear()
    many = [b"%d" % i for i in range(20_000)]
    for name in many:
        router.subscribe_name(ann, name)
    full = sys.getsizeof(dict.fromkeys(many))
    for name in many[50:]:
        router.unsubscribe_name(ann, name)
    assert isinstance(router.by_name.index.values, dict)
    assert sys.getsizeof(router.by_name.index.values) < full / 5
    assert [name for name in many if router.receivers(name).peers] == many[:50]


def test_publishers_without_a_header_share_the_answers_with_all_others() -> None:
    router = Router()
    ann = Ear()
    router.subscribe_name(ann, b"x")
    before = router.lookups
    assert learn(router, b"x").targets is router.receivers(b"x") is router.only(ann)
    assert learn(router, b"x").targets is router.receivers(b"x")
    assert router.lookups == before + 2
    router.subscribe_pattern(ann, Pattern.dots("//pubsubd/*"))
    for _ in range(3):
        assert router.receivers(b"//pubsubd/stats") is router.only(ann)
    assert router.cached_names == 1


def test_of_the_daemons_own_names_wildcards_bring_those_they_spell_out() -> None:
    router = Router()
    yes, no = Ear(), Ear()
    for text in ("#", "+/+/+/+", "//+/stats", "//pubsub+/stats", "/#", "//+/#"):
        router.subscribe_pattern(no, Pattern.slashes(text))
    for text in ("*", "//pubsubd*", "//pubsub*", "//*/stats", "#"):
        router.subscribe_pattern(no, Pattern.dots(text))
    router.subscribe_name(no, b"//fwd/pubsubd/stats")
    assert router.targets_of_own(b"//pubsubd/stats") is router.nobody
    assert list(filter(None, find_reasons(router, b"//pubsubd/stats"))) == []
    for pattern in (
        Pattern.slashes("//pubsubd/#"),
        Pattern.slashes("//pubsubd/+"),
        Pattern.dots("//pubsubd/*"),
        Pattern.dots("//pubsubd/stats.#"),
    ):
        router.subscribe_pattern(yes, pattern)
        assert router.targets_of_own(b"//pubsubd/stats") is router.only(yes)
        router.unsubscribe_pattern(yes, pattern)
        assert router.targets_of_own(b"//pubsubd/stats") is router.nobody
    router.subscribe_name(yes, b"//pubsubd/stats")
    assert router.targets_of_own(b"//pubsubd/stats") is router.only(yes)


def test_explain_tells_of_all_kinds() -> None:
    table = Table("a", "b", "c")
    router = table.broker.router
    table.say("a", b"sub chat\n")
    router.subscribe_name(table.peers["a"], b"//org/chat")
    router.subscribe_name(table.peers["b"], b"//org/chat")
    for text in ("//org/+", "//+/chat", "other/+"):
        router.subscribe_pattern(table.peers["b"], Pattern.slashes(text))
    router.subscribe_pattern(table.peers["c"], Pattern.dots("//fwd/*"))
    told = {receiver["peer"]: receiver for receiver in explained(router, b"//org/chat")}
    assert {peer: receiver.pop("as") for peer, receiver in told.items()} == {
        "a": "//org/chat",
        "b": "//org/chat",
        "c": "//fwd/org/chat",
    }
    for receiver in told.values():
        del receiver["connection"], receiver["peer"]
    assert told == {
        "a": {"substrings": ["chat"], "matching": 2, "exact": True},
        "b": {"substrings": [], "matching": 3, "exact": True, "patterns": ["//+/chat", "//org/+"]},
        "c": {"substrings": [], "matching": 1, "patterns": ["//fwd/*"]},
    }


def test_explain_lists_as_many_wildcards_as_substrings() -> None:
    table = Table("a")
    for i in range(30):
        table.broker.router.subscribe_pattern(table.peers["a"], Pattern.dots("x" * i + "*"))
    (receiver,) = explained(table.broker.router, b"x" * 100)
    assert (len(receiver["patterns"]), receiver["matching"]) == (10, 30)


def explained(router: Router, name: bytes):
    with pytest.raises(StopIteration) as made:
        next(explain(router, Turn(lambda: 0.0), name))
    return made.value.value["receivers"]


def test_those_who_subscribe_substrings_only_carry_nothing_for_the_rest() -> None:
    table = Table("a")
    table.say("a", b"sub x\n")
    peer, router = table.peers["a"], table.broker.router
    assert peer.names is peer.patterns is None
    router.subscribe_name(peer, b"x")
    router.subscribe_pattern(peer, Pattern.dots("x"))
    router.unsubscribe_name(peer, b"x")
    router.unsubscribe_pattern(peer, Pattern.dots("x"))
    assert peer.names is peer.patterns is None


def test_an_explanation_keeps_the_first_few_substrings_of_a_receiver_and_counts_all() -> None:
    table = Table("ann")
    router, ann = table.broker.router, table.peers["ann"]
    name = b"".join(b"%04d" % one for one in range(250))
    for start in range(len(name) - 16):
        for size in (8, 16):
            router.subscribe(ann, name[start : start + size])
    subscribed = sorted(ann.substrings)
    (why,) = [found[2] for found in find_reasons(router, name) if found is not None]
    assert why.substrings == subscribed[:MAX_REASONS]  # to sort all of them would be one long step
    assert why.count == len(subscribed) > 1_000
