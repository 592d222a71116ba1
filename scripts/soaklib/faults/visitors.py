"""Connections that come to the line port and go.

Each function is one visit, which is made again and again while the load runs: it raises
:class:`~soaklib.faults.wire.LostError` if the daemon ends a connection without a reason, and
:class:`~soaklib.faults.wire.WrongError` if it answers what it should not.
"""

from __future__ import annotations

import trio

from soaklib.crowd import GARBAGE
from soaklib.faults.doors import Doors
from soaklib.faults.wire import WrongError, opened
from soaklib.wires import KIB, Address, frame

_MANY = 2_500  # substrings of one who leaves in steps
FLOODS = 40
"""Pieces of 256 KiB that are sent to one who does not read, at most: the system takes some, too."""

ELSEWHERE = "127.0.0.9"
"""Where logins fail, so that others are not locked out with them."""


async def talk(doors: Doors) -> None:
    """Subscribe, publish, take back, leave."""
    async with opened(doors.any_line()) as wire:
        await wire.say(b"sub visit/talk\nsub isit/t\nsub nothing/here\n")
        await wire.ping()
        heard = await wire.ask(frame(b"visit/talk", b"hello"), b"hello\n")
        _expect(heard.count(b"hello") == 1, heard)
        await wire.say(b"unsub isit/t\nunsub visit/talk\n\n", frame(b"visit/talk", b"again"))
        heard = await wire.ping()
        _expect(b"again" not in heard, heard)


async def mistakes(doors: Doors) -> None:
    """Say what costs a command and not the connection."""
    async with opened(doors.any_line()) as wire:
        for said, code in (
            (b"hello\n", b"unknown-command"),
            (b"unsub never/had\n", b"not-subscribed"),
            (b"pub x many x\n", b"bad-length"),
            (b"sub a b\n", b"bad-name"),
            (frame(b"//pubsubd/nothing", b""), b"unknown-request"),
            (frame(b"//pubsubd/edges", b"x"), b"bad-request"),
            (frame(b"secret/x", b""), b"not-allowed"),
        ):
            heard = await wire.ask(said, b"\n")
            # On a busy machine, the worker that knows of the mesh may not answer in time.
            _expect(code in heard or b"worker-silent" in heard, heard)
        await wire.ping()


async def requests(doors: Doors) -> None:
    """Ask what the daemon tells of itself."""
    async with opened(doors.any_line()) as wire:
        for what in (b"stats", b"peers", b"edges"):
            await wire.ask(frame(b"//pubsubd/" + what, b""), b"//pubsubd/" + what, b"}\n")
        name = b"//fwd/slow/s00"
        heard = await wire.ask(frame(b"//pubsubd/explain", name), b"explain ", b"}\n")
        _expect(b"slow/" in heard, heard)
        await wire.say(b"sub //pubsubd/\nsub //fwd/peers/\nsub //fwd/pubsubd\n")
        await wire.ping()


async def log_in(doors: Doors) -> None:
    """Log in, by password, token and certificate, where it is asked for."""
    given = f"{doors.user} {doors.password}".encode()
    async with opened(doors.guarded) as wire:
        await wire.ask(frame(b"visit/guarded", b"x"), b"login-required", b"\n")
        await wire.ask(frame(b"//pubsubd/auth", given), b" ok ", b"\n")
        await wire.say(b"sub visit/guarded\n", frame(b"visit/guarded", b"hello"))
        await wire.hear(b"hello\n")
    async with opened(doors.guarded) as wire:
        await wire.ask(frame(b"//pubsubd/auth", doors.token.encode()), b" ok ", b"\n")
    async with opened(doors.known) as wire:
        await wire.say(frame(b"secret/x", b"known"))
        heard = await wire.ping()
        _expect(b"not-allowed" not in heard, heard)


async def fail_to_log_in(doors: Doors) -> None:
    """Log in with what is not good, until the connection is closed."""
    async with opened(doors.guarded, source=ELSEWHERE) as wire:
        for number in range(3):
            wrong = f"{doors.user if number else 'nobody'} wrong".encode()
            await wire.say(frame(b"//pubsubd/auth", wrong))
        await wire.hear_end(b"too-many-failures", b"login-throttled")


async def leave_in_steps(doors: Doors) -> None:
    """Subscribe much, and leave while all of it is published."""
    async with opened(doors.any_line()) as wire, opened(doors.line) as other:
        said = b"".join(b"sub visit/step/%d/\n" % number for number in range(_MANY))
        await wire.say(said, b"sub //fwd/slow/\nsub //fwd/soak/\nsub //pubsubd/\nsub slow:\n")
        await wire.ping()
        said = b"".join(
            frame(b"visit/step/%d/" % number, b"step") for number in range(0, _MANY, 10)
        )
        await other.say(said)
        await wire.close()
        for _ in range(4):
            await other.say(said)
            await other.ping()


async def say_nonsense(doors: Doors) -> None:
    """Say what makes no sense, and be told so."""
    said, codes = doors.rng.choice(list(GARBAGE.values()))
    async with opened(doors.line, source=ELSEWHERE) as wire:
        await wire.send(said)
        await wire.finish()
        await wire.hear_end(*(code.encode() for code in codes))


async def be_slow(doors: Doors) -> None:
    """Listen to a flood and never read, until that is noticed."""
    # On a Unix socket the system takes little for it.
    async with opened(doors.unix, doomed=True) as wire, opened(doors.line) as other:
        await wire.say(b"sub visit/flood\n")
        await wire.ping()
        begun = trio.current_time()
        flood = frame(b"visit/flood", b"x" * 16 * KIB) * 16
        for _ in range(FLOODS):
            await other.say(flood)
            await other.ping()
            if wire.hung_up:
                break
        await wire.hear_end(b"slow-consumer", since=begun)


async def leave_half(doors: Doors) -> None:
    """Say half of something and leave; go on listening with the sending side shut; say HTTP."""
    async with opened(doors.line) as wire:
        await wire.say(b"pub visit/half 1000 half")
    async with opened(doors.line) as wire, opened(doors.any_line()) as other:
        await wire.say(b"sub visit/shut\n")
        await wire.ping()
        await wire.finish()
        await trio.sleep(0.02)
        await other.say(frame(b"visit/shut", b"hello"))
        await wire.hear(b"hello\n")
    async with opened(doors.line) as wire:
        await wire.say(frame(b"visit/end", b"x"))
        await wire.finish()
        await wire.hear_end()


async def handshakes(doors: Doors) -> None:
    """Speak TLS badly, or not at all, where it is spoken."""
    plain = Address(doors.secure.where)
    async with opened(plain) as wire:
        await wire.say(b"sub a\n")
        await wire.hear_end()
    async with opened(plain) as wire:
        await wire.say(bytes.fromhex("160301"))
    hub = Address(doors.secure_hub.where)
    async with opened(hub) as wire:
        await wire.say(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await wire.hear_end()


async def large(doors: Doors) -> None:
    """Publish what comes in many reads, and what goes by two names."""
    async with opened(doors.any_line()) as wire:
        await wire.say(b"sub visit/large\nsub //visit/\nsub //fwd/visit/\n")
        await wire.ping()
        data = b"y" * 200 * KIB
        await wire.ask(frame(b"visit/large", data), data + b"\n")
        heard = await wire.ask(frame(b"//visit/both", b"both"), b"both\n")
        heard += await wire.ping()
        _expect(heard.count(b" both\n") == 1, heard)
        many = b"".join(frame(b"visit/large%d" % (n % 7), b"z" * n) for n in range(200))
        await wire.say(many)
        await wire.ping()


async def say_hello(doors: Doors) -> None:
    """Claim to be a daemon of the mesh, without the secret."""
    hello = b"1 chaos stranger 1 1 0123456789abcdef"
    async with opened(doors.line) as wire:
        await wire.ask(frame(b"//pubsubd/hello", hello), b"//pubsubd/hello ", b"\n")
        await wire.say(frame(b"//pubsubd/hello", b"proof 00"))
        await wire.hear_end(b"bad-secret")
    async with opened(doors.line) as wire:
        await wire.ask(frame(b"//fwd/peers/chaos/nobody", b"127.0.0.1 1\n"), b"forged-advert")
        await wire.say(frame(b"//peers/chaos/x", b"127.0.0.1 1\n"))
        await wire.ping()


def _expect(good: object, seen: bytes) -> None:
    if not good:
        raise WrongError(repr(seen[-300:]))


VISITS = (
    talk,
    mistakes,
    requests,
    log_in,
    fail_to_log_in,
    leave_in_steps,
    say_nonsense,
    be_slow,
    leave_half,
    handshakes,
    large,
    say_hello,
)
"""All of them."""
