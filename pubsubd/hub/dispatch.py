"""Dispatch: the dialect that each event of a connection's input belongs to.

A message is recognised by its shape: a ``command`` is Synap's, a type under ``hub:`` is Signal
Hub's, a type under ``__`` or exactly the keys of an envelope is an event target's. Faults that
belong to no message are answered in the dialect that the connection has spoken so far.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import msgspec

from pubsubd.broker.turn import Steps
from pubsubd.hub import envelopes, lines, web
from pubsubd.hub.connection import HubConnection, close_for
from pubsubd.hub.frames import WEBSOCKET, Closed, Send, TooLarge
from pubsubd.hub.http import HttpError, HttpReader, Request
from pubsubd.hub.line_reader import LineReader
from pubsubd.hub.messages import Incoming
from pubsubd.hub.port import Hub
from pubsubd.hub.render import Form
from pubsubd.hub.signal import Signal, handle, remember
from pubsubd.hub.strict import JsonError, read
from pubsubd.hub.synap import Answer, SynapError, check_command
from pubsubd.hub.templates import UNLIKE, Sample
from pubsubd.hub.websocket_reader import WebSocketReader
from pubsubd.protocol.errors import ProtocolError
from pubsubd.protocol.wire import error_frame

_decode_incoming = msgspec.json.Decoder(Incoming).decode
_encode = msgspec.json.Encoder().encode


def take(hub: Hub, connection: HubConnection, raw: bytes) -> bool:
    """Carry out one message; return whether it was as an earlier one, and so cost less."""
    if connection.lines:
        lines.take(connection, raw)
        return False
    template = connection.template
    if template is not None and template.take(raw):
        return True
    connection.unlike += 1
    try:
        value, text = read(raw)
    except JsonError as error:
        _refuse_json(hub, connection, error)
        return False
    if type(value) is dict and isinstance(command := value.get("command"), str):
        payload, request = value.get("payload"), value.get("request_id")
        answer = partial(_answer, connection, command)
        if command == "pubsub.publish" and (sample := _sample(connection, raw, text)):
            connection.template = hub.synap.remember(payload, request, sample, connection, answer)
        peer = connection.peer
        run = partial(hub.synap.run, command, payload, connection, peer.permission, peer.identity)
        answer(request, run)
        return False
    try:
        message = _decode_incoming(text)
    except msgspec.ValidationError:
        hub.signals[connection].invalid()
        return False
    kind = message.type
    if not isinstance(kind, str):
        hub.signals[connection].invalid()
    elif kind.startswith("hub:"):
        if kind in ("hub:publish", "hub:send") and (sample := _sample(connection, raw, text)):
            connection.template = remember(hub.signals[connection], message, sample)
        handle(hub.signals[connection], message)
    elif kind.startswith("__") or (len(value) == 3 and "id" in value and "payload" in value):
        if sample := _sample(connection, raw, text):
            connection.template = envelopes.remember(connection, message, sample)
        envelopes.handle(connection, message)
    elif kind == "ping" and len(value) == 1:
        connection.put(b'{"type":"pong"}')
    else:
        hub.signals[connection].unknown(message)
    return False


def _sample(connection: HubConnection, text: bytes, read: bytes) -> Sample | None:
    """Return a publication if it is time to make another template."""
    if connection.unlike < UNLIKE:
        return None
    connection.unlike = 0
    return Sample(text, read)


def react(hub: Hub, connection: HubConnection, event: Any, events: deque[Any]) -> None:
    """Deal with an event that is no message: a request over HTTP, or one of a reader's.

    Args:
        hub: the port.
        connection: whose event it is.
        event: as a reader has found it.
        events: those that come next.
    """
    if isinstance(event, Request):
        web.answer(hub, connection, event, events)
    elif isinstance(event, Send):
        connection.put_raw(event.data)
    elif isinstance(event, TooLarge):
        _refuse_size(hub, connection, event.size)
    elif isinstance(event, Closed):
        connection.put_raw(event.reply)
        code = "bad-websocket" if event.code in (1002, 1003, 1007, 1009) else "goodbye"
        connection.close(ProtocolError(code, f"{event.code} {event.reason}".strip()))
    elif isinstance(event, HttpError):
        web.refuse(connection, event)
    else:
        raise TypeError(event)


def close_reason(hub: Hub, connection: HubConnection, error: ProtocolError) -> bytes:
    """Return the last frames of a connection that ends for that reason.

    A hub:error if it speaks ``hub:*``, or lines of JSON; a close frame if it is a WebSocket.
    """
    if error.code == "tls-required":  # most likely to a browser
        body = _encode({"error": f"{error.code}: {error.text}"})
        return HttpReader(0).respond(400, body, close=True)
    kind, signal = type(connection.reader), hub.signals.get(connection)
    frames = b""
    if connection.lines:
        frames = connection.framing.frame(error_frame(error))
    elif error.code == "duplicate-connection" and signal is not None:
        frames = connection.framing.frame(signal.displaced(error.text))
    elif kind is LineReader or signal is not None:
        code = "timeout" if error.code.endswith("timeout") else "internal_error"
        code = "unauthorized" if error.code == "login-revoked" else code
        details = {"reason": error.code}
        signal = signal or Signal(connection)
        frames = connection.framing.frame(signal.close_reason(code, error.text, details))
    if kind is WebSocketReader:
        frames += close_for(error)
    return frames


def _answer(
    connection: HubConnection, command: str, request: object, run: Callable[[], Answer]
) -> None:
    """Carry out a command of Synap's, and answer it."""
    answer = {"success": True, "request_id": request, "payload": None, "error": None}
    try:
        check_command(connection, command)
        payload = run()
        if not isinstance(payload, dict):
            connection.step = _finish(connection, answer, payload)
            return
        answer["payload"] = payload
    except SynapError as error:
        answer["success"], answer["error"] = False, error.text
    connection.put(_encode(answer))


def _finish(
    connection: HubConnection, answer: dict[str, Any], steps: Steps[dict[str, Any]]
) -> Iterator[None]:
    """Answer a command that takes several turns."""
    try:
        answer["payload"] = yield from steps
    except SynapError as error:
        answer["success"], answer["error"] = False, error.text
    connection.put(_encode(answer))


def _refuse_json(hub: Hub, connection: HubConnection, error: JsonError) -> None:
    """Answer a text that is not JSON, and end the connection."""
    if _speaks_envelopes(hub, connection):
        hub.ignored += 1
        return
    signal = hub.signals.get(connection) or Signal(connection)
    signal.error("internal_error", f"not JSON: {error.text}", {"reason": "bad-json"})
    connection.close(ProtocolError("bad-json", error.text), tell=connection.framing is WEBSOCKET)


def _refuse_size(hub: Hub, connection: HubConnection, size: int) -> None:
    """Answer a message that was too large to be held."""
    if connection.lines:
        lines.refuse_size(connection, size)
        return
    if _speaks_envelopes(hub, connection):
        hub.ignored += 1
        return
    most = connection.limits.max_message
    details = {"actualSize": size, "maxSize": most}
    text = f"{size} bytes, over {most}"
    signal = hub.signals.get(connection)
    if signal is None and hub.synap.subscribers.of(connection) is not None:
        text = f"Invalid request: message too large: {text}"
        answer = {"success": False, "request_id": None, "payload": None, "error": text}
        connection.put(_encode(answer))
    else:
        (signal or Signal(connection)).error("message_too_large", text, details)


def _speaks_envelopes(hub: Hub, connection: HubConnection) -> bool:
    return connection.subscriptions.form is Form.ENVELOPE and connection not in hub.signals
