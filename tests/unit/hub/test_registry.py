"""Actors: registered, renewed, expired and found, against a naive model."""

from __future__ import annotations

import contextlib
import json
import re
import warnings
from collections.abc import Generator, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from pubsubd.hub import catalogue
from pubsubd.hub.actors import MAX_ADDRESS, Actor, canonical
from pubsubd.hub.catalogue import MAX_DETAILS, Found, RegistryFull
from pubsubd.hub.registry import Registry
from pubsubd.hub.search import MAX_PATTERN, PatternError
from tests.examples import examples
from tests.footprint import reached


def page(registry: Registry, offset: int, limit: int, now: int) -> tuple[list[Actor], int]:
    """Return a page of all actors, and how many there are, when all steps are taken."""
    steps = registry.page(offset, limit, now)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return done.value.actors, done.value.total


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


class Clock:
    """Processor time that passes whenever somebody looks."""

    def __init__(self, tick: float) -> None:
        self.now, self.tick = 0.0, tick

    def __call__(self) -> float:
        self.now += self.tick
        return self.now


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
        ("x/\u00e9", []),
        ("x/*\u20ac", []),
        ("x" * MAX_PATTERN, []),
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
        ("\u00e9|bob", ["x/bob"]),
        ("\u20ac|bob", ["x/bob"]),
        ("\ud800|bob", ["x/bob"]),
        ("[^\u20ac]ob", ["x/bob"]),
        ("|".join(f"{n:03}" for n in range(250)) + "|bob", ["x/bob"]),
        ("x" * (MAX_PATTERN - 4) + "|bob", ["x/bob"]),
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


@settings(deadline=None)
@given(
    st.text("ab./^$*+?|()[]", max_size=8),
    st.lists(st.text("ab./", min_size=1, max_size=6), max_size=5),
)
def test_a_pattern_finds_what_pythons_own_would(pattern: str, ends: list[str]) -> None:
    addresses = {f"a/{end}" for end in ends if canonical(f"a/{end}")}
    registry = Registry(10)
    for address in addresses:
        registry.register(address, (), b"{}", 1_000, "me", 0)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of sets that may mean another thing one day
            expected = {address for address in addresses if re.search(pattern, address)}
        found = set(keys(registry, pattern))
    except (re.error, PatternError):
        return  # what is a pattern to one only, as a++
    assert found == expected


def test_a_search_asks_for_all_capabilities_and_equal_metadata(crowd: Registry) -> None:
    assert keys(crowd, capabilities=["all", "even"]) == ["x/ann", "y/ann"]
    assert keys(crowd, capabilities=["even", "even"]) == ["x/ann", "y/ann"]
    assert keys(crowd, capabilities=["even", "none"]) == []
    crowd.register("x/bob", ("all", "odd"), b'{"n":1,"t":true}', 1_000, "me", 0)
    crowd.register("y/odd", ("odd",), b"{}", 1_000, "me", 0)
    for wanted in (["odd", "all"], ["all", "odd"], ["odd", "all", "odd"]):
        assert keys(crowd, capabilities=wanted) == ["x/bob"]
        assert keys(crowd, "y/odd", glob=True, capabilities=wanted) == []
    crowd.unregister("y/odd")
    assert keys(crowd, "y/ann", glob=True, capabilities=["even"]) == ["y/ann"]
    assert keys(crowd, "x/bob", glob=True, capabilities=["even"]) == []
    assert keys(crowd, capabilities=[str(n) for n in range(10_000)]) == []
    assert keys(crowd, metadata={"n": 1}) == ["x/bob"]
    assert keys(crowd, metadata={"n": 1.0}) == ["x/bob"]
    assert keys(crowd, metadata={"n": 1, "t": True}) == ["x/bob"]
    assert keys(crowd, metadata={"t": 1}) == []  # true is not 1
    assert keys(crowd, metadata={"missing": None}) == []
    assert len(keys(crowd, metadata={})) == 4
    assert keys(crowd, "ann", metadata={"n": 2}, capabilities=["even"]) == ["y/ann"]
    crowd.register("x/null", (), b"null", 1_000, "me", 0)
    assert len(keys(crowd, metadata={"t": True})) == 4


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from([0.0, 1.0, -2.5])
    | st.text('a"\\é', max_size=2),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text('a"é', max_size=1), inner),
    max_leaves=4,
)  # fmt: skip
json_objects = st.dictionaries(st.text('a"é', max_size=1), json_values, max_size=3)


def spelled(value: Any) -> Any:
    """Return what is equal only for equal JSON values: in Python, True is 1."""
    if isinstance(value, list):
        return "list", [spelled(one) for one in value]
    if isinstance(value, dict):
        return "object", {key: spelled(one) for key, one in value.items()}
    return isinstance(value, bool), value


@settings(deadline=None)
@given(json_objects, json_objects, st.booleans(), st.booleans())
@example({"a": [1]}, {"a": [1, 2]}, False, False)
@example({"a": [1, 2]}, {"a": [1]}, False, False)
@example({"a": {"é": 1}}, {"a": {"é": 1, "b": 2}}, True, False)
@example({"a": [True]}, {"a": [1]}, False, False)
@example({"a": [1.0]}, {"a": [1]}, False, False)
@example({"\\": '"'}, {"\\": '"'}, False, False)
def test_metadata_is_compared_as_values_however_it_is_spelled(
    stored: dict[str, Any], wanted: dict[str, Any], ascii_only: bool, subset: bool
) -> None:
    if subset:
        wanted = dict(list(stored.items())[:1])
    registry = Registry(1)
    text = json.dumps(stored, ensure_ascii=ascii_only, indent=1).encode()
    registry.register("x/a", (), text, 1_000, "me", 0)
    expected = all(
        key in stored and spelled(stored[key]) == spelled(value) for key, value in wanted.items()
    )
    assert bool(keys(registry, metadata=wanted)) is expected


def test_a_page_of_what_is_found_and_the_number_of_all(crowd: Registry) -> None:
    found, _ = run(search(crowd, limit=2, offset=1))
    assert ([actor.key for actor in found.actors], found.total) == (["x/bob", "y/ann"], 4)
    actors, total = page(crowd, 3, 5, 0)
    assert ([actor.key for actor in actors], total) == (["z/a.b"], 4)


def many(number: int, clock: Clock, address: str = "x/n{}") -> Registry:
    registry = Registry(number, clock=clock)
    for n in range(number):
        more = ("rare",) if n % 10_000 == 0 else ()
        registry.register(address.format(n), ("all", *more), b'{"a":1}', 1_000, n % 10, 0)
    return registry


def test_a_large_search_is_made_in_steps_and_a_rare_capability_needs_few() -> None:
    # 256 bytes of addresses are matched between looks at the clock, here 32 addresses.
    registry = many(50_000, Clock(0.000_025), "x/{:06}")
    found, steps = run(search(registry, "7$", capabilities=["all"], limit=10))
    assert (found.total, len(found.actors)) == (5_000, 10)
    assert 35 <= steps <= 50
    found, steps = run(search(registry, metadata={"a": 1}, limit=50_000))
    assert (found.total, len(found.actors)) == (50_000, 50_000)
    assert 35 <= steps <= 50
    found, steps = run(search(registry, "0", capabilities=["all", "rare"]))
    assert (found.total, steps) == (5, 1)
    found, steps = run(search(registry, "x/000007", glob=True, capabilities=["all"]))
    assert (found.total, steps) == (1, 1)


def test_a_search_gives_others_a_turn_though_it_finds_nobody() -> None:
    registry = many(50_000, Clock(0.001))
    found, steps = run(search(registry, "7", now=1_000))  # all are over
    assert found.total == 0
    assert steps > 190  # one for each 256


def test_a_search_seldom_asks_the_system_for_the_time_it_has_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[float] = []
    used = Clock(0.000_1)

    def thread_time() -> float:
        asked.append(used())
        return asked[-1]

    clocks = SimpleNamespace(perf_counter=Clock(0.000_01), thread_time=thread_time)
    monkeypatch.setattr(catalogue, "time", clocks)
    registry = Registry(10_000)
    for n in range(10_000):
        registry.register(f"x/{n:06}", ("all",), b"{}", 1_000, n % 10, 0)
    found, steps = run(search(registry, "7$", capabilities=["all"]))
    assert found.total == 1_000
    assert 20 <= len(asked) <= 40  # of 313 looks at the time
    assert steps >= 3


def test_a_page_is_the_same_wherever_the_steps_end() -> None:
    for tick in (0.0, 0.000_1, 0.002):
        registry = many(1_500, Clock(tick))
        found, _ = run(search(registry, "[05]$", metadata={"a": 1}, limit=7, offset=101))
        assert [actor.key for actor in found.actors] == [f"x/n{n * 5}" for n in range(101, 108)]
        assert found.total == 300


@settings(max_examples=examples(50), deadline=None)
@given(st.data())
def test_those_who_stay_are_found_once_whatever_comes_and_goes_meanwhile(data: Any) -> None:
    registry = Registry(10_000, clock=Clock(0.000_7))
    stay, go = [f"x/s{n}" for n in range(400)], [f"x/g{n}" for n in range(400)]
    for pair in zip(stay, go, strict=True):
        for address in pair:
            registry.register(address, ("c",), b"{}", 1_000, "me", 0)
    for address in go[:100]:
        registry.register(address, ("c",), b"{}", 5, "me", 0)
    capabilities, pattern = data.draw(st.sampled_from([["c"], []])), "x/"
    steps = search(registry, pattern, capabilities=capabilities, limit=10_000)
    number, now = 0, 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found = [actor.key for actor in end.value.actors]
            break
        for _ in range(data.draw(st.integers(0, 9))):
            number, now = number + 1, now + 1
            registry.unregister(go[data.draw(st.integers(0, len(go) - 1))])
            registry.register(f"x/new{number}", ("c",), b"{}", 1_000, "me", now)
            registry.expire(now)
            same = registry.get(data.draw(st.sampled_from(stay)), now)
            assert same is not None
            registry.register(same.address, ("c", "d"), b"{}", 1_000, same.connection, now)
            other = registry.unregister(data.draw(st.sampled_from(stay)))
            assert other is not None  # it has another connection now
            registry.register(other.address, ("c",), b"{}", 1_000, f"you {number}", now)
    assert [key for key in found if key.startswith("x/s")] == stay
    assert len(set(found)) == len(found)


def test_who_loses_a_capability_between_steps_is_not_found_by_it() -> None:
    registry = many(1_000, Clock(0.002))
    for capabilities in (["all"], ["all", "all"], []):
        steps = search(registry, capabilities=capabilities)
        next(steps)
        for n in range(1_000):
            registry.register(f"x/n{n}", ("other",), b"{}", 1_000, n % 10, 0)
        found, _ = run(steps)
        assert found.total == (256 if capabilities else 1_000)
        for n in range(1_000):
            registry.register(f"x/n{n}", ("all",), b"{}", 1_000, n % 10, 0)


HOSTILE = ["(a+)+$", "(a|aa)+$", "(a*)*b", "a.{0,200}b.{0,200}a$", "(a.{0,30}b.{0,30}){1,10}c$"]


@pytest.mark.parametrize("pattern", HOSTILE)
def test_a_hostile_pattern_is_answered_or_refused_after_few_steps(pattern: str) -> None:
    registry = Registry(2_000)
    for number in range(2_000):
        text = f"{number:011b}".replace("0", "a").replace("1", "b") * 22
        registry.register(f"a/{text}-{number}", ("c",), b"{}", 1_000, "me", 0)
    steps = 0
    with contextlib.suppress(PatternError):
        for _ in search(registry, pattern):
            steps += 1
    assert steps < 300  # of 1 ms or more, and 200 ms of matching are the most


def test_matching_takes_so_long_and_no_longer_but_metadata_may() -> None:
    # 24 ms for each 64 addresses.
    registry = many(50_000, Clock(0.024), "x/{:06}")
    steps = 0
    with pytest.raises(PatternError, match="too long to match"):  # noqa: PT012
        for _ in search(registry, "7"):
            steps += 1
    assert steps == 8
    found, _ = run(search(registry, metadata={"a": 1}))
    assert found.total == 50_000


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
    assert len(list(reached(registry))) < 5_000
    assert registry.expire(20_998) == []
    assert [actor.key for actor in registry.expire(20_999)] == ["x/a"]


def test_coming_and_going_for_ever_takes_no_more_memory() -> None:
    registry = Registry(10)
    registry.register("x/stays", (), b"{}", 1_000, "me", 0)
    for number in range(20_000):
        registry.register(f"x/{number % 3}", (), b"{}", 1_000, "me", 0)
        registry.unregister(f"x/{number % 3}")
    assert len(list(reached(registry))) < 5_000
    registry.register("x/0", (), b"{}", 2_000, "me", 0)
    assert [actor.key for actor in registry.expire(1_000)] == ["x/stays"]
    assert [one for one in reached(registry) if one == (1_000, "x/stays")] == []
    assert [actor.key for actor in registry.expire(2_000)] == ["x/0"]


def test_expiring_takes_no_more_than_a_thousand_at_a_time() -> None:
    registry = Registry(10_000)
    for number in range(2_500):
        registry.register(f"x/n{number}", (), b"{}", 10, "me", 0)
    assert page(registry, 0, 5, 9)[1] == 2_500
    steps = registry.page(0, 5, 10)
    assert [len(registry) for _ in steps] == [1_500, 500, 0]
    assert page(registry, 0, 5, 10) == ([], 0)
    told = [len(registry.expire(10)) for _ in range(4)]
    assert told == [1_000, 1_000, 500, 0]


def test_expiring_those_with_many_capabilities_takes_fewer_at_a_time() -> None:
    registry = Registry(10_000)
    for number in range(100):
        able = tuple(f"c{number}/{one}" for one in range(200))
        registry.register(f"x/n{number}", able, b"{}", 10, "me", 0)
    assert len(registry.expire(10)) == 39  # of 26 each


def test_any_offset_is_beyond_the_last_actor() -> None:
    registry = Registry(10)
    registry.register("x/a", (), b"{}", 10, "me", 0)
    assert page(registry, 2**63 - 1, 5, 0) == ([], 1)


def test_many_renewals_that_come_up_at_once_are_gone_through_a_part_at_a_time() -> None:
    registry = Registry(10_000)
    for number in range(5_000):
        token = registry.register(f"x/n{number}", (), b"{}", 10, "me", 0).token
        assert registry.renew(token, 1_000, 5) is not None
    registry.register("x/z", (), b"{}", 11, "me", 0)
    told = [[actor.key for actor in registry.expire(20)] for _ in range(4)]
    assert told == [[], [], ["x/z"], []]


def test_an_actor_that_made_room_is_told_all_the_same() -> None:
    registry = Registry(1)
    registry.register("x/a", (), b"{}", 10, "ann", 0)
    registry.register("x/b", (), b"{}", 10, "bob", 10)
    registry.register("x/b", (), b"{}", 90, "eve", 20)  # his is over, and not yet swept
    gone = registry.expire(20)
    assert [(actor.key, actor.connection) for actor in gone] == [("x/a", "ann"), ("x/b", "bob")]
    assert registry.expire(20) == []
    assert [actor.connection for actor in page(registry, 0, 9, 20)[0]] == ["eve"]


def test_an_actor_that_has_come_back_meanwhile_is_not_told() -> None:
    registry = Registry(1)
    registry.register("x/a", (), b"{}", 10, "ann", 0)
    registry.register("x/b", (), b"{}", 10, "ann", 10)
    assert registry.register("x/a", (), b"{}", 90, "ann", 20).version == 1
    assert [actor.key for actor in registry.expire(20)] == ["x/b"]


def test_what_actors_tell_about_themselves_is_bounded() -> None:
    registry = Registry(10, max_details=3_000)
    with pytest.raises(RegistryFull, match=f"of {MAX_DETAILS} that one actor has"):
        registry.register("x/a", (), b"x" * (MAX_DETAILS + 1), 1_000, "me", 0)
    able = tuple(str(n) for n in range(MAX_DETAILS // 256 + 1))
    with pytest.raises(RegistryFull, match="that one actor has"):
        registry.register("x/a", able, b"{}", 1_000, "me", 0)
    assert len(registry) == 0
    registry.register("x/a", ("c", "c", "c"), b"x" * 1_000, 1_000, "me", 0)
    registry.register("x/b", (), b"x" * 1_700, 1_000, "me", 0)
    with pytest.raises(RegistryFull, match="takes 3000 bytes"):
        registry.register("x/c", (), b"x" * 100, 1_000, "me", 0)
    with pytest.raises(RegistryFull, match="takes 3000 bytes"):
        registry.register("x/a", ("c",), b"x" * 1_100, 1_000, "me", 0)
    assert registry.register("x/a", ("c",), b"x" * 900, 1_000, "me", 0).version == 2
    registry.register("x/c", (), b"x" * 100, 1_000, "me", 0)
    registry.unregister("x/b")
    registry.register("x/d", (), b"x" * 1_700, 1_000, "me", 0)
    assert len(registry.expire(1_000)) == 3
    registry.register("x/e", (), b"x" * 2_900, 2_000, "me", 1_000)  # all of the room is free again


def test_registering_again_keeps_an_actors_place_in_the_pages() -> None:
    registry = Registry(10)
    for name in ("a", "b", "c"):
        registry.register(f"x/{name}", ("c",), b"{}", 1_000, "me", 0)
    registry.register("x/a", ("new", "c"), b"{}", 1_000, "me", 0)
    assert keys(registry) == keys(registry, capabilities=["c"]) == ["x/a", "x/b", "x/c"]


NAMES = ["x/a", "x/b", "y/a", "y/b", "z/a", "z/b", "z/c"]


class RegistryMachine(RuleBasedStateMachine):
    """The registry against a dictionary that is searched from end to end."""

    def __init__(self) -> None:
        super().__init__()
        self.registry = Registry(5)
        self.now = 0
        self.actors: dict[str, dict[str, Any]] = {}
        self.untold: list[tuple[str, str]] = []  # actors removed as over
        self.old_tokens: set[str] = set()

    def living(self) -> dict[str, dict[str, Any]]:
        return {key: one for key, one in self.actors.items() if one["end"] > self.now}

    def drop(self, name: str) -> None:
        self.old_tokens.add(self.actors.pop(name)["token"])

    def reap(self) -> None:
        for name in set(self.actors) - set(self.living()):
            self.untold.append((name, self.actors[name]["owner"]))
            self.drop(name)

    @rule(
        name=st.sampled_from(NAMES),
        wrapped=st.booleans(),
        owner=st.sampled_from(["p", "q"]),
        capabilities=st.lists(st.sampled_from(["c", "d"]), max_size=3),
        number=st.integers(0, 1),
        ttl=st.sampled_from([1, 10, 100]),
    )
    def register(
        self, name: str, wrapped: bool, owner: str, capabilities: list[str], number: int, ttl: int
    ) -> None:
        known = self.actors.get(name)
        if known is not None and known["owner"] != owner:
            if known["end"] > self.now:
                return  # somebody else's
            self.untold.append((name, known["owner"]))
            self.drop(name)
            known = None
        if known is None and len(self.actors) >= 5:
            self.reap()
        address = f"@({name})" if wrapped else name
        given = address, tuple(capabilities), b'{"n":%d}' % number, ttl, owner, self.now
        if known is None and len(self.actors) >= 5:
            with pytest.raises(RegistryFull):
                self.registry.register(*given)
            return
        if known is not None:
            self.old_tokens.add(known["token"])
        actor = self.registry.register(*given)
        self.actors[name] = {
            "address": address,
            "owner": owner,
            "capabilities": set(capabilities),
            "number": number,
            "end": self.now + ttl,
            "token": actor.token,
            "version": 1 if known is None else known["version"] + 1,
            "since": self.now if known is None else known["since"],
        }

    @rule(name=st.sampled_from(NAMES))
    def unregister(self, name: str) -> None:
        removed = self.registry.unregister(name)
        assert (removed is None) is (name not in self.actors)
        if removed is not None:
            assert removed.connection == self.actors[name]["owner"]
            self.drop(name)

    @rule(owner=st.sampled_from(["p", "q"]))
    def leave(self, owner: str) -> None:
        for actor in list(self.registry.of(owner)):
            assert self.registry.unregister(actor.key) is actor
            self.drop(actor.key)
        assert all(one["owner"] != owner for one in self.actors.values())

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
        self.reap()
        told = [(actor.key, actor.connection) for actor in self.registry.expire(self.now)]
        back = {(name, one["owner"]) for name, one in self.actors.items()}
        assert sorted(told) == sorted(one for one in self.untold if one not in back)
        self.untold.clear()

    @rule(offset=st.integers(0, 6), limit=st.integers(0, 6))
    def page(self, offset: int, limit: int) -> None:
        self.reap()
        actors, total = page(self.registry, offset, limit, self.now)
        assert [actor.key for actor in actors] == list(self.actors)[offset : offset + limit]
        assert total == len(self.actors)

    @rule(
        glob=st.booleans(),
        capabilities=st.lists(st.sampled_from(["c", "d", "e"]), max_size=2),
        number=st.none() | st.integers(0, 1),
        offset=st.integers(0, 6),
        limit=st.integers(0, 6),
    )
    def discover(
        self, glob: bool, capabilities: list[str], number: int | None, offset: int, limit: int
    ) -> None:
        wanted: dict[str, Any] = {
            "glob": glob,
            "capabilities": capabilities,
            "metadata": None if number is None else {"n": number},
            "now": self.now,
        }
        pattern = "*/a" if glob else "a$"
        whole, _ = run(search(self.registry, pattern, **wanted))
        expected = {
            key
            for key, one in self.living().items()
            if key.endswith("/a")
            and set(capabilities) <= one["capabilities"]
            and number in (None, one["number"])
        }
        found = [actor.key for actor in whole.actors]
        assert (set(found), len(found), whole.total) == (expected, len(expected), len(expected))
        part, _ = run(search(self.registry, pattern, **wanted, offset=offset, limit=limit))
        assert [actor.key for actor in part.actors] == found[offset : offset + limit]
        assert part.total == whole.total

    @invariant()
    def it_has_what_the_model_has(self) -> None:
        living = self.living()
        for name in NAMES:
            actor = self.registry.get(name, self.now)
            assert (actor is None) is (name not in living)
            if actor is not None:
                known = living[name]
                assert (actor.address, actor.connection) == (known["address"], known["owner"])
                assert set(actor.capabilities) == known["capabilities"]
                assert (actor.expires_at, actor.version) == (known["end"], known["version"])
                assert actor.registered_at == known["since"]
        for owner in ("p", "q"):
            held = [actor.key for actor in self.registry.of(owner)]
            assert held == [key for key, one in self.actors.items() if one["owner"] == owner]
        for capability in ("c", "d"):
            able = [key for key, one in self.actors.items() if capability in one["capabilities"]]
            assert sorted(self.registry.keys(capability)) == sorted(able)
        assert len(self.registry) == len(self.actors)


TestRegistry = RegistryMachine.TestCase
TestRegistry.settings = settings(max_examples=examples(150), stateful_step_count=40, deadline=None)


def texts_in(registry: Registry[str]) -> Iterator[str]:
    """Yield the texts that dictionaries of a registry have as keys, or as values."""
    for one in reached(registry):
        if isinstance(one, dict):
            yield from (text for text in (*one, *one.values()) if isinstance(text, str))


def test_a_capability_that_nobody_has_any_more_is_forgotten() -> None:
    registry = Registry(10)
    registry.register("x/a", ("c", "d"), b"{}", 1_000, "me", 0)
    token = registry.register("x/a", ("d",), b"{}", 1_000, "me", 0).token
    assert "c" not in set(texts_in(registry))
    registry.unregister("x/a")
    assert not {"d", "me", "x/a", token} & set(texts_in(registry))
