"""A worker: connections that stay where they are, half open or silent.

It is told ``open`` (an address, how many, what each says at once, and what it says bit by bit),
``count`` (how many are still open, and how many have been told what code) and ``close``.
"""

from __future__ import annotations

import contextlib
import select
import socket
import time
from collections import Counter

from .streams import errors
from .wires import MIB, Address
from .workers import Told

_DRIP = 0.5  # seconds between two bytes of one that is slow
_AT_ONCE = 64  # looked after in one go: clients of their own would not all close at the same time


class _Holders:
    def __init__(self, told: Told) -> None:
        self._told = told
        self._socks: dict[int, socket.socket] = {}
        self._drips: dict[int, tuple[bytes, int]] = {}
        self._codes: Counter[str] = Counter()
        self._ended = 0
        self._epoll = select.epoll()
        self._epoll.register(told.fileno(), select.EPOLLIN)

    def serve(self) -> None:
        self._told.answer()
        again = 0.0
        while True:
            self._turn()
            now = time.monotonic()
            if self._drips and now >= again:
                again = now + _DRIP
                self._drip()
            if self._told.waiting:
                word, *arguments = self._told.hear()
                self._told.answer(getattr(self, "do_" + word)(*arguments))

    def _turn(self, longest: float = 0.1) -> None:
        for fd, _ in self._epoll.poll(longest, _AT_ONCE):
            if fd in self._socks:
                self._read(fd)

    def _read(self, fd: int) -> None:
        with contextlib.suppress(BlockingIOError):
            try:
                data = self._socks[fd].recv(MIB)
            except ConnectionError:
                data = b""
            self._codes.update(errors(data)[0])
            if not data:
                self._epoll.unregister(fd)
                self._socks.pop(fd).close()
                self._drips.pop(fd, None)
                self._ended += 1

    def _drip(self) -> None:
        for fd, (text, at) in list(self._drips.items()):
            if at < len(text):
                with contextlib.suppress(OSError):
                    self._socks[fd].send(text[at : at + 1])
                self._drips[fd] = text, at + 1

    def do_open(self, address: Address, count: int, said: bytes, slowly: bytes = b"") -> float:
        """Open so many; returns the seconds that it took."""
        begun = time.monotonic()
        for number in range(count):
            sock = address.connect()
            if said:
                sock.sendall(said)
            sock.setblocking(False)
            fd = sock.fileno()
            self._socks[fd] = sock
            if slowly:
                self._drips[fd] = slowly, 0
            self._epoll.register(fd, select.EPOLLIN)
            if number % 64 == 63:
                self._turn(0.0)
        return time.monotonic() - begun

    def do_count(self) -> tuple[int, int, Counter[str]]:
        """How many are open, how many the daemon has ended, and what they were told."""
        return len(self._socks), self._ended, self._codes

    def do_close(self, most: int | None = None) -> None:
        """Close so many, or all."""
        for fd in list(self._socks)[:most]:
            self._epoll.unregister(fd)
            self._socks.pop(fd).close()
            self._drips.pop(fd, None)


def holders(told: Told) -> None:
    """Hold connections; see the module."""
    _Holders(told).serve()
