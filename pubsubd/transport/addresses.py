"""Texts of TCP addresses, ``HOST:PORT``, which can be dialled and listened on as they are."""

from __future__ import annotations

import ipaddress
import socket
from typing import Any

from pubsubd.protocol.wire import show_address

NO_INTERFACE = "a link-local address needs its interface, as in fe80::1%eth0"
"""Said of an address that :func:`lacks_interface`."""

_MAPPED = "::ffff:"  # an IPv4 address as an IPv6 socket sees it (RFC 4291, 2.5.5.2)


def host_of(address: Any) -> str:
    """Return the host of a socket address.

    A link-local address has its interface, as in ``fe80::1%eth0``. An IPv4 address is plain, even
    if an IPv6 socket has accepted it.
    """
    host: str = address[0]
    if host.startswith(_MAPPED) and "." in host:
        return host.removeprefix(_MAPPED)
    if len(address) == 4 and address[3]:
        return f"{host}%{_interface(address[3])}"
    return host


def text_of(address: Any) -> str:
    """Return ``HOST:PORT``, or ``[HOST]:PORT``, of a socket address."""
    return show_address(host_of(address), address[1])


def served(listener: socket.socket) -> list[tuple[str, int]]:
    """Return hosts and ports at which a listening TCP socket is reached.

    They are two if the socket takes IPv4 and IPv6, as those of systemd do by default.
    """
    address = listener.getsockname()
    host, port = host_of(address), address[1]
    if (
        listener.family == socket.AF_INET6
        and is_everywhere(host)
        and not listener.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY)
    ):
        return [("0.0.0.0", port), (host, port)]
    return [(host, port)]


def is_everywhere(host: str) -> bool:
    """Return whether ``host`` stands for all addresses of its family: 0.0.0.0 or ::."""
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches ``host``, which is an address."""
    return ipaddress.ip_address(without_interface(host)).is_loopback


def is_link_local(host: str) -> bool:
    """Return whether ``host`` is an IPv6 address of one link only, as ``fe80::1%eth0``."""
    try:
        return ipaddress.IPv6Address(host).is_link_local
    except ValueError:
        return False


def lacks_interface(host: str) -> bool:
    """Return whether ``host`` is a link-local address that does not say on which link."""
    return is_link_local(host) and "%" not in host


def without_interface(host: str) -> str:
    """Return ``host`` as certificates name it, and as others can read it."""
    return host.partition("%")[0]


def _interface(number: int) -> str:
    try:
        return socket.if_indextoname(number)
    except OSError:  # it has gone
        return str(number)
