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

Both take ``tls=True`` or a :class:`Tls`, and ``login=Login("ann", secret)`` or
``login=Token(text)``.

Both clients promise this:

- **Order.** Messages published by one task arrive in the order in which they were published.
  Publishing puts the command into a bounded outbox. A background task sends everything in the
  outbox at once. No timers are used.
- **Confirmation on request.** :meth:`Client.publish` returns when the message is in the outbox.
  :meth:`Client.flush` returns when the daemon has processed everything before it, and raises an
  exception if messages may have been lost. Leaving the block flushes, unless an exception leaves
  it. On the hub port each message has its own answer. :meth:`HubClient.publish`,
  :meth:`HubClient.ask` and all other methods except :meth:`HubClient.send` wait for it; many tasks
  may do so at the same time.
- **Bounded memory.** While the outbox is full, publishers wait. While the receive buffer is full,
  the client stops reading, and the daemon treats it as any slow consumer: publishers wait for it,
  and it may be disconnected.
- **Reconnecting.** The client reconnects for ever, unless told otherwise, and subscribes again. On
  the hub port it also registers its actor again, and renews the registration before it expires.
  Two kinds of messages are lost with a connection: those that others publish before it is back,
  and those of this client that were sent and not confirmed. The latter are reported by the next
  flush, or by the call that waits. While there is no connection, publishing waits for as long as
  the caller's cancel scope allows. No message is ever sent twice.
- **No silent faults.** An error from the daemon is raised as :class:`DaemonError` by the call that
  caused it if that is known, otherwise by the next flush or read. Some faults would only occur
  again on a new connection: a payload over the daemon's limit, a peer that is not pubsubd, a
  rejected login, an untrusted certificate, an actor that another client has registered meanwhile.
  They end the client, and each later call raises them. An exception in a handler or a bug in the
  client ends neither the block nor the reconnecting. Its traceback is logged to the logger
  ``pubsubd.client``, at most once a minute, and :attr:`Statistics.faults` counts it.
- **Secrets are kept.** A password or token is sent to the daemon only. It appears in no exception,
  no log and no ``repr()``.

Every exception that is raised on purpose is a :class:`~pubsubd.protocol.errors.PubsubdError`. It is
never wrapped in an exception group. Every method that can wait is a checkpoint for cancellation. If
it did not have to wait, it lets other tasks run only at every 64th call, so that messages gather
into batches.
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
    from pubsubd.client.hub import HubClient, open_hub_client
    from pubsubd.client.hub_messages import Actor, Actors, Delivered, HubMessage, Topic, Topics
    from pubsubd.client.hub_restoring import Subscription

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
