"""Handing of messages to actors, whichever daemon they come from."""

from __future__ import annotations

import msgspec

from pubsubd.hub import messages as m
from pubsubd.hub import replies as r
from pubsubd.hub.actors import Actor
from pubsubd.hub.interfaces import Connection, Host
from pubsubd.hub.render import dress

encode = msgspec.json.Encoder().encode


def put(hub: Host, actor: Actor[Connection], text: bytes) -> bool:
    """Queue a JSON text for an actor; return whether it took it."""
    connection = actor.connection
    if connection.peer.ending is not None or connection.left:
        return False
    try:
        connection.put(text)
    except Exception as error:  # noqa: BLE001  (it is the receiver's alone)
        hub.broker.faults.end(connection.peer, error)
        return False
    hub.broker.counters.messages_out += 1
    connection.peer.messages_out += 1
    return True


def write(delivery: r.Delivery, to: str, wrapped: bool) -> bytes:
    """Return a delivery as a JSON text, with addresses in the form of its receiver."""
    delivery.to = to
    delivery.sender = dress(delivery.sender, wrapped)
    delivery.metadata["via"] = dress(m.HUB, wrapped)
    return encode(delivery)


class Halves:
    """A delivery to many as a JSON text, of which only ``to`` differs."""

    def __init__(self, delivery: r.Delivery) -> None:
        self._halves = {wrapped: _halves(delivery, wrapped) for wrapped in (False, True)}

    def hand(self, hub: Host, actor: Actor[Connection]) -> bool:
        """Deliver to an actor; return whether it took it."""
        before, after = self._halves[actor.address.startswith("@(")]
        return put(hub, actor, b'%b"%b"%b' % (before, actor.address.encode(), after))


def _halves(delivery: r.Delivery, wrapped: bool) -> tuple[bytes, bytes]:
    """Return the two parts of a delivery as a JSON text, before its ``to`` and behind it."""
    text = write(delivery, "", wrapped)
    # Before it are the id and the sender, and no string has a quote that is not escaped.
    before, mark, after = text.partition(b',"to":""')
    return before + mark[:-2], after
