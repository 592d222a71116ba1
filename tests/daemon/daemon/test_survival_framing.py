"""Data of any kind, cut in any way: nothing in it is ever taken for a command."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable, Iterator

import pytest

from tests.daemons import (
    MIB,
    Background,
    Daemon,
    Dial,
    error_codes,
    frame,
    frames,
)

# Lengths that count something else than bytes


@pytest.mark.parametrize(
    "rest",
    [
        b"",
        b"\npub victim 5 owned",
        b"\nsub secret\npub victim 5 owned",
        b"\r\npub victim 5 owned\r.",
        b"pub victim 5 owned\npub victim 5 owned",
        b"\n\n\npub victim 5 owned\npub victim 5 owned\n.",
    ],
    ids=ascii,
)
@pytest.mark.parametrize("verb", [b"pub", b"PUB"])
def test_a_length_in_characters_never_lets_the_rest_of_the_data_run(
    daemon: Daemon, dial: Dial, verb: bytes, rest: bytes
) -> None:
    victim, publisher = dial(daemon), dial(daemon)
    victim.say(b"sub victim\nsub note\n")
    victim.ping()
    text = "h\u00e9llo" + rest.decode()  # characters, as a careless program counts them
    publisher.say(verb + b" note %d " % len(text) + text.encode() + b"\npub victim 4 more\n")
    assert error_codes(publisher.hear_end()) == ["wrong-length"]
    assert victim.ping() == b""
    assert victim.stats()["subscriptions"] == 2


def test_the_same_data_with_its_length_in_bytes_arrives_whole(shared: Daemon, dial: Dial) -> None:
    line = dial(shared)
    text = "h\u00e9llo\npub victim 5 owned\n".encode()
    line.say(b"sub note\nsub victim\n" + frame("note", text))
    assert line.ping() == frame("note", text)


def test_what_came_before_a_wrong_length_in_the_same_write_is_carried_out(
    shared: Daemon, dial: Dial
) -> None:
    listener, publisher = dial(shared), dial(shared)
    listener.say(b"sub spare\n")
    listener.ping()
    good = b"pub spare 1 x\n" * 1000
    publisher.say(good + b"pub spare 1 xyz\n" + good)
    assert error_codes(publisher.hear_end()) == ["wrong-length"]
    assert listener.ping() == good


# A payload of 1 MiB in pieces


def _payload(seed: int, size: int = MIB) -> bytes:
    """Return random bytes with everything in them that could be taken for the end of something."""
    source = random.Random(seed)
    traps = [b"\n", b"\r", b"\r\n", b"\0", b"pub trap 5 owned\n", b"\nsub trap\n", b"\xff", b" "]
    parts = []
    have = 0
    while have < size:
        parts += [source.randbytes(source.randrange(200)), source.choice(traps)]
        have += len(parts[-2]) + len(parts[-1])
    return b"".join(parts)[: size - 18] + b"\npub trap 5 owned\n"


def _random_sizes(seed: int) -> Iterator[int]:
    source = random.Random(seed)
    while True:
        yield source.choice((1, 2, 3, 10, 100, 1460, 4096, 65536, source.randrange(1, 200_000)))


@pytest.mark.parametrize("cut", ["1", "1,500", "random 1", "random 2", "at once"])
def test_a_payload_full_of_traps_arrives_whole_however_it_is_cut(
    daemon: Daemon, dial: Dial, cut: str
) -> None:
    listener, publisher = dial(daemon), dial(daemon)
    listener.say(b"sub blob\nsub trap\n")
    listener.ping()
    sizes = {
        "1": itertools.repeat(1),
        "1,500": itertools.repeat(1500),
        "random 1": _random_sizes(1),
        "random 2": _random_sizes(2),
        "at once": itertools.repeat(2 * MIB),
    }[cut]
    before = daemon.peak()
    # A mebibyte; byte by byte a quarter of it, as each byte is a call of the system.
    blob = frame("blob", _payload(7)[-MIB // 4 :] if cut == "1" else _payload(7))
    end = frame("blob", b"the end")
    with Background(publisher.say_in_pieces, blob + end, sizes):
        assert listener.hear_until(end) == blob + end
    assert publisher.ping() == b""
    assert listener.ping() == b""
    assert listener.stats()["subscriptions"] == 2
    assert daemon.peak() - before < 16 * MIB


def test_many_payloads_of_random_sizes_from_two_publishers_keep_their_order(
    daemon: Daemon, dial: Dial
) -> None:
    listener, ann, bob = dial(daemon), dial(daemon), dial(daemon)
    listener.say(b"sub from/\n")
    listener.ping()
    source = random.Random(3)
    sizes = [source.choice((0, 1, 10, 1000, 70_000)) for _ in range(300)]
    said = {who: [source.randbytes(size) for size in sizes] for who in ("ann", "bob")}
    end = b"-- the end --"
    with (
        Background(
            ann.say_in_pieces,
            b"".join(frame("from/ann", data) for data in [*said["ann"], end]),
            _random_sizes(4),
        ),
        Background(
            bob.say_in_pieces,
            b"".join(frame("from/bob", data) for data in [*said["bob"], end]),
            _random_sizes(5),
        ),
    ):
        heard: dict[str, list[bytes]] = {"from/ann": [], "from/bob": []}
        while any(not of or of[-1] != end for of in heard.values()):
            name, data = listener.hear_frame()
            heard[name].append(data)
    assert heard == {"from/ann": [*said["ann"], end], "from/bob": [*said["bob"], end]}


# Names


@pytest.mark.parametrize(
    "name",
    [
        b"nul\0in\0it",
        b"\x1b[31mred\x1b[0m",
        b"\x1b]0;title\x07",
        b"tab\tbell\x07del\x7f",
        "\u00e9\u4e2d\U0001f600".encode(),
        "e\u0301".encode(),  # not the same as the composed one: nothing is normalised
        "\u202eright-to-left\u2028\u0085".encode(),
        b"%s%n{name}\\n\"'",
        b"n" * 1024,
    ],
    ids=ascii,
)
def test_a_legal_name_is_delivered_byte_for_byte(shared: Daemon, dial: Dial, name: bytes) -> None:
    listener, publisher = dial(shared), dial(shared)
    listener.say(b"sub " + name + b"\n")
    assert listener.ping() == b""
    publisher.say(frame(name, b"x") + b"PUB " + name + b" 1 y\r\n")
    publisher.ping()
    assert listener.ping() == frame(name, b"x") + frame(name, b"y")


def test_matching_is_by_bytes_and_normalises_nothing(shared: Daemon, dial: Dial) -> None:
    listener, publisher = dial(shared), dial(shared)
    listener.say("sub caf\u00e9\n".encode())
    listener.ping()
    publisher.say(frame("cafe\u0301", b"1") + frame("CAF\u00c9", b"2") + frame("caf\u00e9", b"3"))
    publisher.ping()
    assert listener.ping() == frame("caf\u00e9", b"3")


BAD = [
    b"\xff",
    b"\xc3",
    b"\xc0\xaf",
    b"\xed\xa0\x80",
    b"\xf5\x80\x80\x80",
    b"\x1b[2J\xff\x07",
    b"a\0\x1b]0;x\x07\x80",
    b'"\\\xfe',
    b"\xe2\x80",
]


@pytest.mark.parametrize("name", BAD, ids=ascii)
def test_a_name_that_is_no_utf8_is_refused_in_one_printable_line(
    shared: Daemon, dial: Dial, name: bytes
) -> None:
    line = dial(shared)
    line.say(b"sub " + name + b"\npub " + name + b" 1 a\nunsub " + name + b"\n" + name + b"\n")
    heard = line.ping()
    assert error_codes(heard) == ["bad-name", "bad-name", "bad-name", "unknown-command"]
    for _, text in frames(heard):
        assert text.decode().isprintable(), text


# Logs


def test_logs_stay_one_line_an_event_with_nothing_raw_in_them(
    start: Callable[..., Daemon], dial: Dial
) -> None:
    daemon = start("--log-level", "debug")
    nasty = b"\x1b[31m\0\r\x07\xff\xe2\x80\xa8\"'\\ event=fake level=error"
    for said in (
        nasty * 40,  # too long a line
        b"GET /" + nasty + b" HTTP/1.1\r\n",
        b"pub x 1 a" + nasty + b"\n",
        b"pub x 1 a\x1b\n",
        b"pub x 1 a\xff\n",
        b"pub " + nasty + b" 99999999 ",
        b"pub " + nasty.replace(b" ", b"") + b" 99999999 ",
    ):
        line = dial(daemon)
        line.say(said)
        if b"99999999" not in said or b" event" not in said:
            for _, text in frames(line.hear_end()):
                assert text.decode().isprintable(), text
        line.close()
    gone = dial(daemon)
    gone.say(b"sub " + nasty + b"\npub x 5 ha")
    gone.vanish()
    asker = dial(daemon)
    assert sum(asker.stats()["closed"].values()) >= 6
    asker.close()
    daemon.stop()  # which checks the whole log
    events = [line for line in daemon.log.splitlines() if " event=closed " in line]
    assert len(events) in (6, 7)  # whether the last one was heard before it was gone
    for event in events:
        # What a client said stands in quotes, where it cannot pass for a field of ours.
        head, quote, _ = event.partition('detail="')
        assert quote
        assert "fake" not in head
        assert json.loads('"' + event[len(head) + len(quote) :]).isprintable()
