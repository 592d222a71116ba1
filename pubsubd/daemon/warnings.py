"""Warnings about settings that the daemon starts with, but that nobody can have meant.

``serve --check`` prints them, and a daemon logs them at its start and at each reload.
"""

from __future__ import annotations

import os
import pwd
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from pubsubd.access.rules import EVERYBODY
from pubsubd.daemon.certificates import remind
from pubsubd.daemon.files import named_files
from pubsubd.daemon.reload import Prepared
from pubsubd.daemon.service import PassedSocket, Service
from pubsubd.protocol.wire import escape, host_in
from pubsubd.settings.config import Config, ListenerConfig
from pubsubd.transport.addresses import text_of
from pubsubd.transport.listen import BoundSocket, describe, resolve

Passed = Mapping[str, Sequence[PassedSocket]]
"""Name of a listener -> addresses that the service manager passes for it."""

_MOST_NAMES = 10  # of rules that a warning is about


def inherited(all_bound: Sequence[BoundSocket]) -> Passed:
    """Return the addresses that the service manager has passed."""
    found: dict[str, list[PassedSocket]] = {}
    for name, told in describe([one for one in all_bound if one.inherited]).items():
        if isinstance(told, dict):
            addresses = told.get("addresses") or [told["unix"]]
            found[name] = [PassedSocket(address) for address in addresses]
    return found


def warnings(prepared: Prepared, passed: Passed) -> list[str]:
    """Return warnings about settings.

    Args:
        prepared: settings, and what the files hold that they name.
        passed: the addresses that the service manager passes.
    """
    return [
        *_overridden(prepared.config, passed),
        *_unknown_users(prepared),
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


def _unknown_users(prepared: Prepared) -> Iterator[str]:
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
                names.append(host_in(config.mesh.advertise))
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
