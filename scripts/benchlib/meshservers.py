"""Several servers as one: what is spoken over their links, and when they are ready for it.

A message that pubsubd is to carry further is published under ``//`` and subscribed
under ``//fwd/``; nats carries every subject. Links and interest take their time to be
known everywhere, so nothing is measured before `wait_linked` and `wait_wanted` return.
"""

from __future__ import annotations

import contextlib
import select
import time
from typing import Any

from .floors import FLOORS
from .links import PATIENCE_SECONDS, Address, BenchError, Link
from .protocols import Pubsubd, Want
from .servers import Door, Fleet, Server

_POLL_SECONDS = 0.05


class Forwarded(Pubsubd):
    """A name is ``//<name>`` where it is published and ``//fwd/<name>`` where it is wanted."""

    def publish(self, name: bytes, payload: bytes) -> bytes:
        return super().publish(b"//" + name, payload)

    def subscribe(self, index: int, want: Want) -> bytes:
        return b"sub //fwd/%b\n" % want.text

    def unsubscribe(self, index: int, want: Want) -> bytes:
        return b"unsub //fwd/%b\n" % want.text

    def deliver(self, index: int, want: Want, name: bytes, payload: bytes) -> bytes:
        return super().publish(b"//fwd/" + name, payload)


FORWARDED = Forwarded()


def door(server: Server) -> Address:
    """Its line port, where names are spoken so that they are carried over links."""
    return Door(server.name, FORWARDED, server.port) if server.name == "pubsubd" else server


def linked(fleet: Fleet, name: str, count: int) -> list[Server]:
    """A chain of that many servers, once each of them knows all the others."""
    servers = fleet.chain(name, count)
    if name not in FLOORS:  # a relay listens once it is linked
        wait_linked(servers)
    return servers


def wait_linked(servers: list[Server]) -> None:
    """Wait until all links are up and no change of them is still under way."""
    until = time.monotonic() + PATIENCE_SECONDS
    problem = ""
    with contextlib.ExitStack() as stack:
        controls: dict[int, Link] = {}
        for server in servers if servers[0].name == "pubsubd" else ():
            controls[server.pid] = link = Link(server)
            stack.callback(link.close)
        while time.monotonic() < until:
            problems = [_unlinked(server, controls.get(server.pid), servers) for server in servers]
            problem = next(filter(None, problems), "")
            if not problem:
                return
            time.sleep(_POLL_SECONDS)
    raise BenchError(f"{servers[0].name}: not linked after {PATIENCE_SECONDS:.0f} s: {problem}")


def _unlinked(server: Server, control: Link | None, servers: list[Server]) -> str:
    """What is still missing at that server; empty if nothing is."""
    if control is None:
        routes = int(server.varz()["routes"])
        return "" if routes == len(servers) - 1 else f"{routes} routes"
    told: dict[str, Any] = server.request(control, "peers")
    known = {daemon["node"] for daemon in told["daemons"] if daemon["hops"] is not None}
    known.add(told["node"])
    if len(known) != len(servers):
        return f"{told['node']} knows {', '.join(sorted(known))}"
    place = servers.index(server)
    links = len(servers[max(0, place - 1) : place + 2]) - 1
    if len(told["links"]) != links:
        return f"{told['node']} has {len(told['links'])} links instead of {links}"
    return f"{told['node']} is flooding" if told["flooding"] else ""


def wait_wanted(publisher: Link, subscriber: Link, want: Want, name: bytes) -> None:
    """Publish until a message arrives; nothing of it is under way afterwards.

    `want` is the subscriber's first subscription, `name` one that it asks for.
    """
    due: list[bytes] = []
    until = time.monotonic() + PATIENCE_SECONDS
    while True:
        payload = b"probe %06d" % len(due)
        publisher.send(publisher.wire.publish(name, payload))
        due.append(subscriber.wire.deliver(0, want, name, payload))
        if select.select([subscriber.socket], [], [], _POLL_SECONDS)[0]:
            break
        if time.monotonic() > until:
            raise BenchError(
                f"{subscriber.server.name}: no interest in {name!r} got from the subscriber"
                f" to the publisher within {PATIENCE_SECONDS:.0f} s"
            )
    first = subscriber.read(len(due[0]))
    if first not in due:
        raise BenchError(f"{subscriber.server.name}: the first that arrived is {first!r}")
    subscriber.expect(b"".join(due[due.index(first) + 1 :]))


def check_passage(publisher: Link, subscriber: Link, want: Want, name: bytes) -> None:
    """Nothing may be under way or in surplus between the two: one message arrives alone.

    (A ping comes no further than the server it is sent to.)
    """
    publisher.send(publisher.wire.publish(name, b"last"))
    subscriber.expect(subscriber.wire.deliver(0, want, name, b"last"))
    subscriber.check_ping()
