"""Texts of addresses: where an interface belongs to them, and where it does not."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from pubsubd.mesh.settings import read_settings
from pubsubd.protocol.errors import ConfigError
from pubsubd.settings.config import ListenerConfig, MeshOptions
from pubsubd.transport.addresses import is_everywhere, lacks_interface, text_of, without_interface
from pubsubd.transport.listen import resolve

INTERFACE = socket.if_indextoname(1)


@pytest.mark.parametrize(
    ("address", "text"),
    [
        (("127.0.0.1", 9), "127.0.0.1:9"),
        (("::1", 9, 0, 0), "[::1]:9"),
        (("fe80::1", 9, 0, 1), f"[fe80::1%{INTERFACE}]:9"),
        (("fe80::1", 9, 0, 2**31 - 1), f"[fe80::1%{2**31 - 1}]:9"),
        (("::ffff:10.0.0.1", 9, 0, 0), "10.0.0.1:9"),
        (("::ffff:1", 9, 0, 0), "[::ffff:1]:9"),
    ],
)
def test_an_address_is_told_as_it_can_be_dialled(address: Any, text: str) -> None:
    assert text_of(address) == text


def test_hosts_are_told_apart() -> None:
    hosts = ["0.0.0.0", "::", "::1", "fe80::1", "fe80::1%eth0", "a.example", ""]
    assert [host for host in hosts if is_everywhere(host)] == ["0.0.0.0", "::"]
    assert [host for host in hosts if lacks_interface(host)] == ["fe80::1"]
    assert [without_interface(host) for host in ("fe80::1%eth0", "::1")] == ["fe80::1", "::1"]


@pytest.mark.parametrize(
    ("addresses", "bound"),
    [
        ([("127.0.0.1", 1), ("::1", 2)], [("127.0.0.1", 1), ("::1", 2)]),
        ([("127.0.0.1", 1), ("127.0.0.1", 1)], [("127.0.0.1", 1)]),
        ([("127.0.0.1", 1), ("0.0.0.0", 1), ("::1", 1)], [("0.0.0.0", 1), ("::1", 1)]),
        ([("127.0.0.1", 1), ("0.0.0.0", 2)], [("127.0.0.1", 1), ("0.0.0.0", 2)]),
        ([(f"fe80::1%{INTERFACE}", 1)], [("fe80::1", 1)]),
    ],
)
def test_each_address_is_bound_once(
    addresses: list[tuple[str, int]], bound: list[tuple[str, int]]
) -> None:
    found = resolve(ListenerConfig("a", "line", tuple(addresses)), insecure=True)
    assert [address[:2] for _, address in found] == bound


def test_an_interface_is_kept_and_one_that_is_missing_is_told() -> None:
    one = ListenerConfig("a", "line", ((f"fe80::1%{INTERFACE}", 1),))
    assert resolve(one, insecure=True) == [(socket.AF_INET6, ("fe80::1", 1, 0, 1))]
    with pytest.raises(ConfigError, match=r"\[fe80::1\]:1: a link-local address needs its inter"):
        resolve(ListenerConfig("a", "line", (("fe80::1", 1),)), insecure=True)


@pytest.mark.parametrize("host", ["fe80::1%eth0", "::", "0.0.0.0"])
def test_what_only_this_machine_knows_is_not_advertised(host: str) -> None:
    config = read_settings(MeshOptions(name="m"), host, 9014).config
    assert (config.host, config.node) == (socket.gethostname(), f"{socket.gethostname()}:9014")


def test_an_interface_can_be_advertised_if_it_is_wanted() -> None:
    options = MeshOptions(name="m", advertise="[fe80::1%eth0]:9014")
    config = read_settings(options, "127.0.0.1", 1).config
    assert (config.host, config.port, config.node) == ("fe80::1%eth0", 9014, "fe80::1-eth0:9014")
