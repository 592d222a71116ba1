"""JSON without mercy: what is accepted, against a slow model on the standard library."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pubsubd.hub import strict
from pubsubd.hub.strict import MAX_DEPTH, JsonError, decode, read

# Texts, written in ways that no encoder would choose

spaces = st.sampled_from(["", "", "", " ", "\n", "\t \r\n"])
numbers = st.one_of(
    st.integers(-(2**66), 2**66).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.sampled_from(["0", "-0", "-0.0", "1E5", "1e+2", "1.50", "1e400", "-1e400", "1e-400"]),
    st.sampled_from(["18446744073709551615", "18446744073709551616", "12345678901234567890.5"]),
    st.sampled_from(["-9223372036854775808", "-9223372036854775809", "1" * 30, "0.1" + "0" * 30]),
    st.sampled_from(["NaN", "Infinity", "01", "1.", ".5", "+1", "-"]),
)
characters = st.one_of(
    st.sampled_from(
        [*'abc"\\/[]{}: é€😀\x7f\u2028', "\\u0022", "\\u0061", "\\ud83d\\ude00", "\\/"]
    ),
    st.sampled_from(["\\ud800", "\\udc00", "\\u0000", "\\n", "\\x", "\x01"]),
)


def _escape(char: str) -> str:
    return {'"': '\\"', "\\": "\\\\"}.get(char, char)


strings = st.lists(characters.map(_escape), max_size=4).map(lambda all_: '"' + "".join(all_) + '"')
keys = st.one_of(st.sampled_from(['"a"', '"\\u0061"', '"b"', '"\\u0022"', '"\\""']), strings)


@st.composite
def arrays(draw: st.DrawFn, inner: st.SearchStrategy[str]) -> str:
    """Draw an array of ``inner`` texts, with or without spaces."""
    items = draw(st.lists(inner, max_size=4))
    return "[" + ",".join(draw(spaces) + item + draw(spaces) for item in items) + "]"


@st.composite
def objects(draw: st.DrawFn, inner: st.SearchStrategy[str]) -> str:
    """Draw an object of ``inner`` texts whose keys may come twice."""
    pairs = draw(st.lists(st.tuples(keys, inner), max_size=4))
    return "{" + ",".join(f"{draw(spaces)}{key}{draw(spaces)}:{item}" for key, item in pairs) + "}"


texts = st.recursive(
    st.one_of(numbers, strings, st.sampled_from(["true", "false", "null"])),
    lambda inner: st.one_of(arrays(inner), objects(inner)),
    max_leaves=12,
)


class RefusedError(Exception):
    """The model's answer to what it does not accept."""


def model(data: bytes) -> Any:
    """Read as slowly and as plainly as can be."""
    try:
        value = json.loads(
            data.decode(),
            object_pairs_hook=_distinct,
            parse_int=_in_range,
            parse_float=_in_double,
            parse_constant=_no_constant,
        )
        json.dumps(value, ensure_ascii=False).encode()  # no lone surrogate
    except (ValueError, RecursionError) as error:
        raise RefusedError from error
    if _depth(value) > MAX_DEPTH:
        raise RefusedError
    return value


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):
        raise RefusedError
    return dict(pairs)


def _in_range(digits: str) -> int:
    if not -(2**63) <= int(digits) < 2**64:
        raise RefusedError
    return int(digits)


def _in_double(digits: str) -> float:
    if not math.isfinite(float(digits)):
        raise RefusedError
    return float(digits)


def _no_constant(_name: str) -> None:
    raise RefusedError


def _depth(value: Any) -> int:
    inner = (
        value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    )
    return 0 if inner is None else 1 + max(map(_depth, inner), default=0)


def agree(data: bytes) -> None:
    """Check that a text is read as the model reads it, or refused as there."""
    try:
        wanted = model(data)
    except RefusedError:
        with pytest.raises(JsonError) as caught:
            decode(data)
        assert caught.value.text
        assert caught.value.text.isprintable()
        return
    value, text = read(data)
    assert value == wanted
    assert json.loads(text) == wanted
    assert b"\n" not in text
    assert b"\r" not in text
    assert read(text) == (value, text)
    assert read(text)[1] is text


@settings(deadline=None)
@given(texts, spaces, spaces)
@example('{"a":1,"a":1}', "", "")
@example('{"a":"\\u0022","a":""}', "", "")  # as many quotes as without the first one
@example('{"\\u0022\\u0022":1,"a":1,"a":1}', "", "")
@example('{"a":{"b":1, "\\u0062":1}}', "", "")
@example('["12345678901234567890123"]', "", "")
def test_what_is_read_is_what_the_model_reads(text: str, before: str, after: str) -> None:
    agree((before + text + after).encode())


@settings(deadline=None)
@given(texts, st.integers(0, 200), st.integers(0, 4), st.binary(max_size=4))
def test_a_damaged_text_is_judged_as_by_the_model(
    text: str, at: int, size: int, patch: bytes
) -> None:
    data = text.encode()
    agree(data[:at] + patch + data[at + size :])


@settings(deadline=None)
@given(st.binary(max_size=40))
def test_any_bytes_are_judged_as_by_the_model(data: bytes) -> None:
    agree(data)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "the text is cut"),
        (b'{"a":', "the text is cut"),
        (b"[1", "the text is cut"),
        (b"{'a':1}", "object keys must be strings (byte 1)"),
        (b"01", "invalid number (byte 1)"),
        (b"1 2", "trailing characters (byte 3)"),
        (b"NaN", "invalid character (byte 0)"),
        (b"\xef\xbb\xbf1", "invalid character (byte 0)"),
        (b'["\xff"]', "byte 0xff is not UTF-8"),
        (b'{"\xed\xa0\x80":1}', "byte 0xed is not UTF-8"),
        (b'{"a":"\\ud800"}', "a lone surrogate"),
        (b'["\\ud800"]', "a lone surrogate"),
        (b'"\\udc00"', "a lone surrogate"),
        (b'"\\ud800\\u0041"', "a lone surrogate"),
        (b'{"a":1,"a":2}', "a key comes twice"),
        (b'[{"b": {"a":1, "a":1}}]', "a key comes twice"),
        (b"1e400", "a number is out of range"),
        (b"18446744073709551616", "a number is out of range"),
        (b"[-9223372036854775809]", "a number is out of range"),
        (b"1" * 4_000, "a number is out of range"),
        (b"1" * 100_000, "a number is out of range"),
        (b"[" * 201 + b"]" * 201, "over 200 levels deep"),
        (b'{"a":' * 201 + b"1" + b"}" * 201, "over 200 levels deep"),
        (b"[" * 20_000, "over 200 levels deep"),
        (b"[" * 20_000 + b"]" * 20_000, "over 200 levels deep"),
    ],
    ids=lambda data: str(data[:20]),
)
def test_each_fault_is_told_in_one_line(data: bytes, text: str) -> None:
    with pytest.raises(JsonError) as caught:
        read(data)
    assert caught.value.text == text


@pytest.mark.parametrize(
    "data",
    [
        b"[" * 200 + b"]" * 200,
        b'{"a":' * 200 + b"1" + b"}" * 200,
        b'[{"a":' * 100 + b'"\\u0022"' + b"}]" * 100,  # not as compact as it could be
        b'["' + b"[" * 500 + b'"]',
        b"[" + b"[]," * 500 + b"{}]",
    ],
    ids=["arrays", "objects", "both", "in a string", "side by side"],
)
def test_what_is_not_too_deep_can_be_read_by_anybody(data: bytes) -> None:
    value, text = read(data)
    assert json.loads(data) == json.loads(text) == value
    assert json.loads(json.dumps(value)) == value


def test_the_deepest_text_is_found_among_many_shallow_ones() -> None:
    deep = b"[" * 200 + b"]" * 200  # in an array: one too many
    with pytest.raises(JsonError, match="over 200 levels deep"):
        read(b"[" + b"{}," * 1_000 + deep + b',{"a":[]}]')


def test_numbers_at_the_edges_are_kept() -> None:
    data = b"[18446744073709551615,-9223372036854775808,1.7976931348623157e308,5e-324,-0.0]"
    value, text = read(data)
    assert value[:2] == [2**64 - 1, -(2**63)]
    assert text is data


def test_a_text_that_is_compact_already_is_not_copied() -> None:
    data = b'{"a":"' + b"x" * 1_000 + b'","b":[1,2.5,null,"\xc3\xa9"]}'
    assert read(data)[1] is data
    assert read(data.replace(b",", b" ,\n"))[1] == data


# What a text may cost


MIB = 1 << 20


def fill(item: bytes) -> bytes:
    """Return an array of equal items, of nearly a mebibyte."""
    return b"[" + b",".join([item] * (MIB // (len(item) + 1) - 1)) + b"]"


@pytest.mark.parametrize(
    "item",
    [b"[]", b"{}", b'{"":0}', b"5e-324", b"1E+308"],
    ids=bytes.decode,
)
def test_a_text_of_so_many_values_is_refused_before_it_is_read(
    item: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_of: list[int] = []
    monkeypatch.setattr(strict, "parse", lambda data: read_of.append(len(data)))
    with pytest.raises(JsonError) as caught:
        read(fill(item))
    assert caught.value.text == "too much in one text"
    assert read_of == []


@pytest.mark.parametrize(
    "item",
    [
        b'"' + b",:[]{}.eE1e300" * 20 + b'"',
        b'"' + b"\\u0022\\\\" * 50 + b'"',
        b"12345678901234567890",
        b"-0.12345678901234567",
        b'{"name":"someone of that name","text":"what there is to say, %b","age":1234567890}'
        % (b"once and for all, and not much more " * 2),
    ],
    ids=["marks in texts", "quotes", "integers", "numbers", "records"],
)
def test_a_text_as_long_that_is_read_quickly_is_read(item: bytes) -> None:
    data = fill(item)
    assert decode(data) == json.loads(data)


@given(st.lists(st.sampled_from([b"\\\\", b'\\"', b"\\u0022", b"u0022", b"x"]), max_size=8))
def test_quotes_are_counted_however_they_are_written(parts: list[bytes]) -> None:
    text = b'"' + b"".join(parts) + b'"'
    plain = b'{"a":%b,"b":%b}' % (text, text)
    assert decode(plain) == json.loads(plain)
    for twice in (b'{"a":%b,"\\u0061":1}' % text, b'[{%b:1,"b":2, %b:3}]' % (text, text)):
        with pytest.raises(JsonError) as caught:
            decode(twice)
        assert caught.value.text == "a key comes twice"


@given(st.integers(-(10**21), 10**21), st.sampled_from([b"%d", b'"%d"', b"0.%d", b"[1,%d,2]"]))
@example(2**64 - 1, b"%d")
@example(2**64, b"%d")
@example(-(2**63), b"%d")
@example(-(2**63) - 1, b"%d")
def test_an_integer_is_told_from_other_digits(number: int, form: bytes) -> None:
    agree(form % (number if form != b"0.%d" else abs(number)))


def test_a_number_that_is_no_integer_weighs_more_than_one_that_is() -> None:
    read(b"[" + b",".join([b"15"] * 100_000) + b"]")
    with pytest.raises(JsonError, match="too much in one text"):
        read(b"[" + b",".join([b"1.5"] * 100_000) + b"]")


def test_250_kib_of_small_records_are_read() -> None:
    records = [{"id": i, "name": f"n{i}", "v": 1.5} for i in range(8_500)]
    data = json.dumps(records, separators=(",", ":")).encode()
    assert len(data) > 250 << 10
    assert read(data) == (records, data)


def test_what_was_read_can_be_read_again() -> None:
    small = b"0." + b"0" * 120 + b"1"
    few, many = (b"[%b]" % b",".join([small] * count) for count in (1_000, 2_000))
    assert read(read(few)[1])[1] == read(few)[1] != few
    with pytest.raises(JsonError, match="too much in one text"):
        read(many)
