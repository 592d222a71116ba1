"""A client of the line protocol, on trio.

    async with open_client("127.0.0.1", 9014) as client:
        await client.subscribe("chat/")
        await client.publish("chat/main", "hello")
        async for message in client:
            print(message.name, message.data)

What it promises:

- **Order.** What one task publishes arrives in that order. Publishing puts the command into a
  bounded outbox, and whatever has gathered there goes out in one send: no timers.
- **Certainty on request.** :meth:`Client.publish` returns when the message is in the outbox;
  :meth:`Client.flush` returns when the daemon has carried out everything before it, and raises
  if some of it may have been lost. Leaving the block flushes, unless an exception leaves it.
- **Bounds.** A full outbox makes publishers wait. A full receive buffer stops the reading, so that
  a program which does not read is throttled, and perhaps cut, by the daemon as any slow consumer.
- **Connections are renewed**, for ever, and subscriptions with them, unless told otherwise. Lost
  with a connection are the messages published by others until it is back, and those of our own
  that the old one had taken without confirming them, of which the next flush tells. Publishing
  meanwhile waits for as long as the caller's cancel scope allows. Nothing is ever sent twice.
- **No fault is silent.** What the daemon objects to is raised as :class:`DaemonError` by the call
  that caused it, where that can be known, otherwise by the next flush or read. A fault that a new
  connection would only repeat (a payload over the daemon's limit, a peer that is no pubsubd) ends
  the client: each later call raises it.

Every exception raised on purpose is a :class:`~pubsubd.errors.PubsubdError`, never in a group.
Every waiting method checks for cancellation; those that did not have to wait let other tasks run
at every 64th call rather than each time, which is what makes batches.
"""

from pubsubd.client.faults import BufferFullError, ConnectError, DaemonError, DisconnectedError
from pubsubd.client.line import Client, Message, Statistics, open_client

__all__ = [
    "BufferFullError",
    "Client",
    "ConnectError",
    "DaemonError",
    "DisconnectedError",
    "Message",
    "Statistics",
    "open_client",
]
