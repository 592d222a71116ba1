"""The hub client: topics, actors, and restoring them with each connection."""

from __future__ import annotations

import ssl
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
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
    Registered,
    Subscribed,
    Topic,
    Topics,
    convert,
    raw_payload,
)
from pubsubd.client.login import Credentials, Token
from pubsubd.client.reconnect import running
from pubsubd.client.request import Request
from pubsubd.client.secure import Secured, Tls
from pubsubd.client.state import RECEIVE_BUFFER, Statistics
from pubsubd.protocol import wire
from pubsubd.protocol.errors import ProtocolError, PubsubdError
from pubsubd.protocol.limits import MIB

PATH = "/ws"
"""The path of the WebSocket on a hub port."""

MAX_MESSAGE = 8 * MIB
"""Bytes of one message received: text of 1 MiB all of whose bytes JSON has to escape fits."""

TTL = 300.0
"""Seconds that a registration holds; it is renewed three times as often."""

_RIGHTS = ("send", "receive", "discover")  # that a connection says it wants


class Subscription:
    """A subscribed topic.

    Attributes:
        topic: as it was given.
        id: what the hub calls it; another one with each connection, empty until it is in force.
    """

    __slots__ = ("id", "topic")

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.id = ""

    def __repr__(self) -> str:
        return f"Subscription({self.topic!r})"


class HubClient:
    """A connection to a hub, and the next one when it breaks; made by :func:`open_hub_client`.

    Any number of tasks may use it at once. After the block each method raises
    :class:`trio.ClosedResourceError`. Each method that asks the hub may raise:

    - ProtocolError: ``payload-too-large``, the message is over what the hub takes; it is not sent.
    - DaemonError: what the hub refuses it with, for example ``rate_limited``, whose ``retry_after``
      tells when to try again; or why it has ended the connection.
    - DisconnectedError: the connection broke before the answer came. The hub may or may not have
      carried it out, unless the client has ended.
    - BufferFullError: before the answer come more messages than four receive buffers hold.

    A call that is cancelled may or may not be carried out.

    Attributes:
        address: what it is registered as; of one that is no actor, what it calls itself, though
            others see where it comes from.
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
        self._registration: dict[str, Any] | None = None
        if actor is not None:
            self._registration = {
                "actorAddress": actor,
                "capabilities": list(capabilities),
                "metadata": dict(metadata or {}),
                "ttlSeconds": ttl,
            }
        self._registering: Request | None = None  # the first registration
        self._renewal = ttl / 3
        self._topics: dict[str, Subscription] = {}
        self._exchange = Exchange(
            connect,
            host=host,
            path=PATH,
            address=self.address,
            headers=self._headers,
            hello=self._hello,
            restore=self._restore,
            **more,
        )

    # Topics

    async def publish(
        self,
        topic: str,
        type: str,  # noqa: A002  (it is called so everywhere)
        data: Any = None,
    ) -> int:
        """Publish one message, and return to how many connections it went.

        Args:
            topic: any name that the hub allows; subscribers on the line port get it as well.
            type: what kind of message it is.
            data: anything that msgspec can write as JSON. What the hub cannot read, as integers
                of more than 64 bits or 200 levels, makes it end the connection, which this call
                tells, as well as all that are under way.
        """
        payload = {"topic": topic, "type": type, "data": data}
        answer = await self._ask("hub:publish", payload, counted=True)
        return convert(answer.payload, Published).subscriber_count

    async def publish_raw(self, topic: str, data: str | bytes) -> int:
        """Publish text or bytes, which arrive at the line port as they are; see :meth:`publish`."""
        data = data.encode() if isinstance(data, str) else data
        return await self.publish(topic, RAW, raw_payload(topic, data))

    async def subscribe(self, topic: str) -> Subscription:
        """Receive all messages that are published to a topic, until :meth:`unsubscribe`.

        In a topic, ``+`` stands for any one level between slashes, and ``#`` at the end for any
        number of levels. A message comes once, however many topics match. Returns when it is in
        force; it outlives the connection. After a cancellation it may or may not be in force.

        Raises:
            DaemonError: the hub refuses it, and it is not kept; or the client has ended.
            DisconnectedError: the client has ended.
        """
        new = topic not in self._topics
        subscription = self._topics.setdefault(topic, Subscription(topic))
        while True:
            request = self._request_topic(topic)
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
        """Take back a subscription; messages that are on their way still arrive.

        Raises:
            ProtocolError: ``not-subscribed``, it is not there.
            DaemonError: the hub refuses it, so that it stays; or the client has ended.
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
        """Return some of the topics of the hub port."""
        answer = await self._ask("hub:list_topics", {"offset": offset, "limit": limit})
        return convert(answer.payload, Topics)

    async def topic_info(self, topic: str) -> Topic:
        """Return what the hub knows of a topic; raises DaemonError if it knows nothing."""
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
        """Send one message to an actor, and do not wait for anything but room in the outbox.

        Whether there is such an actor is not told; :meth:`ask` tells. What else the hub objects to
        is raised by the next :meth:`flush` or read.

        Args:
            to: its address, as :attr:`HubMessage.sender` of what is answered.
            type: what kind of message it is.
            data: anything that msgspec can write as JSON.
            metadata: more for the receiver, beside what the hub adds.
            correlation_id: that of the message that is answered.

        Raises:
            ProtocolError: as for all methods.
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
        """Send one message to an actor, and return when the hub has handed it over.

        What the actor answers comes as a message whose ``correlation_id`` is the ``message_id``
        that is returned.

        Raises:
            DaemonError: ``unknown_actor``, there is none of that address.
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
        """Send one message to all actors, and return how many it was handed to.

        Args:
            type: what kind of message it is.
            data: anything that msgspec can write as JSON.
            capability: only to actors that have it.
            exclude_self: not to this client.
            metadata: more for the receivers, beside what the hub adds.
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
        """Return some of the actors whose addresses match, in which ``*`` stands for anything."""
        payload: dict[str, Any] = {"pattern": pattern, "offset": offset, "limit": limit}
        if capability is not None:
            payload["capability"] = capability
        return convert((await self._ask("hub:discover", payload)).payload, Actors)

    async def list_actors(self, *, offset: int = 0, limit: int = 100) -> Actors:
        """Return some of all actors."""
        answer = await self._ask("hub:list_actors", {"offset": offset, "limit": limit})
        return convert(answer.payload, Actors)

    # The hub and the connection

    async def metrics(self) -> dict[str, Any]:
        """Return the counters of the hub, as in pubsubd-hub(7)."""
        return _object(await self._ask("hub:metrics", {}))

    async def queue_stats(self) -> dict[str, Any]:
        """Return the size of this connection's queue, as in pubsubd-hub(7)."""
        return _object(await self._ask("hub:queue_stats", {}))

    async def refresh_token(self) -> int:
        """Exchange the token for a new one, for this connection and later ones.

        Returns until when that one holds, in epoch milliseconds.
        """
        shown = isinstance(self._login, Token)
        token = self._login.text if isinstance(self._login, Token) else self._token
        answer = await self._ask("hub:refresh_token", {"token": token})
        refreshed = convert(answer.payload, Refreshed)
        if shown:
            self._login = Token(refreshed.token)
        else:
            self._token = refreshed.token
        return refreshed.expires_at

    async def flush(self) -> None:
        """Wait until the hub has carried out everything before.

        Raises:
            DaemonError, DisconnectedError: the connection broke after the last flush, and messages
                sent before that may be lost. Told once; another flush may well succeed.
            DaemonError: something else that the hub objected to and no call has told yet.
            BufferFullError: as for all methods.
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
        """Return the next message; waits for one. The iteration ends by an exception only.

        Raises:
            DaemonError: something the hub objected to and no call has told; reading may go on.
            DaemonError, DisconnectedError: the client has ended, and all that came is read.
        """
        return await self._exchange.receive()

    async def receive(self) -> list[HubMessage]:
        """Return all messages that have come, at least one; waits for it. Raises as iterating."""
        return await self._exchange.receive_all()

    def statistics(self) -> Statistics:
        """Return a snapshot; ``published`` counts all messages to others."""
        return self._exchange.statistics(len(self._topics))

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

    def _request_topic(self, topic: str) -> Request:
        return self._exchange.request("hub:subscribe", {"topic": topic, "durable": False})

    def _register(self) -> Request:
        # Registering again renews, whatever has become of the registration.
        return self._exchange.post(self._exchange.request("hub:register", self._registration))

    def _restore(self, nursery: trio.Nursery) -> None:
        if self._registration is not None:
            request = self._register()
            self._registering = self._registering or request
            nursery.start_soon(self._understand, self._stay_registered, request)
        waiting = [
            (topic, self._exchange.post(self._request_topic(topic))) for topic in self._topics
        ]
        if waiting:
            nursery.start_soon(self._understand, self._stay_subscribed, waiting)

    async def _understand(self, task: Callable[..., Awaitable[None]], argument: Any) -> None:
        """Run a task of the connection; an answer that it cannot read ends the connection."""
        try:
            await task(argument)
        except DisconnectedError as error:
            self._exchange.stop(error, final=True)

    async def _stay_registered(self, request: Request) -> None:
        while True:
            # The answer may be behind messages that nobody reads: another one will do as well.
            with trio.move_on_after(self._renewal):
                wait = await self._hear_registered(request)
                await trio.sleep(wait)
            self._exchange.forget(request)
            request = self._register()

    async def _hear_registered(self, request: Request) -> float:
        """Return the seconds after which to register again."""
        try:
            answer = await request.wait()
        except DaemonError as error:
            wait = _retry_after(error)
            if wait is not None:
                return wait
            if request is not self._registering:  # which the opening tells
                self._exchange.object(error)
            return self._renewal
        if answer.timestamp is not None:
            held = convert(answer.payload, Registered).expires_at - answer.timestamp
            self._renewal = max(held / 3000, 0.01)
        return self._renewal

    async def _stay_subscribed(self, waiting: list[tuple[str, Request]]) -> None:
        for topic, first in waiting:
            request = first
            while topic in self._topics:
                try:
                    answer = await request.wait()
                except DaemonError as error:
                    wait = _retry_after(error)
                    if wait is None:
                        self._exchange.object(error)
                        break
                    await trio.sleep(wait)
                    request = self._exchange.post(self._request_topic(topic))
                else:
                    if topic in self._topics:
                        told = convert(answer.payload, Subscribed)
                        self._topics[topic].id = told.subscription_id
                    break

    async def _open(self) -> None:
        await self._exchange.wait_met()
        if self._registering is not None:
            await self._registering.wait()


def _object(answer: Incoming) -> dict[str, Any]:
    if not isinstance(answer.payload, dict):
        raise DisconnectedError(f"the peer does not speak this protocol: {answer.type}")
    return answer.payload


def _retry_after(error: DaemonError) -> float | None:
    """Return the seconds after which to try again, if only the rate was too high."""
    if error.code != "rate_limited":
        return None
    return 1.0 if error.retry_after is None else max(error.retry_after, 0.01)


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
    """Connect and register; disconnect at the end of the block.

    It flushes before that if there are messages without an answer of their own.

    Args:
        host: name or address of the daemon.
        port: of its hub port.
        actor: the address to register, as ``@(python/worker-1)``; None to be no actor.
        capabilities: what the actor says that it can do, at least one.
        metadata: what it says of itself.
        ttl: seconds that its registration holds if this client vanishes; renewed in time.
        token: what to log in with in ``hub:connect``.
        tls: whether to encrypt: True trusts the authorities that the system trusts,
            :class:`Tls` tells others and what to show. TLS 1.2 or newer; the server's certificate
            has to be for ``host``. A context is used as it is.
        login: what to log in with at the beginning of each connection, in an ``Authorization``
            header. Without ``tls`` it goes over the network as it is.
        reconnect: whether to connect again, for ever, when the connection breaks. The waits are
            random, up to 0.5 s first and up to 30 s later. The first connection is tried once.
        max_message: bytes of a message that comes.
        receive_buffer: bytes received and not read yet (each message counts 160 more) at which
            reading stops. One read of 128 KiB or one message may go beyond it, and what comes
            before the answer to a waiting call, up to four times as much.
        on_disconnect: called with the reason each time a connection ends.
        on_connect: called each time a connection is there again. What either of the two raises is
            logged, by the logger ``pubsubd.client``, and counted in ``statistics().faults``; the
            client goes on.
        connect: how to make a connection to that host and port, instead of over TCP.

    Raises:
        ConfigError: a file that ``tls`` names cannot be used.
        ConnectError: there is no connection at the beginning.
        TlsError: there is one, but no TLS that is to be trusted.
        LoginError: the hub does not take the login or the token. Later calls raise it if that is so
            only for a later connection.
        DaemonError: the hub refuses it, or to register the actor.
        DisconnectedError: who is there is no hub.
        DaemonError, DisconnectedError: as :meth:`HubClient.flush`, at the end.
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
