"""Messages of Signal Hub, for tests and benchmarks."""

from __future__ import annotations

import uuid
from typing import Any

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
