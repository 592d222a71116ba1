"""What is measured on the hub port, and all cases in their groups; see ``cases``."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

from .cases import LINE_CASES, ONE_NAME, Case, Target, one_name
from .floors import AT_FLOOR, FLOORS, PYTHON_RELAY
from .hubrunners import AckRunner, BesideHubRunner, DiscoverRunner
from .hubwires import (
    ENVELOPES,
    ENVELOPES_FROM_LINE,
    HUB,
    HUB_FROM_LINE,
    MINIMAL,
    MQTT,
    NATS,
    SYNAP,
    WebSocketWire,
)
from .meshcases import MESH_CASES
from .runners import IdleConnectionsRunner, RigsRunner, Runner
from .servers import Fleet
from .traffic import KIB, Plan, Rig
from .workercases import WORKER_CASES

_HUB: dict[str, WebSocketWire] = {
    "pubsubd": HUB,
    "nats": NATS,
    "mosquitto": MQTT,
    "websockets": HUB,
}
_FAN_OUT = 100
WEB_PEERS = ("nats", "mosquitto")
_FLOOR = Target("deliveries", 1 / AT_FLOOR, (PYTHON_RELAY,), floor=True)
WEB_CPU = Target("cpu_s", 1.0, WEB_PEERS, lower=True)


def fan_100(name: bytes = ONE_NAME) -> Plan:
    """As the line port's ``fan-100``."""
    return one_name(128, _FAN_OUT, window=256 * KIB, name=name)


def acked(name: bytes = ONE_NAME) -> Plan:
    """One to one, never more than 256 messages ahead of receiver and acknowledgements."""
    plan = one_name(128, name=name)
    return Plan(plan.messages[:32], plan.subscribers, window_messages=256)


def _fan(ours: WebSocketWire = HUB) -> Callable[[Fleet, str], Runner]:
    wires = _HUB | {"pubsubd": ours}

    def make(fleet: Fleet, name: str) -> Runner:
        if name in FLOORS:
            return _relayed(fleet, name, ours)
        server = fleet.get(name, "hub")
        door = server.door(wires[name])
        rigs = {"deliveries": lambda: Rig(server, fan_100(), door, door)}
        return RigsRunner(server, rigs, _FAN_OUT)

    return make


def _relayed(fleet: Fleet, name: str, wire: WebSocketWire, from_line: bool = False) -> Runner:
    """A bare relay of as many bytes as pubsubd sends: frames or not, to the kernel these are bytes.

    What comes in is as long, and of what goes out as much is under way.
    """
    ours = fleet.get("pubsubd", "hub")
    door = ours.door(wire)
    alike = one_name(128, name=bytes(reversed(ONE_NAME)))  # that nobody else has
    with closing(Rig(ours, alike, ours if from_line else door, door)) as rig:
        rig.verify()
        published, received = rig.sizes
    relay = fleet.get(name)
    size = received - (len(relay.wire.publish(ONE_NAME, bytes(received))) - received)
    plan = one_name(size, _FAN_OUT, window=256 * KIB * received // published)
    return RigsRunner(relay, {"deliveries": lambda: Rig(relay, plan)}, _FAN_OUT)


def _line_to_hub(ours: WebSocketWire = HUB_FROM_LINE) -> Callable[[Fleet, str], Runner]:
    """Our publisher is on the line port; the peers' on the other, and nats' on both in turn."""
    wires = _HUB | {"pubsubd": ours}

    def make(fleet: Fleet, name: str) -> Runner:
        if name in FLOORS:
            return _relayed(fleet, name, ours, from_line=True)
        server = fleet.get(name, "hub")
        door = server.door(wires[name])
        first = server if name == "pubsubd" else door
        rigs = {"deliveries": lambda: Rig(server, fan_100(), first, door)}
        if name == "nats":
            rigs["from_tcp"] = lambda: Rig(server, fan_100(b"other"), server, door)
        return RigsRunner(server, rigs, _FAN_OUT)

    return make


def _one_acked(fleet: Fleet, name: str) -> Runner:
    server = fleet.get(name, "hub")
    door = server.door(HUB)
    small = server.door(SYNAP if name == "pubsubd" else MINIMAL)
    rigs = {
        "rate": lambda: Rig(server, acked(), door, door),
        "small": lambda: Rig(server, acked(b"other"), small, small),
    }
    return RigsRunner(server, rigs)


def _publish_ack(fleet: Fleet, name: str) -> Runner:
    server = fleet.get(name, "hub")
    return AckRunner(server, server.door(_HUB[name]), *one_name(128).messages[0])


HUB_CASES: dict[str, Case] = {
    case.name: case
    for case in (
        Case(
            "hub-fan-100",
            "1:100 over WebSocket, 128 B",
            _fan(),
            (Target("deliveries", 1.0, WEB_PEERS), _FLOOR, WEB_CPU),
            ("pubsubd", "nats", "mosquitto", "websockets", *FLOORS),
        ),
        Case(
            "hub-fan-100-envelope",
            "the same, envelopes",
            _fan(ENVELOPES),
            (Target("deliveries", None, WEB_PEERS), _FLOOR, WEB_CPU),
            ("pubsubd", "nats", "mosquitto", *FLOORS),
        ),
        Case(
            "hub-fan-100-synap",
            "the same, Synap",
            _fan(SYNAP),
            (Target("deliveries", None, WEB_PEERS), _FLOOR, WEB_CPU),
            ("pubsubd", "nats", "mosquitto", *FLOORS),
        ),
        Case(
            "line-to-ws-100",
            "from the line port to 100 WebSockets",
            _line_to_hub(),
            (Target("deliveries", 1.5, WEB_PEERS), _FLOOR, WEB_CPU),
            ("pubsubd", "nats", "mosquitto", *FLOORS),
        ),
        Case(
            "line-to-ws-100-envelope",
            "the same, envelopes",
            _line_to_hub(ENVELOPES_FROM_LINE),
            (Target("deliveries", None, WEB_PEERS), _FLOOR, WEB_CPU),
            ("pubsubd", "nats", "mosquitto", *FLOORS),
        ),
        Case(
            "ws-one-acked",
            "1:1 over WebSocket, 128 B, acknowledged",
            _one_acked,
            (
                Target("rate", 1.5, ("websockets",)),
                Target("small", None, ("websockets",)),
                Target("cpu_s", 1.0, ("websockets",), lower=True),
            ),
            ("pubsubd", "websockets"),
        ),
        Case(
            "ws-publish-ack",
            "one message at a time, acknowledged",
            _publish_ack,
            (
                Target("median_us", 2.0, ("nats",), lower=True),
                Target("p99_us", None, ("nats",), lower=True),
            ),
            ("pubsubd", "nats", "websockets"),
        ),
        Case(
            "idle-actors",
            "5,000 idle actors over WebSocket, KiB each",
            lambda fleet, name: IdleConnectionsRunner(
                fleet, name, 5000, "hub", lambda server: server.door(_HUB[name])
            ),
            (
                Target("kib_each", 24.0, lower=True),
                Target("kib_each", None, ("nats",), lower=True),
            ),
            ("pubsubd", "nats", "websockets"),
            runs=3,
        ),
        Case(
            "discover",
            "a regex over 50,000 actors",
            lambda fleet, name: DiscoverRunner(fleet.get(name, "hub"), 50_000),
            (
                Target("answer_ms", 50.0, lower=True),
                Target("line_wait_ms", 20.0, lower=True),
            ),
            ("pubsubd",),
        ),
        Case(
            "line-beside-hub",
            "1:1, 16 B, 100 idle WebSockets beside it",
            lambda fleet, name: BesideHubRunner(fleet, name, one_name(16), 100),
            (Target("with", 0.95, base="without"),),
            ("pubsubd",),
        ),
    )
}

GROUPS: dict[str, dict[str, Case]] = {
    "line": LINE_CASES,
    "hub": HUB_CASES,
    "mesh": MESH_CASES,
    "workers": WORKER_CASES,
}
CASES: dict[str, Case] = LINE_CASES | HUB_CASES | MESH_CASES | WORKER_CASES
