"""Connections that wait for what others have to do first, over real sockets in one process."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import trio

from pubsubd.protocol.limits import Limits
from pubsubd.routing.outbox import Hold
from pubsubd.transport.connection import open_connection
from pubsubd.transport.line import LineProtocol
from pubsubd.transport.server import Server

PING = b"pub //pubsubd/ping 1 x\n"


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[Server, trio.socket.SocketType]]:
    """A server with one connection, and its client."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    async with trio.open_nursery() as nursery:
        server = Server(Limits(), nursery)
        server.start()
        open_connection(server, ours, "client", partial(LineProtocol, server.broker))
        with trio.socket.from_stdlib_socket(theirs) as client:
            yield server, client
        nursery.cancel_scope.cancel()


async def test_who_may_cause_much_waits_for_siblings_and_others_do_not() -> None:
    asked = 0
    held: Hold | None = Hold()

    def behind() -> Hold | None:
        nonlocal asked
        asked += 1
        return held

    async with connected() as (server, client):
        server.siblings.add(Other())
        server.behind = behind
        await client.send(PING)  # of who is new nobody knows how much that is
        while not asked:
            await trio.lowlevel.checkpoint()
        for _ in range(20):
            await trio.lowlevel.checkpoint()
        assert server.broker.counters.bytes_in == 0
        waited, held = held, None
        assert waited is not None
        waited.release()
        assert await client.recv(100) == PING


async def test_a_sibling_waits_for_no_sibling() -> None:
    async with connected() as (server, client):
        server.siblings |= server.connections
        server.behind = Hold
        await client.send(PING)
        assert await client.recv(100) == PING


class Other:
    """Another connection."""

    leaving = False

    def end(self, code: str, text: str) -> None:
        raise AssertionError

    def interrupt(self) -> None:
        """Do nothing."""

    def check(self) -> None:
        """Do nothing."""
