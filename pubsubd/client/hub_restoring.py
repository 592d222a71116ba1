"""What a hub client asks for again on each new connection: its registration, its subscriptions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import trio

from pubsubd.client.exchange import Exchange
from pubsubd.client.faults import DaemonError, DisconnectedError
from pubsubd.client.hub_messages import (
    Connected,
    Incoming,
    Registered,
    Subscribed,
    SubscribedAll,
    convert,
)
from pubsubd.client.request import Request

_ENVELOPE = 2_048  # bytes of a message around its topics, at most


class Subscription:
    """A subscription to a topic.

    Attributes:
        topic: the topic, as it was given.
        id: the hub's identifier for it. It changes with each connection, and is empty while the
            hub has not confirmed the subscription on the present one.
    """

    __slots__ = ("id", "topic")

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.id = ""

    def __repr__(self) -> str:
        return f"Subscription({self.topic!r})"


class Restoring:
    """The registration of an actor, renewed in time, and the subscriptions.

    Attributes:
        exchange: asks the hub.
        topics: topic -> the subscription to it.
    """

    exchange: Exchange

    def __init__(self, registration: dict[str, Any] | None, ttl: float) -> None:
        self.topics: dict[str, Subscription] = {}
        self._registration = registration
        self._registering: Request | None = None  # the first registration
        self._renewal = ttl / 3

    def _register(self) -> Request:
        # Registering again renews, whatever has become of the registration.
        return self.exchange.post(self.exchange.request("hub:register", self._registration))

    def restore(self, nursery: trio.Nursery, connected: Connected) -> None:
        """Ask for everything again, at the beginning of a connection."""
        if self._registration is not None:
            request = self._register()
            self._registering = self._registering or request
            nursery.start_soon(self._understand, self._stay_registered, request)
        for subscription in self.topics.values():
            subscription.id = ""
        # Several at once, or those after the first hundred would be over the rate of the hub.
        posted = [
            (topics, self.exchange.post(self.request_topics(topics)))
            for topics in portions(self.topics, connected.max_topics, connected.max_message_size)
        ]
        nursery.start_soon(self._understand, self._subscribe_again, posted)

    def request_topics(self, topics: list[str]) -> Request:
        """Return the request that subscribes to topics."""
        some = {"topic": topics[0]} if len(topics) == 1 else {"topics": topics}
        return self.exchange.request("hub:subscribe", some | {"durable": False})

    async def _understand(self, task: Callable[..., Awaitable[None]], argument: Any) -> None:
        """Run a task of the connection; an answer that it cannot read ends the connection."""
        try:
            await task(argument)
        except DisconnectedError as error:
            self.exchange.stop(error, final=True)

    async def _stay_registered(self, request: Request) -> None:
        while True:
            # The answer may be behind messages that nobody reads: another one will do as well.
            with trio.move_on_after(self._renewal):
                wait = await self._hear_registered(request)
                await trio.sleep(wait)
            self.exchange.forget(request)
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
                self.exchange.object(error)
            return self._renewal
        if answer.timestamp is not None:
            held = convert(answer.payload, Registered).expires_at - answer.timestamp
            self._renewal = max(held / 3000, 0.01)
        return self._renewal

    async def _subscribe_again(self, posted: list[tuple[list[str], Request]]) -> None:
        """Wait until everything is subscribed again; ask again for what was over a rate."""
        for asked, first in posted:
            topics, request = asked, first
            while topics:
                try:
                    self._take_subscribed(topics, await self.exchange.wait(request))
                    break
                except DaemonError as error:
                    wait = _retry_after(error)
                    if wait is None:
                        self.exchange.object(error)
                        break
                    await trio.sleep(wait)
                    topics = [topic for topic in topics if topic in self.topics]
                    if topics:
                        request = self.exchange.post(self.request_topics(topics))
        self.exchange.announce()

    def _take_subscribed(self, topics: list[str], answer: Incoming) -> None:
        if len(topics) == 1:
            told = convert(answer.payload, Subscribed)
            found = {topics[0]: told.subscription_id}
        else:
            all_told = convert(answer.payload, SubscribedAll)
            found = {one.topic: one.subscription_id for one in all_told.subscriptions}
            for error in all_told.errors():
                self.exchange.object(error)
        for topic, identifier in found.items():
            if topic in self.topics:
                self.topics[topic].id = identifier

    async def wait_registered(self) -> None:
        """Wait for the answer to the first registration; raises DaemonError if it is refused."""
        if self._registering is not None:
            await self._registering.wait()


def portions(topics: Iterable[str], most: int, max_size: int) -> list[list[str]]:
    """Return the topics, as many together as fit into one message.

    Args:
        topics: what is to be subscribed.
        most: topics of one message.
        max_size: bytes of one message.
    """
    found: list[list[str]] = []
    room = 0
    for topic in topics:
        size = 6 * len(topic) + 3  # as JSON at most, with its quotes and a comma
        if not found or len(found[-1]) >= most or size > room:
            found.append([])
            room = max_size - _ENVELOPE
        found[-1].append(topic)
        room -= size
    return found


def _retry_after(error: DaemonError) -> float | None:
    """Return the seconds after which to try again, if only the rate was too high."""
    if error.code != "rate_limited":
        return None
    return 1.0 if error.retry_after is None else max(error.retry_after, 0.01)
