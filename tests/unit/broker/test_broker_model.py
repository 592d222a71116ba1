"""The broker against the model, for any conversation and any way to cut it into reads."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pubsubd.protocol.limits import READ_SIZE, Limits
from pubsubd.routing.wildcards import Pattern
from tests.examples import examples
from tests.model import Model
from tests.tables import Table

LIMITS = Limits(max_payload=300, max_subscriptions=6)

letters = st.sampled_from(["a", "b", "ab", "é", "//", "/", "x", "fwd", "//fwd/", "\x1b", "\0"])
words = st.lists(letters, min_size=1, max_size=4).map(lambda parts: "".join(parts).encode())
names = st.one_of(
    words,
    st.sampled_from([b"a", b"ab", b"n1", b"n2", b"//a/b", b"//fwd/a", b"//pubsubd/ping", b"\xff"]),
    st.sampled_from([b"//pubsubd/no", b"//" + b"l" * 1018, b"//" + b"l" * 1019, b"n" * 1025]),
)
ends = st.sampled_from([b"\n", b"\n", b"\n", b"\r\n"])
payloads = st.one_of(
    st.binary(max_size=24),
    st.sampled_from([b"", b"hello", b"\n", b"\r\n", b"pub a 1 x\n", b"sub a\nsub b\n", b"z" * 290]),
)
verbs = st.sampled_from([b"pub", b"pub", b"pub", b"pub", b"PUB", b"Pub"])


@st.composite
def frames(draw: st.DrawFn) -> bytes:
    name, data, verb, end = draw(names), draw(payloads), draw(verbs), draw(ends)
    return b"%b %b %d %b%b" % (verb, name, len(data), data, end) * draw(st.sampled_from([1, 1, 3]))


@st.composite
def runs(draw: st.DrawFn) -> bytes:
    """Many frames of one length, as a busy publisher sends them, perhaps with a flaw."""
    name = draw(st.sampled_from([b"a", b"n", b"//a/b"]))
    size = draw(st.integers(0, 20))
    data = [b"%b" % bytes([65 + i % 26]) * size for i in range(draw(st.integers(1, 300)))]
    spread = draw(st.sampled_from([1, 1, 3, 7, 999]))
    form = draw(st.sampled_from([b"pub %b%d %d %b\n", b"pub %b%03d %d %b\n"]))
    run = [form % (name, i % spread, size, d) for i, d in enumerate(data)]
    flaw = draw(
        st.sampled_from([None, None, b"sub a\n", b"pub a 3 abcd\n", b"\r\n", b"pub q 0 \n"])
    )
    if flaw is not None:
        run.insert(draw(st.integers(0, len(run))), flaw)
    return b"".join(run)


lines = st.builds(
    lambda verb, text, end: verb + b" " + text + end,
    st.sampled_from([b"sub", b"sub", b"sub", b"unsub", b"SUB", b"Unsub"]),
    st.one_of(words, names, st.sampled_from([b"", b"a b", b"a\rb", b"a", b"//fwd/"])),
    ends,
)
oddities = st.sampled_from(
    [
        b"\n",
        b"\r\n",
        b"hello\n",
        b"sub\n",
        b"Sub\r\n",
        b"unsub\n",
        b"pub\n",
        b"pub \n",
        b"pub x\n",
        b"pub x 5\n",
        b"pub x -5 a\n",
        b"pub x +5 a\n",
        b"pub x 1_0 a\n",
        b"pub x 005 hello\n",
        b"pub x abc\n",
        b"pub x 99999999999999999999 a\n",
        b"pub  5 hello\n",
        b"pub x  5 hello\n",
        b"pub x - hello there\n",
        b"PUB //a/b - hello\r\n",
        b"pub x - \n",
        b"pub x -\n",
        b"pub x -- a\n",
        b"pub x - a\rb\r\r\n",
        b"pub //pubsubd/ping - x\n",
        b"pub \xff - x\n",
        b"pub a - " + b"z" * 300 + b"\r\n",
        b"help\n",
        b"HELP\r\n",
        b"?\n",
        b"help me\n",
        b"quit now\n",
        b"pub //pubsubd/help 0 \n",
    ]
)
endings = st.sampled_from(
    [
        b"pub a 3 toolong\n",
        b"pub a 301 x\n",
        b"pub a - " + b"z" * 301 + b"\n",
        b"pub a - " + b"z" * 301 + b"\r",
        b"pub a - " + b"z" * 302,
        b"pub a - " + b"z" * 301,
        b"quit\nsub a\n",
        b"Exit\r\npub a 1 x\n",
        b"pub a 9999999999 x\n",
        b"pub a 3 abc\rx\n",
        "pub a 5 héllo\nsub secret\n".encode(),
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"s" * 1200,
        b"pub " + b"s" * 1200,
        b"sub " + b"s" * 1084 + b"\nsub a\n",
        b"sub " + b"s" * 1085 + b"\nsub a\n",
        b"pub a x" + b"s" * 1200,
    ]
)
# Without what the daemon takes for telnet's at the start of a read, see test_telnet.py, or for TLS.
noise = st.binary(max_size=8).map(lambda data: data.translate(None, b"\x04\x16\xff"))
pieces = st.one_of(frames(), frames(), lines, lines, runs(), oddities, noise)
patterns = st.sampled_from(
    [
        (".", "#"),
        (".", "*"),
        (".", "a*"),
        (".", "n*.#"),
        (".", "//*a*"),
        (".", "//fwd/*"),
        ("/", "+"),
        ("/", "+/+/#"),
        ("/", "//a/+"),
        ("/", "//fwd/+/b"),
        ("/", "//pubsubd/#"),
    ]
)
speeches = st.builds(
    lambda parts, end: b"".join(parts) + end,
    st.lists(pieces, max_size=8),
    st.one_of(st.just(b""), st.just(b""), endings),
)


@settings(max_examples=examples(300), deadline=None)
@given(st.data())
def test_any_conversation_cut_anyhow_is_what_the_model_says(data: st.DataObject) -> None:
    model = Model(LIMITS.max_payload, LIMITS.max_subscriptions)
    table = Table("ann", "bob", "eve", limits=LIMITS)
    for who in ("ann", "bob", "eve"):
        model.join(who)
    for _ in range(data.draw(st.integers(1, 5))):
        who = data.draw(st.sampled_from(["ann", "bob", "eve"]))
        speech = data.draw(speeches)
        for _ in range(data.draw(st.integers(0, 2))):
            toggle(model, table, data)
        model.say(who, speech)
        cuts = data.draw(st.lists(st.integers(0, len(speech)), max_size=6).map(sorted))
        for start, stop in zip([0, *cuts], [*cuts, len(speech)], strict=True):
            table.say(who, speech[start:stop])
        for name, listener in model.peers.items():
            assert table.messages(name) == listener.heard
            assert (table.peers[name].ending is not None) == listener.closed
            listener.heard.clear()


def toggle(model: Model, table: Table, data: st.DataObject) -> None:
    """Let somebody subscribe a name or a wildcard, or take it back, as hub connections do."""
    who = data.draw(st.sampled_from(["ann", "bob", "eve"]))
    peer, listener, router = table.peers[who], model.peers[who], table.broker.router
    if data.draw(st.booleans()):
        name = data.draw(names)
        change = router.unsubscribe_name if name in listener.names else router.subscribe_name
        assert change(peer, name)
        model.toggle_name(who, name)
        return
    separator, text = data.draw(patterns)
    pattern = Pattern.dots(text) if separator == "." else Pattern.slashes(text)
    held = (separator, text) in listener.patterns
    assert (router.unsubscribe_pattern if held else router.subscribe_pattern)(peer, pattern)
    model.toggle_pattern(who, separator, text)


@settings(max_examples=examples(60), deadline=None)
@given(speeches)
def test_bytes_one_by_one_lead_to_the_same_as_all_at_once(speech: bytes) -> None:
    whole, bytewise = Table("ann", "bob", limits=LIMITS), Table("ann", "bob", limits=LIMITS)
    for table in (whole, bytewise):
        table.say("ann", b"sub a\nsub n\nsub //\n")
    whole.say("bob", speech)
    for i in range(len(speech)):
        bytewise.say("bob", speech[i : i + 1])
    for name in ("ann", "bob"):
        assert whole.hears(name) == bytewise.hears(name)
    assert whole.peers["bob"].halfway == bytewise.peers["bob"].halfway


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"x\n"])
@pytest.mark.parametrize("size", [READ_SIZE, 300_000, 1_000_000])
def test_frames_larger_than_a_read_are_delivered_as_small_ones_are(size: int, end: bytes) -> None:
    rng = random.Random(size)
    limits = Limits()
    speech = b"".join(
        b"pub //n/%d %d %b" % (i % 2, size + i, rng.randbytes(size + i))
        + (end if i == 2 else b"\n")
        for i in range(4)
    )
    for step in (1_500, 100_001, READ_SIZE, 10 * READ_SIZE):
        model = Model(limits.max_payload, limits.max_subscriptions)
        table = Table("ann", "bob", "eve", limits=limits)
        for who, substring in (("ann", b"//n/"), ("bob", b"//fwd/n/1"), ("eve", b"no")):
            model.join(who)
            model.say(who, b"sub %b\n" % substring)
            table.say(who, b"sub %b\n" % substring)
        model.say("eve", speech)
        for at in range(0, len(speech), step):
            table.say("eve", speech[at : at + step])
        for name, listener in model.peers.items():
            assert table.messages(name) == listener.heard


@pytest.mark.parametrize(
    "first", [b"pub n 400000 " + b"x" * READ_SIZE, b"pub a 1 x\npub n 400000 x"]
)
def test_a_turn_without_input_leaves_half_a_large_frame_alone(first: bytes) -> None:
    table = Table("ann", "bob")
    table.say("ann", b"sub n\n")
    table.say("bob", first)
    table.say("bob", b"")
    assert table.peers["bob"].halfway
    table.say("bob", b"x" * (400_000 - first.count(b"x", first.index(b"400000"))) + b"\n")
    assert table.messages("ann") == [(b"n", b"x" * 400_000)]


def test_a_large_frame_goes_to_those_who_want_it_when_it_is_complete() -> None:
    table = Table("ann", "bob")
    table.say("bob", b"pub n 500000 " + b"x" * 300_000)
    table.say("ann", b"sub n\n")
    table.say("bob", b"x" * 200_000 + b"\npub n 1 y\n")
    assert table.messages("ann") == [(b"n", b"x" * 500_000), (b"n", b"y")]
