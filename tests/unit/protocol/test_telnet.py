"""What telnet sends besides what is typed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pubsubd.protocol.telnet import MOST, STARTS, strip_telnet

CTRL_C = b"\xff\xf4\xff\xfd\x06"  # as Debian's telnet sends it: interrupt, do timing mark


@pytest.mark.parametrize(
    ("data", "rest", "answers"),
    [
        (CTRL_C, b"", b"\xff\xfc\x06"),
        (CTRL_C + b"sub a\r\n", b"sub a\r\n", b"\xff\xfc\x06"),
        (b"\x04\x04sub a\n", b"sub a\n", b""),
        (b"\xff\xfb\x1f\xff\xfa\x1f\0\x50\0\x18\xff\xf0x", b"x", b"\xff\xfe\x1f"),
        (b"\xff\xfe\x01\xff\xfc\x01\n", b"\n", b""),  # nobody answers a refusal
        (b"\xff", b"\xff", b""),
        (b"\xff\xfd", b"\xff\xfd", b""),
        (b"\xff\xfa\x1f\0", b"\xff\xfa\x1f\0", b""),
        (b"\xff\xff\n", b"\xff\xff\n", b""),
        (b"\xffa\n", b"\xffa\n", b""),
        (b"sub a\xff\xf4\n", b"sub a\xff\xf4\n", b""),
        (b"", b"", b""),
        (b"\x04" * 1_000, b"\x04" * (1_000 - MOST), b""),
        (b"\xff\xf4" * 1_000, b"\xff\xf4" * (1_000 - MOST // 2), b""),
    ],
)
def test_commands_at_the_beginning_are_taken_off_and_options_refused(
    data: bytes, rest: bytes, answers: bytes
) -> None:
    assert strip_telnet(data) == (rest, answers)


@given(st.binary(max_size=40))
def test_what_is_left_is_an_end_of_what_came_and_answers_are_no_longer(data: bytes) -> None:
    rest, answers = strip_telnet(data)
    assert data.endswith(rest)
    assert len(answers) <= len(data) - len(rest)
    assert data[:1] in STARTS or rest == data
