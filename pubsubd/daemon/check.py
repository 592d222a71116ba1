"""Checks of settings beyond their own text: what this machine and its files make of them.

Settings that the daemon would not start with are errors, which are found here. Those that it starts
with, but that nobody can have meant, are warnings: :mod:`pubsubd.daemon.warnings`.
"""

from __future__ import annotations

import os
import pwd
import socket
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from pubsubd.daemon.ports_file import check_ports_file
from pubsubd.daemon.reload import Prepared, prepare
from pubsubd.daemon.service import Service
from pubsubd.protocol.errors import ConfigError
from pubsubd.settings.config import Config
from pubsubd.transport.listen import (
    BoundSocket,
    check_address,
    check_distinct,
    check_socket,
    resolve,
    try_addresses,
    try_path,
)

_LATER = (
    "pubsubd.access.tokens",
    "pubsubd.mesh.settings",
    "pubsubd.transport.certificates",
    "encodings.idna",
)
"""Modules that are imported when they are needed: perhaps too late for another user."""


def check(config: Config, all_bound: Sequence[BoundSocket] = ()) -> Prepared:
    """Return the contents of the files that settings name.

    Args:
        config: what is to hold.
        all_bound: the sockets that there are, if the daemon serves already.

    Raises:
        ConfigError: the daemon would not start, or not reload, with these settings.
    """
    prepared = prepare(config)
    for one in config.all_listeners():
        if one.unix is None:
            resolve(one, insecure=config.insecure)
        for bound in all_bound:  # a service manager may have bound it elsewhere
            if bound.config.name == one.name:
                check_socket(one, bound.listener, insecure=config.insecure)
    return prepared


def dry_run(config: Config, service: Service | None) -> Prepared:
    """Do what :func:`check` does, and look whether this machine has what a start needs.

    Args:
        config: what is to hold.
        service: the service that it is for, if it is for one.

    Raises:
        ConfigError: the daemon would not start.
    """
    passed = {} if service is None else service.sockets
    made = () if service is None else service.directories
    prepared = prepare(config)
    listeners = {one.name: one for one in config.all_listeners()}
    if not listeners:
        raise ConfigError("nothing to listen on: neither a host nor a Unix socket")
    for name, sockets in passed.items():
        if name not in listeners:
            raise ConfigError(
                f"{sockets[0].unit} passes a socket named {name!r}, and no listener has that name:"
                f" systemctl mask --now {sockets[0].unit}"
            )
        for sock in sockets:
            if sock.host is not None:
                check_address(listeners[name], sock.host, insecure=config.insecure)
    own = [one for one in listeners.values() if one.name not in passed]
    check_distinct(
        (one.name, family, address)
        for one in own
        for family, address in (
            resolve(one, insecure=config.insecure)
            if one.unix is None
            else [(socket.AF_UNIX, one.unix)]
        )
    )
    for one in own:
        if one.unix is None:
            try_addresses(one, insecure=config.insecure)
        elif str(Path(one.unix).parent) not in made:
            try_path(one.unix)
    if config.mesh is not None and not any(
        one.protocol == "line" and one.unix is None for one in listeners.values()
    ):
        raise ConfigError("a mesh needs a TCP port for the line protocol")
    if config.ports_file is not None and str(Path(config.ports_file).parent) not in made:
        check_ports_file(Path(config.ports_file))
    return prepared


def switch_user(name: str) -> None:
    """Go on as another user, with that user's groups and no rights of root.

    Raises:
        ConfigError: there is no such user, or this process is not root's.
    """
    try:
        user = pwd.getpwnam(name)
    except KeyError:
        raise ConfigError(f"--as-user: there is no user {name}") from None
    if user.pw_uid == os.geteuid():
        return
    if os.geteuid():
        raise ConfigError("--as-user needs root")
    for module in _LATER:
        import_module(module)
    os.initgroups(name, user.pw_gid)
    os.setresgid(user.pw_gid, user.pw_gid, user.pw_gid)
    os.setresuid(user.pw_uid, user.pw_uid, user.pw_uid)
