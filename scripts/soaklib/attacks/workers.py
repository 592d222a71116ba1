"""Several workers: what one of them makes of its clients' doing, and tells the others.

The sockets between workers are pairs that only they hold: no client can say anything there, so
nothing is said there that is none of theirs.
"""

from __future__ import annotations

import contextlib
import os
import signal
from itertools import count

from soaklib.wires import KIB, MIB, Address, frame, reset

from . import letters
from .actors import lines
from .attack import attack
from .bounds import (
    ACTOR,
    ACTORS,
    BATCH,
    CACHES,
    DETAILS,
    HUB_PENDING,
    PAYLOAD,
    PENDING,
    SEND_LARGE,
    STALL,
    SUBSTRING,
    TURN,
)
from .parts import packed, repeated
from .stage import PING, Stage

_LINK = 64 * MIB  # what may wait for another worker
_KILL_EVERY = 0.2  # seconds


@attack("workers-connections", daemon="workers", crowd=True, each=PENDING, table=_LINK)
def connections(stage: Stage) -> None:
    """Asks for the 1,000 busiest of 1,500 connections, 20 times at once."""
    stage.crowd(1_500, stage.line, lambda _: b"")
    said = frame(b"//pubsubd/connections", b'{"sort": "rate", "limit": 1000}') * 20
    stage.flood(stage.line, [said])


@attack("workers-requests", daemon="workers", crowd=True, each=PENDING, table=_LINK)
def requests(stage: Stage) -> None:
    """Asks for statistics, receivers and traces of 500 connections, at all workers."""
    stage.crowd(500, stage.line, lambda _: b"sub x\nsub xx\nsub xxx\n")
    names = b"stats", b"explain", b"trace"
    said = b"".join(frame(b"//pubsubd/" + name, b"xxxxxxxx") for name in names)
    stage.flood(stage.line, repeated(said), count=max(4, stage.count))


@attack("workers-live", daemon="workers", crowd=True, each=PENDING)
def live(stage: Stage) -> None:
    """Asks to see everything of 1,000 connections, live, and anew before it has seen much."""
    stage.crowd(1_000, stage.line, lambda number: b"sub live/%d\n" % number)
    asked = (
        b'{"interval": 0.2, "totals": true, "connections": {"limit": 500}, '
        b'"names": {"limit": 100}, "events": {"limit": 256}}'
    )
    said = frame(b"//pubsubd/live", asked) * 9 + frame(b"//pubsubd/live/stop", b"")
    stage.flood(stage.line, [said])


@attack("workers-logins", daemon="workers users", crowd=True)
def logins(stage: Stage) -> None:
    """Logs in, with right and wrong passwords, on ever new connections."""
    said = [frame(b"//pubsubd/auth", b"ann " + word) * 5 for word in (b"correct horse", b"wrong")]
    done = b"//pubsubd/"
    stage.flood(stage.line, said, once=True, done=done, count=max(8, stage.count))


@attack("workers-pings", daemon="workers", crowd=True, each=PENDING, table=_LINK)
def pings(stage: Stage) -> None:
    """Pings, each of which is answered when the other workers have caught up."""
    said = frame(b"//pubsubd/ping", b"1") + frame(b"p", b"")
    stage.flood(stage.line, repeated(said), count=max(2, stage.count))


@attack("workers-interests", daemon="workers", crowd=True, table=CACHES + 400_000 * SUBSTRING)
def interests(stage: Stage) -> None:
    """Subscribes ever other names and takes them back, which all workers are told."""
    parts = packed(b"sub i/%x\nunsub i/%x\n" % (one, one) for one in range(50_000))
    stage.flood(stage.line, parts, count=max(2, stage.count))


@attack("workers-interests-100k", "max_subscriptions", daemon="workers", table=800_000 * SUBSTRING)
def many_interests(stage: Stage) -> None:
    """Subscribes 100,000 names on two connections, and leaves, over and over."""
    end = frame(b"//pubsubd/ping", b"the end")
    parts = [
        b"".join(b"sub k%d/%x\n" % (turn, one) for one in range(stage.scaled(99_000))) + end
        for turn in range(2)
    ]
    stage.flood(stage.line, parts, once=True, done=end, count=2)


@attack("workers-names", daemon="workers", crowd=True, table=2 * CACHES + _LINK)
def names(stage: Stage) -> None:
    """Publishes names that are never the same to 300 clients of all workers."""
    stage.crowd(300, stage.line, lambda number: b"sub w/%x\nsub w/\n" % number)
    parts = packed(frame(b"w/%x" % one, b"") for one in range(200_000))
    stage.flood(stage.line, parts, count=max(2, stage.count))


@attack(
    "workers-large",
    "max_payload",
    daemon="workers",
    crowd=True,
    each=2 * PAYLOAD,
    table=4 * PENDING + 2 * _LINK,
    # At the other worker: what comes behind it from here waits until 150 clients have it, and, by
    # turns, what its own client has published.
    delay=2 * 150 * SEND_LARGE,
)
def large(stage: Stage) -> None:
    """Publishes 1 MiB to 300 clients of all workers."""
    stage.crowd(300, stage.line, lambda _: b"sub big\n")
    stage.flood(stage.line, [frame(b"big", b"." * MIB)], count=max(2, stage.count))


@attack("workers-slow", "max_pending", daemon="workers", table=100 * PENDING + 2 * _LINK)
def slow(stage: Stage) -> None:
    """Publishes at all workers to 100 clients that never read, each a name of its own."""
    where = stage.place.line
    for number in range(100):
        sock = stage.connect(Address(where.where, where.ca, buffer=4 * KIB))
        sock.sendall(b"sub own/%d/\n" % number)
    said = b"".join(frame(b"own/%d/" % one, b"." * 16 * KIB) for one in range(100))
    stage.flood(stage.line, [said], count=4)


@attack(
    "workers-trickle",
    "stall_budget",
    "max_pending",
    daemon="workers",
    table=100 * PENDING + 2 * _LINK,
    delay=STALL,
)
def trickle(stage: Stage) -> None:
    """Publishes at all workers to 100 clients that read too little, but never nothing."""
    where = stage.place.line
    socks = []
    for number in range(100):
        sock = stage.connect(Address(where.where, where.ca, buffer=4 * KIB))
        sock.sendall(b"sub own/%d/\n" % number)
        sock.setblocking(False)
        socks.append(sock)

    def read() -> None:
        for sock in socks:
            with contextlib.suppress(OSError):
                stage.effort.received += len(sock.recv(4 * KIB))

    stage.chore(0.05, read)
    said = [frame(b"own/%d/" % one, b"." * 16 * KIB) * 64 for one in range(100)]
    stage.flood(stage.line, said, count=4)


@attack("workers-hub", daemon="workers", crowd=True, table=500 * HUB_PENDING + _LINK)
def hub(stage: Stage) -> None:
    """Publishes to 500 clients of the hub port at all workers, in two dialects."""

    def said(number: int) -> bytes:
        if number % 2:
            return b'{"command":"pubsub.subscribe","payload":{"topics":["crowd"]}}\n'
        return b'{"type":"hub:subscribe","payload":{"topic":"crowd"}}\n'

    stage.crowd(500, stage.hub, said)
    text = b'{"command":"pubsub.publish","payload":{"topic":"crowd","payload":{"id":1}}}\n'
    stage.flood(stage.hub, [text * 50 + PING + b"\n"], count=max(2, stage.count))


@attack("workers-actors", daemon="workers", crowd=True, table=_LINK + 20_000 * ACTOR)
def actors(stage: Stage) -> None:
    """Registers actors that all workers are told of, lists and leaves, on ever new connections."""
    numbers = count()

    def texts(first: int) -> list[bytes]:
        return [
            b'{"type":"hub:register","payload":{"actorAddress":"w/%d","capabilities":["c"]}}' % one
            for one in range(first, first + 90)
        ]

    listing = b'{"type":"hub:list_actors","payload":{"limit":100}}'
    parts = [lines([*texts(90 * next(numbers)), listing, PING]) for _ in range(50)]
    stage.flood(stage.hub, parts, once=True, count=max(2, stage.count))


@attack("workers-same-actor", daemon="workers", crowd=True)
def same_actor(stage: Stage) -> None:
    """Registers one actor at all workers at once, on ever new connections."""
    register = b'{"type":"hub:register","payload":{"actorAddress":"w/one","capabilities":["c"]}}'
    stage.flood(stage.hub, [lines([register, PING])], once=True, count=max(4, stage.count))


@attack(
    "workers-letters-claims",
    "letter",
    daemon="mesh workers",
    table=2 * (DETAILS + ACTORS) + _LINK,
)
def letters_claims(stage: Stage) -> None:
    """Tells of ever new actors of another daemon, which all workers are told of."""
    letters.letters_claims(stage)


@attack(
    "workers-letters-send",
    "letter",
    daemon="mesh workers",
    table=CACHES + BATCH + 50 * HUB_PENDING + _LINK,
)
def letters_send(stage: Stage) -> None:
    """Sends from another daemon to actors of all workers, who read nothing, and wants answers."""
    stage.crowd(50, stage.hub, letters.hundred_actors)
    letters.send_to(stage, [b"x/%d-%d" % (number, one) for number in range(50) for one in range(9)])


@attack("workers-resets", "max_connections", daemon="workers")
def resets(stage: Stage) -> None:
    """Connects, subscribes and resets the connection, which the supervisor has passed on."""
    while stage.on:
        try:
            sock = stage.place.line.connect(1.0)
            stage.effort.opened += 1
            sock.sendall(b"sub r/%d\npub r 100 half" % stage.effort.opened)
        except OSError:
            continue
        reset(sock)


@attack(
    "workers-killed",
    daemon="many-workers",
    table=3 * CACHES,
    delay=(3 + 4) * TURN,  # what crosses waits for a turn of all who speak at the other worker
)
def killed(stage: Stage) -> None:
    """Kills the fifth worker again and again, while all of them publish and subscribe."""
    stage.crowd(60, stage.line, lambda number: b"sub dead/%d\n" % (number % 7))
    _kill_again(stage)
    said = b"".join(frame(b"dead/%d" % one, b"x") for one in range(7))
    stage.flood(stage.line, [said * 10], count=12)


@attack("workers-killed-crowd", daemon="many-workers", table=3 * CACHES)
def killed_crowd(stage: Stage) -> None:
    """Kills the fifth worker again and again, while clients come, subscribe, register and go."""
    _kill_again(stage)
    register = b'{"type":"hub:register","payload":{"actorAddress":"w/%d","capabilities":["c"]}}'
    said = [lines([register % (one % 500), PING]) for one in range(1_000)]
    stage.flood(stage.hub, said, once=True, count=50)


@attack("workers-everywhere", daemon="many-workers", table=100_000 * 5 * SUBSTRING)
def everywhere(stage: Stage) -> None:
    """Subscribes 2,000 names each on 20 connections of all workers, and leaves, over and over."""
    end = frame(b"//pubsubd/ping", b"the end")
    parts = [
        b"".join(b"sub e%d/%x\n" % (turn, one) for one in range(2_000)) + end for turn in range(50)
    ]
    stage.flood(stage.line, parts, once=True, done=end, count=20)


def _kill_again(stage: Stage) -> None:
    """Kill all workers but those that there are now without the last, now and then."""
    staying = sorted(stage.place.processes())[:-1]  # the probes are at these

    def kill() -> None:
        for pid in stage.place.processes():
            if pid not in staying:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    stage.chore(_KILL_EVERY, kill)
