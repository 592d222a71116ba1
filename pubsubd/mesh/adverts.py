"""Adverts: a daemon's report of itself to the whole mesh, as lines of text.

    <host> <port>
    node <life> <sequence> <start>
    version <version>
    site <site>
    rack <rack>
    hub <sequence> <actors> <connections>
    link <node> <out|in> <since> <rtt_ms> <messages> <bytes>
    want <substring>

The first line is that of the original convention, so that its programs can read it. ``life`` is
the daemon's incarnation: the millisecond at which it started, or one more than any incarnation of
an earlier start that it has met, so no clock has to be right. Of two adverts of a daemon, the one
with the greater incarnation, then sequence, is newer. ``start`` distinguishes two daemons with the
same id. The version and the place of a daemon may be missing. ``hub`` is of a daemon with a hub
port: the number of its last letter about its actors, how many it has, and its connections.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NamedTuple

from pubsubd.mesh.interests import MAX_INTEREST_BYTES, MAX_INTERESTS
from pubsubd.protocol.errors import PubsubdError
from pubsubd.protocol.wire import FORWARD, check_name, quote

MAX_ADVERT = 256 * 1024
"""Bytes of an advert: room for as many interests and links as there may be."""

MAX_LINKS = 1_000
"""Links in one advert, and so links of one daemon."""

MAX_INCARNATION = 10**15
"""The last incarnation, in the year 33658; a daemon that has it counts on by the sequence."""

_OTHER_LINES = 100  # of later versions

_NODE = re.compile(r"[A-Za-z0-9._:\-]{1,64}").fullmatch
_HOST = re.compile(r"[A-Za-z0-9._:%\-]{1,255}").fullmatch
_LABEL = re.compile(r"[A-Za-z0-9._:+~\-]{1,64}").fullmatch
_LABELS = ("version", "site", "rack")
_MOST = 10**15


class AdvertError(PubsubdError):
    """An advert, address or id that is not valid, in one line."""


@dataclass(frozen=True, slots=True)
class LinkReport:
    """One link, as the daemon at one of its ends sees it.

    Attributes:
        node: the daemon at the other end.
        dialled: whether the reporting daemon has dialled.
        since: seconds since the epoch, by the clock of the reporting daemon.
        rtt_ms: round trip in milliseconds; None if it was not measured yet.
        messages, size: messages and bytes carried, both directions together.
    """

    node: str
    dialled: bool
    since: int
    rtt_ms: float | None = None
    messages: int = 0
    size: int = 0


class HubReport(NamedTuple):
    """The hub of a daemon.

    Attributes:
        sequence: of its last letter about its actors; see :mod:`pubsubd.mesh.directory`.
        actors: registered at it.
        connections: of its hub port.
    """

    sequence: int
    actors: int
    connections: int


@dataclass(frozen=True, slots=True)
class Advert:
    """The report of a daemon; see the module.

    Attributes:
        version: of the daemon's program; empty if it does not tell, as the two that follow.
        site, rack: the daemon's place.
        hub: its hub; None if it has none, or does not tell.
        size: bytes of the advert as it was read; 0 of one that was not.
    """

    node: str
    host: str
    port: int
    incarnation: int
    sequence: int
    start: int
    links: tuple[LinkReport, ...] = ()
    interests: tuple[bytes, ...] = ()
    size: int = field(default=0, compare=False)
    version: str = ""
    site: str = ""
    rack: str = ""
    hub: HubReport | None = None

    @property
    def stamp(self) -> tuple[int, int]:
        """The age of the advert: of two adverts of a daemon, the greater one is newer."""
        return self.incarnation, self.sequence


def check_node(text: str, what: str = "id of a daemon") -> str:
    """Return ``text`` if it is a valid id of a daemon or name of a mesh.

    Raises:
        AdvertError: it cannot.
    """
    if not _NODE(text):
        raise AdvertError(
            f"{quote(text.encode('utf-8', 'replace'))} is no {what}: 1 to 64 of A-Z a-z 0-9 . _ : -"
        )
    return text


def check_label(text: str, what: str) -> str:
    """Return ``text`` if it is a valid version, site or rack.

    Raises:
        AdvertError: it is not.
    """
    if not _LABEL(text):
        raise AdvertError(
            f"{quote(text.encode('utf-8', 'replace'))} is no {what}:"
            " 1 to 64 of A-Z a-z 0-9 . _ : + ~ -"
        )
    return text


def parse_address(text: str) -> tuple[str, int]:
    """Return host and port of ``HOST:PORT`` or ``[HOST]:PORT``.

    Raises:
        AdvertError: it is none.
    """
    host, colon, digits = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        colon = ""
    if not colon or not _HOST(host):
        raise AdvertError(f"{quote(text.encode('utf-8', 'replace'))} is not HOST:PORT")
    return host, _port(digits, text)


def _port(digits: str, text: str) -> int:
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 5 and 0 < int(digits) < 65536):
        raise AdvertError(f"{quote(text.encode('utf-8', 'replace'))} has no port from 1 to 65535")
    return int(digits)


def format_advert(advert: Advert) -> bytes:
    """Return the data of the advert's message."""
    lines = [
        f"{advert.host} {advert.port}",
        f"node {advert.incarnation} {advert.sequence} {advert.start}",
    ]
    labels = (("version", advert.version), ("site", advert.site), ("rack", advert.rack))
    lines += [f"{name} {label}" for name, label in labels if label]
    if advert.hub is not None:
        lines.append("hub {} {} {}".format(*advert.hub))
    for link in advert.links:
        side = "out" if link.dialled else "in"
        rtt = "-" if link.rtt_ms is None else f"{link.rtt_ms:.3f}"
        lines.append(f"link {link.node} {side} {link.since} {rtt} {link.messages} {link.size}")
    data = "\n".join(lines).encode()
    return b"\n".join([data, *(b"want " + interest for interest in advert.interests)])


def read_stamp(data: bytes) -> tuple[int, int]:
    """Return incarnation and sequence of an advert without reading the rest of it.

    Raises:
        AdvertError: it is not an advert.
    """
    line = data[:400].split(b"\n", 2)[1:2]
    words = line[0].split(b" ") if line else []
    if len(words) != 4 or words[0] != b"node":
        raise AdvertError("the second line is not: node <life> <sequence> <start>")
    return _number(words[1]), _number(words[2])


def parse_advert(node: str, data: bytes) -> Advert:
    """Parse an advert of the daemon ``node``.

    Raises:
        AdvertError: ``data`` is not one, and why.
    """
    check_node(node)
    if len(data) > MAX_ADVERT:
        raise AdvertError(f"{len(data)} bytes, over {MAX_ADVERT}")
    if data.count(b"\n") > MAX_LINKS + MAX_INTERESTS + _OTHER_LINES:
        raise AdvertError("too many lines")
    first, *lines = data.split(b"\n")
    host, port = parse_first_line(first)
    incarnation, sequence = read_stamp(data)
    if incarnation > MAX_INCARNATION:
        raise AdvertError(f"a life over {MAX_INCARNATION}")
    start = _number(lines[0].split(b" ")[3])
    links: list[LinkReport] = []
    interests: list[bytes] = []
    labels = dict.fromkeys(_LABELS, "")
    hub: HubReport | None = None
    room = MAX_INTEREST_BYTES
    for line in lines[1:]:
        verb, _, rest = line.partition(b" ")
        if verb == b"link":
            links.append(_parse_link(rest))
            if len(links) > MAX_LINKS:
                raise AdvertError(f"more than {MAX_LINKS} links")
        elif verb == b"want":
            if not rest.startswith(FORWARD):
                raise AdvertError("an interest does not begin with //fwd/")
            try:
                check_name(rest, "substring")
            except PubsubdError as error:
                raise AdvertError(str(error)) from None
            interests.append(rest)
            room -= len(rest)
            if len(interests) > MAX_INTERESTS or room < 0:
                raise AdvertError(
                    f"more than {MAX_INTERESTS} interests, or {MAX_INTEREST_BYTES} bytes of them"
                )
        elif verb == b"hub":
            hub = _parse_hub(rest)
        elif (name := verb.decode("ascii", "replace")) in labels:
            labels[name] = check_label(rest.decode("utf-8", "replace"), name)
        # Other lines are for later versions.
    return Advert(
        node,
        host,
        port,
        incarnation,
        sequence,
        start,
        tuple(links),
        tuple(interests),
        len(data),
        **labels,
        hub=hub,
    )


def parse_first_line(line: bytes) -> tuple[str, int]:
    """Return host and port of the first line of an advert.

    Raises:
        AdvertError: it is not ``<host> <port>``.
    """
    words = line.decode("utf-8", "replace").split(" ")
    if len(words) != 2 or not _HOST(words[0]):
        raise AdvertError("the first line is not: <host> <port>")
    return words[0], _port(words[1], words[1])


def _parse_link(text: bytes) -> LinkReport:
    words = text.split(b" ")
    if len(words) != 6 or words[1] not in (b"out", b"in"):
        raise AdvertError("a link is not: <node> <out|in> <since> <rtt_ms> <messages> <bytes>")
    node, side, since, rtt, messages, size = words
    try:
        rtt_ms = None if rtt == b"-" else float(rtt)
    except ValueError:
        raise AdvertError("the round trip of a link is not a number") from None
    if rtt_ms is not None and not 0 <= rtt_ms < _MOST:
        raise AdvertError("the round trip of a link is out of range")
    return LinkReport(
        check_node(node.decode("utf-8", "replace")),
        side == b"out",
        _number(since),
        rtt_ms,
        _number(messages),
        _number(size),
    )


def _parse_hub(text: bytes) -> HubReport:
    words = text.split(b" ")
    if len(words) < 3:
        raise AdvertError("a hub is not: <sequence> <actors> <connections>")
    return HubReport(*map(_number, words[:3]))


def _number(digits: bytes) -> int:
    if not digits.isdigit() or len(digits) > 18:
        raise AdvertError("a number of an advert is not 1 to 18 digits")
    return int(digits)
