"""What is measured on the line port: an entry of `LINE_CASES` for each line of the targets."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from .floors import AT_FLOOR, FLOORS, PYTHON_RELAY
from .handshakes import HandshakesRunner
from .latency import BusyLatencyRunner, LatencyRunner
from .protocols import Want
from .runners import (
    ChurnRunner,
    IdleConnectionsRunner,
    IdleSubstringsRunner,
    Runner,
    StalledRunner,
    SubscribeManyRunner,
    ThroughputRunner,
)
from .servers import SCANNER, Fleet
from .traffic import KIB, MIB, Plan, Rig

BROKERS = ("pubsubd", "nats", "redis", "mosquitto")
ALL = ("pubsubd", SCANNER, *BROKERS[1:], "websockets", *FLOORS)
NAMES = tuple(b"n%04d" % i for i in range(1000))
ONE_NAME = b"bench"


@dataclass(frozen=True)
class Target:
    """What is asked of `metric`.

    With `peers`, it is measured against the better of them; with `base`, against
    that other metric of pubsubd itself; otherwise `bound` is in the metric's unit.
    `lower`: less is better, and `bound` is the most allowed. No `bound`: shown only.
    `floor`: nothing is asked; what meets the bound is as good as one process can be.
    It is asked of `server`.
    """

    metric: str
    bound: float | None
    peers: tuple[str, ...] = ()
    base: str = ""
    lower: bool = False
    floor: bool = False
    server: str = "pubsubd"


@dataclass(frozen=True)
class Case:
    """One thing to measure on each of `servers`.

    A run takes `times` as long as others, `runs` are the most worth making.
    """

    name: str
    title: str
    make: Callable[[Fleet, str], Runner]
    targets: tuple[Target, ...]
    servers: tuple[str, ...] = BROKERS
    times: float = 1.0
    runs: int = 1000

    @property
    def compared(self) -> tuple[str, ...]:
        """Pubsubd, the peers of a target, and the relays; of `servers`, in that order."""
        peers = {peer for target in self.targets for peer in target.peers}
        return tuple(s for s in self.servers if s in {"pubsubd", SCANNER, *FLOORS, *peers})


_LETTERS = bytes(b"abcdefghijklmnopqrstuvwxyz012345"[i % 32] for i in range(256))


def payloads(sizes: Sequence[int]) -> list[bytes]:
    """Letters and digits at random, the same at each run; no two messages are alike.

    (If they were, a server might gain by comparing them, which no real traffic would give.)
    """
    chance = random.Random(9014)
    return [chance.randbytes(size).translate(_LETTERS) for size in sizes]


def exact(name: bytes) -> Want:
    """A subscription of that one name."""
    return Want("exact", name)


def one_name(
    size: int,
    fan_out: int = 1,
    publishers: int = 1,
    window: int = MIB,
    name: bytes = ONE_NAME,
) -> Plan:
    """Messages of `size` bytes on one name to `fan_out` subscribers."""
    # About 128 KiB a send, less where each byte comes back many times.
    count = max(1, 128 * KIB // min(fan_out, 8) // (size + 15))
    messages = tuple((name, payload) for payload in payloads([size] * count))
    return Plan(messages, ((exact(name),),) * fan_out, publishers, window=window)


def names_in_turn(count: int = 4000) -> tuple[tuple[bytes, bytes], ...]:
    """Messages of 16 bytes on 1,000 names, one after the other."""
    return tuple((NAMES[i % len(NAMES)], data) for i, data in enumerate(payloads([16] * count)))


def names_one() -> Plan:
    """1,000 names in turn, one subscription that matches them all."""
    return Plan(names_in_turn(), ((Want("prefix", b"n"),),))


def names_own(block: bool) -> Plan:
    """1,000 names in turn, 100 subscribers with 10 names each.

    In blocks, neighbouring messages go to the same subscriber; otherwise each
    message goes to another one than the message before it.
    """
    if block:
        own = [NAMES[k * 10 : k * 10 + 10] for k in range(100)]
    else:
        own = [NAMES[k::100] for k in range(100)]
    return Plan(names_in_turn(), tuple(tuple(exact(name) for name in names) for names in own))


def new_names() -> Plan:
    """Every message a name never seen before."""
    return Plan(
        tuple((b"", payload) for payload in payloads([16] * 2000)),
        ((Want("prefix", b"n"),),),
        fresh=True,
    )


def mixed() -> Plan:
    """64 names with each of 100 lengths, in a fixed order without a pattern."""
    kinds = [(NAMES[i], size) for i in range(64) for size in range(1, 101)]
    random.Random(9014).shuffle(kinds)
    data = payloads([size for _, size in kinds])
    messages = [(name, payload) for (name, _), payload in zip(kinds, data, strict=True)]
    return Plan(tuple(messages), ((Want("prefix", b"n"),),))


def idle_texts(count: int) -> list[bytes]:
    """`count` different texts that none of `NAMES` contains: half of them unlike, half like."""
    chance = random.Random(9014)
    unlike = [b"%012x" % chance.getrandbits(48) for _ in range(count - count // 2)]
    like = [b"n%04d/%02d" % (i % 1000, i // 1000) for i in range(count // 2)]
    texts = list(dict.fromkeys(unlike + like))
    chance.shuffle(texts)
    return texts


PEERS = ("nats", "redis")
CPU = Target("cpu_s", 1.0, PEERS, lower=True)


def _throughput(
    name: str,
    title: str,
    plan: Callable[[], Plan],
    bound: float | None,
    peers: tuple[str, ...] = PEERS,
    shared: bool = False,
    tls: bool = False,
    scanner: bool = False,
) -> Case:
    """A case of one plan, with the floor beside it.

    `shared`: each message goes to some. `scanner`: pubsubd is also measured with it.
    """

    def make(fleet: Fleet, server: str) -> Runner:
        variant = "share" if shared and server in FLOORS else "tls" if tls else ""
        return ThroughputRunner(Rig(fleet.get(server, variant), plan()))

    floor = Target("rate", 1 / AT_FLOOR, (PYTHON_RELAY,), floor=True)
    targets = (Target("rate", bound, peers), floor, CPU)
    if not scanner:
        relays = (PYTHON_RELAY,) if tls else FLOORS
        return Case(name, title, make, targets, (*BROKERS, *relays))
    targets += tuple(replace(target, server=SCANNER) for target in targets)
    return Case(name, title, make, targets, ("pubsubd", SCANNER, *BROKERS[1:], *FLOORS))


def _idle_substrings(fleet: Fleet, name: str) -> Runner:
    texts = idle_texts(100_000)
    if name != "redis":
        return IdleSubstringsRunner(fleet, name, names_one(), names_one(), texts)
    # Redis tries every pattern for every message: ask one small blob at a time.
    few = Plan(names_in_turn(5), ((Want("prefix", b"n"),),), window=1)
    return IdleSubstringsRunner(fleet, name, names_one(), few, texts)


def _latency_busy(fleet: Fleet, name: str) -> Runner:
    rig = Rig(fleet.get(name), one_name(16, publishers=10))
    return BusyLatencyRunner(rig, b"probe", b"x" * 16)


def _churn(matching: bool) -> Callable[[Fleet, str], Runner]:
    def text(i: int) -> bytes:
        return NAMES[i % len(NAMES)] if matching else b"churn/%08d" % i

    return lambda fleet, name: ChurnRunner(Rig(fleet.get(name), names_one()), text)


LINE_CASES: dict[str, Case] = {
    case.name: case
    for case in (
        _throughput("one-16", "1:1, 16 B, one name", lambda: one_name(16), 2.0),
        _throughput("one-1k", "1:1, 1 KiB, one name", lambda: one_name(1024), 1.5),
        _throughput("fan-10", "1:10, 16 B", lambda: one_name(16, 10), 4.0),
        _throughput("fan-100", "1:100, 128 B", lambda: one_name(128, 100, window=256 * KIB), 10.0),
        _throughput(
            "all-to-all",
            "10:10, 16 B, all to all",
            lambda: one_name(16, 10, publishers=10),
            2.5,
        ),
        _throughput("names-one", "1,000 names, one wants all", names_one, 1.0, scanner=True),
        _throughput(
            "names-own",
            "1,000 names, 100 want 10 each",
            lambda: names_own(block=False),
            1.5,
            shared=True,
        ),
        _throughput(
            "names-own-block",
            "the same, neighbours to one",
            lambda: names_own(block=True),
            None,
            shared=True,
        ),
        _throughput("new-names", "every name new", new_names, 1.0, scanner=True),
        _throughput("mixed", "64 names x 100 lengths", mixed, 1.2, scanner=True),
        _throughput("big-64k", "1:1, 64 KiB", lambda: one_name(64 * KIB), 1.1, ("redis",)),
        _throughput("big-1m", "1:1, 1 MiB", lambda: one_name(MIB, window=2 * MIB), 1.1, ("redis",)),
        _throughput("tls-16", "1:1 over TLS, 16 B", lambda: one_name(16), 1.0, tls=True),
        _throughput(
            "tls-fan-10", "1:10 over TLS, 1 KiB", lambda: one_name(1024, 10), 1.0, tls=True
        ),
        Case(
            "tls-handshakes",
            "TLS handshakes, RSA with 2,048 bits",
            lambda fleet, name: HandshakesRunner(fleet.get(name, "tls")),
            (
                Target("handshakes", 1.0, PEERS),
                Target("handshakes", 1 / AT_FLOOR, (PYTHON_RELAY,), floor=True),
                CPU,
            ),
            (*BROKERS, PYTHON_RELAY),
        ),
        Case(
            "idle-substrings",
            "100,000 idle substrings, 1,000 names",
            _idle_substrings,
            (
                Target("with", 0.8, base="without"),
                Target("with", 1000.0, ("redis",)),
            ),
            ("pubsubd", "redis"),
        ),
        Case(
            "churn",
            "1,000 sub and 1,000 unsub a second",
            _churn(matching=False),
            (Target("with", 0.8, base="without"),),
        ),
        Case(
            "churn-matching",
            "the same, of names in the traffic",
            _churn(matching=True),
            (Target("with", None, base="without"),),
        ),
        Case(
            "subscribe-many",
            "100,000 substrings come and go",
            lambda fleet, name: SubscribeManyRunner(fleet.get(name), idle_texts(100_000)),
            (
                Target("subscribe_s", 5.0, lower=True),
                Target("leave_s", 5.0, lower=True),
                Target("others_wait_ms", 100.0, lower=True),
            ),
        ),
        Case(
            "latency",
            "one message at a time, 16 B",
            lambda fleet, name: LatencyRunner(fleet.get(name), ONE_NAME, b"x" * 16),
            (
                Target("median_us", 0.8, ("redis",), lower=True),
                Target("median_us", AT_FLOOR, (PYTHON_RELAY,), lower=True, floor=True),
                Target("p99_us", 1.0, PEERS, lower=True),
                CPU,
                Target("cpu_s", AT_FLOOR, (PYTHON_RELAY,), lower=True, floor=True),
            ),
            (*BROKERS, *FLOORS),
        ),
        Case(
            "latency-busy",
            "the same, beside 10 publishers flat out",
            _latency_busy,
            (
                Target("p99_us", 1.0, PEERS, lower=True),
                Target("median_us", None, PEERS, lower=True),
                Target("median_us", AT_FLOOR, (PYTHON_RELAY,), lower=True, floor=True),
                Target("p99_us", AT_FLOOR, (PYTHON_RELAY,), lower=True, floor=True),
            ),
            (*BROKERS, *FLOORS),
            times=2.0,
        ),
        Case(
            "stalled",
            "8 KiB, one stalled beside a fast one",
            lambda fleet, name: StalledRunner(Rig(fleet.get(name, "guarded"), one_name(8 * KIB))),
            (Target("with", 0.7, base="without"),),
            times=3.0,
        ),
        Case(
            "idle-connections",
            "8,000 idle connections, KiB each",
            lambda fleet, name: IdleConnectionsRunner(fleet, name, 8000),
            (Target("kib_each", 8.0, lower=True), Target("kib_each", None, PEERS, lower=True)),
            runs=3,
        ),
    )
}
