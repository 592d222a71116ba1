"""State of Signal Hub for one connection: its dialect, addresses, topics and answers.

Invariants:

- ``from`` of a message to others is an address that this connection has registered, or where it
  comes from, never an address that it merely claims.
- Each registration of this connection is in the registry under it; when the registration ends,
  for whatever reason, :meth:`Signal.forget` takes the subscriptions made under it, in steps.
- ``_under[key][topic]`` is ``topics[topic]``, for those made under a registration that holds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import UNSET, Struct

from pubsubd.broker.rate import Bucket
from pubsubd.hub import messages as m
from pubsubd.hub import replies as r
from pubsubd.hub.actors import Actor, canonical
from pubsubd.hub.connection import HubConnection
from pubsubd.hub.core import Connection
from pubsubd.hub.federation import Reach
from pubsubd.hub.ids import new_id
from pubsubd.hub.render import Form, dress
from pubsubd.hub.signal.reading import RefusedError, key_of, shown, text_of, whole
from pubsubd.hub.topics import check_hub_topic, hub_pattern
from pubsubd.protocol.errors import ProtocolError
from pubsubd.routing.wildcards import Pattern

PAGE_A = 100  # actors in one answer, in dialect A
_MOST = 10**9  # of what can be counted here; numbers from clients are no larger
_DROPPED = 16  # subscriptions that are ended in one step

_PATTERNS = ("tell", "ask", UNSET, None, "request", "notify")

_encode = msgspec.json.Encoder().encode

_RESOLUTIONS = {
    "version_mismatch": "Connect with a version that this hub speaks",
    "unauthorized": "Connect again with a token that allows this",
    "invalid_token": "Ask for a new token",
    "rate_limited": "Wait for retryAfter seconds",
    "unknown_actor": "Discover actors, and try again later",
    "message_too_large": "Split the message",
    "message_expired": "Send it again with a new timestamp",
    "timeout": "Connect again, and send heartbeats",
}


class Subscription(Struct):
    """A topic that is subscribed.

    Attributes:
        id: its identifier.
        held: the name or pattern subscribed.
        actor: the actor under which it was made, if one was registered.
    """

    id: str
    held: bytes | Pattern
    actor: str | None


class Signal:
    """State of Signal Hub for one connection.

    Attributes:
        publications: what is the same for all messages of a kind that it publishes; forgotten when
            anything changes that they depend on.
    """

    __slots__ = (
        "_bucket",
        "_under",
        "address",
        "connection",
        "dialect",
        "failed",
        "processed",
        "publications",
        "session_id",
        "since",
        "topics",
    )

    def __init__(self, connection: HubConnection) -> None:
        limits = connection.limits
        self.connection = connection
        self.dialect = ""  # "A" or "B", once it is known; B until then
        self.session_id = ""
        self.address = ""  # where it is reached, as it writes it
        self._bucket = Bucket(limits.rate, limits.burst)
        self.topics: dict[str, Subscription] = {}
        # Actor -> topics subscribed under it.
        self._under: dict[str, dict[str, Subscription]] = {}
        self.publications: dict[Any, tuple[bytes, bytes, str, bytes]] = {}
        self.processed = 0
        self.failed = 0
        self.since = connection.hub.clock()
        self.locate(connection.sender)

    @property
    def expects_heartbeat(self) -> bool:
        """Whether silence means that the client is gone: it has connected or registered."""
        return bool(self.session_id or self.connection.hub.registry.of(self.connection))

    # In

    def meet(self, sender: object) -> None:
        """Note how a client writes its address, until it connects or registers."""
        if isinstance(sender, str) and sender != self.address and not self.expects_heartbeat:
            self.locate(sender)

    def invalid(self) -> None:
        """Answer JSON that is no message."""
        self.connection.hub.processed += 1
        self.error("internal_error", "Invalid SharedMessage structure")

    def unknown(self, message: m.Incoming) -> None:
        """Answer a message of an unknown type."""
        self.connection.hub.processed += 1
        self.error(
            "internal_error", f"Unknown message type: {shown(str(message.type))}", message=message
        )

    def admit(self, kind: str, message: m.Incoming, action: str) -> None:
        """Raise RefusedError for a message over its rate, malformed, too old or not allowed."""
        hub = self.connection.hub
        connecting = kind == "hub:connect"
        if not connecting:
            free = self.connection.again or not self._bucket.limited
            if not free and (wait := self._bucket.take(hub.clock())):
                per_minute = f"{self.connection.limits.rate:g} messages a minute"
                seconds = math.ceil(wait)
                raise RefusedError("rate_limited", f"over {per_minute}", {"retryAfter": seconds})
            addressed = isinstance(message.sender, str) and isinstance(message.to, str)
            if self.dialect == "A" and not addressed:
                raise RefusedError("internal_error", "Invalid SharedMessage structure")
        if message.pattern not in _PATTERNS:
            raise RefusedError("internal_error", "Invalid SharedMessage structure")
        sent, ttl = message.timestamp, message.ttl
        if isinstance(ttl, float) and isinstance(sent, float) and sent + ttl < hub.now():
            raise RefusedError(
                "message_expired",
                f"sent at {sent:.0f} with a ttl of {ttl:.0f} ms",
                {"timestamp": whole(sent), "ttl": whole(ttl)},
            )
        if not connecting and not self.connection.may(action):
            if not self.connection.known:
                raise RefusedError("unauthorized", "hub:connect with a token comes first")
            raise RefusedError("unauthorized", f"the token does not allow {kind}")

    def admit_alike(self, message: m.Incoming, action: str, count: int) -> int:
        """Admit messages that differ in their data, id and time alone, and count them.

        Returns:
            How many, from the first on; 0 if each has to be looked at by itself.
        """
        connection, hub = self.connection, self.connection.hub
        addressed = isinstance(message.sender, str) and isinstance(message.to, str)
        if (
            isinstance(message.ttl, float)
            or message.pattern not in _PATTERNS
            or not (addressed or self.dialect != "A")
            or not connection.may(action)
        ):
            return 0
        count = self._bucket.take_all(count, hub.clock())
        self.processed += count
        hub.processed += count
        return count

    def forget(self, actor: Actor[Connection]) -> Iterator[None]:
        """End the subscriptions made under a registration that has ended, in steps."""
        self.publications.clear()
        connection = self.connection
        if connection.sender == actor.key:
            left = self.latest_actor()
            connection.sender = left.key if left is not None else connection.origin
            self.locate(left.address if left is not None else actor.address)
        under = self._under.pop(actor.key, {})
        for done, (topic, subscription) in enumerate(under.items(), 1):
            if connection.left:
                return
            if self.topics.get(topic) is subscription:
                self.drop_topic(topic)
            if done % _DROPPED == 0:
                yield

    # Topics

    def parse_topic(self, topic: str) -> bytes | Pattern:
        """Return the name or the pattern that a topic to subscribe is; raises TopicError."""
        limits = self.connection.hub.limits
        pattern = hub_pattern(topic, limits.any_topic, limits.topic_length)
        if pattern is not None:
            return pattern
        return check_hub_topic(topic, limits.any_topic, limits.topic_length, publishing=False)

    def add_topic(
        self, topic: str, held: bytes | Pattern, actor: Actor[Connection] | None
    ) -> Subscription:
        """Subscribe a new topic, under an actor if one is registered."""
        key = None if actor is None else actor.key
        subscription = self.topics[topic] = Subscription(f"sub-{new_id()}", held, key)
        if key is not None:
            self._under.setdefault(key, {})[topic] = subscription
        self.connection.subscriptions.add(held, Form.HUB)
        return subscription

    def drop_topic(self, topic: str) -> None:
        """End a subscription."""
        subscription = self.topics[topic]
        if (actor := subscription.actor) is not None and not self.is_over(topic, subscription):
            del self._under[actor][topic]
            if not self._under[actor]:
                del self._under[actor]
        del self.topics[topic]
        self.connection.subscriptions.remove(subscription.held, Form.HUB)

    def is_over(self, topic: str, subscription: Subscription) -> bool:
        """Return whether the registration under which it was made has ended: so will it."""
        actor = subscription.actor
        return actor is not None and self._under.get(actor, {}).get(topic) is not subscription

    # Out

    def error(
        self,
        code: str,
        text: str,
        details: dict[str, Any] | None = None,
        message: m.Incoming | None = None,
    ) -> None:
        """Queue a hub:error."""
        self.failed += 1
        self.connection.hub.failed += 1
        self.connection.hub.broker.counters.errors[f"hub:{code}"] += 1
        self.reply(message, "hub:error", self._fault(code, text, details))

    def refuse(self, error: RefusedError, message: m.Incoming) -> None:
        """Answer a message that is refused, and end the connection if that is the last one."""
        self.error(error.code, error.text, error.details, message)
        if error.closes:
            self.connection.close(ProtocolError("unauthorized", error.text), tell=True)

    def close_reason(self, code: str, text: str, details: dict[str, Any]) -> bytes:
        """Return a hub:error that answers no request, as a JSON text."""
        return self._text(None, "hub:error", self._fault(code, text, details), {})

    def tell_lost(self, address: str, node: str) -> None:
        """Queue that a registration has ended, because another daemon has an earlier one."""
        text = f"{address} was registered earlier at the daemon {node}"
        lost = r.RegistrationLost(actor_address=address, daemon=node, message=text)
        self.reply(None, "hub:registration_lost", lost)

    def displaced(self, text: str) -> bytes:
        """Return the hub:disconnect for an address registered elsewhere, as a JSON text."""
        displaced = r.Displaced(reason="duplicate_connection", message=text)
        return self._text(None, "hub:disconnect", displaced, {})

    @staticmethod
    def _fault(code: str, text: str, details: dict[str, Any] | None) -> r.Error:
        return r.Error(code, text, _RESOLUTIONS.get(code, ""), details or {})

    def reply(
        self, message: m.Incoming | None, name: str, payload: Any, metadata: Any = None
    ) -> None:
        """Queue an answer; ``to`` and ``correlationId`` follow from ``message``."""
        self.connection.put(
            self._text(message, name, payload, {} if metadata is None else metadata)
        )

    def _text(self, message: m.Incoming | None, name: str, payload: Any, metadata: Any) -> bytes:
        to, correlation = self.address, None
        if message is not None:
            to = text_of(message.sender) or to
            correlation = text_of(message.correlation_id)
            if self.dialect == "A":
                correlation = text_of(message.id) or correlation
        return _encode(
            r.Reply(
                id=new_id(),
                sender=dress(m.HUB, self.connection.wrapped),
                to=to,
                type=name,
                payload=payload,
                correlation_id=correlation,
                timestamp=self.connection.hub.now(),
                metadata=metadata,
            )
        )

    # Addresses

    def latest_actor(self) -> Actor[Connection] | None:
        """Return the actor that this connection has registered last."""
        return self.connection.hub.registry.latest(self.connection)

    def locate(self, address: str) -> None:
        """Note that ``address`` is where this connection is reached."""
        self.publications.clear()
        key = canonical(address)
        if key is None:
            return
        self.connection.wrapped = address.startswith("@(")
        self.address = dress(key, self.connection.wrapped)
        self.connection.to = _encode(self.address)[1:-1]

    def sender_of(self, message: m.Incoming) -> str:
        """Return the sender: the address it claims if that is registered here, or its last."""
        connection, hub = self.connection, self.connection.hub
        claimed = text_of(message.sender)
        if claimed is not None:
            key = key_of(claimed)
            if key == connection.sender:
                return key
            actor = hub.registry.get(key, hub.ticks())
            if actor is not None and actor.connection is connection:
                return key
        return connection.sender

    def reach(self, scope: str | None) -> Reach | None:
        """Return how far a request goes; None if it is about this process alone.

        It is about all of the mesh, if there is one, unless it says ``local``.

        Raises:
            RefusedError: the scope is none.
        """
        if scope not in (None, "local", "mesh"):
            raise RefusedError("internal_error", "scope is local or mesh")
        federation, across = self.connection.hub.federation, scope != "local"
        if federation is None or not (across or federation.shared):
            return None
        return Reach(federation, across)

    def elsewhere(self, key: str) -> str | None:
        """Return the other daemon at which an address is registered, if it is at one."""
        federation = self.connection.hub.federation
        return None if federation is None else federation.directory.find(key)

    def page(self, payload: m.Discover) -> tuple[int, int]:
        """Return the limit and the offset of a list; raises RefusedError."""
        most = self.connection.hub.limits.page
        if self.dialect == "A":
            most = min(most, PAGE_A)
        limit = min(PAGE_A, most) if payload.limit is None else payload.limit
        offset = min(payload.offset or 0, _MOST)
        if limit < 1 or offset < 0:
            raise RefusedError("internal_error", "limit is 1 or more, offset 0 or more")
        return min(limit, most), offset


class Signals(dict[Connection, Signal]):
    """The state of Signal Hub, of each connection that speaks it; made when first needed."""

    def __missing__(self, connection: HubConnection) -> Signal:
        self[connection] = signal = Signal(connection)
        return signal
