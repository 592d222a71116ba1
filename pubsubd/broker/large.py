"""Large frames, which are handed on as they were read: nothing is joined, and little is copied.

Strategy: a read ends where such a frame ends (:attr:`pubsubd.broker.peer.Peer.wanted`). What it
brings, one frame in several pieces or several equal ones in one, goes to the receivers in these
pieces. Whatever does not look like that is left to the hot loop of :mod:`pubsubd.broker.broker`,
which knows everything.

Invariants:

- Only whole frames are delivered, each of which has the same header and ends with LF.
- While ``peer.large`` is set, ``peer.parts`` are the beginning of one such frame.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import cast

from pubsubd.broker.delivery import Delivery
from pubsubd.broker.peer import Peer
from pubsubd.protocol import wire
from pubsubd.protocol.limits import LARGE, MAX_LINE
from pubsubd.routing.lookups import Unfinished
from pubsubd.routing.outbox import Pieces
from pubsubd.routing.targets import CopyTargets

_LF = 10
_AT_ONCE = 16  # receivers that a large frame is sent to without joining its pieces


def most_data(peer: Peer) -> int:
    """Return how many bytes of data a frame of ``peer`` may have."""
    most = peer.listener.limits.max_payload
    return most if peer.publish_filter is None else peer.publish_filter.limit(most)


class LargeFrames:
    """Take large frames from peers, and give them to ``delivery``.

    Args:
        delivery: the broker's.
        match_header: finds the header that a text begins with; see :class:`Broker`.
    """

    def __init__(
        self, delivery: Delivery, match_header: Callable[[bytes], re.Match[bytes] | None]
    ) -> None:
        self._delivery, self._match_header = delivery, match_header
        self._sizes = wire.Sizes()

    def begin(self, peer: Peer, data: bytes) -> bytes | None:
        """Take the large frames at the beginning of ``data``, all of them with the same header.

        Returns:
            What follows them, for the hot loop; None if that is the beginning of one more, or
            nothing.
        """
        match = self._match_header(b"\n" + data[:MAX_LINE])
        if match is None or not wire.is_utf8(match[1]):
            return data
        key, size = match[0], self._sizes[match[2]]
        length = len(key) + size  # the header without the LF before it, and the data, and an LF
        if length < LARGE or size > most_data(peer):
            return data
        return self._take(peer, key, length, [], data, 0)

    def complete(self, peer: Peer, data: bytes) -> bytes | None:
        """Take the frame that ``data`` completes, and more of its kind, as :meth:`begin` does.

        What it returns begins with the LF before what follows them.
        """
        parts, missing, key = peer.parts, peer.missing, peer.large
        peer.large = b""
        if data[missing - 1] != _LF:  # CR LF, or a wrong length: the hot loop knows
            parts.insert(0, b"\n")
            return data
        rest = self._take(peer, key, sum(map(len, parts)) + missing, parts[:], data, missing)
        if rest is data:
            parts.insert(0, b"\n")
            return data
        if peer.large:
            return None
        parts.clear()
        if rest is not None:
            return b"\n" + rest
        parts.append(b"\n")
        peer.missing = 1
        return None

    def _take(
        self, peer: Peer, key: bytes, length: int, parts: list[bytes], data: bytes, at: int
    ) -> bytes | None:
        """Deliver a frame that ``parts`` begin and ``data[:at]`` ends, and those after it.

        Returns:
            ``data`` itself if nothing was delivered, and otherwise as :meth:`begin`.
        """
        header, count, size = key[1:], 1 if parts else 0, len(data)
        stop = at
        while size - stop >= length and data.startswith(header, stop):
            if data[stop + length - 1] != _LF:
                break
            stop += length
            count += 1
        rest = data[stop:]
        missing = length - len(rest)
        begun = missing > 0 and rest.startswith(header)
        if count:
            whole = cast("bytes", memoryview(data)[:stop]) if rest else data
            try:
                self._deliver(peer, key, length, [*parts, whole], count)
            except Unfinished:
                return data  # the hot loop can wait for it
        elif not begun:
            return data
        peer.expected = length
        if begun:
            peer.parts[:] = [rest]
            peer.missing, peer.large = missing, key
            return None
        return rest or None

    def _deliver(
        self, peer: Peer, key: bytes, length: int, pieces: list[bytes], count: int
    ) -> None:
        """Deliver ``count`` frames.

        This has to be the first thing that a read leads to: it overtakes what is put.
        """
        delivery = self._delivery
        _, name, digits, _ = key.split(b" ")
        if peer.publish_filter is not None and not peer.publish_filter.allows(name):
            delivery.deny(peer, name, count)
            delivery.tell_refusals(peer)
            delivery.send()
            return
        route = delivery.router.routes.get(key) or delivery.router.learn(key, name, int(digits))
        delivery.counters.messages_in += count
        if delivery.sampler is not None:
            for _ in range(count):
                delivery.sampler.read(peer, key, 1)
        targets, frames = route.targets, Pieces(pieces)
        receivers, spared = targets.peers, None if peer.echo else peer
        if (
            isinstance(targets, CopyTargets)
            or len(receivers) > _AT_ONCE
            or any(receiver.render is not None for receiver in receivers)  # by the clock
        ):
            whole = frames.whole()
            delivery.deliver(targets, route, whole, 0, len(whole), count)
            if not peer.echo:
                delivery.withhold(peer)
            delivery.send()
        elif not (targets.far or delivery.siblings) or (
            count == 1 and isinstance(pieces[0], bytes)
        ):
            delivery.hand(receivers, frames, count, spared)
        else:  # who counts the frames that it is sent, and looks into them
            whole = frames.whole()
            for at in range(0, len(whole), length):
                delivery.hand(receivers, Pieces([whole[at : at + length]]), 1, spared)
        if delivery.outbound:
            delivery.ship()
