"""The grammar."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pubsubd.protocol import errors, wire
from pubsubd.protocol.errors import ProtocolError
from pubsubd.protocol.limits import LARGE


@pytest.mark.parametrize("name", [b"a", "é".encode(), b"\x1b[31m", b"\0", b"n" * 1024, b"//"])
def test_a_name_is_any_utf8_without_space_cr_lf(name: bytes) -> None:
    wire.check_name(name)


@pytest.mark.parametrize(
    ("name", "code"),
    [
        (b"", "bad-name"),
        (b"a b", "bad-name"),
        (b"a\r", "bad-name"),
        (b"a\nb", "bad-name"),
        (b"\xff", "bad-name"),
        (b"\xed\xa0\x80", "bad-name"),
        (b"n" * 1025, "name-too-long"),
    ],
)
def test_other_names_are_refused_with_a_code(name: bytes, code: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        wire.check_name(name)
    assert caught.value.code == code


def test_sub_alone_is_for_all_names_and_a_substring_that_is_missing_is_a_mistake() -> None:
    for verb in (b"sub", b"unsub"):
        assert wire.parse_line(verb.upper()) == (verb, b"")
        assert wire.subscription(verb, b"") == verb + b"\n"
        with pytest.raises(ProtocolError, match=f"{verb.decode()} alone is for all names"):
            wire.parse_line(verb + b" ")


@pytest.mark.parametrize("digits", [b"0", b"005", b"1048576", b"9999999999"])
def test_a_length_is_one_to_ten_digits(digits: bytes) -> None:
    assert wire.parse_length(digits) == int(digits)


@pytest.mark.parametrize(
    "digits", [b"", b"-1", b"+5", b"1_0", b" 5", b"5 ", b"0x5", "५".encode(), b"1" * 11, b"1" * 25]
)
def test_other_lengths_are_refused(digits: bytes) -> None:
    with pytest.raises(ProtocolError) as caught:
        wire.parse_length(digits)
    assert caught.value.code == "bad-length"


@given(st.one_of(st.binary(), st.text(st.characters())))
def test_escaped_text_is_one_printable_line(text: bytes | str) -> None:
    shown = wire.escape(text)
    assert shown.isprintable()
    shown.encode()


def test_escaped_text_is_readable_and_cut() -> None:
    assert wire.escape(b"caf\xc3\xa9 \x1b[2J\n\xff\\") == "café \\x1b[2J\\n\\xff\\\\"
    assert wire.escape(b"x" * 100, 10) == "xxxxxxxxxx..."
    assert wire.quote(b'say "hi"') == '"say \\"hi\\""'


@given(
    st.lists(st.tuples(st.sampled_from([b"a", b"//x/y"]), st.binary(max_size=50))),
    st.lists(st.integers(1, 30)),
)
def test_frames_survive_any_cuts(messages: list[tuple[bytes, bytes]], sizes: list[int]) -> None:
    stream = b"".join(wire.frame(name, data) for name, data in messages)
    assert wire.count_frames(stream) == len(messages)
    decoder = wire.Decoder(100)
    found = []
    for size in sizes:
        found += decoder.feed(stream[:size])
        stream = stream[size:]
    found += decoder.feed(stream)
    assert found == messages


@given(
    st.lists(st.sampled_from([0, 1, LARGE - 1, LARGE, 3 * LARGE]), max_size=5),
    st.lists(st.integers(1, 2 * LARGE)),
    st.sampled_from([None, 0, 1]),
)
def test_large_frames_survive_any_cuts(
    lengths: list[int], cuts: list[int], most: int | None
) -> None:
    messages = [(b"n%d" % size, bytes([65 + number]) * size) for number, size in enumerate(lengths)]
    stream = b"".join(wire.frame(name, data) for name, data in messages)
    decoder = wire.Decoder(3 * LARGE)
    found = []
    for size in (*cuts, len(stream)):
        found += decoder.feed(stream[:size], most)
        stream = stream[size:]
    while decoder.stopped:
        found += decoder.feed(b"", 1)
    assert found == messages
    assert not decoder.incomplete


@pytest.mark.parametrize("cut", [100, LARGE + 9, LARGE + 10])
def test_a_large_frame_without_an_end_ends_the_decoder(cut: int) -> None:
    stream = b"pub a %d %b" % (LARGE, b"x" * (LARGE + 10))
    decoder = wire.Decoder(LARGE)
    with pytest.raises(ProtocolError, match="wrong-length"):
        assert decoder.feed(stream[:cut]) + decoder.feed(stream[cut:]) is None


@pytest.mark.parametrize(
    ("stream", "code"),
    [
        (b"hello\n", "unknown-command"),
        (b"sub a b c d\n", "unknown-command"),
        (b"pub a x y\n", "bad-length"),
        (b"pub a 101 y", "payload-too-large"),
        (b"pub a 1 yz", "wrong-length"),
        (b"x" * 1100, "line-too-long"),
        (b"pub a 1\n2 x\n", "unknown-command"),
        (b"pub a 12345678901 x\n", "bad-length"),
    ],
)
@pytest.mark.parametrize("before", [b"", b"pub a 1 x\n"])
def test_a_stream_that_is_no_daemons_ends_the_decoder(
    stream: bytes, code: str, before: bytes
) -> None:
    decoder = wire.Decoder(100)
    assert len(decoder.feed(before)) == bool(before)
    with pytest.raises(ProtocolError) as caught:
        decoder.feed(stream)
    assert caught.value.code == code


def test_every_code_either_stays_or_closes() -> None:
    assert not errors.STAYS.keys() & errors.CLOSES.keys()
    assert not ProtocolError("bad-name", "").closes
    assert ProtocolError("wrong-length", "").closes


@pytest.mark.parametrize("said", [b"\x00pub a 1 x\n", b"sub a b c\n", b"a b c d", b"pu", b"p\n"])
def test_a_decoder_refuses_what_is_no_pub_and_waits_for_what_may_be_one(said: bytes) -> None:
    decoder = wire.Decoder(100)
    if said == b"pu":
        assert decoder.feed(said) == []
        return
    with pytest.raises(ProtocolError, match="unknown-command"):
        decoder.feed(said)


def test_the_host_in_an_address_is_found() -> None:
    assert wire.host_in("10.0.0.1:80") == "10.0.0.1"
    assert wire.host_in("[::1]:80") == "::1"
    assert wire.host_in("unix") == ""
