"""The router and its caches against asking every peer."""

from __future__ import annotations

import gc
import weakref

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from pubsubd.routing import Fork, Router, Targets
from pubsubd.wire import copy_name, header

texts = st.text(alphabet="ab/", min_size=1, max_size=6).map(str.encode)
substrings = st.one_of(texts, st.sampled_from([b"//", b"//fwd/", b"fwd", b"//a", b"/a/b"]))
names = st.one_of(texts, texts.map(lambda text: b"//" + text), st.sampled_from([b"//fwd/a"]))
whos = st.integers(0, 5)


class Ear:
    """A receiver that does nothing."""

    def __init__(self) -> None:
        self.substrings: set[bytes] = set()
        self.fresh: list[bytes] = []
        self.put = self.fresh.append
        self.send = self.fresh.append


def receivers(targets: Targets | Fork) -> tuple[set[object], set[object]]:
    """Return who gets the frame itself, and who its copy."""
    if isinstance(targets, Fork):
        return set(targets.direct.peers), set(targets.copies.peers)
    return set(targets.peers), set()


class RouterAgainstScan(RuleBasedStateMachine):
    """Subscriptions come and go; every answer, cached or not, has to be right."""

    def __init__(self) -> None:
        super().__init__()
        self.router = Router(max_names=16, max_headers=40)
        self.peers = [Ear() for _ in range(6)]
        self.truth: dict[Ear, set[bytes]] = {peer: set() for peer in self.peers}
        self.asked: set[bytes] = set()

    @rule(who=whos, substring=substrings)
    def subscribe(self, who: int, substring: bytes) -> None:
        peer = self.peers[who]
        assert self.router.subscribe(peer, substring) == (substring not in self.truth[peer])
        self.truth[peer].add(substring)

    @rule(who=whos, substring=substrings)
    def unsubscribe(self, who: int, substring: bytes) -> None:
        peer = self.peers[who]
        assert self.router.unsubscribe(peer, substring) == (substring in self.truth[peer])
        self.truth[peer].discard(substring)

    @rule(who=whos, count=st.sampled_from([0, 0, 100]))
    def leave(self, who: int, count: int) -> None:
        peer = self.peers[who]
        for i in range(count):
            self.router.subscribe(peer, b"many%d" % i)
        for _ in self.router.forget(peer):
            pass
        del self.truth[peer]
        self.peers[who] = Ear()
        self.truth[self.peers[who]] = set()

    @rule(name=names, size=st.integers(0, 3))
    def ask(self, name: bytes, size: int) -> None:
        self.check(name, size)
        self.asked.add(name)

    @rule()
    def ask_again(self) -> None:
        for name in self.asked:
            self.check(name, 1)

    @invariant()
    def every_cached_route_is_right(self) -> None:
        for key, route in self.router.routes.items():
            _, name, digits, _ = key.split(b" ")
            assert receivers(route.targets) == self.wanted(name)
            assert route.width == len(key)
            assert route.length == len(key) + int(digits)

    @invariant()
    def counts_are_right(self) -> None:
        assert self.router.subscriptions == sum(map(len, self.truth.values()))
        assert self.router.substrings == len(set().union(*self.truth.values()))
        assert self.router.cached_names <= 16
        assert len(self.router.routes) <= 40

    def check(self, name: bytes, size: int) -> None:
        key = b"\n" + header(name, size)
        route = self.router.routes.get(key) or self.router.learn(key, name, size)
        assert receivers(route.targets) == self.wanted(name)
        explained = {peer: seen for peer, seen, _ in self.router.explain(name)}
        direct, copies = self.wanted(name)
        assert explained == dict.fromkeys(direct, name) | dict.fromkeys(copies, copy_name(name))

    def wanted(self, name: bytes) -> tuple[set[Ear], set[Ear]]:
        copy = copy_name(name)
        direct = {p for p, mine in self.truth.items() if any(s in name for s in mine)}
        if copy is None:
            return direct, set()
        return direct, {
            p for p, mine in self.truth.items() if p not in direct and any(s in copy for s in mine)
        }


TestRouterAgainstScan = RouterAgainstScan.TestCase
TestRouterAgainstScan.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)


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
    assert isinstance(learn(router, b"//" + b"n" * 1018).targets, Fork)
    assert learn(router, b"//" + b"n" * 1019).targets is router.nobody
