"""The same as relay.c in plain Python: the least that one process of it can do.

Usage: ``relay.py PORT [share | from PORT | tls CERTIFICATE KEY]``. A program of its own: it
imports nothing of the benchmark.
"""

from __future__ import annotations

import select
import socket
import ssl
import sys
from collections.abc import Callable
from itertools import accumulate

ROOM = 256 * 1024
LETTER = slice(4, 5)  # of the first line: whoever says "sub x" gets what those say that say "pub x"
RECORD = 16 * 1024  # of TLS: of what is left of one in OpenSSL, epoll tells nothing


def receive(sock: socket.socket, room: memoryview, whole: bool) -> int:
    """Read once, or all whole records; the bytes: 0 at the end, -1 if there are none yet."""
    size = 0
    try:
        size = more = sock.recv_into(room)
        while whole and more and len(room) - size >= RECORD:
            more = sock.recv_into(room[size:])
            size += more
    except ssl.SSLWantReadError:
        return size or -1
    except (ConnectionError, ssl.SSLError):
        return 0
    return size


def ask(port: int) -> socket.socket:
    """A connection to another relay, as its subscriber."""
    sock = socket.create_connection(("127.0.0.1", port))
    sock.sendall(b"sub b\n")
    sock.recv(3, socket.MSG_WAITALL)
    return sock


def main(
    port: int, shared: bool, tls: ssl.SSLContext | None = None, source: socket.socket | None = None
) -> None:
    """Relay until killed."""
    listener = socket.create_server(("127.0.0.1", port), backlog=1024)
    epoll = select.epoll()
    epoll.register(listener, select.EPOLLIN)
    accepting = listener.fileno()
    sockets: dict[int, socket.socket] = {}
    shaking: dict[int, ssl.SSLSocket] = {}
    publishers: dict[int, dict[int, Callable[[memoryview], None]]] = {}  # to whom each sends
    groups: dict[bytes, dict[int, Callable[[memoryview], None]]] = {}
    buffer = bytearray(ROOM)
    view = memoryview(buffer)
    extra = 0  # who gets the next byte of those that cannot be shared equally

    if source is not None:
        sockets[source.fileno()] = source
        epoll.register(source, select.EPOLLIN)

    def share(size: int, subscribers: dict[int, Callable[[memoryview], None]]) -> None:
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
                if tls is not None:
                    new.setblocking(False)
                    new = tls.wrap_socket(new, server_side=True, do_handshake_on_connect=False)
                    shaking[new.fileno()] = new
                sockets[new.fileno()] = new
                epoll.register(new, select.EPOLLIN)
                continue
            if fd in shaking:
                try:
                    shaking[fd].do_handshake()
                except ssl.SSLWantReadError:
                    continue
                except (ConnectionError, ssl.SSLError):
                    sockets.pop(fd).close()
                del shaking[fd]
                continue
            size = receive(sockets[fd], view, tls is not None)
            if size < 0:
                continue
            if not size:
                publishers.pop(fd, None)
                for group in groups.values():
                    group.pop(fd, None)
                extra = 0
                sockets.pop(fd).close()
                continue
            if fd not in publishers:
                group = groups.setdefault(bytes(buffer[LETTER]), {})
                if buffer.startswith(b"sub"):
                    sockets[fd].setblocking(True)
                    group[fd] = sockets[fd].sendall
                    sockets[fd].sendall(b"ok\n")
                    continue
                publishers[fd] = group
            subscribers = publishers[fd]
            try:
                if shared and subscribers:
                    share(size, subscribers)
                else:
                    data = view[:size]
                    for send in subscribers.values():
                        send(data)
            except ConnectionError:
                pass  # one is gone, which its own event tells


if __name__ == "__main__":
    context = None
    if sys.argv[2:3] == ["tls"]:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*sys.argv[3:])
        context.num_tickets = 1  # as pubsubd
    asked = ask(int(sys.argv[3])) if sys.argv[2:3] == ["from"] else None
    main(int(sys.argv[1]), sys.argv[2:] == ["share"], context, asked)
