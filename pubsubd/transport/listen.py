"""Listening sockets: addresses, and whether they may be listened on."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pubsubd.files.own import OwnFile
from pubsubd.protocol.errors import ConfigError
from pubsubd.protocol.wire import show_address
from pubsubd.settings.config import ListenerConfig
from pubsubd.transport.addresses import (
    NO_INTERFACE,
    host_of,
    is_everywhere,
    is_loopback,
    lacks_interface,
    served,
    text_of,
)

BACKLOG = 4_096
"""Connections that may wait to be accepted; the kernel's limit applies too."""

KEEPALIVE = (60, 15, 4)
"""Seconds idle, seconds between probes, probes: a dead host, in 2 minutes."""

_MAX_PATH = 107  # bytes (unix(7))
_TRIES = 20  # a port that is free on one address may be taken on another one


@dataclass(frozen=True, slots=True)
class BoundSocket:
    """A listening socket.

    Attributes:
        config: what it was made for.
        listener: the socket.
        inherited: whether it belongs to the service manager, and goes on without this process.
    """

    config: ListenerConfig
    listener: socket.socket
    inherited: bool = False


def listen(
    listeners: Sequence[ListenerConfig],
    inherited: dict[str, list[socket.socket]],
    *,
    insecure: bool,
    stack: contextlib.ExitStack,
) -> list[BoundSocket]:
    """Return listening sockets.

    Args:
        listeners: what to listen on.
        inherited: name of a listener -> sockets to take instead of binding its address.
        insecure: whether an address that is not loopback will do without login or TLS.
        stack: closes the sockets and removes the paths.

    Raises:
        ConfigError: an address cannot be used, or there is nothing to listen on.
        OSError: an address is taken or not allowed; the message names it.
    """
    for sockets in inherited.values():
        for sock in sockets:
            stack.enter_context(sock)
    unknown = inherited.keys() - {one.name for one in listeners}
    if unknown:
        raise ConfigError(
            f"the service manager has a socket named {min(unknown)!r}, and no listener has that"
            " name"
        )
    if not listeners:
        raise ConfigError("nothing to listen on: neither a host nor a Unix socket")
    found: list[BoundSocket] = []
    for one in listeners:
        if one.name in inherited:
            for sock in inherited[one.name]:
                check_socket(one, sock, insecure=insecure)
                found.append(BoundSocket(one, sock, inherited=True))
        elif one.unix is not None:
            found.append(BoundSocket(one, _listen_unix(one.unix, stack)))
        else:
            found += [BoundSocket(one, sock) for sock in _listen_tcp(one, stack, insecure=insecure)]
    check_distinct(
        (bound.config.name, bound.listener.family, bound.listener.getsockname())
        for bound in found
        if not bound.inherited
    )
    for bound in found:
        if not bound.inherited:
            _attempt(bound.listener.listen, BACKLOG, _label(bound.listener.getsockname()))
        bound.listener.setblocking(False)
        if bound.listener.family != socket.AF_UNIX:
            tune(bound.listener)
    return found


def tune(sock: socket.socket) -> None:
    """Let a TCP socket send at once, and notice some day that the other end has vanished.

    Or those that a listening socket accepts: they have its options (tcp(7)).
    """
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    idle, interval, count = KEEPALIVE
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, idle)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, interval)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, count)


def _listen_tcp(
    one: ListenerConfig, stack: contextlib.ExitStack, *, insecure: bool
) -> list[socket.socket]:
    addresses = resolve(one, insecure=insecure)
    tries = _TRIES if any(not address[1] for _, address in addresses) else 1
    while True:
        tries -= 1
        with contextlib.ExitStack() as opened:
            try:
                found = _bind(addresses, opened)
            except OSError as error:
                if not tries or error.errno != errno.EADDRINUSE:
                    raise
            else:
                stack.push(opened.pop_all())
                return found


def _bind(addresses: Iterable[tuple[int, Any]], stack: contextlib.ExitStack) -> list[socket.socket]:
    free, found = 0, []
    for family, address in addresses:
        sock = stack.enter_context(socket.socket(family, socket.SOCK_STREAM))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        host, port, *more = address
        where = (host, port or free, *more)
        _attempt(sock.bind, where, _label(where))
        if not port:
            free = sock.getsockname()[1]  # with port 0, all addresses take the same one
        found.append(sock)
    return found


def _listen_unix(path: str, stack: contextlib.ExitStack) -> socket.socket:
    _remove_stale(Path(path))
    sock = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
    _attempt(sock.bind, path, path)
    stack.callback(OwnFile(Path(path)).remove)
    return sock


def describe(all_bound: Sequence[BoundSocket]) -> dict[str, Any]:
    """Return the addresses of listening sockets.

    They are ``{NAME: {"host", "port", "addresses"} or {"unix"}, ..., "unix", "pid"}``: of each
    listener the first address and the texts of all, and in ``unix`` the path of the first Unix
    socket.
    """
    ports: dict[str, Any] = {"pid": os.getpid()}
    unix: dict[str, Any] = {}
    for bound in all_bound:
        told = ports.setdefault(bound.config.name, {})
        if bound.listener.family == socket.AF_UNIX:
            path = os.fsdecode(bound.listener.getsockname())
            told.setdefault("unix", path)
            unix.setdefault("unix", path)
            continue
        for host, port in served(bound.listener):
            told.setdefault("host", host)
            told.setdefault("port", port)
            told.setdefault("addresses", []).append(show_address(host, port))
    return ports | unix


def resolve(one: ListenerConfig, *, insecure: bool) -> Sequence[tuple[int, Any]]:
    """Return the socket addresses that a listener is to be bound to, each with its family.

    Raises:
        ConfigError: there is none, or one that is open to others than this machine.
    """
    found: dict[tuple[int, Any], None] = {}
    for host, port in one.addresses:
        if lacks_interface(host):
            raise ConfigError(f"cannot listen on {show_address(host, port)}: {NO_INTERFACE}")
        for name in _all_addresses() if host == "*" else (host,):
            for family, address in _look_up(name, port):
                check_address(one, host_of(address), insecure=insecure)
                found[family, address] = None
    # One that is for all addresses takes those of the others as well.
    wide = {(family, address[1]) for family, address in found if is_everywhere(address[0])}
    return [
        (family, address)
        for family, address in found
        if is_everywhere(address[0]) or (family, address[1]) not in wide
    ]


def _all_addresses() -> list[str]:
    """Return what stands for all addresses, of the families that this machine has."""
    found = []
    for family, host in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind((host, 0))
            found.append(host)
    return found


def _look_up(host: str, port: int) -> list[tuple[int, Any]]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError, OverflowError) as error:
        raise ConfigError(f"cannot resolve {host!r}: {error}") from None
    return [(family, address) for family, _, _, _, address in found]


def check_distinct(addresses: Iterable[tuple[str, int, Any]]) -> None:
    """Refuse addresses of which the system would give only one.

    Args:
        addresses: name of a listener, family and socket address.

    Raises:
        ConfigError: two listeners have the same.
    """
    found: list[tuple[str, int, Any]] = []
    for name, family, address in addresses:
        for other, of_family, taken in found:
            if family != of_family or name == other:
                continue
            if family == socket.AF_UNIX:
                same = address == taken
            else:
                wide = is_everywhere(address[0]) or is_everywhere(taken[0])
                same = bool(address[1]) and address[1] == taken[1]
                same = same and (wide or address[0] == taken[0])
            if same:
                raise ConfigError(
                    f"the listeners {other} and {name} have the same address: {_label(address)}"
                )
        found.append((name, family, address))


def try_addresses(one: ListenerConfig, *, insecure: bool) -> None:
    """Look whether this machine has the addresses of a listener, and lets this user have them.

    One that is in use is no error: the daemon that is to be restarted may have it.

    Raises:
        ConfigError: it does not.
    """
    for address in one.addresses:
        with contextlib.ExitStack() as stack:
            try:
                _listen_tcp(replace(one, addresses=(address,)), stack, insecure=insecure)
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise ConfigError(error.strerror) from None


def try_path(path: str) -> None:
    """Look whether a Unix socket could be made.

    Raises:
        ConfigError: it could not.
    """
    parent, why = Path(path).parent, ""
    if len(os.fsencode(path)) > _MAX_PATH:
        why = f"the path of a socket has at most {_MAX_PATH} bytes"
    elif not parent.is_dir():
        why = f"there is no directory {parent}"
    elif os.path.lexists(path) and not Path(path).is_socket():
        why = "this is not a socket, and is left alone"
    elif not os.access(parent, os.W_OK | os.X_OK):
        why = f"no permission to write to {parent}"
    if why:
        raise ConfigError(f"cannot listen on {path}: {why}")


def check_socket(one: ListenerConfig, sock: socket.socket, *, insecure: bool) -> None:
    """Refuse a listening socket that others than this machine reach, unless it is safe.

    Raises:
        ConfigError: there is no login, or no TLS.
    """
    if sock.family != socket.AF_UNIX:
        for host, _ in served(sock):
            check_address(one, host, insecure=insecure)


def check_address(one: ListenerConfig, address: str, *, insecure: bool) -> None:
    """Refuse an address that others than this machine reach, unless it is safe.

    Raises:
        ConfigError: there is no login, or no TLS.
    """
    if insecure or is_loopback(address):
        return
    danger = ""
    if not one.login:
        danger = "anyone who reaches it could read and publish everything, as there is no login"
    elif one.tls is None:
        danger = "what is said there, passwords included, could be read on its way, without TLS"
    if danger:
        raise ConfigError(f"{address} is not loopback, and {danger}; --insecure allows that")


def _label(address: Any) -> str:
    return os.fsdecode(address) if isinstance(address, str | bytes) else text_of(address)


def _attempt(call: Callable[[Any], object], argument: Any, label: str) -> None:
    try:
        call(argument)
    except OSError as error:
        raise OSError(error.errno, f"cannot listen on {label}: {error.strerror or error}") from None


def _remove_stale(path: Path) -> None:
    """Remove a socket that a daemon left behind; one that is alive answers."""
    try:
        if not stat.S_ISSOCK(path.stat().st_mode):
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.connect(str(path))
    except ConnectionRefusedError:
        path.unlink()
    except OSError:
        return
