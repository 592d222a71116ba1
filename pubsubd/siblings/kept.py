"""What each worker has told last of its counters, in memory that is shared and so outlasts it.

A worker keeps its counters whenever it tells them. The one that is started in its place goes on
from there, and meanwhile the others tell what it has kept: so no sum that was told goes down.

Invariant: a worker that is killed while it writes leaves what it kept before, as that is in the
other half of its slot.
"""

from __future__ import annotations

import mmap
import struct
from zlib import crc32

ROOM = 64 * 1024
"""Bytes that a worker can keep; what is longer is not kept. Memory is taken as it is used."""

_TURN, _HEAD = struct.Struct("Q"), struct.Struct("II")  # how often it was kept; length, checksum
_HALF = _HEAD.size + ROOM
_SLOT = _TURN.size + 2 * _HALF


class Kept:
    """What was kept of one matter, which processes that are forked off share.

    Args:
        count: of workers.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._memory = mmap.mmap(-1, _SLOT * count)

    def keep(self, worker: int, data: bytes) -> None:
        """Keep what a worker tells, in place of what it has kept before."""
        if len(data) > ROOM:
            return
        memory, slot = self._memory, worker * _SLOT
        (turn,) = _TURN.unpack_from(memory, slot)
        at = _half(slot, turn + 1)
        _HEAD.pack_into(memory, at, len(data), crc32(data))
        memory[at + _HEAD.size : at + _HEAD.size + len(data)] = data
        _TURN.pack_into(memory, slot, turn + 1)

    def last(self, worker: int) -> bytes:
        """Return what a worker has kept; nothing if it has not, or writes more and more."""
        memory, slot = self._memory, worker * _SLOT
        for _ in range(3):
            (turn,) = _TURN.unpack_from(memory, slot)
            at = _half(slot, turn)
            size, checksum = _HEAD.unpack_from(memory, at)
            data = memory[at + _HEAD.size : at + _HEAD.size + size]
            if crc32(data) == checksum:
                return data
        return b""

    def fill(self, answers: dict[int, bytes], own: int) -> dict[int, bytes]:
        """Return the answers of the workers other than ``own``: of those without, what they kept.

        Args:
            answers: number of a worker -> its answer.
            own: number of the worker that asks.
        """
        kept = {number: self.last(number) for number in range(self._count) if number != own}
        return {number: data for number, data in kept.items() if data} | answers


def _half(slot: int, turn: int) -> int:
    return slot + _TURN.size + turn % 2 * _HALF
