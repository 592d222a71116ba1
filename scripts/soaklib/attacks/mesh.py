"""Attacks by who says a proper hello, and so is a daemon of a mesh without a secret.

Some only need a large mesh, which is made of adverts that one such attacker forges; what they do is
then done by a client that is none.
"""

from __future__ import annotations

import random
import time
from itertools import count, cycle, repeat

from soaklib.wires import MIB, frame

from .attack import attack
from .bounds import BATCH, CACHES, DAEMON, PENDING, SUBSTRING
from .forger import MESH, VICTIM, Forger, wanting
from .parts import new_names, packed, repeated
from .stage import Stage


def _edges(stage: Stage, daemons: int, *, reads: bool = True) -> None:
    Forger(stage).make(daemons, 8)
    stage.flood(stage.line, repeated(frame(b"//pubsubd/edges", b"")), reads=reads)


@attack("edges-10", "//pubsubd/edges", daemon="mesh", crowd=True, each=PENDING)
def edges_10(stage: Stage) -> None:
    """Asks for the edges of a mesh of 10, again and again."""
    _edges(stage, 10)


@attack("edges-50", "//pubsubd/edges", daemon="mesh", each=PENDING)
def edges_50(stage: Stage) -> None:
    """Asks for the edges of a mesh of 50, again and again."""
    _edges(stage, 50)


@attack("edges-300", "//pubsubd/edges", daemon="mesh", crowd=True, each=PENDING)
def edges_300(stage: Stage) -> None:
    """Asks for the edges of a mesh of 300, again and again."""
    _edges(stage, 300)


@attack("edges-300-unread", "//pubsubd/edges", "max_pending", daemon="mesh", each=PENDING)
def edges_unread(stage: Stage) -> None:
    """Asks for the edges of a mesh of 300, and never reads them."""
    _edges(stage, 300, reads=False)


@attack(
    "mesh-requests-anew",
    "//pubsubd/edges",
    "//pubsubd/peers",
    "request_rate",
    daemon="mesh",
    crowd=True,
    each=PENDING,
)
def requests_anew(stage: Stage) -> None:
    """Asks about a mesh of 300 1,000 times, and does it again on a new connection."""
    Forger(stage).make(300, 8)
    ask = frame(b"//pubsubd/edges", b"") + frame(b"//pubsubd/peers", b"")
    end = frame(b"//pubsubd/ping", b"the end")
    stage.flood(stage.line, [ask * 500 + end], once=True, done=end, count=max(4, stage.count))


@attack("edges-after-storm", "//pubsubd/edges", daemon="mesh", each=PENDING)
def edges_after_storm(stage: Stage) -> None:
    """Asks for edges from a number of rows on that is not there, after 1,000 links have ended."""
    for number in range(stage.scaled(1_000)):
        forger = Forger(stage, f"gone-{number}")
        stage.close(forger.sock, abruptly=True)
    stage.flood(stage.line, repeated(frame(b"//pubsubd/edges", b"999999999")))


@attack("peers-300", "//pubsubd/peers", daemon="mesh", crowd=True, each=PENDING)
def peers_300(stage: Stage) -> None:
    """Asks for the daemons of a mesh of 300, again and again."""
    Forger(stage).make(300)
    stage.flood(stage.line, repeated(frame(b"//pubsubd/peers", b"")))


@attack("advertised-300", "//pubsubd/advertised", daemon="mesh", each=PENDING)
def advertised_300(stage: Stage) -> None:
    """Subscribes and asks which advert of a mesh of 300 tells of it, again and again."""
    Forger(stage).make(300)
    said = frame(b"//pubsubd/advertised", b"")
    parts = [b"sub //fwd/%d\nunsub //fwd/%d\n" % (one, one) + said * 50 for one in range(50)]
    stage.flood(stage.line, parts)


@attack("weak-1000", "//pubsubd/weak", daemon="mesh", crowd=True, each=PENDING)
def weak_1000(stage: Stage) -> None:
    """Asks what a mesh of 1,000 cannot lose, which is nearly all of it: it is a tree."""
    Forger(stage).make(1_000, 2)
    stage.flood(stage.line, repeated(frame(b"//pubsubd/weak", b"")))


@attack("trace-300", "//pubsubd/trace", daemon="mesh", crowd=True, each=PENDING)
def trace_300(stage: Stage) -> None:
    """Traces a name that all of a mesh of 300 want; the only neighbour never answers."""
    forger = Forger(stage)
    for name, links in forger.make(300, 8).items():
        forger.say(forger.advert(name, sorted(links), wanting([b"//fwd/traced"])))
    forger.settle()
    asked = b'{"name": "//fwd/traced", "timeout": 0.1}'
    stage.flood(stage.line, repeated(frame(b"//pubsubd/trace", asked)))


@attack("probes", "trace", "//pubsubd/trace", daemon="mesh", table=CACHES)
def probes(stage: Stage) -> None:
    """Sends probes of ever new names, and hops for them, while 500 others subscribe."""
    stage.crowd(500, stage.line, lambda number: b"sub //fwd/%d\nsub //fwd/\n" % number)
    forger = Forger(stage)
    forger.make(100)
    forger.flood(forger.probe(number) for number in count())


@attack(
    "peers-99000",
    "//pubsubd/peers",
    "max_subscriptions",
    daemon="mesh",
    crowd=True,
    each=PENDING,
    table=99_000 * SUBSTRING,
)
def peers_99000(stage: Stage) -> None:
    """Asks for the daemons after 99,000 own subscriptions under //fwd/."""
    sock = stage.line()
    stage.tell(sock, b"".join(b"sub //fwd/%x\n" % i for i in range(99_000)))
    stage.hold(sock)
    stage.flood(stage.line, repeated(frame(b"//pubsubd/peers", b"")))


@attack("hello", "//pubsubd/hello", daemon="mesh", crowd=True)
def hello(stage: Stage) -> None:
    """Begins a hello, on ever new connections, and says nonsense."""
    begun = frame(b"//pubsubd/hello", f"1 {MESH} n 1 1 {'0' * 32}".encode())
    stage.flood(
        stage.line, [begun + begun], once=True, done=b"bad-hello", count=max(8, stage.count)
    )


@attack("hello-nonsense", "//pubsubd/hello", daemon="mesh", crowd=True, each=PENDING)
def hello_nonsense(stage: Stage) -> None:
    """Says hellos that are none, 1 MiB long."""
    stage.flood(stage.line, [frame(b"//pubsubd/hello", b"1 " + b"x " * (MIB // 2 - 1))])


@attack("links-come-and-go", "//pubsubd/hello", daemon="mesh", crowd=True)
def links_come_and_go(stage: Stage) -> None:
    """Becomes a link and leaves, over and over, in a mesh of 100."""
    Forger(stage).make(100)
    parts = []
    for number in range(50):
        words = f"1 {MESH} new-{number} {number + 1} {number + 1} {'0' * 32}"
        parts.append(
            frame(b"//pubsubd/hello", words.encode()) + frame(b"//pubsubd/hello", b"proof -")
        )
    stage.flood(stage.line, parts, once=True, done=b"welcome")


@attack("hellos-of-one", "//pubsubd/hello", daemon="mesh")
def hellos_of_one(stage: Stage) -> None:
    """Becomes links of one id, each of which ends the one before, in a mesh of 100."""
    Forger(stage).make(100)
    words = f"1 {MESH} same 5 5 {'0' * 32}"
    said = frame(b"//pubsubd/hello", words.encode()) + frame(b"//pubsubd/hello", b"proof -")
    stage.flood(stage.line, [said], once=True, done=b"welcome", count=max(8, stage.count))


@attack("adverts-14000", "advert", daemon="mesh", table=14_000 * SUBSTRING + CACHES)
def adverts(stage: Stage) -> None:
    """Adverts 14,000 interests, ever others, while 8,000 names are remembered."""
    from .commands import fill_cache  # noqa: PLC0415

    fill_cache(stage)
    wants = [wanting(b"//fwd/%d/%x" % (turn, i) for i in range(14_000)) for turn in range(2)]
    forger = Forger(stage)
    forger.say(forger.advert(forger.node, [VICTIM]))
    forger.flood(forger.advert(forger.node, [VICTIM], one) for one in cycle(wants))


@attack("adverts-of-many", "advert", daemon="mesh", table=500 * DAEMON)
def adverts_of_many(stage: Stage) -> None:
    """Adverts small changes of 500 daemons, as fast as it can."""
    forger = Forger(stage)
    made = forger.make(500)
    wants = [wanting([b"//fwd/%d" % turn]) for turn in range(9)]
    forger.flood(forger.advert(name, made[name], one) for one in cycle(wants) for name in made)


@attack("adverts-known", "advert", daemon="mesh")
def adverts_known(stage: Stage) -> None:
    """Adverts what is known already, as fast as it can."""
    forger = Forger(stage)
    said = b"".join(forger.advert(f"known-{i}", [forger.node]) for i in range(1_000))
    forger.flood(repeat(said))


@attack("adverts-of-past-lives", "advert", daemon="mesh", table=PENDING + 20 * DAEMON)
def adverts_of_past(stage: Stage) -> None:
    """Adverts an earlier life of daemons, each of which is answered with the newest advert."""
    forger = Forger(stage)
    names = [f"old-{i}" for i in range(20)]
    for name in names:
        links = [forger.node, *(f"x{i}" for i in range(3_000))]
        forger.say(forger.advert(name, links))
    said = b"".join(forger.advert(name, [], life=1) for name in names)
    forger.flood(repeat(said * 100))


@attack("adverts-faulty", "advert", daemon="mesh")
def adverts_faulty(stage: Stage) -> None:
    """Adverts what is none, large and small."""
    forger = Forger(stage)
    name = b"//fwd/peers/%b/bad" % MESH.encode()
    said = frame(name, b"x") * 2_000
    large = b"127.0.0.1 1\nnode 1 1 1\n" + b"want //fwd/a\n" * 19_000 + b"want bad"
    forger.flood(cycle([said, frame(name, large)]))


@attack("adverts-of-victim", "advert", daemon="mesh")
def adverts_of_victim(stage: Stage) -> None:
    """Adverts in the name of the daemon that is attacked."""
    forger = Forger(stage)
    forger.say(forger.advert(forger.node, [VICTIM]))
    life = int(time.time() * 1000)
    forger.flood(forger.advert(VICTIM, [forger.node], life=life + i) for i in count())


@attack("daemons-10000", "advert", daemon="mesh", table=10_000 * DAEMON)
def daemons(stage: Stage) -> None:
    """Adverts as many daemons as there may be, and more."""
    forger = Forger(stage)
    forger.flood(forger.advert(f"n{i % 12_000}", [forger.node]) for i in count())


@attack("long-links", "advert", daemon="mesh", table=12 * DAEMON)
def long_links(stage: Stage) -> None:
    """Adverts 5,000 links of one daemon, ever others."""
    forger = Forger(stage)
    forger.say(forger.advert(forger.node, [VICTIM]))
    links = [[f"l{turn}x{i}" for i in range(5_000)] for turn in range(7)]
    forger.flood(forger.advert(f"hub-{i % 10}", links[i % 7]) for i in count())


@attack("graph-2000", "advert", daemon="mesh", table=2_000 * DAEMON)
def graph(stage: Stage) -> None:
    """Changes the graph of a mesh of 2,000, and what its daemons want, again and again."""
    forger = Forger(stage)
    made = forger.make(2_000)
    some = [name for name in made if name != forger.node][:100]
    wants = [wanting([b"//fwd/%d" % turn]) for turn in range(2)]
    forger.flood(
        forger.advert(name, sorted(made[name])[turn % 2 :], wants[turn % 2])
        for turn in count()
        for name in some
    )


@attack("batches-new-names", "batch", daemon="mesh", table=300 * DAEMON + CACHES)
def batches_new_names(stage: Stage) -> None:
    """Sends batches of names that are never the same, in a mesh of 300."""
    stage.crowd(100, stage.line, lambda number: b"sub //fwd/%d\n" % number)
    forger = Forger(stage)
    forger.make(300)
    names = new_names(100_000, 60, b"//fwd/")
    parts = [
        b"".join(frame(name, b"") for name in names[at : at + 2_000])
        for at in range(0, len(names), 2_000)
    ]
    forger.flood(forger.batch(i, parts[i % len(parts)], 2_000) for i in count())


@attack("batches-alternating", "batch", daemon="mesh", table=BATCH)
def batches_alternating(stage: Stage) -> None:
    """Sends batches of two names in turn that 1,000 clients each receive."""
    stage.crowd(
        1_000, stage.line, lambda n: b"sub //fwd/b1\nsub //fwd/b2\n" if n else b"sub //fwd/b1\n"
    )
    forger = Forger(stage)
    forger.say(forger.advert(forger.node, [VICTIM]))
    forger.settle()
    said = (frame(b"//fwd/b1", b"") + frame(b"//fwd/b2", b"")) * 10_000
    forger.flood(forger.batch(i, said, 20_000) for i in count())


@attack("batches-small", "batch", daemon="mesh")
def batches_small(stage: Stage) -> None:
    """Sends batches of one message, with numbers that jump."""
    forger = Forger(stage)
    forger.make(50)
    forger.settle()
    one = frame(b"//fwd/x", b"")
    forger.flood(
        b"".join(forger.batch(at + i * 7 % 3_000, one, 1) for i in range(3_000))
        for at in count(0, 3_000)
    )


@attack("batches-broken", "batch", daemon="mesh")
def batches_broken(stage: Stage) -> None:
    """Sends batches that break off, name nobody, or have names that are not UTF-8."""
    stage.crowd(
        50, stage.hub, lambda _: b'{"type":"hub:subscribe","payload":{"topic":"//fwd/#"}}\n'
    )
    stage.crowd(5, stage.line, lambda _: b"sub //fwd/\n")
    forger = Forger(stage)
    forger.say(forger.advert(forger.node, [VICTIM]))
    forger.settle()
    forger.flood(
        forger.batch(number, b"pub //fwd/\xff\xfe 1 x\n", 1)
        + forger.batch(number + 1, b"pub //fwd/a 100 x\n", 1)
        + forger.batch(number + 2, frame(b"//fwd/a", b"x") + b"nonsense\n", 1)
        + forger.batch(number + 3, b"sub //fwd/a\n", 1)
        + forger.batch(number, frame(b"//fwd/a", b""), 1, "nobody")
        for number in count(0, 4)
    )


@attack("batches-large", "batch", "max_payload", daemon="mesh", table=2 * BATCH)
def batches_large(stage: Stage) -> None:
    """Sends batches of 32 MiB to clients that read."""
    stage.crowd(20, stage.line, lambda _: b"sub //fwd/l\n")
    forger = Forger(stage)
    forger.say(forger.advert(forger.node, [VICTIM]))
    forger.settle()
    said = frame(b"//fwd/l", b"." * (MIB // 2)) * 64
    forger.flood(forger.batch(i, said, 64) for i in count())


@attack("heartbeats", "heartbeat", daemon="mesh")
def heartbeats(stage: Stage) -> None:
    """Pings on a link, as fast as it can."""
    forger = Forger(stage)
    forger.flood(repeat(frame(b"//pubsubd/heartbeat", b"ping 123456") * 5_000))


@attack("link-unread", "heartbeat", "advert", daemon="mesh", table=2 * PENDING)
def link_unread(stage: Stage) -> None:
    """Has a link that never reads, and lets much be sent over it."""
    forger = Forger(stage)
    forger.say(forger.advert(forger.node, [VICTIM], wanting([b"//fwd/"])))
    forger.settle()
    stage.neglect(forger.sock)
    said = [frame(b"//out/%d" % i, b"." * 1_000) for i in range(200)]
    stage.flood(stage.line, [b"".join(said)])


@attack("forged-by-client", "advert", daemon="mesh", crowd=True, each=PENDING)
def forged_by_client(stage: Stage) -> None:
    """Publishes adverts as a client, which are refused."""
    said = frame(b"//peers/%b/x" % MESH.encode(), b"127.0.0.1 9014")
    said += frame(b"//fwd/peers/%b/x" % MESH.encode(), b"127.0.0.1 9014")
    stage.flood(stage.line, repeated(said))


@attack(
    "interests", "advert", "max_subscriptions", daemon="mesh", crowd=True, table=20_000 * SUBSTRING
)
def interests(stage: Stage) -> None:
    """Subscribes and unsubscribes under //fwd/, with 20,000 others, so that adverts change."""
    Forger(stage).make(50)
    sock = stage.line()
    stage.tell(sock, b"".join(b"sub //fwd/i/%x\n" % i for i in range(20_000)))
    stage.hold(sock)
    stage.flood(
        stage.line, packed(b"sub //fwd/%x\nunsub //fwd/%x\n" % (i, i) for i in range(9_999))
    )


@attack("interest-sets", "batch", "advert", daemon="mesh", table=40 * DAEMON + CACHES)
def interest_sets(stage: Stage) -> None:
    """Publishes names that ever other sets of daemons want, in a mesh of 40."""
    forger = Forger(stage)
    made = forger.make(40)
    for place, name in enumerate(sorted(made)[:16]):
        forger.say(forger.advert(name, made[name], wanting([b"//fwd/s%d." % place])))
    forger.settle()
    rng = random.Random(5)
    names = [
        b"//" + b"".join(b"s%d./fwd/" % place for place in rng.sample(range(16), 8)) + b"%x" % i
        for i in range(20_000)
    ]
    stage.flood(stage.line, packed(frame(name, b"") for name in names))
