"""The hub across a mesh: by who says a proper hello, and so writes letters as a daemon does.

Some only need actors that are claimed elsewhere, by a daemon that one such attacker forges; what
they do is then done by a client that is none.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Sequence
from itertools import count, cycle

from soaklib.wires import KIB, frame

from .actors import by_rate, hub_message, lines
from .attack import attack
from .bounds import ACTORS, BATCH, CACHES, DAEMON, DETAILS, HELD, HUB_PENDING, PAYLOAD, PENDING
from .forger import MESH, VICTIM, Forger, with_hub
from .parts import repeated
from .stage import PING, Stage

_UNCONFIRMED = 128 * 1024 * KIB  # bytes to other daemons

_DELIVERY = (
    b'{"id":"1","from":"x/eve","to":"","type":"t","payload":%b,"pattern":"tell",'
    b'"correlationId":null,"timestamp":0,"metadata":{}}'
)


def _letters(stage: Stage, making: Callable[[int], Iterable[bytes]]) -> None:
    """Say letters, a batch at a time; ``making`` returns those of the batch of a number."""
    forger = Forger(stage)
    forger.settle_hub()
    forger.flood(forger.letters(number, making(number)) for number in count(1))


@attack("letters-claims", "letter", daemon="mesh", table=DETAILS + ACTORS)
def letters_claims(stage: Stage) -> None:
    """Tells of ever new actors, with 1 KiB of details each."""
    details = b'{"address":"x/%%d","capabilities":["%b"],"metadata":{}}' % (b"c" * 200)

    def making(number: int) -> list[bytes]:
        keys = range(100 * number, 100 * number + 100)
        lines = [b"+ 5 x/%d %b\n" % (key, details % key) for key in keys]
        return [b"claims %d\n%b" % (number + 1, b"".join(lines))]

    forger = Forger(stage)
    forger.settle_hub()
    forger.say(forger.letters(1, [b"whole 1 0 0\n"]))
    forger.flood(forger.letters(number, making(number - 1)) for number in count(2))


@attack("letters-come-and-go", "letter", daemon="mesh", table=CACHES)
def letters_come_and_go(stage: Stage) -> None:
    """Tells of 1,000 actors, and then of none, over and over."""
    line = b'+ 5 x/%d {"address":"x/%d","capabilities":[],"metadata":{}}\n'
    told = b"".join(line % (key, key) for key in range(1_000))
    _letters(stage, lambda _: [b"whole 1 0 0\n" + told, b"whole 1 0 0\n"])


@attack("letters-sync", "letter", daemon="mesh", table=CACHES + BATCH)
def letters_sync(stage: Stage) -> None:
    """Asks for all actors, of which 5,000 come, over and over."""
    stage.crowd(50, stage.hub, hundred_actors)
    _letters(stage, lambda _: [b"sync\n"] * 1_000)


@attack("letters-send", "letter", daemon="mesh", table=CACHES + BATCH)
def letters_send(stage: Stage) -> None:
    """Sends to actors that are not there, and wants to be told."""
    send_to(stage, [b"x/nobody"])


def send_to(stage: Stage, actors: Sequence[bytes]) -> None:
    """Send to actors in turn, and want to be told."""
    body = _DELIVERY % b'"x"'

    def making(number: int) -> list[bytes]:
        numbers = range(500 * number, 500 * number + 500)
        return [
            b"send 1 %d %d 0 ask %b\n%b" % (one, one, actors[one % len(actors)], body)
            for one in numbers
        ]

    _letters(stage, making)


@attack("letters-held", "letter", daemon="mesh", table=CACHES + BATCH + HELD)
def letters_held(stage: Stage) -> None:
    """Sends letters that wait for others, which never come, and asks for what it has missed."""
    body = _DELIVERY % (b'"%b"' % (b"x" * 10_000))

    def making(number: int) -> list[bytes]:
        first = number * 50
        held = [b"send 1 %d 1 %d tell x/y\n%b" % (one, one - 1, body) for one in range(3, 53)]
        done = [b"send 2 %d 1 0 ask x/y\n%b" % (first % 60_000 + one, b"{}") for one in range(50)]
        skips = [b"send %d %d %d 0 tell x/y\n{}" % (number, first, first)]
        return held + done + skips + [b"got 1 1 999999999 1\n1 2 3\n4 5 6"] * 20

    _letters(stage, making)


@attack("letters-broadcast", "letter", daemon="mesh", table=CACHES + BATCH + 50 * HUB_PENDING)
def letters_broadcast(stage: Stage) -> None:
    """Broadcasts to 5,000 actors, who read nothing."""
    stage.crowd(50, stage.hub, hundred_actors)
    text = b'broadcast 1\n{"capability":null,"delivery":%b}' % (_DELIVERY % b"1")
    _letters(stage, lambda _: [text] * 100)


@attack("letters-nonsense", "letter", daemon="mesh", table=BATCH)
def letters_nonsense(stage: Stage) -> None:
    """Sends letters that are none, some of them large."""
    rng = random.Random(7)
    texts = [rng.randbytes(size) for size in (0, 10, 1_000, 100_000)]
    kinds = (
        b"claims 2",
        b"whole 1 0 0",
        b"send 1 1 1 0 ask x/y",
        b"broadcast 1",
        b"displace 1",
        b"x",
    )
    bad = [b"%b\n%b" % (kind, text) for kind in (*kinds, b"x") for text in texts]
    _letters(stage, lambda _: bad)


def hundred_actors(number: int) -> bytes:
    """Return the registrations of 99 actors by one connection, which may say 100 things."""
    return b"".join(
        b'{"type":"hub:register","payload":{"actorAddress":"x/%d-%d"}}\n' % (number, one)
        for one in range(99)
    )


# Claims and requests


def _claim(forger: Forger, keys: Iterable[bytes], since: int = 5) -> None:
    """Claim addresses, and say that these are all."""
    line = b'+ %d %b {"address":"%b","capabilities":[],"metadata":{}}\n'
    told = [line % (since, key, key) for key in keys]
    parts = [told[at : at + 1_000] for at in range(0, len(told), 1_000)]
    letters = [
        b"whole 1 %d %d\n%b" % (number, number < len(parts) - 1, b"".join(part))
        for number, part in enumerate(parts)
    ]
    for number, letter in enumerate(letters, 1):
        forger.say(forger.letters(number, [letter]))
    forger.settle()


def _claimed(stage: Stage, actors: int) -> Forger:
    """Return a daemon at which so many actors are registered."""
    forger = Forger(stage)
    forger.settle_hub()
    _claim(forger, (b"far/%d" % one for one in range(stage.scaled(actors))))
    return forger


@attack("letters-sync-of-many", "letter", daemon="mesh", table=CACHES + BATCH + 300 * DAEMON)
def sync_of_many(stage: Stage) -> None:
    """Asks for all actors, of which 5,000 come, for 300 daemons."""
    stage.crowd(50, stage.hub, hundred_actors)
    forger = Forger(stage)
    forger.settle_hub()
    names = [f"asks-{number}" for number in range(300)]
    for name in names:
        forger.say(forger.advert(name, [forger.node], with_hub(name)))
    forger.settle()
    forger.flood(
        b"".join(forger.letters(number, [b"sync\n"], node=name) for name in names)
        for number in count(1)
    )


@attack("letters-confirm", "letter", daemon="mesh", table=CACHES)
def confirm(stage: Stage) -> None:
    """Confirms 5,000 messages that it was sent, over and over, at times that cannot be."""
    forger = _claimed(stage, 1)
    text = hub_message("hub:send", {"to": "far/0", "type": "t", "data": "d"})
    for _ in range(50):
        stage.order(stage.hub(), *[text] * 99)
    heard = stage.say(forger.sock, b"", b" far/0\n")  # what is repeated
    (stream, *_) = re.findall(rb"send (\d+) ", heard)
    letters = [b"got %b 1 999999999 %b\n\n" % (stream, at) for at in (b"5", b"9" * 4_000)] * 50
    forger.flood(forger.letters(number, letters) for number in count(100))


@attack("letters-of-victims", "letter", daemon="mesh", table=CACHES)
def of_victims(stage: Stage) -> None:
    """Claims 1,000 addresses earlier than those who have them, and leaves them, over and over."""
    forger = _claimed(stage, 1)
    line = b'+ 1 x/%d-%d {"address":"x/%d-%d","capabilities":[],"metadata":{}}\n'
    keys = [(number, one) for number in range(10) for one in range(99)]
    claims = b"".join(line % (key + key) for key in keys)
    leaves = b"".join(b"- x/%d-%d\n" % key for key in keys)
    said = [hundred_actors(number) + PING + b"\n" for number in range(10)]

    def again() -> None:
        sock = stage.hub()
        sock.sendall(said[stage.effort.opened % 10])
        stage.hold(sock)

    stage.chore(0.02, again)
    forger.flood(
        forger.letters(number, [b"claims %d\n%b" % (number, text)])
        for number, text in zip(count(2), cycle((claims, leaves)))
    )


@attack("letters-displace", "letter", daemon="mesh", table=CACHES)
def displace(stage: Stage) -> None:
    """Asks for the addresses of 5,000 actors, as fast as it can."""
    stage.crowd(50, stage.hub, hundred_actors)
    wanted = [
        b'displace %d\n{"key":"x/%d-%d","user":null}' % (one + 1, number, one)
        for number in range(50)
        for one in range(99)
    ]
    _letters(stage, lambda _: wanted)


@attack(
    "letters-long-ids", "letter", daemon="mesh", table=CACHES + BATCH + HUB_PENDING + 10 * PAYLOAD
)
def letters_long_ids(stage: Stage) -> None:
    """Sends to an actor messages with identifiers of 300 KB, each of which is asked about."""
    stage.crowd(1, stage.hub, hundred_actors)
    long = b"i" * 300_000
    body = (
        b'{"id":"%b","from":"x/eve","to":"","type":"t","payload":1,"pattern":"ask",'
        b'"correlationId":"%b","timestamp":%b,"metadata":{}}' % (long, long, b"9" * 4_000)
    )
    _letters(
        stage,
        lambda number: [
            b"send 1 %d %d 0 ask x/0-1\n%b" % (one, one, body)
            for one in range(5 * number, 5 * number + 5)
        ],
    )


@attack("letters-lives", "letter", "advert", daemon="mesh", table=CACHES + 50 * DAEMON)
def lives(stage: Stage) -> None:
    """Starts 50 daemons with actors anew, over and over, ever later."""
    forger = Forger(stage)
    names = [f"lives-{number}" for number in range(50)]

    def making(turn: int) -> bytes:
        life = 2**53 + turn
        return b"".join(
            forger.advert(name, [forger.node], with_hub(name), life=life) for name in names
        )

    forger.flood(making(turn) for turn in count())


@attack(
    "mesh-asks-unanswered",
    "hub:send",
    daemon="mesh",
    crowd=True,
    each=PAYLOAD + HUB_PENDING,
    table=_UNCONFIRMED + PENDING,
)
def asks_unanswered(stage: Stage) -> None:
    """Asks actors of a daemon that never answers, with 10 KB, on ever new connections."""
    _claimed(stage, 100)
    texts = [
        hub_message(
            "hub:send", {"to": f"far/{one}", "type": "t", "data": "d" * 10_000}, pattern="ask"
        )
        for one in range(99)
    ]
    stage.flood(stage.hub, [lines([*texts, PING])], once=True)


@attack(
    "mesh-long-ids",
    "hub:send",
    daemon="mesh",
    crowd=True,
    each=PAYLOAD + HUB_PENDING,
    table=_UNCONFIRMED + PENDING,
)
def mesh_long_ids(stage: Stage) -> None:
    """Asks an actor of a daemon that never answers, with identifiers of 300 KB."""
    _claimed(stage, 1)
    long = "i" * 300_000
    text = hub_message(
        "hub:send", {"to": "far/0"}, long, id=long, correlationId=long, pattern="ask"
    )
    stage.flood(stage.hub, by_rate(text, 20), once=True)


@attack("mesh-broadcasts", "hub:broadcast", daemon="mesh", crowd=True, each=PENDING, table=PENDING)
def broadcasts_unanswered(stage: Stage) -> None:
    """Broadcasts to a mesh with a daemon that never answers."""
    _claimed(stage, 1)
    stage.flood(stage.hub, by_rate(hub_message("hub:broadcast", {"type": "t"})), once=True)


@attack(
    "mesh-discover-100k",
    "hub:discover",
    "hub:list_actors",
    daemon="mesh",
    crowd=True,
    each=HUB_PENDING,
    table=ACTORS + DETAILS,
)
def mesh_discover(stage: Stage) -> None:
    """Searches and lists 100,000 actors of another daemon, from the last page on."""
    _claimed(stage, 100_000)
    pattern = "(" + "|".join(f"f[a-z]*{i}?/.*{i}" for i in range(50)) + ")$"
    page = {"limit": 1_000, "offset": stage.scaled(100_000) - 1_000}
    texts = [
        hub_message("hub:discover", {"pattern": pattern, **page}),
        hub_message("hub:list_actors", page),
    ]
    stage.flood(stage.hub, [lines([*texts * 50, PING])], once=True)


@attack("letters-by-client", "letter", daemon="mesh", crowd=True, each=PENDING)
def letters_by_client(stage: Stage) -> None:
    """Publishes letters and claims as a client, which are refused."""
    names = [b"//fwd/hub/%b/%b/" % (MESH.encode(), one) for one in (VICTIM.encode(), b"*")]
    texts = b"sync\n", b'claims 1\n+ 1 x/y {"address":"x/y"}\n', b"got 1 1 9 9\n"
    said = b"".join(frame(name, text) for name in names for text in texts)
    stage.flood(stage.line, repeated(said))


@attack("hello-without-secret", "//pubsubd/hello", daemon="mesh secret", crowd=True)
def hello_without_secret(stage: Stage) -> None:
    """Says a hello with a proof that is none, on ever new connections, and letters behind it."""
    words = f"1 {MESH} n 1 1 {'0' * 32}"
    said = frame(b"//pubsubd/hello", words.encode())
    said += frame(b"//pubsubd/hello", b"proof " + b"0" * 64)
    said += frame(b"//pubsubd/relay", b"n@1 1 255 1\n" + frame(b"//fwd/hub/x/*/", b"sync\n"))
    stage.flood(stage.line, [said], once=True, done=b"bad-secret", count=max(8, stage.count))
