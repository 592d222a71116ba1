"""Wildcards against expressions that try everything, and many of them against one by one."""

from __future__ import annotations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from pubsubd.routing.wildcards import MAX_LEVELS, Glob, Pattern, WildcardIndex
from tests.examples import examples
from tests.model import pattern_matches

levels = st.text(alphabet="ab*", max_size=5).map(lambda text: text.replace("**", "*"))
texts = st.one_of(
    st.text(alphabet="ab./+*#é", min_size=1, max_size=9),
    st.builds("{1}".join, st.lists(levels, min_size=1, max_size=4)),
    st.builds("{}.#".format, st.lists(levels, min_size=1, max_size=3).map(".".join)),
    st.lists(st.sampled_from(["a", "b", "+", ""]), min_size=1, max_size=4).map("/".join),
    st.sampled_from(["#", "//pubsubd/#", "//pubsubd/*", "//pubsubd*", "//pubsubd/a.#"]),
)
names = st.one_of(
    st.text(alphabet="ab./é", min_size=1, max_size=9),
    st.lists(st.text(alphabet="ab", max_size=5), min_size=1, max_size=4).map(".".join),
    st.lists(st.sampled_from(["a", "b", ""]), min_size=1, max_size=5).map("/".join),
    st.sampled_from(["//pubsubd", "//pubsubd/a", "//pubsubd/a.b", "//fwd/pubsubd/a"]),
).filter(bool)


def compile_pattern(separator: str, text: str) -> Pattern | None:
    try:
        return Pattern.dots(text) if separator == "." else Pattern.slashes(text)
    except ValueError:
        return None


@given(st.sampled_from("./"), texts, st.lists(names, min_size=1, max_size=10))
@settings(max_examples=examples(500))
def test_what_a_pattern_matches_is_what_its_expression_does(
    separator: str, text: str, some: list[str]
) -> None:
    pattern = compile_pattern(separator, text)
    assume(pattern is not None)
    assert pattern is not None
    for name in some:
        matches = pattern.matches(name.encode())
        assert matches == pattern_matches(separator, text, name.encode())
        if matches:
            assert pattern.literal in name.encode()
            assert (name + separator).encode().startswith(pattern.start)


@pytest.mark.parametrize(
    ("text", "matching", "others"),
    [
        ("a.*", "a.b a. a.b:c a.b/c", "a a.b.c b.b xa.b"),
        ("metrics.*.usage", "metrics.cpu.usage", "metrics.cpu metrics.cpu.usage.percent"),
        ("a.b.#", "a.b a.b. a.b.c a.b.c.d", "a a.bc b.a.b"),
        ("*.#", "a a.b /", ""),
        ("#", "a a.b //x/y //fwd/x //pubsubd", "//pubsubd/x"),
        ("user:*", "user: user:7 user:7:x", "user user:7.x xuser:7"),
        ("*-eu-*.log", "-eu-.log a-eu-b.log", "a-eub.log a-eu-b.logs -eu-log"),
        ("a*a", "aa aba aaaa", "a ab"),
        ("a*bc*ca", "abcca abc-ca abccca", "abca"),
        ("a+b", "a+b", "a"),
        ("c#.d#", "c#.d#", "c.d"),
        ("a.b", "a.b", "a.c"),
    ],
)
def test_between_dots(text: str, matching: str, others: str) -> None:
    check(Pattern.dots(text), matching, others)


@pytest.mark.parametrize(
    ("text", "matching", "others"),
    [
        ("a/+", "a/b a/ a/b.c", "a a/b/c xa/b"),
        ("+", "a a.b", "a/b /"),
        ("a/#", "a a/ a/b a/b/c", "ab b/a"),
        ("+/+/org/#", "//org //org/x", "/org //x/org"),
        ("//fwd/+/y", "//fwd/x/y", "//fwd/x/y/z //fwd/y"),
        ("//pubsubd/#", "//pubsubd //pubsubd/stats", "//pubsubdx"),
        ("//+/stats", "//x/stats", "//pubsubd/stats"),
        ("a*/b+", "a*/b+", "aa/b"),
        ("#", "a / //", "//pubsubd/"),
    ],
)
def test_between_slashes(text: str, matching: str, others: str) -> None:
    check(Pattern.slashes(text), matching, others)


def check(pattern: Pattern, matching: str, others: str) -> None:
    index: WildcardIndex[None] = WildcardIndex()
    index.add(pattern, None)
    for name in matching.encode().split():
        assert pattern.matches(name)
        assert index.find(name) == [pattern]
    for name in others.encode().split():
        assert not pattern.matches(name)
        assert index.find(name) == []


@pytest.mark.parametrize(
    "text",
    [
        *("", "#.a", "a.#.#", "a b", "a\nb", "a\r", "**", "a.b**", "x" * 1_025, "\ud800.*"),
        ".".join("a" * 33),
        "*a" * 33,
    ],
)
def test_what_is_no_pattern_between_dots_is_told_in_one_line(text: str) -> None:
    with pytest.raises(ValueError, match=r"^[^\n]{10,120}\Z"):
        Pattern.dots(text)


@pytest.mark.parametrize("text", ["", "#/a", "a/#/b", "+ /a", "/" * 32, "x" * 1_025, "\udc80"])
def test_what_is_no_pattern_between_slashes_is_told_in_one_line(text: str) -> None:
    with pytest.raises(ValueError, match=r"^[^\n]{10,120}\Z"):
        Pattern.slashes(text)


def test_patterns_are_equal_if_their_texts_and_separators_are() -> None:
    same = {Pattern.dots("a.#"), Pattern.dots("a.#"), Pattern.slashes("a.#")}
    assert len(same) == 2
    assert Pattern.dots("a") != Pattern.dots("b")
    assert Pattern.dots("a") != Pattern.slashes("a")
    assert Pattern.dots("a") != "a"
    assert repr(Pattern.dots("a.*")) == "Pattern.dots('a.*')"
    assert repr(Pattern.slashes("a/+")) == "Pattern.slashes('a/+')"


def test_as_deep_as_a_pattern_can_be_it_matches_still() -> None:
    deep = ".".join(["*"] * MAX_LEVELS)
    check(Pattern.dots(deep), "a." * (MAX_LEVELS - 1), "a." * (MAX_LEVELS - 2))


def test_stars_are_not_tried_in_every_combination() -> None:
    glob = Glob(b"*a" * 30 + b"*b*")
    assert not glob.matches(b"a" * 1_000)
    assert glob.matches(b"a" * 999 + b"b")


class IndexAgainstOneByOne(RuleBasedStateMachine):
    """The index, and the set that it stands for."""

    def __init__(self) -> None:
        super().__init__()
        self.index: WildcardIndex[str] = WildcardIndex()
        self.truth: set[tuple[str, str]] = set()

    @rule(separator=st.sampled_from("./"), text=texts)
    def add(self, separator: str, text: str) -> None:
        pattern = compile_pattern(separator, text)
        if pattern is not None and (separator, text) not in self.truth:
            self.index.add(pattern, text)
            self.truth.add((separator, text))

    @rule(start=st.sampled_from(["", "a.", "a*."]), many=st.sets(levels, min_size=9, max_size=30))
    def add_many_at_one_place(self, start: str, many: set[str]) -> None:
        for level in many:
            self.add(".", start + level)

    @rule(data=st.data(), count=st.sampled_from([1, 1, 5, 20]))
    def remove(self, data: st.DataObject, count: int) -> None:
        for _ in range(min(count, len(self.truth))):
            separator, text = data.draw(st.sampled_from(sorted(self.truth)))
            pattern = compile_pattern(separator, text)
            assert pattern is not None
            self.index.remove(pattern)
            self.truth.remove((separator, text))

    @rule(name=names)
    def find(self, name: str) -> None:
        found = self.index.find(name.encode())
        assert sorted((p.separator.decode(), p.text) for p in found) == sorted(
            pattern for pattern in self.truth if pattern_matches(*pattern, name.encode())
        )

    @invariant()
    def holds_what_the_set_holds(self) -> None:
        assert {(p.separator.decode(), p.text) for p in self.index.values} == self.truth
        assert all(pattern.text == text for pattern, text in self.index.values.items())

    @invariant()
    def globs_are_filed_once_and_nothing_else_is(self) -> None:
        places = list(self.index.roots.values())
        while places:
            place = places.pop()
            globs = place.globs
            entries = [] if globs is None else list(globs.nodes.values())
            if globs is not None and globs.index is not None:
                drawers = globs.index.values
                assert sorted(glob for drawer in drawers.values() for glob in drawer) == sorted(
                    globs.nodes
                )
                assert all(globs.filed[glob] in drawers for glob in globs.nodes)
                assert all(drawers.values())
            following = [place.any, *(place.named or {}).values(), *(node for _, node in entries)]
            some = [node for node in following if node is not None]
            assert not any(node.empty for node in some)
            places += some

    def teardown(self) -> None:
        for separator, text in self.truth:
            pattern = compile_pattern(separator, text)
            assert pattern is not None
            self.index.remove(pattern)
        assert all(root.empty for root in self.index.roots.values())  # nothing is left behind


TestIndexAgainstOneByOne = IndexAgainstOneByOne.TestCase
TestIndexAgainstOneByOne.settings = settings(
    max_examples=examples(150), stateful_step_count=30, deadline=None
)


def test_removing_an_unknown_pattern_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        WildcardIndex().remove(Pattern.dots("a.*"))


@pytest.mark.parametrize(
    ("text", "name", "count"),
    [
        ("org{0}.*.room{1}", b"org7.x.room8", 1),
        ("*.org{0}.room{1}.#", b"x.org7.room8.y.z", 1),
        ("user:{0}{1}:*", b"user:78:x", 1),
        ("user:*:{0}:{1}", b"user:x:7:8", 1),
        ("*-{0}-{1}-*", b"x-7-8-y", 1),
        ("user:*{0}-{1}", b"user:x7-8", 1),
        ("*.*.{0}.{1}", b"x.y.7.8", 1),
    ],
)
def test_a_lookup_among_ten_thousand_wildcards_does_not_try_each(
    text: str, name: bytes, count: int
) -> None:
    index: WildcardIndex[None] = WildcardIndex()
    for pattern in {Pattern.dots(text.format(i, j)) for i in range(100) for j in range(100)}:
        index.add(pattern, None)
    found = index.find(name)
    assert len(found) == count
    assert all(pattern.matches(name) for pattern in found)
    assert index.work < 600
    index.find(name.replace(b"8", b"888"))
    assert index.work < 1_200
