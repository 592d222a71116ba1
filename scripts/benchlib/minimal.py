"""What a pub/sub server over WebSocket costs at least, written with the package ``websockets``.

Started as ``python minimal.py PORT``. Everything that a server could leave out is
left out: no limits, no checks, no compression, no keep-alive, nothing but what the
benchmark asks for. It speaks two kinds of JSON: ``hub:*`` with the fields that its
clients read, and its own:

    {"type": "subscribe", "topic": T}            answered {"type": "subscribed", "topic": T}
    {"type": "publish", "id", "topic", "data"}   answered {"type": "published", "id", "receivers"}
    {"type": "message", "topic", "data"}         to all who have subscribed the topic
    {"type": "ping"}                             answered {"type": "pong"}
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
import uuid
from typing import Any

from websockets.asyncio.server import ServerConnection, broadcast, serve

topics: dict[str, dict[ServerConnection, str]] = {}  # topic -> subscriber -> its address


def hub_message(kind: str, payload: Any, sender: str, to: str, **more: Any) -> str:
    """A message of ``hub:*``."""
    message = {
        "id": str(uuid.uuid4()),
        "from": sender,
        "to": to,
        "type": kind,
        "payload": payload,
        "pattern": "tell",
        "correlationId": None,
        "timestamp": int(time.time() * 1000),
        "metadata": {},
        "ttl": None,
        "signature": None,
    }
    return json.dumps(message | more)


def publish(message: dict[str, Any]) -> str:
    """Deliver what is published in ``hub:*``; the acknowledgement."""
    sender, payload = message["from"], message["payload"]
    topic = payload["topic"]
    receivers = topics.get(topic, {})
    metadata = {"topic": topic, "publication": True, "forwarded": True, "via": message["to"]}
    for receiver, address in receivers.items():
        text = hub_message(payload["type"], payload["data"], sender, address, metadata=metadata)
        broadcast((receiver,), text)
    return answer(message, "hub:published", {"topic": topic, "subscriberCount": len(receivers)})


def answer(message: dict[str, Any], kind: str, payload: Any) -> str:
    """An answer of ``hub:*``."""
    to, sender = message["from"], message["to"]
    return hub_message(kind, payload, sender, to, correlationId=message["id"])


async def talk(connection: ServerConnection) -> None:
    """One connection, from its first message to its end."""
    subscribed = []
    try:
        async for text in connection:
            message = json.loads(text)
            kind = message["type"]
            if kind == "hub:publish":
                await connection.send(publish(message))
            elif kind == "publish":
                topic = message["topic"]
                receivers = topics.get(topic, ())
                out = {"type": "message", "topic": topic, "data": message["data"]}
                broadcast(receivers, json.dumps(out))
                ack = {"type": "published", "id": message["id"], "receivers": len(receivers)}
                await connection.send(json.dumps(ack))
            elif kind == "subscribe":
                topic = message["topic"]
                subscribed.append(topic)
                topics.setdefault(topic, {})[connection] = ""
                await connection.send(json.dumps({"type": "subscribed", "topic": topic}))
            elif kind == "hub:subscribe":
                topic = message["payload"]["topic"]
                subscribed.append(topic)
                topics.setdefault(topic, {})[connection] = message["from"]
                await connection.send(answer(message, "hub:subscribed", {"topic": topic}))
            elif kind == "hub:connect":
                await connection.send(answer(message, "hub:connected", {}))
            elif kind == "hub:register":
                await connection.send(answer(message, "hub:registered", message["payload"]))
            else:
                await connection.send(json.dumps({"type": "pong"}))
    finally:
        for topic in subscribed:
            topics[topic].pop(connection, None)


async def main(port: int) -> None:
    """Serve until killed."""
    async with serve(talk, "127.0.0.1", port, ping_interval=None, compression=None):
        await asyncio.get_running_loop().create_future()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
