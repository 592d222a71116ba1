"""Putting settings into force, at the start and again while the daemon runs.

Everything that a file can spoil is read first, by :func:`prepare`; what is left for
:meth:`Reloader.apply` cannot fail. All of it holds at once for who comes; those who are here are
looked at in steps, without holding up others.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pubsubd.access.proxies import Networks
from pubsubd.access.rules import Acl
from pubsubd.access.users import Users, load_users
from pubsubd.broker.turn import Steps
from pubsubd.daemon.certificates import CertificateFile, Reminders, read_files
from pubsubd.daemon.files import ReadFiles, named_files
from pubsubd.protocol.limits import Limits
from pubsubd.transport.accept import raise_descriptors
from pubsubd.transport.tls import server_context

if TYPE_CHECKING:
    import ssl

    from pubsubd.access.identity import Authority
    from pubsubd.broker.listener_state import ListenerState
    from pubsubd.hub.port import Hub
    from pubsubd.mesh.dial import Mesher
    from pubsubd.mesh.dial import Settings as MeshSettings
    from pubsubd.settings.config import Config, TlsFiles
    from pubsubd.transport.server import Server


@dataclass(frozen=True, slots=True)
class Prepared:
    """Settings, and what the files hold that they name.

    Attributes:
        contexts: name of a listener -> what it is encrypted with.
    """

    config: Config
    contexts: dict[str, ssl.SSLContext]
    users: Users
    acl: Acl
    authority: Authority | None
    mesh: MeshSettings | None
    certificates: tuple[CertificateFile, ...]
    files: ReadFiles


def prepare(config: Config) -> Prepared:
    """Read the files that settings name.

    Raises:
        ConfigError: one of them cannot be used.
    """
    as_read = ReadFiles(named_files(config))
    known: dict[TlsFiles, ssl.SSLContext] = {}
    contexts = {}
    for one in config.all_listeners():
        files = one.tls
        if files is None:
            continue
        if files not in known:
            known[files] = server_context(
                files.certificate,
                files.key,
                files.client_ca,
                client_required=files.client_required,
            )
        contexts[one.name] = known[files]
    return Prepared(
        config,
        contexts,
        Users() if config.users_file is None else load_users(Path(config.users_file)),
        Acl(config.acl),
        _load_key(config),
        _read_mesh(config),
        read_files(config),
        as_read,
    )


def _load_key(config: Config) -> Authority | None:
    if config.hub_auth is None:
        return None
    from pubsubd.access.tokens import load_key  # noqa: PLC0415  (11 MiB that few need)

    return load_key(Path(config.hub_auth), config.hub_audiences, config.jwt_leeway)


def _read_mesh(config: Config) -> MeshSettings | None:
    if config.mesh is None:
        return None
    from pubsubd.mesh.settings import read_settings  # noqa: PLC0415  (as above)

    return read_settings(config.mesh, "127.0.0.1", 1)  # the address holds from the start on


class Reloader:
    """The parts of the daemon that settings take effect in.

    Attributes:
        server: of the daemon.
        listener: name of a listener -> what holds there.
        hub, mesher: of the daemon, if it has them.
        failed: whether settings were read since that had a fault.
        applied: when those in force were put into force, in seconds since the epoch.
        files: that they were read from.
        reminders: of certificates in force that have to be renewed.
    """

    def __init__(self, server: Server) -> None:
        self.server = server
        self.listeners: dict[str, ListenerState] = {}
        self.hub: Hub | None = None
        self.mesher: Mesher | None = None
        self.failed = False
        self.applied = 0.0
        self.files = ReadFiles()
        self.reminders = Reminders()

    def apply(self, prepared: Prepared, over: Callable[[], bool] = lambda: False) -> Steps[None]:
        """Let settings hold from now on, for connections that are open, too.

        Args:
            prepared: what is to hold.
            over: tells whether the turn is over.
        """
        config, server = prepared.config, self.server
        if config.log_level is not None:
            logging.getLogger("pubsubd").setLevel(config.log_level.upper())
        server.limits = _possible(config.limits)
        server.broker.listener.limits = server.limits
        for one in config.all_listeners():
            listener = self.listeners[one.name]
            listener.limits, listener.hub_limits = one.limits, one.hub_limits
            listener.login, listener.tls = one.login, prepared.contexts.get(one.name)
            listener.proxies = Networks(one.proxies)
        server.broker.access.asked = any(
            one.login or (one.tls is not None and one.tls.client_ca is not None)
            for one in config.all_listeners()
        )
        if self.hub is not None:
            self.hub.replace(
                config.hub_limits,
                hosts=frozenset((*config.hub_hosts, *config.own_names())),
                origins=frozenset(config.hub_origins),
            )
        if self.mesher is not None and prepared.mesh is not None:
            self.mesher.replace(prepared.mesh)
        yield from server.broker.access.replacing(
            users=prepared.users, acl=prepared.acl, authority=prepared.authority, over=over
        )
        self.reminders.replace(prepared.certificates)
        self.files = prepared.files
        self.failed, self.applied = False, time.time()


def _possible(limits: Limits) -> Limits:
    """Return limits with no more connections than there may be descriptors."""
    return replace(limits, max_connections=raise_descriptors(limits))
