"""Actors: registered, renewed, expired and found, against a naive model."""

from __future__ import annotations

import re
from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from pubsubd.hub.registry import (
    MAX_ADDRESS,
    MAX_PATTERN,
    Found,
    PatternError,
    Registry,
    RegistryFull,
    canonical,
)

# Addresses


@pytest.mark.parametrize(
    ("address", "key"),
    [
        ("browser/ann", "browser/ann"),
        ("@(browser/ann)", "browser/ann"),
        ("a/b/c", "a/b/c"),
        ("A.b_c:d-1/x", "A.b_c:d-1/x"),
        ("a/" + "b" * (MAX_ADDRESS - 2), "a/" + "b" * (MAX_ADDRESS - 2)),
    ],
)
def test_an_address_has_one_canonical_form(address: str, key: str) -> None:
    assert canonical(address) == key


@pytest.mark.parametrize(
    "address",
    [
        "", "a", "/", "a/", "/a", "a//b", "a b/c", "a/b\n", "a/b\r", "a/b\x00", 'a/"', "a/'", "é/a",
        "@(a/b", "a/b)", "@()", "@(a)", "a/b@(", "a/" + "b" * (MAX_ADDRESS - 1), "a/b\n\npub x 1 y",
    ],
)  # fmt: skip
def test_what_could_break_a_line_or_a_text_is_no_address(address: str) -> None:
    assert canonical(address) is None


# Searching


def run(steps: Generator[None, None, Found]) -> tuple[Found, int]:
    """Return what a search finds, and in how many steps."""
    count = 1
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: Found = end.value
            return found, count
        count += 1


def search(registry: Registry, pattern: str = "", **more: Any) -> Generator[None, None, Found]:
    wanted: dict[str, Any] = {
        "glob": False,
        "capabilities": (),
        "metadata": None,
        "limit": 1_000,
        "offset": 0,
        "now": 0,
    }
    return registry.discover(pattern, **(wanted | more))


def keys(registry: Registry, pattern: str = "", **more: Any) -> list[str]:
    return [actor.key for actor in run(search(registry, pattern, **more))[0].actors]


@pytest.fixture
def crowd() -> Registry:
    registry = Registry(100)
    for number, address in enumerate(["x/ann", "x/bob", "y/ann", "@(z/a.b)"]):
        capabilities = ("all", "even") if number % 2 == 0 else ("all",)
        metadata = b'{"n":%d,"t":true}' % number
        registry.register(address, capabilities, metadata, 1_000, "me", 0)
    return registry


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("", ["x/ann", "x/bob", "y/ann", "z/a.b"]),
        ("*", ["x/ann", "x/bob", "y/ann", "z/a.b"]),
        ("x/*", ["x/ann", "x/bob"]),
        ("*/ann", ["x/ann", "y/ann"]),
        ("@(x/*)", ["x/ann", "x/bob"]),
        ("*a*n*", ["x/ann", "y/ann"]),
        ("x/ann", ["x/ann"]),
        ("x", []),
        ("z/a.b", ["z/a.b"]),
        ("z/a?b", []),
        ("z/a+b", []),
        ("*.b", ["z/a.b"]),
        ("**", ["x/ann", "x/bob", "y/ann", "z/a.b"]),
    ],
)
def test_in_a_glob_only_the_star_is_special(
    crowd: Registry, pattern: str, found: list[str]
) -> None:
    assert keys(crowd, pattern, glob=True) == found


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("ann", ["x/ann", "y/ann"]),
        ("^x/", ["x/ann", "x/bob"]),
        ("b$", ["x/bob", "z/a.b"]),
        ("[xy]/a(nn|b)", ["x/ann", "y/ann"]),
        (r"a\.b", ["z/a.b"]),
        ("(?i)ANN", ["x/ann", "y/ann"]),
    ],
)
def test_a_regular_expression_may_occur_anywhere(
    crowd: Registry, pattern: str, found: list[str]
) -> None:
    assert keys(crowd, pattern) == found


@pytest.mark.parametrize(
    "pattern",
    ["(", "[", "*", r"(a)\1", "(?=a)", "a{2000}", "(x{0,1000}){0,1000}", "a" * (MAX_PATTERN + 1)],
)
def test_a_pattern_that_cannot_be_used_is_refused_in_one_line(
    crowd: Registry, pattern: str
) -> None:
    with pytest.raises(PatternError) as caught:
        run(search(crowd, pattern))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 2 * MAX_PATTERN


def test_a_search_asks_for_all_capabilities_and_equal_metadata(crowd: Registry) -> None:
    assert keys(crowd, capabilities=["all", "even"]) == ["x/ann", "y/ann"]
    assert keys(crowd, capabilities=["even", "none"]) == []
    assert keys(crowd, metadata={"n": 1}) == ["x/bob"]
    assert keys(crowd, metadata={"n": 1, "t": True}) == ["x/bob"]
    assert keys(crowd, metadata={"t": 1}) == []  # true is not 1
    assert keys(crowd, metadata={"missing": None}) == []
    assert len(keys(crowd, metadata={})) == 4


def test_a_page_of_what_is_found_and_the_number_of_all(crowd: Registry) -> None:
    found, _ = run(search(crowd, limit=2, offset=1))
    assert ([actor.key for actor in found.actors], found.total) == (["x/bob", "y/ann"], 4)
    actors, total = crowd.page(3, 5, 0)
    assert ([actor.key for actor in actors], total) == (["z/a.b"], 4)


def test_a_large_search_is_made_in_steps_and_a_rare_capability_needs_few() -> None:
    registry = Registry(50_000)
    for number in range(50_000):
        more = ("rare",) if number % 10_000 == 0 else ()
        registry.register(f"x/n{number}", ("all", *more), b"{}", 1_000, number % 10, 0)
    found, steps = run(search(registry, "7$", capabilities=["all"], limit=10))
    assert (found.total, len(found.actors), steps) == (5_000, 10, 100)
    found, steps = run(search(registry, capabilities=["all", "rare"]))
    assert (found.total, steps) == (5, 1)


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_those_who_stay_are_found_once_whatever_comes_and_goes_meanwhile(data: Any) -> None:
    registry = Registry(10_000)
    stay, go = [f"x/s{n}" for n in range(2_000)], [f"x/g{n}" for n in range(2_000)]
    for pair in zip(stay, go, strict=True):
        for address in pair:
            registry.register(address, ("c",), b"{}", 1_000, "me", 0)
    steps = search(registry, "x/", capabilities=["c"], limit=10_000)
    number = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found = [actor.key for actor in end.value.actors]
            break
        for _ in range(data.draw(st.integers(0, 20))):
            number += 1
            registry.unregister(go[data.draw(st.integers(0, len(go) - 1))])
            registry.register(f"x/new{number}", ("c",), b"{}", 1_000, "me", 0)
    assert [key for key in found if key.startswith("x/s")] == stay
    assert len(set(found)) == len(found)


def test_a_hostile_pattern_takes_steps_in_proportion_to_the_text() -> None:
    registry = Registry(1_000)
    for number in range(1_000):
        registry.register(f"{'a' * 120}/{'a' * 120}{number}", ("c",), b"{}", 1_000, "me", 0)
    for pattern in ("(a+)+$", "(a|aa)+$", "(a*)*b", "a*a*a*a*a*a*a*a*a*b"):
        found, steps = run(search(registry, pattern))
        assert (found.total, steps) == (0, 2)


# Registering


def test_the_number_of_actors_is_bounded_but_not_that_of_renewals() -> None:
    registry = Registry(2)
    for address in ("x/a", "x/b"):
        registry.register(address, (), b"{}", 1_000, "me", 0)
    with pytest.raises(RegistryFull, match="2 actors"):
        registry.register("x/c", (), b"{}", 1_000, "me", 0)
    assert registry.register("x/a", (), b"{}", 1_000, "me", 0).version == 2
    registry.register("x/c", (), b"{}", 1_000, "me", 1_000)  # the others are over
    assert len(registry) == 1


def test_renewing_for_ever_takes_no_more_memory() -> None:
    registry = Registry(10)
    token = registry.register("x/a", (), b"{}", 1_000, "me", 0).token
    for now in range(20_000):
        actor = registry.renew(token, 1_000, now)
        assert actor is not None
        token = actor.token
    assert len(registry._heap) < 2_000
    assert registry.expire(20_998) == []
    assert [actor.key for actor in registry.expire(20_999)] == ["x/a"]


class RegistryMachine(RuleBasedStateMachine):
    """The registry against a dictionary that is searched from end to end."""

    def __init__(self) -> None:
        super().__init__()
        self.registry = Registry(5)
        self.now = 0
        self.actors: dict[str, dict[str, Any]] = {}
        self.old_tokens: set[str] = set()

    def living(self) -> dict[str, dict[str, Any]]:
        return {key: one for key, one in self.actors.items() if one["end"] > self.now}

    @rule(
        name=st.sampled_from(["x/a", "x/b", "y/a", "y/b", "z/a", "z/b", "z/c"]),
        wrapped=st.booleans(),
        owner=st.sampled_from(["p", "q"]),
        capabilities=st.lists(st.sampled_from(["c", "d"]), max_size=3),
        ttl=st.sampled_from([1, 10, 100]),
    )
    def register(
        self, name: str, wrapped: bool, owner: str, capabilities: list[str], ttl: int
    ) -> None:
        known = self.actors.get(name)
        if known is not None and known["owner"] != owner:
            if known["end"] > self.now:
                return
            self.registry.unregister(name)
            del self.actors[name]
            known = None
        address = f"@({name})" if wrapped else name
        if known is None and len(self.living()) >= 5:
            with pytest.raises(RegistryFull):
                self.registry.register(address, tuple(capabilities), b"{}", ttl, owner, self.now)
            self.actors = self.living()
            return
        if known is None and len(self.actors) >= 5:
            self.actors = self.living()
        if known is not None:
            self.old_tokens.add(known["token"])
        actor = self.registry.register(address, tuple(capabilities), b"{}", ttl, owner, self.now)
        entry = {
            "address": address,
            "owner": owner,
            "capabilities": set(capabilities),
            "end": self.now + ttl,
            "token": actor.token,
            "version": 1 if known is None else known["version"] + 1,
            "since": self.now if known is None else known["since"],
        }
        if known is None:
            self.actors.pop(name, None)
        self.actors[name] = entry

    @rule(name=st.sampled_from(["x/a", "x/b", "y/a", "z/c"]))
    def unregister(self, name: str) -> None:
        removed = self.registry.unregister(name)
        known = self.actors.pop(name, None)
        assert (removed is None) is (known is None)
        if known is not None:
            self.old_tokens.add(known["token"])

    @rule(data=st.data(), ttl=st.sampled_from([5, 50]))
    def renew(self, data: Any, ttl: int) -> None:
        if not self.actors:
            return
        name = data.draw(st.sampled_from(sorted(self.actors)))
        known = self.actors[name]
        actor = self.registry.renew(known["token"], ttl, self.now)
        if known["end"] <= self.now:
            assert actor is None
            return
        assert actor is not None
        assert actor.token != known["token"]
        self.old_tokens.add(known["token"])
        known["token"], known["end"] = actor.token, self.now + ttl

    @rule(data=st.data())
    def renew_with_what_served_before(self, data: Any) -> None:
        if self.old_tokens:
            token = data.draw(st.sampled_from(sorted(self.old_tokens)))
            assert self.registry.renew(token, 5, self.now) is None

    @rule(ms=st.sampled_from([1, 7, 60]))
    def wait(self, ms: int) -> None:
        self.now += ms

    @rule()
    def expire(self) -> None:
        gone = {actor.key for actor in self.registry.expire(self.now)}
        assert gone == set(self.actors) - set(self.living())
        self.actors = self.living()

    @invariant()
    def it_has_what_the_model_has(self) -> None:
        living = self.living()
        for name in ("x/a", "x/b", "y/a", "y/b", "z/a", "z/b", "z/c"):
            actor = self.registry.get(name, self.now)
            assert (actor is None) is (name not in living)
            if actor is not None:
                known = living[name]
                assert (actor.address, actor.owner) == (known["address"], known["owner"])
                assert set(actor.capabilities) == known["capabilities"]
                assert (actor.expires_at, actor.version) == (known["end"], known["version"])
                assert actor.registered_at == known["since"]
        for owner in ("p", "q"):
            held = [actor.key for actor in self.registry.of(owner)]
            assert held == [key for key, one in self.actors.items() if one["owner"] == owner]
        for wanted in ([], ["c"], ["c", "d"]):
            found = keys(self.registry, "a$", capabilities=wanted, now=self.now)
            expected = {
                key
                for key, one in living.items()
                if re.search("a$", key) and set(wanted) <= one["capabilities"]
            }
            assert set(found) == expected
            assert len(found) == len(expected)


TestRegistry = RegistryMachine.TestCase
TestRegistry.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


def test_a_capability_that_nobody_has_any_more_is_forgotten() -> None:
    registry = Registry(10)
    registry.register("x/a", ("c", "d"), b"{}", 1_000, "me", 0)
    registry.register("x/a", ("d",), b"{}", 1_000, "me", 0)
    assert set(registry._by_capability) == {"d"}
    registry.unregister("x/a")
    assert not registry._by_capability
    assert not registry._by_owner
    assert not registry._by_token
