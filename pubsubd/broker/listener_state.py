"""Limits and requirements of one listener's connections, without I/O.

A reload replaces the values in place, so that they hold for connections that are open, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pubsubd.access.proxies import NOWHERE
from pubsubd.protocol.limits import HubLimits, Limits

if TYPE_CHECKING:
    import ssl


class ListenerState:
    """Limits and requirements of one listener's connections.

    Attributes:
        name: of the listener, as it stands in metrics.
        limits: see :class:`~pubsubd.protocol.limits.Limits`.
        hub_limits: see :class:`~pubsubd.protocol.limits.HubLimits`; only those of one connection
            are looked up here.
        login: whether a client has to say who it is before it may do anything.
        tls: what connections are encrypted with; None for plain ones.
        proxies: who is believed to speak for others.
        connections: that are open.
    """

    __slots__ = ("connections", "hub_limits", "limits", "login", "name", "proxies", "tls")

    def __init__(
        self,
        name: str,
        limits: Limits,
        hub_limits: HubLimits | None = None,
        *,
        login: bool = False,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.name = name
        self.limits = limits
        self.hub_limits = hub_limits or HubLimits()
        self.login = login
        self.tls = tls
        self.proxies = NOWHERE
        self.connections = 0


DEFAULT = ListenerState("", Limits())
"""The state of peers that are no connections."""
