"""Which topics are legal where, and the table of topics against one that is plainly right."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from pubsubd.hub.topic_table import TopicTable
from pubsubd.hub.topics import (
    TopicError,
    check_envelope_topic,
    check_hub_topic,
    check_synap_topic,
    hub_pattern,
    synap_pattern,
)
from pubsubd.protocol import wire
from tests.examples import examples

texts = st.one_of(st.text(max_size=40), st.text(alphabet="ab/.+#* -", max_size=12))


def hub(topic: object, *, any_name: bool = False, publishing: bool = True) -> bytes:
    return check_hub_topic(topic, any_name, 256, publishing=publishing)


@pytest.mark.parametrize("topic", ["system/events", "a", "A-b_c/0", "/", "a//b", "x" * 256])
def test_letters_digits_slashes_dashes_and_underscores_make_a_hub_topic(topic: str) -> None:
    assert hub(topic) == topic.encode()


@pytest.mark.parametrize(
    ("topic", "text"),
    [
        (None, "topic is required"),
        ("", "topic is required"),
        (5, "topic must be a string"),
        (["a"], "topic must be a string"),
        ("x" * 257, "topic has 257 characters, over 256"),
        ("a.b", "topic 'a.b' must match ^[a-zA-Z0-9/_-]+$"),
        ("a b", "topic 'a b' must match ^[a-zA-Z0-9/_-]+$"),
        ("a\n", "topic 'a\\n' must match ^[a-zA-Z0-9/_-]+$"),
        ("ä", "topic 'ä' must match ^[a-zA-Z0-9/_-]+$"),
        ("//pubsubd/stats", "topic '//pubsubd/stats' is one of the daemon's own"),
    ],
)
def test_other_hub_topics_are_refused_in_one_line_that_says_why(topic: object, text: str) -> None:
    with pytest.raises(TopicError) as caught:
        hub(topic)
    assert caught.value.text == str(caught.value) == text


def test_a_hub_topic_may_be_any_name_of_the_line_protocol_where_that_is_set() -> None:
    assert hub("a.b:c/ä", any_name=True) == "a.b:c/ä".encode()
    for topic in ("a b", "a\nb", "a\rb", "ä" * 129 * 4):
        with pytest.raises(TopicError):
            check_hub_topic(topic, True, 1_000)


def test_the_daemons_own_names_can_be_subscribed_and_not_published() -> None:
    assert hub("//pubsubd/stats", publishing=False) == b"//pubsubd/stats"
    assert check_synap_topic("//pubsubd/stats", publishing=False) == b"//pubsubd/stats"
    for check in (hub, check_synap_topic):
        with pytest.raises(TopicError, match="the daemon's own"):
            check("//pubsubd/stats")
    assert check_envelope_topic("//pubsubd/x:1") is None


def test_a_level_of_its_own_makes_a_hub_topic_a_pattern() -> None:
    for text in ("+", "#", "a/+", "+/b", "a/+/b/#"):
        pattern = hub_pattern(text, False, 256)
        assert pattern is not None
        assert pattern.text == text
    for text in ("a/b", "a+", "c#", "a/b+/c"):
        assert hub_pattern(text, True, 256) is None


@pytest.mark.parametrize("topic", ["#/a", "a/#/#", "a.b/+", "a b/+", "+/" + "x" * 255])
def test_a_hub_pattern_that_could_match_nothing_is_refused(topic: str) -> None:
    with pytest.raises(TopicError) as caught:
        hub_pattern(topic, False, 256)
    assert "\n" not in caught.value.text


def test_stars_anywhere_and_a_hash_as_the_last_level_make_a_synap_pattern() -> None:
    for text in ("*", "#", "a.*", "a.*.c", "user:*", "s-*-t.x", "a.#", "*.#"):
        pattern = synap_pattern(text)
        assert pattern is not None
        assert pattern.text == text
    for text in ("a", "a.b", "c#", "a.b#.c", "a/+"):
        assert synap_pattern(text) is None


@pytest.mark.parametrize("topic", ["#.a", "a.#.b", "#.#", "*.#.*"])
def test_a_hash_that_is_not_last_is_told_in_synaps_words(topic: str) -> None:
    with pytest.raises(TopicError) as caught:
        synap_pattern(topic)
    assert caught.value.text == "# wildcard must be at the end of pattern"


def test_an_empty_synap_topic_is_told_in_synaps_words() -> None:
    with pytest.raises(TopicError) as caught:
        check_synap_topic("")
    assert caught.value.text == "Topic cannot be empty"


def test_an_envelope_that_has_no_id_has_a_topic_all_the_same() -> None:
    assert check_envelope_topic("chat:") == b"chat:"
    assert check_envelope_topic(":") == b":"
    for topic in ("", "a b:c", "a:b\n", "x" * 1_025, "\ud800:x"):
        assert check_envelope_topic(topic) is None


@given(topic=texts)
def test_what_any_dialect_accepts_is_a_legal_name(topic: str) -> None:
    found: list[bytes | None] = [check_envelope_topic(topic)]
    for check in (hub, lambda topic: hub(topic, any_name=True), check_synap_topic):
        with contextlib.suppress(TopicError):
            found.append(check(topic))
    for pattern in (lambda: hub_pattern(topic, True, 256), lambda: synap_pattern(topic)):
        with contextlib.suppress(TopicError):
            made = pattern()
            found.append(made.text.encode() if made is not None else None)
    for name in found:
        if name is not None:
            assert name == topic.encode()
            wire.check_name(name)


# The table

numbers = st.integers(0, 149)


@dataclass
class Plain:
    created: float
    used: float
    messages: int = 0
    subscribers: int = 0
    turn: int = 0


class TableAgainstList(RuleBasedStateMachine):
    """Topics come and go; what the table says of them, and which it forgets, has to be right."""

    MAX, IDLE = 120, 50.0

    def __init__(self) -> None:
        super().__init__()
        self.table = TopicTable(self.MAX, self.IDLE)
        self.truth: dict[bytes, Plain] = {}
        self.now = self.told = 1_000.0
        self.turn = 0

    def make(self, name: bytes, *, held: bool) -> Plain | None:
        self.turn += 1
        self.told = self.now
        topic = self.truth.get(name)
        if topic is None:
            while len(self.truth) >= self.MAX:
                idle = [entry for entry in self.truth.items() if not entry[1].subscribers]
                if not idle:
                    break
                del self.truth[min(idle, key=lambda entry: entry[1].turn)[0]]
            if len(self.truth) >= self.MAX and not held:
                return None
            topic = self.truth[name] = Plain(self.now, self.now, turn=self.turn)
        return topic

    @rule(first=numbers, count=st.integers(1, 90), times=st.integers(1, 3))
    def publish(self, first: int, count: int, times: int) -> None:
        for number in range(first, first + count):
            name = b"t%d" % (number % 150)
            for _ in range(times):
                self.table.note(name, self.now)
                topic = self.make(name, held=False)
                if topic is not None:
                    topic.messages += 1
                    if not topic.subscribers:
                        topic.used, topic.turn = self.now, self.turn

    @rule(first=numbers, count=st.sampled_from([1, 1, 5, 130]))
    def subscribe(self, first: int, count: int) -> None:
        for number in range(first, first + count):
            name = b"t%d" % (number % 150)
            self.table.hold(name, self.now)
            topic = self.make(name, held=True)
            assert topic is not None
            topic.subscribers += 1

    @rule(first=numbers, count=st.sampled_from([1, 5, 130]), every=st.booleans())
    def unsubscribe(self, first: int, count: int, every: bool) -> None:
        for number in range(first, first + count):
            name = b"t%d" % (number % 150)
            topic = self.truth.get(name)
            if topic is not None and topic.subscribers:
                some = topic.subscribers if every else 1
                self.table.release(name, some)
                topic.subscribers -= some
                if not topic.subscribers:
                    self.turn += 1
                    topic.used, topic.turn = self.told, self.turn

    @rule(seconds=st.sampled_from([1.0, 10.0, 60.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def expire(self) -> None:
        old = [
            name
            for name, topic in self.truth.items()
            if not topic.subscribers and self.now - topic.used > self.IDLE
        ]
        assert self.table.expire(self.now) == len(old)
        for name in old:
            del self.truth[name]

    @invariant()
    def every_topic_is_known_with_its_counts(self) -> None:
        assert len(self.table) == len(self.truth)
        for number in range(150):
            name = b"t%d" % number
            topic, plain = self.table.get(name), self.truth.get(name)
            assert (topic is None) == (plain is None) == (name not in self.table)
            if topic is not None and plain is not None:
                assert topic.message_count == plain.messages
                assert topic.subscribers == plain.subscribers
                assert topic.created_at == plain.created

    @invariant()
    def the_top_is_the_top(self) -> None:
        counts = sorted((t.messages for t in self.truth.values() if t.messages), reverse=True)
        found = self.table.top()
        assert [topic.message_count for _, topic in found] == counts[:10]
        assert all(self.truth[name].messages == topic.message_count for name, topic in found)
        assert len({name for name, _ in found}) == len(found)
        assert self.table.candidates <= 64  # what it costs stays small

    @invariant()
    def pages_show_every_topic_once_and_the_oldest_first(self) -> None:
        found: list[bytes] = []
        for offset in range(0, len(self.truth), 50):
            names, total = self.table.page(offset, 50)
            assert total == len(self.truth)
            found += names
        assert found == list(self.truth)

    @invariant()
    def there_is_room_for_what_is_not_subscribed(self) -> None:
        held = sum(1 for topic in self.truth.values() if topic.subscribers)
        assert self.table.room == self.MAX - held


TestTableAgainstList = TableAgainstList.TestCase
TestTableAgainstList.settings = settings(
    max_examples=examples(120), stateful_step_count=40, deadline=None
)


def test_a_full_table_forgets_what_has_not_been_used_for_longest() -> None:
    table = TopicTable(3, 100.0)
    for name in (b"a", b"b", b"c", b"a", b"d"):
        table.note(name, 1.0)
    assert table.page(0, 10) == ([b"a", b"c", b"d"], 3)


def test_a_topic_that_is_subscribed_is_not_forgotten() -> None:
    table = TopicTable(1, 100.0)
    table.hold(b"a", 1.0)
    table.note(b"b", 1.0)
    assert table.expire(1e9) == 0
    assert b"a" in table
    assert b"b" not in table


def test_a_topic_is_remembered_for_exactly_the_time_that_is_set() -> None:
    table = TopicTable(3, 100.0)
    table.note(b"a", 1.0)
    table.note(b"b", 2.0)
    assert table.expire(101.0) == 0
    assert table.expire(101.5) == 1
    assert table.page(0, 3) == ([b"b"], 1)


def test_no_call_forgets_more_than_a_thousand_topics() -> None:
    table = TopicTable(10_000, 100.0)
    for number in range(2_500):
        table.note(b"%d" % number, 1.0)
    assert [table.expire(102.0) for _ in range(4)] == [1_000, 1_000, 500, 0]
