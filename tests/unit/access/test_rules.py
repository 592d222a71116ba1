"""Rights: what a text means, who has which, and that equal rights are one object."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pubsubd.access.rules import OUTSIDE, Acl, AclRule
from pubsubd.protocol.errors import ConfigError
from tests.examples import examples
from tests.footprint import reached
from tests.rights import may

TEXTS = [
    "a",
    "a/",
    "=a",
    "=a/b",
    "/",
    "//",
    "//a/",
    "//fwd/a",
    "=//fwd/a",
    "a/+",
    "a/#",
    "#",
    "+/b",
    "*",
    "a.*",
    "a.#",
    "*b",
    "//fwd/+",
    "//+/a",
    "//pubsubd/",
    "//pubsubd",
    "//pubsubd/s",
    "=//pubsubd/stats",
    "//pubsubd/#",
]
texts = st.lists(st.sampled_from(TEXTS), max_size=3).map(tuple)
names = st.one_of(
    st.text(alphabet="ab/.", min_size=1, max_size=6).map(str.encode),
    st.sampled_from(
        [
            b"//fwd/a",
            b"//fwd/a/b",
            b"//fwd/fwd/a",
            b"//fwd/pubsubd/stats",
            b"//pubsubd/stats",
            b"//pubsubd/x",
            "é".encode(),
        ]
    ),
)
whos = st.lists(st.sampled_from(["ann", "bob", "*"]), min_size=1, max_size=2).map(tuple)
rules = st.lists(st.builds(AclRule, whos, texts, texts), max_size=4)


@settings(max_examples=examples(400), deadline=None)
@given(rules, st.lists(names, min_size=1, max_size=8))
def test_rights_are_what_each_rule_says_by_itself(
    given_rules: list[AclRule], asked: list[bytes]
) -> None:
    acl = Acl(given_rules)
    for who in ("ann", "bob", "", None):
        permission = acl.permission(who)
        for name in asked * 2:  # the second time it is remembered
            for what in ("publish", "receive"):
                wanted = may(given_rules, who, what, name)
                told = permission is None or getattr(permission, f"may_{what}")(name)
                assert told == wanted, (who, what, name)


@settings(max_examples=examples(200), deadline=None)
@given(rules)
def test_equal_rights_are_one_object(given_rules: list[AclRule]) -> None:
    acl = Acl(given_rules)
    found = {who: acl.permission(who) for who in ("ann", "bob", "eve", None)}
    assert found["eve"] is found[None]
    for who, other in (("ann", "bob"), ("ann", "eve"), ("bob", "eve")):
        rights = [
            {
                (what, text)
                for rule in given_rules
                for what in ("publish", "receive")
                for text in getattr(rule, what)
                if "*" in rule.who or one in rule.who
            }
            for one in (who, other)
        ]
        if rights[0] == rights[1]:
            assert found[who] is found[other]


def test_without_rules_and_with_all_rights_there_is_nothing_to_look_at() -> None:
    assert Acl().permission("ann") is None
    everything = ("#", "//pubsubd/")
    acl = Acl([AclRule(("root",), everything, everything), AclRule(("ann",), ("#",), ("#",))])
    assert acl.permission("root") is None
    assert acl.permission("ann") is not None
    assert acl.permission(None) is not None


def test_who_has_to_log_in_may_do_nothing() -> None:
    assert not OUTSIDE.may_publish(b"a")
    assert not OUTSIDE.may_receive(b"a")
    assert OUTSIDE.code == "login-required"


@pytest.mark.parametrize("kind", ["publish", "receive"])
@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "missing"),
        ("=", "missing"),
        ("a b", "space"),
        ("a\nb", "LF"),
        ("a/#/b", "last level"),
        ("#.a", "last level"),
        ("**", "two"),
        ("+/" * 40 + "a", "32 levels"),
        ("x" * 1025, "1025 bytes"),
        ("\ud800", "surrogate"),
    ],
)
def test_a_text_that_cannot_be_used_is_named(kind: str, text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why) as caught:
        Acl([AclRule(("ann",), **{kind: (text,)})])
    assert text[:10].replace("\n", "\\n").replace("\ud800", "ud800") in str(caught.value)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("who", [(), ("",)])
def test_a_rule_for_nobody_is_refused(who: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError):
        Acl([AclRule(who, ("a",))])


def test_what_is_remembered_of_names_is_bounded() -> None:
    permission = Acl([AclRule(("*",), ("a",), ("a",))]).permission(None)
    assert permission is not None
    for number in range(10_000):
        assert permission.may_receive(b"a%d" % number)
        assert not permission.may_receive(b"b%d" % number + b"x" * 900)
    names = [one for one in reached(permission) if isinstance(one, bytes)]
    assert len(names) < 2_100
    assert max(map(len, names)) < 300
