"""The hub client: topics, actors, and restoring both on each new connection."""

from __future__ import annotations

import ssl
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import trio

from pubsubd.client.dial import Connect, address, dial
from pubsubd.client.exchange import Exchange
from pubsubd.client.faults import DaemonError, DisconnectedError
from pubsubd.client.hub_messages import (
    RAW,
    VERSION,
    Acknowledged,
    Actors,
    Broadcast,
    Delivered,
    HubMessage,
    Incoming,
    Published,
    Refreshed,
    Subscribed,
    Topic,
    Topics,
    convert,
    raw_payload,
)
from pubsubd.client.hub_restoring import Restoring, Subscription
from pubsubd.client.login import Credentials, Token
from pubsubd.client.reconnect import running
from pubsubd.client.secure import Secured, Tls
from pubsubd.client.state import RECEIVE_BUFFER, Statistics
from pubsubd.protocol import wire
from pubsubd.protocol.errors import ProtocolError, PubsubdError
from pubsubd.protocol.limits import MIB

PATH = "/ws"
"""The path of the WebSocket on a hub port."""

MAX_MESSAGE = 8 * MIB
"""Most bytes of a received message: enough for 1 MiB of text even if JSON escapes every byte."""

TTL = 300.0
"""Lifetime of a registration in seconds; it is renewed three times as often."""

_RIGHTS = ("send", "receive", "discover")  # that a connection says it wants


class HubClient:
    """A connection to a hub that reconnects when it breaks; made by :func:`open_hub_client`.

    Any number of tasks may use it at the same time. After the block, each method raises
    :class:`trio.ClosedResourceError`. Each method that sends a request to the hub may raise:

    - ProtocolError: ``payload-too-large``: the message exceeds the limit of the hub; it is not
      sent.
    - DaemonError: the hub refuses the request, for example with ``rate_limited``, whose
      ``retry_after`` says when to try again; or it has closed the connection for this reason.
    - DisconnectedError: the connection broke before the answer came. The hub may or may not have
      processed the request, unless the client has ended.
    - BufferFullError: more messages came before the answer than four receive buffers hold.

    If a call is cancelled, the hub may or may not process it.

    Attributes:
        address: the address of the actor. Without an actor it is a name that the client chooses,
            and others see the network address instead.
    """

    def __init__(
        self,
        connect: Connect,
        *,
        host: str,
        actor: str | None,
        capabilities: Sequence[str],
        metadata: Mapping[str, Any] | None,
        ttl: float,
        token: str | None,
        login: Credentials | None,
        **more: Any,
    ) -> None:
        self.address = actor or f"@(python/{uuid.uuid4()})"
        self._token = token
        self._login = login
        registration: dict[str, Any] | None = None
        if actor is not None:
            registration = {
                "actorAddress": actor,
                "capabilities": list(capabilities),
                "metadata": dict(metadata or {}),
                "ttlSeconds": ttl,
            }
        self._restoring = Restoring(registration, ttl)
        self._topics = self._restoring.topics
        self._exchange = Exchange(
            connect,
            host=host,
            path=PATH,
            address=self.address,
            headers=self._headers,
            hello=self._hello,
            restore=self._restoring.restore,
            **more,
        )
        self._restoring.exchange = self._exchange

    # Topics

    async def publish(
        self,
        topic: str,
        type: str,  # noqa: A002  (it is called so everywhere)
        data: Any = None,
    ) -> int:
        """Publish one message, and return the number of connections that it was sent to.

        Args:
            topic: any name that the hub allows. Subscribers on the line port receive the message,
                too.
            type: the type of the message.
            data: anything that msgspec can encode as JSON. If the hub cannot parse it, for example
                because of an integer over 64 bits or over 200 levels, it closes the connection.
                This call then raises the reason, and so do all calls that are waiting.
        """
        payload = {"topic": topic, "type": type, "data": data}
        answer = await self._ask("hub:publish", payload, counted=True)
        return convert(answer.payload, Published).subscriber_count

    async def publish_raw(self, topic: str, data: str | bytes) -> int:
        """Publish text or bytes that reach the line port unchanged; see :meth:`publish`."""
        data = data.encode() if isinstance(data, str) else data
        return await self.publish(topic, RAW, raw_payload(topic, data))

    async def subscribe(self, topic: str) -> Subscription:
        """Subscribe to a topic, until :meth:`unsubscribe`.

        In a topic, ``+`` matches any one level between slashes, and ``#`` at the end any number of
        levels. A message comes once, even if several subscriptions match. Returns when the
        subscription is active. It is restored when the client reconnects. If the call is cancelled,
        the subscription may or may not be active.

        Raises:
            DaemonError: the hub refuses the subscription, or the client has ended.
            DisconnectedError: the client has ended.
        """
        new = topic not in self._topics
        subscription = self._topics.setdefault(topic, Subscription(topic))
        while True:
            request = self._restoring.request_topics([topic])
            try:
                answer = await self._exchange.ask(request)
            except (DaemonError, DisconnectedError):
                # The next connection begins with all subscriptions; asking again tells how it went.
                if request.lost and not self._exchange.failed:
                    continue
                if new and not request.lost and self._topics.get(topic) is subscription:
                    del self._topics[topic]
                raise
            subscription.id = convert(answer.payload, Subscribed).subscription_id
            return subscription

    async def unsubscribe(self, topic: str | Subscription) -> None:
        """Remove a subscription. Messages that are already on their way still arrive.

        Raises:
            ProtocolError: ``not-subscribed``: there is no such subscription.
            DaemonError: the hub refuses, and the subscription stays; or the client has ended.
            DisconnectedError: the client has ended.
        """
        topic = topic.topic if isinstance(topic, Subscription) else topic
        subscription = self._topics.pop(topic, None)
        if subscription is None:
            raise ProtocolError("not-subscribed", f"{wire.quote(topic.encode())} is not subscribed")
        request = self._exchange.request("hub:unsubscribe", {"topic": topic})
        try:
            await self._exchange.ask(request)
        except (DaemonError, DisconnectedError):
            if request.lost and not self._exchange.failed:
                return  # and the next connection begins without it
            if not request.lost:
                self._topics.setdefault(topic, subscription)
            raise

    async def list_topics(self, *, offset: int = 0, limit: int = 100) -> Topics:
        """Return ``limit`` topics of the hub port, beginning with number ``offset``."""
        answer = await self._ask("hub:list_topics", {"offset": offset, "limit": limit})
        return convert(answer.payload, Topics)

    async def topic_info(self, topic: str) -> Topic:
        """Return what the hub knows about a topic. Raises DaemonError if it does not know it."""
        answer = await self._ask("hub:topic_info", {"topic": topic})
        return convert(answer.payload, Topic)

    # Actors

    async def send(
        self,
        to: str,
        type: str,  # noqa: A002
        data: Any = None,
        *,
        metadata: Mapping[str, Any] | None = None,
        correlation_id: str | None = None,
    ) -> None:
        """Send one message to an actor. Waits only for room in the outbox.

        This does not report whether the actor exists; :meth:`ask` does. Other errors from the hub
        are raised by the next :meth:`flush` or read.

        Args:
            to: the address of the actor; in a reply, the :attr:`HubMessage.sender`.
            type: the type of the message.
            data: anything that msgspec can encode as JSON.
            metadata: metadata for the receiver, in addition to the hub's.
            correlation_id: in a reply, that of the message that it answers.

        Raises:
            ProtocolError: as in all methods.
            DaemonError, DisconnectedError: the client has ended.
        """
        await self._exchange.put(
            self._exchange.request(
                "hub:send",
                {"to": to, "type": type, "data": data},
                to=to,
                metadata=metadata,
                correlation_id=correlation_id,
                answered=False,
                kept=True,
                counted=True,
            )
        )

    async def ask(
        self,
        to: str,
        type: str,  # noqa: A002
        data: Any = None,
        *,
        metadata: Mapping[str, Any] | None = None,
    ) -> Delivered:
        """Send one message to an actor, and return when the hub has delivered it.

        The actor's reply comes as a message whose ``correlation_id`` is the ``message_id`` that is
        returned here.

        Raises:
            DaemonError: ``unknown_actor``: no actor has this address.
        """
        payload = {"to": to, "type": type, "data": data}
        more: dict[str, Any] = {"to": to, "pattern": "ask", "counted": True}
        answer = await self._ask("hub:send", payload, metadata=metadata, **more)
        told = convert(answer.payload, Acknowledged)
        return Delivered(told.message_id, told.delivered_at)

    async def broadcast(
        self,
        type: str,  # noqa: A002
        data: Any = None,
        *,
        capability: str | None = None,
        exclude_self: bool = False,
        metadata: Mapping[str, Any] | None = None,
    ) -> int:
        """Send one message to all actors, and return how many it was delivered to.

        Args:
            type: the type of the message.
            data: anything that msgspec can encode as JSON.
            capability: send only to actors that have this capability.
            exclude_self: do not send to this client.
            metadata: metadata for the receivers, in addition to the hub's.
        """
        payload = {"type": type, "data": data, "excludeSelf": exclude_self}
        if capability is not None:
            metadata = {**(metadata or {}), "targetCapability": capability}
        answer = await self._ask("hub:broadcast", payload, metadata=metadata, counted=True)
        return convert(answer.payload, Broadcast).delivered_count

    async def discover(
        self,
        pattern: str = "*",
        *,
        capability: str | None = None,
        offset: int = 0,
        limit: int = 100,
    ) -> Actors:
        """Return actors whose addresses match ``pattern``, in which ``*`` matches any text."""
        payload: dict[str, Any] = {"pattern": pattern, "offset": offset, "limit": limit}
        if capability is not None:
            payload["capability"] = capability
        return convert((await self._ask("hub:discover", payload)).payload, Actors)

    async def list_actors(self, *, offset: int = 0, limit: int = 100) -> Actors:
        """Return ``limit`` of all actors, beginning with number ``offset``."""
        answer = await self._ask("hub:list_actors", {"offset": offset, "limit": limit})
        return convert(answer.payload, Actors)

    # The hub and the connection

    async def metrics(self) -> dict[str, Any]:
        """Return the counters of the hub; see hub:metrics in pubsubd-hub(7)."""
        return _object(await self._ask("hub:metrics", {}))

    async def queue_stats(self) -> dict[str, Any]:
        """Return the backlog of this connection; see hub:queue_stats in pubsubd-hub(7)."""
        return _object(await self._ask("hub:queue_stats", {}))

    @property
    def token(self) -> str | None:
        """The token of later connections, as it was renewed last; None if there is none."""
        return self._login.text if isinstance(self._login, Token) else self._token

    async def refresh_token(self) -> int:
        """Exchange the token for a new one, for this connection and later ones.

        Returns when the new token expires, in milliseconds since the epoch.
        """
        shown = isinstance(self._login, Token)
        token = self.token
        answer = await self._ask("hub:refresh_token", {"token": token})
        refreshed = convert(answer.payload, Refreshed)
        if shown:
            self._login = Token(refreshed.token)
        else:
            self._token = refreshed.token
        return refreshed.expires_at

    async def flush(self) -> None:
        """Wait until the hub has processed everything that was sent before.

        Raises:
            DaemonError, DisconnectedError: the connection broke after the last flush, and messages
                sent before that may be lost. This is raised once; the next flush may succeed.
            DaemonError: another error from the hub that no call has raised yet.
            BufferFullError: as in all methods.
        """
        await self._exchange.flush()

    async def ping(self) -> float:
        """Return the seconds that a :meth:`flush` took."""
        began = trio.current_time()
        await self.flush()
        return trio.current_time() - began

    # Reading

    def __aiter__(self) -> HubClient:
        return self

    async def __anext__(self) -> HubMessage:
        """Return the next message, and wait for one if necessary.

        The iteration ends only with an exception.

        Raises:
            DaemonError: an error from the hub that no call has raised yet; reading may go on.
            DaemonError, DisconnectedError: the client has ended, and all messages have been read.
        """
        return await self._exchange.receive()

    async def receive(self) -> list[HubMessage]:
        """Return all received messages, and wait for at least one. Raises as iterating does."""
        return await self._exchange.receive_all()

    def statistics(self) -> Statistics:
        """Return a snapshot. ``published`` counts all messages to others, published or sent."""
        return self._exchange.statistics(sum(bool(one.id) for one in self._topics.values()))

    # What the methods are made of

    async def _ask(
        self,
        kind: str,
        payload: Any,
        *,
        metadata: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> Incoming:
        request = self._exchange.request(kind, payload, metadata=metadata, kept=True, **more)
        return await self._exchange.ask(request)

    def _headers(self) -> list[tuple[bytes, bytes]]:
        return [] if self._login is None else [(b"Authorization", self._login.header())]

    def _hello(self) -> dict[str, Any]:
        metadata: dict[str, Any] = {"protocolVersion": VERSION, "capabilities": _RIGHTS}
        return metadata if self._token is None else metadata | {"authToken": self._token}

    async def _open(self) -> None:
        await self._exchange.wait_met()
        await self._restoring.wait_registered()


def _object(answer: Incoming) -> dict[str, Any]:
    if not isinstance(answer.payload, dict):
        raise DisconnectedError(f"the peer does not speak this protocol: {answer.type}")
    return answer.payload


@asynccontextmanager
async def open_hub_client(
    host: str = "127.0.0.1",
    port: int = 9015,
    *,
    actor: str | None = None,
    capabilities: Sequence[str] = (),
    metadata: Mapping[str, Any] | None = None,
    ttl: float = TTL,
    token: str | None = None,
    tls: bool | Tls | ssl.SSLContext = False,
    login: Credentials | None = None,
    reconnect: bool = True,
    max_message: int = MAX_MESSAGE,
    receive_buffer: int = RECEIVE_BUFFER,
    on_disconnect: Callable[[PubsubdError], object] | None = None,
    on_connect: Callable[[], object] | None = None,
    connect: Connect | None = None,
) -> AsyncIterator[HubClient]:
    """Connect to a hub and register an actor; at the end of the block, disconnect.

    Before disconnecting it flushes, if messages were sent that have no answer of their own.

    Args:
        host: name or address of the daemon.
        port: its hub port.
        actor: the address to register, for example ``@(python/worker-1)``; None for no actor.
        capabilities: the capabilities of the actor, at least one.
        metadata: the metadata of the actor.
        ttl: lifetime of the registration in seconds. It is renewed in time, and ends after this
            time if the client vanishes.
        token: a token to log in with in ``hub:connect``.
        tls: whether to use TLS. True trusts the certificate authorities of the system; a
            :class:`Tls` names others, and a certificate of the client. TLS 1.2 or newer is
            required, and the server's certificate must be for ``host``. An ``SSLContext`` is used
            as it is.
        login: the login, sent in an ``Authorization`` header at the beginning of each connection.
            Without ``tls`` it is sent unencrypted.
        reconnect: whether to reconnect, for ever, when the connection breaks. The waits are
            random, at first up to 0.5 s and later up to 30 s. The first connection is tried once.
        max_message: most bytes of a received message.
        receive_buffer: bytes of unread messages at which the client stops reading; each message
            counts 160 bytes extra. One read of 128 KiB or one message may exceed it. While a call
            waits for an answer, up to four times as much is buffered.
        on_disconnect: called with the reason each time a connection ends.
        on_connect: called each time the client has reconnected, when the hub has answered all
            subscriptions; one that it refuses is raised where messages are read. If one of these
            two handlers raises an exception, it is logged to the logger ``pubsubd.client`` and
            counted in ``statistics().faults``, and the client goes on.
        connect: a function that makes a connection to host and port, instead of TCP.

    Raises:
        ConfigError: a file that ``tls`` names cannot be used.
        ConnectError: the first connection could not be made.
        TlsError: it was made, but without a trusted TLS session.
        LoginError: the hub rejects the login or the token. If it does so only on a later
            connection, later calls raise this.
        DaemonError: the hub refuses the connection, or refuses to register the actor.
        DisconnectedError: the peer is not a hub.
        DaemonError, DisconnectedError: as in :meth:`HubClient.flush`, at the end of the block.
    """
    where = address(host, port)
    connect = connect or partial(dial, host, port, None)
    if tls:
        connect = Secured(connect, where, Tls() if tls is True else tls, host)
    client = HubClient(
        connect,
        host=where,
        actor=actor,
        capabilities=capabilities,
        metadata=metadata,
        ttl=ttl,
        token=token,
        login=login,
        reconnect=reconnect,
        max_message=max_message,
        receive_buffer=receive_buffer,
        on_disconnect=on_disconnect,
        on_connect=on_connect,
    )
    async with running(client._exchange, await connect()):
        await client._open()
        yield client
