"""Messages of Signal Hub, for tests and benchmarks."""

from __future__ import annotations

import uuid
from typing import Any

from pubsubd.hub.strict import MAX_DEPTH, MAX_WEIGHT

HUB_A = "@(cloudflare/signal-hub)"
HUB_B = "cloudflare/signal-hub"


def message_a(kind: str, payload: Any = None, *, me: str = "@(browser/ann)", **more: Any) -> Any:
    """Return a message of dialect A, with all of its keys."""
    return {
        "id": str(uuid.uuid4()),
        "from": me,
        "to": HUB_A,
        "type": kind,
        "payload": payload,
        "pattern": "tell",
        "correlationId": None,
        "timestamp": 0,
        "metadata": {},
        "ttl": None,
        "signature": None,
    } | more


def message_b(kind: str, payload: Any = None, *, me: str = "browser/ann", **more: Any) -> Any:
    """Return a message of dialect B."""
    return {"type": kind, "from": me, "to": HUB_B, "payload": payload} | more


def connect_a(**metadata: Any) -> dict[str, Any]:
    """Return the metadata of a hub:connect in dialect A."""
    return {"protocolVersion": "0.1.0", "capabilities": ["send", "receive"]} | metadata


def heaviest() -> list[dict[str, Any]]:
    """Return messages to ``x/bob``, and to all, that are as large or deep as one is accepted."""
    deep: Any = 1
    for _ in range(MAX_DEPTH - 2):
        deep = [deep]
    items = MAX_WEIGHT // 9 - 9
    small = {"type": "t", "data": 1}
    return [
        {"type": "hub:send", "payload": {"to": "x/bob", "type": "t", "data": [[]] * items}},
        {"type": "hub:send", "payload": small | {"to": "x/bob"}, "metadata": {"deep": deep}},
        {"type": "hub:broadcast", "payload": {"type": "t", "data": [[]] * items}},
        {"type": "hub:broadcast", "payload": small, "metadata": {"deep": deep}},
    ]
