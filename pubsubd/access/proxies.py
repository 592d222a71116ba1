"""Trusted proxies, and the clients that they speak for, without I/O.

A proxy says whom it speaks for: in a header of HTTP, or in the PROXY protocol's header before
everything else. Only what a trusted proxy says is believed, since anybody can say it.

Sources: RFC 7239 (Forwarded), and the PROXY protocol, versions 1 and 2, by HAProxy.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from pubsubd.protocol.errors import ProtocolError

MAX_HEADER = 4_096
"""Bytes of a PROXY header: with a client's certificate in it, one has some 2,000."""

MAX_HOPS = 32
"""Addresses in a header of HTTP: each takes some 5 µs to look at."""

Client = tuple[str, int]
"""Address and port; the port is 0 if the proxy has not told it."""

_NODE = 80  # characters of an address with its port
_V1_LINE = 107  # bytes with the line end, at most
_V1, _V2 = b"PROXY ", b"\r\n\r\n\0\r\nQUIT\n"
_TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_match_pair = re.compile(rf'[ \t]*(?:({_TOKEN})=(?:({_TOKEN})|"((?:[^"\\]|\\.)*)"))?[ \t]*').match
_match_node = re.compile(
    r"(?:\[([0-9A-Fa-f:.]+)\](?::([0-9]{1,5}|_[\w.-]+))?"
    r"|([0-9.]+)(?::([0-9]{1,5}|_[\w.-]+))?"
    r"|([0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*))",
    re.ASCII,
).fullmatch
_is_hidden = re.compile(r"unknown(?::\S+)?|_[\w.-]+(?::\S+)?", re.ASCII | re.IGNORECASE).fullmatch


class Networks:
    """Networks of addresses.

    Args:
        texts: such as ``10.0.0.0/8``, or single addresses.

    Raises:
        ValueError: one of them is none.
    """

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self._networks = [_network(text) for text in texts]

    def __bool__(self) -> bool:
        return bool(self._networks)

    def __contains__(self, host: str) -> bool:
        """Return whether an address is in one of them."""
        try:
            address = _address(host)
        except ValueError:
            return False
        return any(address in network for network in self._networks)


NOWHERE = Networks()


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    try:
        return ipaddress.ip_network(text)
    except ValueError as error:
        raise ValueError(f"{text!r} is no network: {error}") from None


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    address = ipaddress.ip_address(host.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


# HTTP


def forwarded_for(headers: Mapping[str, str], proxies: Networks) -> Client | None:
    """Return the client of a request that came by a trusted proxy; None if no header tells.

    That is the last address that is no proxy's, as each proxy appends whom it has heard. If all
    are, it is the first.

    Args:
        headers: name in lower case -> value.
        proxies: those to be trusted.

    Raises:
        ValueError: a header cannot be read, or X-Forwarded-For and Forwarded name two clients, as
            they do if a proxy sets one of them and passes on the other.
    """
    found = []
    stripped = map(str.strip, headers.get("x-forwarded-for", "").split(","))
    for name, nodes in (
        ("X-Forwarded-For", [node for node in stripped if node]),
        ("Forwarded", _read_forwarded(headers.get("forwarded", ""))),
    ):
        if nodes:
            found.append(_last_outside(nodes, name, proxies))
    if len({None if one is None else one[0] for one in found}) > 1:
        raise ValueError("X-Forwarded-For and Forwarded name different clients")
    return max((one for one in found if one is not None), default=None)  # that with a port


def _last_outside(nodes: list[str], name: str, proxies: Networks) -> Client | None:
    if len(nodes) > MAX_HOPS:
        raise ValueError(f"{name} has over {MAX_HOPS} addresses")
    client: Client | None = None
    for node in reversed(nodes):
        if _is_hidden(node):
            return client
        match = _match_node(node) if len(node) <= _NODE else None
        try:
            if match is None:
                raise ValueError(node)
            host = str(_address(match[1] or match[3] or match[5]))
        except ValueError:
            raise ValueError(f"{name} has something other than an address") from None
        port = match[2] or match[4] or "0"
        client = host, 0 if port.startswith("_") else int(port)
        if host not in proxies:
            break
    return client


def _read_forwarded(text: str) -> list[str]:
    """Return what each element says in ``for``, or ``unknown``; empty ones are passed over."""
    nodes, node, at = list[str](), "", 0
    while True:
        match = _match_pair(text, at)
        assert match is not None
        if match[1] is not None:
            told = match[2] or re.sub(r"\\(.)", r"\1", match[3] or "")
            node = told if match[1].lower() == "for" else node or "unknown"
        at = match.end()
        end = text[at : at + 1]
        if end not in ("", ",", ";"):
            raise ValueError("Forwarded cannot be read")
        if end != ";":
            nodes += [node] if node else []
            node = ""
        if not end:
            return nodes
        at += 1


# The PROXY protocol


class ProxyHeader(NamedTuple):
    """The header of the PROXY protocol at the beginning of a connection.

    Attributes:
        size: its bytes; 0 if there is none.
        client: for whom the proxy speaks; None for itself, or if it does not say.
    """

    size: int
    client: Client | None


def read_proxy_header(data: bytes) -> ProxyHeader | None:
    """Return the header that ``data`` begins with; None if more of it has to come.

    Raises:
        ProtocolError: ``bad-proxy-header``, it cannot be read.
    """
    if data.startswith(_V1[: len(data)]):
        return _read_v1(data)
    if data.startswith(_V2[: len(data)]):
        return _read_v2(data)
    return ProxyHeader(0, None)


def _read_v1(data: bytes) -> ProxyHeader | None:
    end = data.find(b"\r\n", 0, _V1_LINE)
    if end < 0:
        if len(data) >= _V1_LINE:
            raise _fault(f"no end in {_V1_LINE} bytes")
        return None
    words = data[len(_V1) : end].decode("latin-1").split(" ")
    if words[0] == "UNKNOWN":
        return ProxyHeader(end + 2, None)
    kind = {"TCP4": ipaddress.IPv4Address, "TCP6": ipaddress.IPv6Address}.get(words[0])
    if kind is None or len(words) != 5:
        raise _fault("neither TCP4 nor TCP6 with two addresses and two ports")
    try:
        host, _ = kind(words[1]), kind(words[2])
        ports = [int(word) for word in words[3:] if word.isascii() and word.isdigit()]
        if len(ports) != 2 or max(ports) > 65_535:
            raise ValueError(words)
    except ValueError:
        raise _fault("an address or a port that is none") from None
    return ProxyHeader(end + 2, (str(_address(str(host))), ports[0]))


def _read_v2(data: bytes) -> ProxyHeader | None:
    if len(data) < 16:
        return None
    command, family = data[12], data[13]
    size = 16 + int.from_bytes(data[14:16])
    if command not in (0x20, 0x21):
        raise _fault(f"version and command 0x{command:02x}")
    if size > MAX_HEADER:
        raise _fault(f"{size} bytes, over {MAX_HEADER}")
    width = {0x11: 4, 0x21: 16, 0x00: 0, 0x31: 108}.get(family)
    if width is None:
        raise _fault(f"the family 0x{family:02x}")
    if size < 16 + 2 * width + (4 if family in (0x11, 0x21) else 0):
        raise _fault("too few bytes for its addresses")
    if len(data) < size:
        return None
    if command == 0x20 or family not in (0x11, 0x21):
        return ProxyHeader(size, None)
    host = ipaddress.ip_address(data[16 : 16 + width])
    at = 16 + 2 * width
    return ProxyHeader(size, (str(_address(str(host))), int.from_bytes(data[at : at + 2])))


def _fault(text: str) -> ProtocolError:
    return ProtocolError("bad-proxy-header", f"the header of the PROXY protocol has {text}")
