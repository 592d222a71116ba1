"""A row of an edge list."""

from __future__ import annotations

from typing import Any


def row(**more: Any) -> dict[str, Any]:
    """Return a good row, with some of its columns changed."""
    return {
        "ts": "2026-11-28T06:00:00.250Z",
        "mesh": "m",
        "observer": "a",
        "src": "a",
        "dst": "b",
        "state": "up",
        "since": "2026-11-28T05:00:00.000Z",
        "rtt_ms": 0.25,
        "messages": 3,
        "bytes": 99,
        "address": "10.0.0.1:9014",
        "version": "0.1.0",
        "site": None,
        "rack": None,
        "actors": 2,
        "hub_connections": None,
        **more,
    }
