"""The line protocol over WebSocket: all that a client of the line port can do, for browsers.

Strategy: what the messages of the WebSocket hold is the input of the broker, as if it came from a
socket of the line port; where one message ends means nothing. Output is frames of the line
protocol as the broker delivers them, some whole ones in each message.

Invariant: nothing that comes in this way is taken for the hub's own word, see
:meth:`pubsubd.hub.core.HubCore.batch`.
"""

from __future__ import annotations

from collections.abc import Iterator

from pubsubd.hub.connection import HubConnection, close_for
from pubsubd.hub.frames import close_frame
from pubsubd.protocol.errors import ProtocolError
from pubsubd.protocol.wire import error_frame

_HEAD = 2_048  # bytes before the data of a frame: the verb, the longest name and the length


def begin(connection: HubConnection, subprotocol: str | None) -> None:
    """Go on as a WebSocket that carries the line protocol."""
    connection.upgrade(connection.http, subprotocol, max_message(connection))
    connection.speak_lines()


def max_message(connection: HubConnection) -> int:
    """Return how many bytes one message may have: any command fits."""
    listener = connection.peer.listener
    return max(listener.hub_limits.max_message, listener.limits.max_payload + _HEAD)


def take(connection: HubConnection, data: bytes) -> None:
    """Carry out what has come; ``connection.step`` has what is left for further turns."""
    broker = connection.hub.broker
    broker.counters.bytes_in -= len(data)  # counted as bytes of the WebSocket
    if broker.receive(connection.peer, data):
        connection.step = _go_on(connection)
    else:
        end(connection)


def _go_on(connection: HubConnection) -> Iterator[None]:
    while connection.hub.broker.receive(connection.peer, b""):
        yield
    end(connection)


def end(connection: HubConnection) -> None:
    """Close the WebSocket if the broker has ended the connection, and told the client why."""
    peer = connection.peer
    if peer.ending is None or connection.closing is not None:
        return
    connection.closing, peer.ending = peer.ending, None  # or nothing would be sent any more
    connection.put_raw(close_for(connection.closing))
    connection.flush()
    peer.ending = connection.closing


def refuse_size(connection: HubConnection, size: int) -> None:
    """End a connection for a message that is too large to be held: commands would be missing."""
    text = f"a message of {size} bytes, over {max_message(connection)}"
    error = ProtocolError("bad-websocket", text)
    connection.put(error_frame(error))
    connection.put_raw(close_frame(1009, f"{error.code}: {error.text}"))
    connection.close(error)
