"""What is said on the line port: subscribing, publishing, and what is wrong."""

from __future__ import annotations

import itertools
import random
import time

from soaklib.wires import MIB, frame

from .attack import attack
from .bounds import CACHES, LONG_SUBSTRING, PAYLOAD, PENDING, SUBSCRIPTIONS, SUBSTRING
from .parts import READ, new_names, packed, repeated
from .stage import Stage


def fill_cache(stage: Stage, width: int = 60) -> None:
    """Let the daemon remember as many names as it may."""
    sock = stage.line()
    for _ in range(2):  # a name is remembered when it comes again
        stage.tell(sock, b"".join(frame(name, b"") for name in new_names(8_000, width, b"c/")))
    stage.hold(sock)


@attack("unsub-nothing", crowd=True, each=PENDING)
def unsub_nothing(stage: Stage) -> None:
    """Takes back what is not subscribed, on 50 connections."""
    stage.flood(stage.line, repeated(b"unsub x\n"), count=max(50, stage.count))


@attack("new-names", table=CACHES)
def names(stage: Stage) -> None:
    """Publishes 200 names at a time that are never the same, on 50 connections."""
    stage.crowd(20, stage.line, lambda number: b"sub %d/n\n" % number)
    made = [frame(name, b"") for name in new_names(20_000, 1_000)]
    parts = [b"".join(made[at : at + 200]) for at in range(0, len(made), 200)]
    stage.flood(stage.line, parts, count=50)


@attack("new-short-names", crowd=True, table=CACHES)
def short_names(stage: Stage) -> None:
    """Publishes short names that are never the same."""
    stage.flood(stage.line, packed(frame(b"%x" % i, b"") for i in range(500_000)))


@attack("new-headers", crowd=True, table=CACHES)
def new_headers(stage: Stage) -> None:
    """Publishes long names with lengths that are spelled in ever new ways."""
    made = []
    for name in new_names(70, 1_000):
        for size, digits in itertools.product(range(100), range(3, 11)):
            made.append(b"pub %b %0*d %b\n" % (name, digits, size, b"." * size))
    stage.flood(stage.line, packed(made, MIB))


@attack("nearly-long", daemon="python", crowd=True, table=CACHES)
def nearly_long(stage: Stage) -> None:
    """Publishes names of 1 KiB that eleven long substrings nearly match, at every byte."""
    halves = [(b"a" * (500 - one), b"a" * 500) for one in range(11)]  # and that of a probe
    stage.crowd(1, stage.line, lambda _: b"".join(b"sub %bb%b\n" % both for both in halves))
    made = (frame(b"%b%x" % (b"a" * 1_000, one), b"x") for one in range(20_000))
    stage.flood(stage.line, packed(made))


@attack("copies", crowd=True, table=CACHES)
def copies(stage: Stage) -> None:
    """Publishes names that are copied, never the same, to 300 who get name or copy."""
    stage.crowd(300, stage.line, lambda number: b"sub //\n" if number % 2 else b"sub //fwd/\n")
    stage.flood(stage.line, packed(frame(b"//%x" % i, b"") for i in range(200_000)))


@attack("union", table=CACHES)
def union(stage: Stage) -> None:
    """Publishes new names that many short substrings of 300 clients match."""
    letters = b"abcdefghijklmnop"
    texts = [bytes((a, b)) for a in letters for b in letters]
    rng = random.Random(1)

    def said(_: int) -> bytes:
        return b"".join(b"sub %b\n" % text for text in rng.sample(texts, 200))

    stage.crowd(300, stage.line, said)
    body = b"".join(texts)
    stage.flood(stage.line, packed(frame(b"%x/" % i + body, b"") for i in range(8_000)))


@attack("substrings-100k", "max_subscriptions", table=100_000 * SUBSTRING + CACHES)
def substrings(stage: Stage) -> None:
    """Publishes new names of 1,024 bytes in which 100,000 substrings of one client are."""
    rng = random.Random(2)
    body = bytes(rng.choices(b"abcdefghijklmnopqrstuvwxyz", k=1_000))
    texts = sorted({body[i : i + n] for n in range(4, 108) for i in range(1_000 - n)})
    one = stage.line()
    stage.tell(one, b"".join(b"sub %b\n" % text for text in texts[:100_000]))
    stage.hold(one)
    stage.flood(stage.line, packed(frame(body + b"%06x" % i, b"") for i in range(4_000)))


@attack("substrings-1000x100", table=100_000 * SUBSTRING + CACHES)
def substrings_of_many(stage: Stage) -> None:
    """Publishes new names of 1,024 bytes in which 100 substrings of each of 1,000 clients are."""
    rng = random.Random(3)
    body = bytes(rng.choices(b"abcdefghijklmnopqrstuvwxyz", k=1_000))
    texts = sorted({body[i : i + n] for n in range(4, 108) for i in range(1_000 - n)})

    def said(number: int) -> bytes:
        return b"".join(b"sub %b\n" % text for text in texts[number * 100 : number * 100 + 100])

    stage.crowd(1_000, stage.line, said)
    stage.flood(stage.line, packed(frame(body + b"%06x" % i, b"") for i in range(4_000)))


@attack("repeated-prefix", table=1_000 * LONG_SUBSTRING + CACHES)
def repeated_prefix(stage: Stage) -> None:
    """Publishes a name of one letter, to 1,000 substrings of that letter of all lengths."""
    one = stage.line()
    stage.tell(one, b"".join(b"sub %b\n" % (b"a" * n) for n in range(1, 1_000)))
    stage.hold(one)
    stage.flood(stage.line, packed(frame(b"a" * 1_018 + b"%06x" % i, b"") for i in range(4_000)))


@attack("sub-unsub", crowd=True, table=CACHES)
def sub_unsub(stage: Stage) -> None:
    """Subscribes and unsubscribes one text while 8,000 names are remembered."""
    fill_cache(stage)
    stage.flood(stage.line, repeated(b"sub x/y\nunsub x/y\n"))


@attack("sub-unsub-hits", table=CACHES)
def sub_unsub_hits(stage: Stage) -> None:
    """Subscribes and unsubscribes what 3,900 remembered names hold, and lets them come again."""
    fill_cache(stage)
    again = b"".join(frame(name, b"") for name in new_names(3_900, 60, b"c/"))
    stage.flood(stage.line, [b"sub c/\n" + again + b"unsub c/\n" + again])


@attack("sub-100k", "max_subscriptions", crowd=True, each=100_000 * SUBSTRING, table=CACHES)
def sub_100k(stage: Stage) -> None:
    """Subscribes 100,000 texts, and more that are refused."""
    stage.flood(stage.line, packed(b"sub t/%x\n" % i for i in range(150_000)), reads=True)


@attack("leaving", "max_subscriptions", "max_subscriptions_total", table=SUBSCRIPTIONS + CACHES)
def leaving(stage: Stage) -> None:
    """Leaves with 100,000 subscriptions, from 20 connections at once."""
    socks = []
    for number in range(stage.scaled(20)):
        sock = stage.line()
        stage.tell(sock, b"".join(b"sub t/%d/%x\n" % (number, i) for i in range(100_000)))
        socks.append(sock)
    fill_cache(stage)
    stage.begin()
    for sock in socks:
        stage.close(sock, abruptly=True)
    again = b"".join(frame(name, b"") for name in new_names(2_000, 60, b"c/"))
    stage.flood(stage.line, [again], count=1)


@attack("resubscribing", crowd=True, table=CACHES)
def resubscribing(stage: Stage) -> None:
    """Connects, subscribes 1,000 texts, and leaves, over and over, on 50 connections."""
    fill_cache(stage)
    pong = frame(b"//pubsubd/ping", b"1")
    parts = [
        b"".join(b"sub r/%x/%x\n" % (number, i) for i in range(1_000)) + pong
        for number in range(64)
    ]
    stage.flood(stage.line, parts, once=True, done=pong, count=max(50, stage.count))


@attack("errors", crowd=True, each=PENDING)
def errors(stage: Stage) -> None:
    """Says what makes no sense."""
    stage.flood(stage.line, repeated(b"x\n"))


@attack("errors-unread", "max_pending", each=PENDING)
def errors_unread(stage: Stage) -> None:
    """Says what makes no sense, and never reads the errors."""
    stage.flood(stage.line, repeated(b"x\n"), reads=False)


@attack("bad-names", each=PENDING)
def bad_names(stage: Stage) -> None:
    """Publishes and subscribes names that are not UTF-8, or too long by a byte."""
    said = b"sub \xff\xfe\npub \xc3( 1 x\n" + b"sub " + b"l" * 1_025 + b"\nsub a b\nsub \n"
    stage.flood(stage.line, repeated(said))


@attack("shouting", crowd=True)
def shouting(stage: Stage) -> None:
    """Publishes in upper case, with CR LF, and with empty lines between."""
    stage.flood(stage.line, repeated(b"PUB a 1 x\r\n\r\n\nPub b 01 y\r\npub a 1 x\r\n"))


@attack("empty-lines", crowd=True)
def empty_lines(stage: Stage) -> None:
    """Says nothing, line by line."""
    stage.flood(stage.line, repeated(b"\n"))


@attack("many-spellings")
def many_spellings(stage: Stage) -> None:
    """Publishes one name with frames that are cut by ever other lengths."""
    sizes = [b"pub a %d %b\n" % (i % 97, b"." * (i % 97)) for i in range(9_700)]
    stage.flood(stage.line, packed(sizes))


@attack("byte-by-byte", crowd=True)
def byte_by_byte(stage: Stage) -> None:
    """Says a large message a few bytes at a time, on 50 connections."""
    socks = [stage.line() for _ in range(max(50, stage.count))]
    for sock in socks:
        sock.sendall(b"pub slowly %d " % MIB)
        stage.hold(sock)
    data = b"." * 7
    while stage.on:
        for sock in socks:
            if sock.fileno() >= 0:
                try:
                    stage.effort.sent += sock.send(data)
                except OSError:
                    continue
        time.sleep(0.001)


@attack("halves", "max_payload", "command_timeout", table=200 * PAYLOAD)
def halves(stage: Stage) -> None:
    """Holds all but the last byte of 1 MiB, on 200 connections."""
    almost = b"pub half %d " % MIB + b"h" * (MIB - 1)
    for _ in range(200):
        sock = stage.line()
        stage.say(sock, almost)
        stage.hold(sock)
    stage.wait()


@attack("wrong-lengths", crowd=True)
def wrong_lengths(stage: Stage) -> None:
    """Breaks the protocol, on ever new connections."""
    stage.flood(stage.line, [b"pub a 1 xx\n"], once=True, done=b"wrong-length")


@attack("long-lines", crowd=True)
def long_lines(stage: Stage) -> None:
    """Says lines that are too long, on ever new connections."""
    stage.flood(stage.line, [b"x" * 3_000], once=True, done=b"line-too-long")


@attack("long-substrings", "max_subscriptions", table=100_000 * LONG_SUBSTRING)
def long_substrings(stage: Stage) -> None:
    """Subscribes 100,000 texts of 1,000 bytes."""
    parts = packed((b"sub %b\n" % text for text in new_names(100_000, 1_000)), READ)
    sock = stage.line()
    stage.begin()
    stage.tell(sock, b"".join(parts))
    stage.hold(sock)
    stage.wait()
