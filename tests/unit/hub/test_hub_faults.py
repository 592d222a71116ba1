"""What one fault leaves behind, at any call of a function of the hub: nothing, once all have left.

A profile function raises at the call; what it is told of comes in the same order in each run.
"""

from __future__ import annotations

import contextlib
import json
import sys
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.hubs import UPGRADE, Room, client_frame, message_a, message_b

PACKAGES = ("pubsubd.hub.", "pubsubd.routing.", "pubsubd.broker.")
NAMES = ("ann", "bob", "cat", "dan", "web", "eve")
IDLE = 100.0


class PlannedError(Exception):
    """What nobody expects."""


class Calls:
    """Counts calls of functions of the hub while it is entered, and lets one of them fail."""

    def __init__(self, failing: int) -> None:
        self.count = 0
        self.failed = ""
        self._failing = failing

    def __enter__(self) -> Calls:
        sys.setprofile(self._profile)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _profile(self, frame: FrameType, event: str, _argument: object) -> None:
        module, name = frame.f_globals.get("__name__", ""), frame.f_code.co_name
        if event == "call" and module.startswith(PACKAGES) and name != "<genexpr>":
            self.count += 1
            if self.count == self._failing:
                self.failed = f"{module}.{frame.f_code.co_qualname}"
                raise PlannedError(self.failed)


def line(*messages: Any) -> bytes:
    return b"".join(json.dumps(one).encode() + b"\n" for one in messages)


def synap(command: str, **payload: Any) -> Any:
    return {"command": f"pubsub.{command}", "request_id": 1, "payload": payload}


def post(command: str, **payload: Any) -> bytes:
    body = json.dumps(payload).encode()
    head = b"POST /pubsub/%b HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
    return head % (command.encode(), len(body)) + body


class Clients:
    """Clients whose connections end as the transport lets them end: see ``Connection``."""

    def __init__(self) -> None:
        self.room = Room(rate=0, detached_idle=IDLE)
        self.room.join(*NAMES)

    def say(self, name: str, data: bytes) -> None:
        if name not in self.room.connections:
            return  # a fault has ended it
        try:
            self.room.say_raw(name, data)
        except PlannedError:
            self.leave(name, whole=False)

    def leave(self, name: str, *, whole: bool = True) -> None:
        connection = self.room.connections.pop(name)
        steps: list[Any] = []
        for _ in range(2):
            with contextlib.suppress(PlannedError):
                steps = list(connection.leaving())
                break
        for step in steps:
            for _ in range(2):
                try:
                    for _ in step():
                        pass
                except Exception:  # noqa: BLE001  (what follows from the fault, too)
                    whole = False
                else:
                    break
        if not whole:
            for _ in range(2):
                with contextlib.suppress(PlannedError):
                    self.room.broker.repair(connection.peer)
                    break

    def live(self) -> None:
        """Let actors, topics and messages come and go, in every way that there is."""
        room = self.room
        for name in ("ann", "bob"):
            for topic in ("a", "b", "c/#"):
                self.say(name, line(message_b("hub:subscribe", {"topic": topic})))
        self.say("ann", line(synap("subscribe", topics=["a", "d"])))
        self.say("ann", line(synap("publish", topic="e", payload=1)))
        self.say("cat", line(synap("subscribe", topics=["w.*", "a"])))
        self.say("cat", line(synap("unsubscribe", topics=["w.*", "a"])))
        self.say("cat", line(synap("subscribe", topics=["x.*", "a"])))
        self.say("eve", UPGRADE)
        me = "@(browser/eve)"
        for kind, payload in (
            ("hub:connect", None),
            ("hub:register", {"actorAddress": me, "capabilities": ["x"]}),
            ("hub:subscribe", {"topic": "a"}),
            ("hub:broadcast", {"type": "t"}),
        ):
            metadata = {"protocolVersion": "0.1.0", "capabilities": ["x"]}
            message = message_a(kind, payload, me=me, metadata=metadata)
            self.say("eve", client_frame(json.dumps(message).encode()))
        self.say("bob", line(message_b("hub:send", {"type": "t"}, to="browser/eve")))
        self.say("bob", line(*[message_b("hub:publish", {"topic": "a", "type": "t"})] * 3))
        for topic in ("a", "c/#"):
            self.say("bob", line(message_b("hub:unsubscribe", {"topic": topic})))
        for name in ("x", "y", "z"):
            self.say("web", post("subscribe", topics=["a", "w.*", "u"], subscriber_id=name))
        self.say("dan", line(synap("subscribe", topics=["t"], subscriber_id="x")))
        self.say("web", post("unsubscribe", topics=["a", "w.*", "u"], subscriber_id="y"))
        for name in list(room.connections):
            self.leave(name)
        for _ in range(3):
            with contextlib.suppress(PlannedError):
                room.tick(2 * IDLE)

    def left(self) -> dict[str, int]:
        """Return what is left behind."""
        hub, router = self.room.hub, self.room.broker.router
        topics = hub.topics.page(0, 100)[0]
        found = {
            "connections": len(hub.connections),
            "peers": len(self.room.broker.peers),
            "output": len(hub.touched),
            "actors": len(hub.registry),
            "of signal": len(hub.signals),
            "subscriptions": router.subscriptions,
            "receivers": sum(len(router.receivers(name).members) for name in topics),
            "wildcards": hub.policy.wildcards,
            "of synap": hub.synap.wildcards,
            "subscribers": len(hub.synap.subscribers),
            "detached": hub.synap.subscribers.detached,
            "detached topics": hub.synap.subscribers.detached_topics,
            "held": sum(topic.subscribers for one in topics if (topic := hub.topics.get(one))),
        }
        return {what: count for what, count in found.items() if count}


def fail(at: int) -> tuple[Calls, dict[str, int]]:
    """Let all clients live, with a fault at the ``at``-th call; return what is left behind."""
    clients = Clients()
    with Calls(at) as calls:
        clients.live()
    return calls, clients.left()


CALLS = 3_000  # some more than there are


# A fault where a generator that nobody has any more is closed goes nowhere.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@given(st.integers(1, CALLS))
def test_a_fault_at_any_call_leaves_nothing_behind(at: int) -> None:
    calls, left = fail(at)
    assert left == {}, calls.failed
