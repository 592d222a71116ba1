"""Whom a proxy speaks for: headers of HTTP, and of the PROXY protocol."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pubsubd.access.proxies import (
    MAX_HEADER,
    MAX_HOPS,
    Networks,
    ProxyHeader,
    forwarded_for,
    read_proxy_header,
)
from pubsubd.protocol.errors import ProtocolError

PROXIES = Networks(["10.0.0.0/8", "127.0.0.1", "2001:db8:1::/48"])
V2 = b"\r\n\r\n\0\r\nQUIT\n"


@pytest.mark.parametrize(
    ("host", "inside"),
    [
        ("10.1.2.3", True),
        ("11.0.0.0", False),
        ("127.0.0.1", True),
        ("::ffff:10.1.2.3", True),
        ("2001:db8:1::9", True),
        ("2001:db8:2::9", False),
        ("unix", False),
        ("", False),
    ],
)
def test_an_address_is_in_a_network_in_either_form(host: str, inside: bool) -> None:
    assert (host in PROXIES) is inside
    assert host not in Networks()


def test_a_network_that_is_none_is_refused() -> None:
    for text in ("10.0.0.1/8", "everybody", "", "10.0.0.0/33"):
        with pytest.raises(ValueError, match="is no network"):
            Networks([text])


# HTTP


@pytest.mark.parametrize(
    ("header", "client"),
    [
        ("203.0.113.7", ("203.0.113.7", 0)),
        ("1.1.1.1, 203.0.113.7", ("203.0.113.7", 0)),  # the first is what the client says
        ("junk, 203.0.113.7, 10.0.0.9", ("203.0.113.7", 0)),
        ("203.0.113.7:4711, 127.0.0.1", ("203.0.113.7", 4711)),
        ("2001:db8::7", ("2001:db8::7", 0)),
        ("[2001:db8::7]:4711", ("2001:db8::7", 4711)),
        ("::ffff:203.0.113.7", ("203.0.113.7", 0)),
        ("10.0.0.1, 10.0.0.2", ("10.0.0.1", 0)),  # all of them are proxies
        ("unknown", None),
        ("1.1.1.1, unknown, 10.0.0.2", ("10.0.0.2", 0)),
        ("", None),
        (" , 203.0.113.7,", ("203.0.113.7", 0)),
    ],
)
def test_the_last_address_that_is_no_proxys_is_the_clients(
    header: str, client: tuple[str, int] | None
) -> None:
    assert forwarded_for({"x-forwarded-for": header}, PROXIES) == client


@pytest.mark.parametrize(
    ("header", "client"),
    [
        ("for=203.0.113.7", ("203.0.113.7", 0)),
        ('For="[2001:db8::7]:4711";proto=https;by=10.0.0.1', ("2001:db8::7", 4711)),
        ("for=1.1.1.1, for=203.0.113.7;host=x, for=10.0.0.1", ("203.0.113.7", 0)),
        ('for="203.0.113.7:4711"', ("203.0.113.7", 4711)),
        ('for="203.0.113.7:_port"', ("203.0.113.7", 0)),
        (r'for="203.0.113\.7"', ("203.0.113.7", 0)),
        ("for=_hidden, for=10.0.0.1", ("10.0.0.1", 0)),
        ("for=unknown", None),
        ("for=1.1.1.1, proto=https", None),  # a proxy that does not tell
        ('by=", for=1.1.1.1', ValueError),  # a quote that a client has left open
        ("for=1.1.1.1 for=2.2.2.2", ValueError),
        ("for", ValueError),
        ("for=", ValueError),
        (" ,, for=203.0.113.7 , ", ("203.0.113.7", 0)),
    ],
)
def test_the_standard_header_is_read_as_a_whole(
    header: str, client: tuple[str, int] | type[ValueError] | None
) -> None:
    if client is ValueError:
        with pytest.raises(ValueError, match="cannot be read"):
            forwarded_for({"forwarded": header}, PROXIES)
    else:
        assert forwarded_for({"forwarded": header}, PROXIES) == client


@pytest.mark.parametrize(
    "node",
    ["junk", "1.2.3", "1.2.3.4:99999999", "[::1", "[1.2.3.4]x", "::1::", "a" * 100, "1.2.3.4:"],
)
def test_what_is_no_address_is_refused(node: str) -> None:
    for headers in ({"x-forwarded-for": f"1.1.1.1, {node}"}, {"forwarded": f'for="{node}"'}):
        with pytest.raises(ValueError, match="something other than an address"):
            forwarded_for(headers, PROXIES)


def test_two_headers_have_to_agree() -> None:
    both = {"x-forwarded-for": "203.0.113.7", "forwarded": 'for="203.0.113.7:4711"'}
    assert forwarded_for(both, PROXIES) == ("203.0.113.7", 4711)
    for other in ("for=1.1.1.1", "for=unknown"):
        with pytest.raises(ValueError, match="different clients"):
            forwarded_for(both | {"forwarded": other}, PROXIES)
    assert forwarded_for({}, PROXIES) is None


def test_long_headers_cost_little() -> None:
    most = "10.0.0.1, " * (MAX_HOPS - 1) + "10.0.0.1"
    assert forwarded_for({"x-forwarded-for": most}, PROXIES) == ("10.0.0.1", 0)
    with pytest.raises(ValueError, match="over 32 addresses"):
        forwarded_for({"x-forwarded-for": f"{most}, 1.1.1.1"}, PROXIES)


@given(st.text(st.sampled_from('for=by;,"\\ 1.2:[]_unkow\t'), max_size=40))
def test_any_header_is_read_or_refused(text: str) -> None:
    for name in ("x-forwarded-for", "forwarded"):
        with contextlib.suppress(ValueError):
            assert forwarded_for({name: text}, PROXIES) != ()


# The PROXY protocol


def v2(command: int, family: int, block: bytes) -> bytes:
    return V2 + bytes((command, family)) + len(block).to_bytes(2) + block


FOUR = bytes((203, 0, 113, 7, 10, 0, 0, 1)) + (4711).to_bytes(2) + (9014).to_bytes(2)
SIX = bytes.fromhex("20010db8" + "0" * 23 + "7" + "0" * 31 + "1") + FOUR[8:]


@pytest.mark.parametrize(
    ("header", "client"),
    [
        (b"PROXY TCP4 203.0.113.7 10.0.0.1 4711 9014\r\n", ("203.0.113.7", 4711)),
        (b"PROXY TCP6 2001:db8::7 ::1 4711 9014\r\n", ("2001:db8::7", 4711)),
        (b"PROXY TCP6 ::ffff:203.0.113.7 ::1 4711 9014\r\n", ("203.0.113.7", 4711)),
        (b"PROXY UNKNOWN\r\n", None),
        (b"PROXY UNKNOWN ffff::1 ffff::2 1 2\r\n", None),
        (v2(0x21, 0x11, FOUR), ("203.0.113.7", 4711)),
        (v2(0x21, 0x11, FOUR + b"\x20\0\x03abc"), ("203.0.113.7", 4711)),  # more is passed over
        (v2(0x21, 0x21, SIX), ("2001:db8::7", 4711)),
        (v2(0x20, 0x11, FOUR), None),  # a health check of the proxy's own
        (v2(0x20, 0x00, b""), None),
        (v2(0x21, 0x00, b""), None),
        (v2(0x21, 0x31, bytes(216)), None),
    ],
)
def test_a_header_is_read_wherever_it_is_cut(header: bytes, client: tuple[str, int] | None) -> None:
    for end in range(1, len(header)):
        assert read_proxy_header(header[:end]) is None
    for more in (b"", b"pub a 1 x\n", header):
        assert read_proxy_header(header + more) == ProxyHeader(len(header), client)


@pytest.mark.parametrize(
    "header",
    [
        b"PROXY TCP4 203.0.113.7 10.0.0.1 4711\r\n",
        b"PROXY TCP4 203.0.113.7 10.0.0.1 4711 9014 1\r\n",
        b"PROXY TCP4 203.0.113.7  10.0.0.1 4711 9014\r\n",
        b"PROXY TCP4 ::1 10.0.0.1 4711 9014\r\n",
        b"PROXY TCP4 203.0.113.7 x 4711 9014\r\n",
        b"PROXY TCP4 203.0.113.7 10.0.0.1 4711 65536\r\n",
        b"PROXY TCP4 203.0.113.7 10.0.0.1 -1 9014\r\n",
        b"PROXY UDP4 203.0.113.7 10.0.0.1 4711 9014\r\n",
        b"PROXY \xff\r\n",
        b"PROXY " + b"x" * 101,
        v2(0x11, 0x11, FOUR),
        v2(0x22, 0x11, FOUR),
        v2(0x21, 0x12, FOUR),
        v2(0x21, 0x11, FOUR[:-1]),
        v2(0x21, 0x21, FOUR),
        v2(0x21, 0x11, FOUR + bytes(MAX_HEADER)),
    ],
)
def test_a_header_that_cannot_be_read_is_refused(header: bytes) -> None:
    with pytest.raises(ProtocolError) as caught:
        read_proxy_header(header)
    assert caught.value.code == "bad-proxy-header"
    assert caught.value.text.isprintable()


@given(st.binary(max_size=64))
@example(b"PUB a 1 x\n")
@example(b"\r\nGET / HTTP/1.1\r\n")
@example(b"\x16\x03\x01")
def test_anything_else_is_no_header(data: bytes) -> None:
    if data and not b"PROXY ".startswith(data[:6]) and not V2.startswith(data[:12]):
        assert read_proxy_header(data) == ProxyHeader(0, None)
