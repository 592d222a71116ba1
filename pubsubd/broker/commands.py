"""The commands that the hot loop leaves: all that is not a plain ``pub`` of a known form."""

from __future__ import annotations

import re
from collections.abc import Callable

from pubsubd.broker.delivery import Delivery
from pubsubd.broker.large import most_data
from pubsubd.broker.peer import Peer
from pubsubd.broker.requests import OPEN, Requests
from pubsubd.protocol import wire
from pubsubd.protocol.errors import GOODBYE, ProtocolError
from pubsubd.protocol.limits import MAX_NAME, MAX_TYPED, Limits

LF, CR = 10, 13

_SUBSCRIPTION = re.compile(rb"((?:un)?sub) ([!-\x7f]{1,%d})\r?\n" % MAX_NAME).match
"""Match what nearly all subscriptions are written as; the others are parsed."""

_NO_MESSAGE = "another daemon sends messages and nothing else"


class Commands:
    """Commands of the line protocol, carried out one by one.

    Attributes:
        reserved: what names begin with that nobody but the daemon may publish, besides its own.
    """

    def __init__(
        self, delivery: Delivery, requests: Requests, limits: Callable[[], Limits]
    ) -> None:
        self._delivery, self._router = delivery, delivery.router
        self._requests = requests
        self._limits = limits
        self.reserved: tuple[bytes, ...] = ()
        self._daemons: tuple[bytes, ...] = ()  # those of them that other daemons may publish
        self._refuse: Callable[[bytes, bytes], None] = lambda *_: None

    def reserve(
        self,
        prefixes: tuple[bytes, ...],
        refuse: Callable[[bytes, bytes], None],
        daemons: tuple[bytes, ...],
    ) -> None:
        """Do what :meth:`pubsubd.broker.broker.Broker.reserve` says."""
        self.reserved, self._refuse, self._daemons = (*prefixes, *daemons), refuse, daemons

    def carry_out(self, peer: Peer, buf: bytes, start: int) -> tuple[int, int]:
        """Carry out the one command at ``start`` that no route is for.

        Returns:
            The offset of the LF that ends it, and 0; or 0, and how many bytes are missing.

        Raises:
            ProtocolError: it ends the connection.
        """
        if found := _SUBSCRIPTION(buf, start):
            stop = found.end() - 1
        else:
            if start >= len(buf):
                return 0, 1
            if buf[start : start + 4].lower() == b"pub ":
                head = wire.find_header_end(buf, start)
                if head > 0:
                    return self._pub(peer, buf, start, head)
            stop = wire.find_line_end(buf, start)
            if stop < 0:
                return 0, 1
        try:
            if found:
                self._obey(peer, found[1], found[2])
            elif line := buf[start : stop - 1 if buf[stop - 1] == CR and stop > start else stop]:
                self._obey(peer, *wire.parse_line(line))
        except ProtocolError as error:
            if error.closes:
                raise
            self._delivery.tell(peer, error)
        return stop, 0

    def _pub(self, peer: Peer, buf: bytes, start: int, head: int) -> tuple[int, int]:
        name, digits = wire.parse_header(buf[start:head])
        if digits == wire.TO_LINE_END and not peer.relayed:
            end, stop = wire.find_typed_data(buf, head, min(most_data(peer), MAX_TYPED))
            if stop < 0:
                return 0, 1
            self._publish(peer, name, wire.header(name, end - head), buf[head:end])
            return stop, 0
        try:
            size = wire.parse_length(digits)
        except ProtocolError as error:  # the rest of the line is all that can be skipped
            stop = wire.find_line_end(buf, start)
            if stop < 0:
                return 0, 1
            self._delivery.tell(peer, error)
            return stop, 0
        wire.check_size(size, most_data(peer))
        stop = head + size
        if stop >= len(buf):
            return 0, stop + 1 - len(buf)
        if buf[stop] == CR:
            if stop + 1 >= len(buf):
                return 0, 1
            stop += 1
        if buf[stop] != LF:
            raise wrong_length(buf, start - 1, head + size - start + 1)
        header = b"pub " + buf[start + 4 : head]  # PUB, Pub
        self._publish(peer, name, header, buf[head : head + size])
        return stop, 0

    def _publish(self, peer: Peer, name: bytes, header: bytes, data: bytes) -> None:
        """Deliver one message, unless it is a request, or refuse it."""
        try:
            wire.check_name(name)
            if (
                peer.publish_filter is not None
                and name not in OPEN
                and not peer.publish_filter.allows(name)
            ):
                self._delivery.deny(peer, name)
            elif name.startswith(wire.OWN):
                if peer.relayed:
                    raise ProtocolError("unknown-command", _NO_MESSAGE)
                self._requests.make(peer, name, data)
            elif name.startswith(self.reserved) and not (
                peer.relayed and name.startswith(self._daemons)
            ):
                self._refuse(name, data)
            else:
                frame = header + data + b"\n"
                daemons = peer.relayed and not peer.sibling
                learn = self._router.learn_relayed if daemons else self._router.learn
                route = learn(b"\n" + header, name, len(data))
                self._delivery.deliver(route.targets, route, frame, 0, len(frame), 1)
                self._delivery.counters.messages_in += 1
                if self._delivery.sampler is not None:
                    self._delivery.sampler.read(peer, frame, 1)
        except ProtocolError as error:
            if error.closes:
                raise
            self._delivery.tell(peer, error)

    def _obey(self, peer: Peer, verb: bytes, substring: bytes) -> None:
        if peer.relayed:
            raise ProtocolError("unknown-command", _NO_MESSAGE)
        if verb == b"quit":
            raise ProtocolError(GOODBYE, "")
        router, limits = self._router, peer.listener.limits
        if peer.publish_filter is not None and peer.publish_filter.closed and verb != b"help":
            self._delivery.deny(peer, substring)
        elif verb == b"sub":
            held = peer.substrings
            if len(held) >= limits.max_subscriptions and substring not in held:
                raise ProtocolError(
                    "too-many-subscriptions",
                    f"{wire.quote(substring)} would be one over {limits.max_subscriptions}",
                )
            full = router.subscriptions >= self._limits().max_subscriptions_total
            if full and substring not in held:
                raise ProtocolError("too-many-subscriptions", "all connections together are full")
            router.subscribe(peer, substring)
        elif verb == b"help":
            self._requests.make(peer, wire.HELP, b"")
        elif not router.unsubscribe(peer, substring):
            raise ProtocolError("not-subscribed", f"{wire.quote(substring)} is not subscribed")


def wrong_length(buf: bytes, at: int, length: int) -> ProtocolError:
    """Say what stands where the frame after ``buf[at]`` should end. ``at + length`` exists."""
    stop = at + length
    if buf[stop] == CR:
        stop += 1
    shown = wire.quote(buf[stop : stop + 1])
    return ProtocolError(
        "wrong-length",
        f"after the data comes byte {buf[stop]}, {shown}, not a line feed;"
        " a length counts bytes, not characters; the connection is closed",
    )
