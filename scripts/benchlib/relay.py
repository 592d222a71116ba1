"""The same as relay.c in plain Python: the least that one process of it can do.

Usage: ``relay.py PORT [share]``. A program of its own: it imports nothing of the benchmark.
"""

from __future__ import annotations

import select
import socket
import sys
from collections.abc import Callable
from itertools import accumulate

ROOM = 256 * 1024


def main(port: int, shared: bool) -> None:
    """Relay until killed."""
    listener = socket.create_server(("127.0.0.1", port), backlog=1024)
    epoll = select.epoll()
    epoll.register(listener, select.EPOLLIN)
    accepting = listener.fileno()
    sockets: dict[int, socket.socket] = {}
    publishers: set[int] = set()
    subscribers: dict[int, Callable[[memoryview], None]] = {}
    buffer = bytearray(ROOM)
    view = memoryview(buffer)
    extra = 0  # who gets the next byte of those that cannot be shared equally

    def share(size: int) -> None:
        nonlocal extra
        count = len(subscribers)
        each, rest = divmod(size, count)
        parts = [each] * count
        for k in range(extra, extra + rest):
            parts[k % count] += 1
        extra = (extra + rest) % count
        start = 0
        for send, end in zip(list(subscribers.values()), accumulate(parts), strict=True):
            if end > start:
                send(view[start:end])
            start = end

    while True:
        for fd, _ in epoll.poll():
            if fd == accepting:
                new, _ = listener.accept()
                new.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                sockets[new.fileno()] = new
                epoll.register(new, select.EPOLLIN)
                continue
            try:
                size = sockets[fd].recv_into(buffer)
            except ConnectionError:
                size = 0
            if not size:
                publishers.discard(fd)
                subscribers.pop(fd, None)
                extra = 0
                sockets.pop(fd).close()
                continue
            if fd not in publishers:
                if buffer.startswith(b"sub"):
                    subscribers[fd] = sockets[fd].sendall
                    sockets[fd].sendall(b"ok\n")
                    continue
                publishers.add(fd)
            try:
                if shared and subscribers:
                    share(size)
                else:
                    data = view[:size]
                    for send in subscribers.values():
                        send(data)
            except ConnectionError:
                pass  # one is gone, which its own event tells


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:] == ["share"])
