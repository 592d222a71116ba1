"""Addresses, and the registration of an actor under one."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Generic, TypeVar

MAX_ADDRESS = 256
"""Characters of an address."""

_SPELLINGS = 10_000  # that are remembered, some 300 bytes each

_PART = r"[A-Za-z0-9._:\-]+"
_is_bare = re.compile(rf"{_PART}(/{_PART})+").fullmatch

ConnectionT = TypeVar("ConnectionT")
"""The connection of an actor."""


class _Canonical(dict[str, str | None]):
    """Addresses by how they were written; each spelling is parsed once."""

    def __missing__(self, written: str) -> str | None:
        address = written
        if len(address) > MAX_ADDRESS:
            return None
        if address.startswith("@(") and address.endswith(")"):
            address = address[2:-1]
        if not _is_bare(address):
            return None
        if len(self) >= _SPELLINGS:
            self.clear()
        self[written] = address
        return address


canonical: Callable[[str], str | None] = _Canonical().__getitem__
"""Return ``x/y`` for ``x/y`` and for ``@(x/y)``; None if it is no address."""


class Actor(Generic[ConnectionT]):
    """A registration. Times are :meth:`pubsubd.hub.core.HubCore.ticks`, in milliseconds.

    Attributes:
        address: as it was registered.
        key: its canonical form.
        text: that in bytes.
        capabilities: as its client has named them.
        metadata: an object, or null, as a JSON text.
        size: of the two, as :data:`~pubsubd.hub.registry.MAX_DETAILS` counts.
        registered_at: when it was registered first.
        expires_at: when it expires, unless it is renewed.
        entry: its entry in the registry's heap; None at first.
        version: how often it was registered.
        token: renews it.
        connection: by which it was registered.
    """

    @property
    def work(self) -> int:
        """Cost of removing it, in units of some 2 µs."""
        return 1 + len(self.capabilities) // 8

    __slots__ = (
        "address",
        "capabilities",
        "connection",
        "entry",
        "expires_at",
        "key",
        "metadata",
        "registered_at",
        "size",
        "text",
        "token",
        "version",
    )

    def __init__(self, address: str, key: str, connection: ConnectionT, registered_at: int) -> None:
        self.address = address
        self.key = key
        self.text = key.encode()
        self.connection = connection
        self.registered_at = registered_at
        self.capabilities: tuple[str, ...] = ()
        self.metadata = b"{}"
        self.size = 0
        self.expires_at = 0
        self.entry: tuple[int, str] | None = None
        self.version = 0
        self.token = ""
