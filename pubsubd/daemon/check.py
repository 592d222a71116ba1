"""Checks of settings beyond their own text: what this machine and its files make of them.

What the daemon would not start with is an error. What it starts with although nobody can have meant
it is a warning, which ``serve --check`` prints, and a daemon logs at its start and at each reload.
"""

from __future__ import annotations

import os
import pwd
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path

from pubsubd.access.rules import EVERYBODY
from pubsubd.daemon.certificates import remind
from pubsubd.daemon.files import named_files
from pubsubd.daemon.reload import Prepared, prepare
from pubsubd.daemon.systemd import PassedSocket, Service
from pubsubd.protocol.errors import ConfigError
from pubsubd.protocol.wire import escape
from pubsubd.settings.config import Config, ListenerConfig
from pubsubd.transport.addresses import text_of
from pubsubd.transport.listen import (
    BoundSocket,
    check_address,
    check_distinct,
    check_socket,
    describe,
    resolve,
    try_addresses,
    try_path,
)

Passed = Mapping[str, Sequence[PassedSocket]]
"""Name of a listener -> addresses that the service manager passes for it."""

_MOST_NAMES = 10  # of rules that a warning is about
_LATER = (
    "pubsubd.access.tokens",
    "pubsubd.mesh.settings",
    "pubsubd.transport.certificates",
    "encodings.idna",
)
"""Modules that are imported when they are needed: perhaps too late for another user."""


def check(config: Config, all_bound: Sequence[BoundSocket] = ()) -> Prepared:
    """Return what the files hold that settings name.

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


def rehearse(config: Config, service: Service | None) -> Prepared:
    """Do what :func:`check` does, and look whether this machine has what a start needs.

    Args:
        config: what is to hold.
        service: the service that it is for, if it is for one.

    Raises:
        ConfigError: the daemon would not start.
    """
    passed: Passed = {} if service is None else service.sockets
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
        if one.unix is None
        for family, address in resolve(one, insecure=config.insecure)
    )
    for one in own:
        if one.unix is None:
            try_addresses(one, insecure=config.insecure)
        elif str(Path(one.unix).parent) not in made:
            try_path(one.unix)
    paths = [one.unix for one in own if one.unix is not None]
    for path in paths:
        if paths.count(path) > 1:
            raise ConfigError(f"two listeners have the same address: unix:{path}")
    if config.mesh is not None and not any(
        one.protocol == "line" and one.unix is None for one in listeners.values()
    ):
        raise ConfigError("a mesh needs a TCP port for the line protocol")
    if config.ports_file is not None and str(Path(config.ports_file).parent) not in made:
        _check_ports_file(Path(config.ports_file))
    return prepared


def _check_ports_file(path: Path) -> None:
    if path.is_dir():
        raise ConfigError(f"ports_file: {path} is a directory")
    if not path.parent.is_dir():
        raise ConfigError(f"ports_file: there is no directory {path.parent}")
    if not os.access(path.parent, os.W_OK | os.X_OK) and not os.access(path, os.W_OK):
        raise ConfigError(f"ports_file: no permission to write to {path.parent}")


def become(name: str) -> None:
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


# Warnings


def inherited(all_bound: Sequence[BoundSocket]) -> Passed:
    """Return the addresses that the service manager has passed."""
    found: dict[str, list[PassedSocket]] = {}
    for name, told in describe([one for one in all_bound if one.inherited]).items():
        if isinstance(told, dict):
            addresses = told.get("addresses") or [told["unix"]]
            found[name] = [PassedSocket(address) for address in addresses]
    return found


def warnings(prepared: Prepared, passed: Passed) -> list[str]:
    """Return what nobody can have meant.

    Args:
        prepared: settings, and what the files hold that they name.
        passed: the addresses that the service manager passes.
    """
    return [
        *_overridden(prepared.config, passed),
        *_strangers(prepared),
        *_unfit_certificates(prepared),
        *_export(prepared.config),
        *_readable(prepared.config),
    ]


def sandboxed(config: Config, service: Service | None) -> list[str]:
    """Return what the restrictions of a service keep from it."""
    if service is None:
        return []
    mesh = config.mesh
    written = [one.unix for one in config.all_listeners()] + [config.ports_file]
    written += [None if mesh is None else mesh.export]
    found = []
    for path in dict.fromkeys((*named_files(config), *filter(None, written))):
        whole = Path(path).absolute()
        if any(whole.is_relative_to(hidden) for hidden in service.hidden):
            found.append(f"{path} is hidden from {service.unit} (ProtectHome=, PrivateTmp=)")
        elif path in written and service.writable is not None:
            allowed = (*service.directories, *service.writable)
            if not any(whole.is_relative_to(one) for one in allowed):
                found.append(
                    f"{path} is in a directory that {service.unit} may not write to"
                    " (ReadWritePaths=)"
                )
    return found


def expiries(prepared: Prepared) -> list[str]:
    """Return what has to be said of certificates that expire."""
    return [one.text for one in remind(prepared.certificates, time.time()).values()]


def listening(config: Config, passed: Passed) -> Iterator[str]:
    """Return a line for each listener: its name, and the addresses that it is reached at."""
    for one in config.all_listeners():
        taken = [sock.address for sock in passed.get(one.name, ())]
        yield f"{one.name}: {', '.join(taken or _addresses(one))}"


def _overridden(config: Config, passed: Passed) -> Iterator[str]:
    for one in config.all_listeners():
        sockets = passed.get(one.name, ())
        wanted = set(_addresses(one))
        actual = [sock.address for sock in sockets]
        if sockets and one.named_by and not wanted & set(actual):
            unit = sockets[0].unit or "its socket unit"
            verb = "has" if len(one.named_by) == 1 else "have"
            yield (
                f"{' and '.join(one.named_by)} {verb} no effect on the listener {one.name}: systemd"
                f" passes a socket for {', '.join(actual)}, which is used instead of"
                f" {', '.join(sorted(wanted))}; systemctl edit {unit} changes that"
            )


def _addresses(one: ListenerConfig) -> list[str]:
    if one.unix is not None:
        return [one.unix]
    return [text_of(address) for _, address in resolve(one, insecure=True)]


def _strangers(prepared: Prepared) -> Iterator[str]:
    """Names in rules that nobody can have."""
    config = prepared.config
    if config.hub_auth is not None or any(
        one.tls is not None and one.tls.client_ca is not None for one in config.all_listeners()
    ):
        return  # a token or a certificate may have any name
    known = prepared.users.names
    local = any(one.unix is not None for one in config.all_listeners())
    file = config.users_file
    if local:
        why = f"who is neither in {file} nor a user" if file else "who is no user"
        why += " of this machine"
    else:
        why = f"who is not in {file}" if file else "but there is no users_file to log in with"
    count = 0
    for number, rule in enumerate(config.acl, 1):
        for name in rule.who:
            if name == EVERYBODY or name in known or (local and _is_user(name)):
                continue
            count += 1
            if count <= _MOST_NAMES:
                yield f"[[acl]] table {number} is for {escape(name)}, {why}"
    if count > _MOST_NAMES:
        yield f"[[acl]] tables are for {count - _MOST_NAMES} more such names"


def _is_user(name: str) -> bool:
    if name.startswith("uid:"):
        return True
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True


def _unfit_certificates(prepared: Prepared) -> Iterator[str]:
    config = prepared.config
    said = set()
    for file in prepared.certificates:
        leaf = file.certificates[0]
        what = f"{file.setting} {file.path}"
        if file.setting == "tls_certificate":
            names: list[str] = []
            one = next(one for one in config.all_listeners() if one.name == file.listener)
            if one.protocol == "hub":
                names += config.hub_hosts
            elif config.mesh is not None and config.mesh.advertise is not None:
                names.append(config.mesh.advertise.rpartition(":")[0].strip("[]"))
            if not leaf.names:
                said.add(f"{what} names no host (subjectAltName), so that clients refuse it")
            else:
                said |= {
                    f"{what} is for {', '.join(leaf.names)}, and not for {name}"
                    for name in names
                    if not leaf.covers(name)
                }
            if not leaf.serves:
                said.add(f"{what} is not for servers (extendedKeyUsage), so that clients refuse it")
        elif file.setting == "mesh_tls_certificate" and not leaf.dials:
            said.add(f"{what} is not for clients (extendedKeyUsage), so that daemons refuse it")
    yield from sorted(said)


def _readable(config: Config) -> Iterator[str]:
    """Secrets that every user of this machine can read; the users file has an event of its own."""
    named: list[tuple[str, str | None]] = [
        ("tls_key", one.tls.key or one.tls.certificate)
        for one in config.all_listeners()
        if one.tls is not None
    ]
    mesh = config.mesh
    if mesh is not None:
        named.append(("mesh_secret_file", mesh.secret_file))
        named.append(("mesh_tls_key", mesh.tls_key or mesh.tls_certificate))
    for setting, path in dict.fromkeys(named):
        if path is not None and _is_readable(path):
            yield _say_readable(setting, path)


def _say_readable(setting: str, path: str) -> str:
    return f"{setting} {path}: every user of this machine can read it; chmod o-r {path}"


def readable_users(config: Config) -> list[str]:
    """Return the warning of a users file that every user can read."""
    path = config.users_file
    return [_say_readable("users_file", path)] if path is not None and _is_readable(path) else []


def _is_readable(path: str) -> bool:
    try:
        return bool(os.stat(path).st_mode & stat.S_IROTH)
    except OSError:
        return False


def _export(config: Config) -> Iterator[str]:
    if config.mesh is None or config.mesh.export is None:
        return
    path = Path(config.mesh.export)
    if path.is_dir():
        if not os.access(path, os.W_OK | os.X_OK):
            yield f"export_edges: no permission to write to {path}"
    elif os.path.lexists(path):
        yield f"export_edges: {path} is not a directory"
    else:
        parent = next(one for one in path.absolute().parents if one.exists())
        made = os.access(parent, os.W_OK | os.X_OK) and parent.is_dir()
        how = "the daemon will make it" if made else "the daemon cannot make it"
        yield f"export_edges: there is no directory {path}; {how}"
