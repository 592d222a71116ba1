"""Clients of the line protocol and of the hub port, on trio.

    async with open_client("127.0.0.1", 9014) as client:
        await client.subscribe("chat/")
        await client.publish("chat/main", "hello")
        async for message in client:
            print(message.name, message.data)

    async with open_hub_client("127.0.0.1", 9015, actor="@(python/me)", capabilities=["x"]) as hub:
        await hub.subscribe("chat/#")
        await hub.publish("chat/main", "chat:said", {"text": "hello"})
        await hub.send("@(browser/ui)", "greeting", {"from": "me"})
        async for message in hub:
            print(message.topic, message.type, message.data)

Both take ``tls=True``, or a :class:`Tls`, and ``login=Login("ann", secret)`` or ``Token(text)``.

Guarantees:

- **Order.** The messages of one task arrive in the order in which it published them. Publishing
  puts a command into a bounded outbox, and all of the outbox goes out in one send: no timers.
- **Certainty on request.** :meth:`Client.publish` returns when the message is in the outbox;
  :meth:`Client.flush` returns when the daemon has carried out everything before it, and raises
  if some of it may have been lost. Leaving the block flushes, unless an exception leaves it.
  On the hub port each message has its own answer, for which all methods but
  :meth:`HubClient.send` wait; many tasks may do so at once.
- **Bounds.** A full outbox makes publishers wait. A full receive buffer stops the reading, so a
  program that does not read is throttled, and perhaps disconnected, as any slow consumer.
- **Reconnection.** A broken connection is made again, for ever, with its subscriptions, unless
  ``reconnect=False``; on the hub port also with the registration, which is kept from expiring. Two
  kinds of messages are lost with a connection: those that others publish until it is back, and our
  own that were sent and not confirmed, which the next flush or the waiting call reports. Publishing
  meanwhile waits for as long as the caller's cancel scope allows. No message is ever sent twice.
- **No silent faults.** An error of the daemon is raised as :class:`DaemonError` by the call that
  caused it, if that can be known, otherwise by the next flush or read. An error that a new
  connection would only repeat (a payload over the daemon's limit, a peer that is no pubsubd, a
  refused login, an untrusted certificate, an actor that somebody else has registered meanwhile)
  ends the client: each later call raises it. An exception of a handler, or of the client itself,
  ends neither the block nor the reconnection: the logger ``pubsubd.client`` has its traceback, once
  a minute, and :attr:`Statistics.faults` counts all of them.
- **Secrets stay here.** A password or token goes to the daemon alone, and is in no exception, log
  or representation of an object.

Every exception raised on purpose is a :class:`~pubsubd.protocol.errors.PubsubdError`, never in a
group.
Every waiting method checks for cancellation; those that did not have to wait let other tasks run
at every 64th call rather than each time, which is what makes batches.
"""

from typing import TYPE_CHECKING, Any

from pubsubd.client.faults import (
    BufferFullError,
    ConnectError,
    DaemonError,
    DisconnectedError,
    LoginError,
    TlsError,
)
from pubsubd.client.line import Client, Message, open_client
from pubsubd.client.login import Login, Token
from pubsubd.client.secure import Tls
from pubsubd.client.state import Statistics

if TYPE_CHECKING:
    from pubsubd.client.hub import HubClient, Subscription, open_hub_client
    from pubsubd.client.hub_messages import Actor, Actors, Delivered, HubMessage, Topic, Topics

__all__ = [
    "Actor",
    "Actors",
    "BufferFullError",
    "Client",
    "ConnectError",
    "DaemonError",
    "Delivered",
    "DisconnectedError",
    "HubClient",
    "HubMessage",
    "Login",
    "LoginError",
    "Message",
    "Statistics",
    "Subscription",
    "Tls",
    "TlsError",
    "Token",
    "Topic",
    "Topics",
    "open_client",
    "open_hub_client",
]


def __getattr__(name: str) -> Any:
    # `pubsubd pub` would take a quarter longer to start, for what it does not use.
    if name in __all__:
        from pubsubd.client import hub, hub_messages  # noqa: PLC0415

        return getattr(hub if hasattr(hub, name) else hub_messages, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
