"""The configuration of a daemon, which :mod:`pubsubd.settings` makes from texts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from pubsubd.access.rules import AclRule
from pubsubd.protocol.limits import HubLimits, Limits

Protocol = Literal["line", "hub"]

Address: TypeAlias = tuple[str, int]
"""Host and port."""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Certificate and key of a listener: paths of PEM files.

    Attributes:
        certificate: with the certificates between it and the authority's.
        key: its private key; None if that is in the same file.
        client_ca: authorities whose certificates identify clients; None for none.
        client_required: whether a client without one is refused.
    """

    certificate: str
    key: str | None = None
    client_ca: str | None = None
    client_required: bool = False


@dataclass(frozen=True, slots=True)
class ListenerConfig:
    """One address to listen on, and what holds for connections there.

    Attributes:
        name: unlike that of any other; systemd's sockets are told apart by it.
        protocol: what is spoken.
        addresses: hosts and ports; see :attr:`Config.hosts`. A port of 0 takes a free one, the same
            for all of these.
        unix: the path of a socket instead.
        login: whether a client has to say who it is.
        tls: what it is encrypted with; None for nothing.
        named_by: the settings that say where to listen; empty if that is the default.
        proxies: networks of proxies that say for whom they speak.
        limits, hub_limits: see :class:`~pubsubd.broker.listener_state.ListenerState`.
    """

    name: str
    protocol: Protocol
    addresses: tuple[Address, ...] = ()
    unix: str | None = None
    login: bool = False
    tls: TlsFiles | None = None
    named_by: tuple[str, ...] = ()
    proxies: tuple[str, ...] = ()
    limits: Limits = field(default_factory=Limits)
    hub_limits: HubLimits = field(default_factory=HubLimits)


@dataclass(frozen=True, slots=True)
class MeshOptions:
    """How to take part in a mesh of daemons; see pubsubd-mesh(7).

    Attributes:
        peers: ``HOST:PORT`` of daemons to dial for ever.
        name: of the mesh.
        node: this daemon's id in it; None for its address.
        site, rack: where it runs, as the others are to know it; None if it does not tell.
        secret_file: the file with the secret that all daemons of the mesh share; None for none.
        discover: whether to dial daemons that others tell of: ``linked`` those that linked daemons
            do, ``any`` those that any client does; empty for none.
        allow: networks that discovered addresses have to be in, as ``10.0.0.0/8``.
        max_peers: links up to which discovered daemons are dialled.
        advertise: ``HOST:PORT`` by which others can dial this daemon; None for where it listens.
        heartbeat: seconds between two signs of life on a link.
        export: directory for edge lists; None for none.
        export_interval: seconds between two of them.
        topics: what topics of the hub port begin with that cross links; ``#`` for all.
        export_detail: seconds for which all of them are kept.
        export_age: seconds after which they are removed.
        export_size: bytes of all of them together.
        tls: whether links that are dialled are encrypted.
        tls_ca: PEM file with the authorities to trust then; None for those of the system.
        tls_certificate, tls_key: PEM files to say who dials; None for nobody.
    """

    peers: tuple[str, ...] = ()
    name: str = "default"
    node: str | None = None
    site: str | None = None
    rack: str | None = None
    secret_file: str | None = None
    discover: str = ""
    allow: tuple[str, ...] = ()
    max_peers: int = 8
    advertise: str | None = None
    heartbeat: float = 1.0
    export: str | None = None
    export_interval: float = 60.0
    topics: tuple[str, ...] = ()
    export_detail: float = 86_400.0
    export_age: float = 365 * 86_400.0
    export_size: int = 2**30
    tls: bool = False
    tls_ca: str | None = None
    tls_certificate: str | None = None
    tls_key: str | None = None


@dataclass(frozen=True, slots=True)
class Config:
    """The configuration of a daemon.

    Attributes:
        hosts: names and addresses; of a name all addresses are bound, and ``*`` stands for all
            addresses of IPv4 and IPv6. Empty for no TCP at all.
        port: of the line protocol; 0 takes a free one.
        hub_port: of the hub port, as ``port``; None for none.
        unix: path of a Unix socket, or None.
        listeners: what to listen on instead of all these; empty for these.
        ports_file: where the real addresses are written as JSON once they accept.
        workers: processes that share the connections.
        insecure: allow an address that is not loopback without a login or without TLS.
        limits: see :class:`~pubsubd.protocol.limits.Limits`.
        hub_limits: see :class:`~pubsubd.protocol.limits.HubLimits`.
        auth: whether clients have to say who they are: ``required``, ``none``, or None for
            ``required`` where there is something to check it with.
        users_file: who may come in with a password or token; None for nobody.
        acl: who may publish and receive what; empty for everybody everything.
        tls: what is encrypted with; None for nothing.
        proxies: networks of proxies that say for whom they speak.
        hub_auth: the file with the key that tokens are checked with on the hub port; None where
            none is asked for.
        hub_audiences: one of them has to be in the ``aud`` of a token; if empty, none may be there.
        jwt_leeway: seconds by which the clock that issued a token may differ.
        hub_hosts: names by which browsers may reach the hub port, besides localhost and addresses.
        hub_origins: web pages that may use it, besides its own, as ``https://example.org``.
        mesh: how to take part in a mesh; None for not at all.
        path: of the file that these are from; None for none.
        given: those of the settings host, port, hub_port and unix that are not left to the default.
        log_level: the least that is logged: ``debug``, ``info``, ``warning`` or ``error``; None to
            leave it as it is.
    """

    hosts: tuple[str, ...] = ("127.0.0.1",)
    port: int = 9014
    hub_port: int | None = 9015
    unix: str | None = None
    listeners: tuple[ListenerConfig, ...] = ()
    ports_file: str | None = None
    workers: int = 1
    insecure: bool = False
    limits: Limits = field(default_factory=Limits)
    hub_limits: HubLimits = field(default_factory=HubLimits)
    auth: str | None = None
    users_file: str | None = None
    acl: tuple[AclRule, ...] = ()
    tls: TlsFiles | None = None
    proxies: tuple[str, ...] = ()
    hub_auth: str | None = None
    hub_audiences: tuple[str, ...] = ()
    jwt_leeway: float = 0.0
    hub_hosts: tuple[str, ...] = ()
    hub_origins: tuple[str, ...] = ()
    mesh: MeshOptions | None = None
    log_level: str | None = None
    path: str | None = field(default=None, compare=False)
    given: frozenset[str] = frozenset()

    def login(self, protocol: Protocol, auth: str | None = None) -> bool:
        """Return whether clients of a listener have to say who they are.

        Args:
            protocol: what is spoken there.
            auth: as :attr:`auth`, of that listener alone.
        """
        auth = auth or self.auth
        if auth is not None:
            return auth == "required"
        return self.users_file is not None or (protocol == "hub" and self.hub_auth is not None)

    def all_listeners(self) -> tuple[ListenerConfig, ...]:
        """Return what to listen on."""
        if self.listeners:
            return self.listeners
        found = []
        wanted: tuple[tuple[str, Protocol, int | None], ...] = (
            ("line", "line", self.port),
            ("hub", "hub", self.hub_port),
        )
        for name, protocol, port in wanted:
            if self.hosts and port is not None:
                addresses = tuple((host, port) for host in self.hosts)
                found.append(self._listener(name, protocol, self.tls, addresses=addresses))
        if self.unix is not None:
            found.append(self._listener("unix", "line", None, unix=self.unix))
        return tuple(found)

    def own_names(self) -> frozenset[str]:
        """Return the hosts that listeners are told to listen on, as they are written."""
        return frozenset(
            host for one in self.all_listeners() for host, _ in one.addresses if host != "*"
        )

    def _listener(
        self,
        name: str,
        protocol: Protocol,
        tls: TlsFiles | None,
        *,
        addresses: tuple[Address, ...] = (),
        unix: str | None = None,
    ) -> ListenerConfig:
        return ListenerConfig(
            name,
            protocol,
            addresses=addresses,
            unix=unix,
            login=self.login(protocol),
            tls=tls,
            named_by=tuple(
                key
                for key in (("unix",) if unix else ("host", f"{'hub_' * (name == 'hub')}port"))
                if key in self.given
            ),
            proxies=self.proxies,
            limits=self.limits,
            hub_limits=self.hub_limits,
        )
