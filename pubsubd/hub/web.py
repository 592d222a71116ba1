"""Answers to requests over HTTP: console, health, metrics, Synap's commands, WebSocket.

Everything a browser could be made to send by a stranger's page is checked first: the Host, against
names that an attacker's DNS could point here, and the Origin.
"""

from __future__ import annotations

import datetime
import math
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import msgspec

from pubsubd import __version__
from pubsubd.access.proxies import forwarded_for
from pubsubd.broker.turn import Steps
from pubsubd.hub import console, lines, synap
from pubsubd.hub.browsers import check_host, check_origin, cors_headers
from pubsubd.hub.connection import HubConnection
from pubsubd.hub.http import HttpError, HttpReader, Request
from pubsubd.hub.login import Headers, log_in
from pubsubd.hub.port import Hub
from pubsubd.hub.strict import JsonError, decode
from pubsubd.hub.synap import SynapError
from pubsubd.protocol.errors import ProtocolError
from pubsubd.protocol.wire import host_in, show_address

_encode = msgspec.json.Encoder().encode

STATISTICS = b"//pubsubd/stats"
"""The name that one must have the right to receive to read the metrics."""

SUBPROTOCOLS = ("pubsubd", "signal-hub", "synap")
"""Names that a WebSocket may ask for; all dialects are spoken whichever it is."""

SOCKETS = ("/", "/ws", "/pubsub/ws", "/line")
"""Paths of WebSockets; the last one carries the line protocol."""

ABOUT = "/console/about.json"
"""Path of the version of this daemon and the addresses of its line port, for the console."""


def refuse(connection: HubConnection, error: HttpError) -> None:
    """Answer a malformed request, and end the connection."""
    _answer(connection, error.status, {"error": error.text}, close=True)
    connection.close(ProtocolError("bad-http", f"{error.status} {error.text}"))


def refusal(error: ProtocolError) -> bytes:
    """Return the answer to a connection that is refused before it has sent anything."""
    body = _encode({"error": f"{error.code}: {error.text}"})
    return HttpReader(0).respond(503, body, close=True)


def answer(hub: Hub, connection: HubConnection, request: Request, events: deque[Any]) -> None:
    """Answer one request, or go on as a WebSocket."""
    if connection.peer.listener.proxies and not _locate(connection, request):
        return
    host, origin = request.headers.get("host"), request.headers.get("origin")
    if not check_host(host, hub.hosts):
        _answer(connection, 421, {"error": "this Host is not served here"})
        return
    if not check_origin(origin, host or "", hub.origins):
        _answer(connection, 403, {"error": "this Origin is not allowed"})
        return
    cors: Headers = []
    if origin is not None:
        cors = cors_headers(origin)
        if request.method == "OPTIONS":
            connection.put_raw(connection.http.respond(204, headers=cors))
            return
    if request.upgrade:
        _upgrade(hub, connection, request, events)
        return
    counted = request.method == "POST" or connection.again
    if not counted and (wait := hub.policy.wait_for_request(connection.peer)):
        headers = [("Retry-After", str(math.ceil(wait))), *cors]
        text = hub.policy.refuse_request(connection.peer, wait)
        _answer(connection, 429, {"error": text}, headers)
        return
    if request.path in ("/health", "/healthz", "/readyz"):
        state = hub.state if request.path == "/readyz" else "ok"
        if _reads(connection, request, cors):
            _answer(connection, 200 if state == "ok" else 503, _health(hub, state), cors)
    elif (file := console.files().get(request.path)) is not None:
        if _reads(connection, request, cors):
            _tell_file(connection, file, host)
    elif request.path == ABOUT:
        if _reads(connection, request, cors):
            _answer(connection, 200, _about(hub), cors)
    elif request.path in SOCKETS:
        headers = [("Upgrade", "websocket"), ("Sec-WebSocket-Version", "13"), *cors]
        _answer(connection, 426, {"error": "this is a WebSocket: ask for an upgrade"}, headers)
    elif not log_in(connection, request, events, cors, needed=True):
        pass
    elif request.path == "/metrics":
        if _reads(connection, request, cors):
            _metrics(hub, connection, request, cors)
    elif request.path == "/api/v1/command":
        _command(hub, connection, request, cors)
    else:
        _rest(hub, connection, request, cors)


def _locate(connection: HubConnection, request: Request) -> bool:
    """Find out who sends a request through a trusted proxy; False if it is refused."""
    via, proxies = connection.via, connection.peer.listener.proxies
    if host_in(via) not in proxies:
        return True
    try:
        client = forwarded_for(request.headers, proxies)
    except ValueError as error:
        _answer(connection, 400, {"error": str(error)})
        return False
    connection.speak_for(via if client is None else show_address(*client))
    return True


def _answer(
    connection: HubConnection,
    status: int,
    value: Any,
    headers: Headers | None = None,
    *,
    close: bool = False,
) -> None:
    body = _encode(value)
    connection.put_raw(connection.http.respond(status, body, headers=headers or [], close=close))


def _reads(connection: HubConnection, request: Request, cors: Headers) -> bool:
    """Return whether a request is for what can only be read; if not, it is answered."""
    if request.method in ("GET", "HEAD"):
        return True
    _answer(connection, 405, {"error": "method not allowed"}, [("Allow", "GET, HEAD"), *cors])
    return False


def _metrics(hub: Hub, connection: HubConnection, request: Request, cors: Headers) -> None:
    """Answer with the metrics, for which one needs the right to receive the statistics."""
    scrape, permission = hub.scrape, connection.peer.permission
    if scrape is None:
        _answer(connection, 404, {"error": "no such path"}, cors)
    elif not connection.may("receive") or (
        permission is not None and not permission.may_receive(STATISTICS)
    ):
        hub.broker.counters.errors["not-allowed"] += 1
        _answer(connection, 403, {"error": f"no right to receive {STATISTICS.decode()}"}, cors)
    else:
        connection.step = _tell_metrics(connection, scrape(request.headers.get("accept", "")), cors)


def _tell_metrics(
    connection: HubConnection, making: Steps[tuple[bytes, str]], cors: Headers
) -> Iterator[None]:
    body, kind = yield from making
    connection.put_raw(connection.http.respond(200, body, content_type=kind, headers=cors))


def _health(hub: Hub, status: str) -> dict[str, Any]:
    now = datetime.datetime.fromtimestamp(hub.wall(), datetime.UTC)
    stamp = now.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return {"status": status, "service": "pubsubd", "version": __version__, "timestamp": stamp}


def _tell_file(connection: HubConnection, file: console.File, host: str | None) -> None:
    text, kind = file
    headers = console.headers(host)
    connection.put_raw(connection.http.respond(200, text, content_type=kind, headers=headers))


def _about(hub: Hub) -> dict[str, Any]:
    """Return what the console has to know before a login, of which it tells nobody's secrets."""
    logins = hub.broker.access.able
    return {"version": __version__, "line": hub.line_addresses, "logins": logins}


def _upgrade(hub: Hub, connection: HubConnection, request: Request, events: deque[Any]) -> None:
    if request.path not in SOCKETS:
        _answer(connection, 404, {"error": "no WebSocket here: use /ws"})
        return
    # Others may still say who they are in hub:connect.
    if not log_in(connection, request, events, [], needed=request.path == "/pubsub/ws"):
        return
    topics = [
        topic for text in request.query.get("topics", []) for topic in text.split(",") if topic
    ]
    subprotocol = choose_subprotocol(request.headers.get("sec-websocket-protocol", ""))
    if request.path == "/line":
        identity = connection.identity
        if identity is None or (identity.allows("publish") and identity.allows("subscribe")):
            lines.begin(connection, subprotocol)
        else:  # as on the line port, where nothing would hold it to its capabilities
            text = "the token allows too little for the line protocol"
            _answer(connection, 403, {"error": text})
        return
    if request.path != "/pubsub/ws":
        connection.upgrade(connection.http, subprotocol)
        return
    if not topics:
        _answer(connection, 400, {"error": "Invalid request: At least one topic required"})
        return
    try:
        synap.check_command(connection, "pubsub.subscribe")
        answer = _run(hub, connection, "pubsub.subscribe", {"topics": topics}, connection)
    except SynapError as error:
        _refuse_command(connection, error, [])
        return
    refused = partial(_refuse_command, connection, cors=[])
    _reply(connection, answer, partial(_connect, hub, connection, subprotocol), refused)


def choose_subprotocol(asked: str) -> str | None:
    """Return the first of the subprotocols that is one of :data:`SUBPROTOCOLS`.

    If there is none, none is answered (RFC 6455, section 4.2.2), and a browser gives up then.
    """
    return next((one for one in map(str.strip, asked.split(",")) if one in SUBPROTOCOLS), None)


def _connect(
    hub: Hub, connection: HubConnection, subprotocol: str | None, _payload: dict[str, Any]
) -> None:
    connection.upgrade(connection.http, subprotocol)
    subscriber = hub.synap.subscribers.of(connection)
    assert subscriber is not None
    connection.put(_encode(synap.connected(subscriber)))


def _refuse_command(connection: HubConnection, error: SynapError, cors: Headers) -> None:
    _answer(connection, synap.status(error), {"error": error.text}, cors)


def _run(
    hub: Hub,
    connection: HubConnection,
    command: str,
    payload: object,
    subscribes: HubConnection | None = None,
) -> synap.Answer:
    """Carry out a command of Synap's.

    Subscriptions are not the connection's, which is HTTP, unless it is ``subscribes`` as well.
    """
    peer = connection.peer
    return hub.synap.run(command, payload, subscribes, peer.permission, peer.identity)


def _reply(
    connection: HubConnection,
    answer: synap.Answer,
    done: Callable[[dict[str, Any]], None],
    refused: Callable[[SynapError], None],
) -> None:
    """Pass on the answer to a command, now or when it is there."""
    if isinstance(answer, dict):
        done(answer)
    else:
        connection.step = _finish(answer, done, refused)


def _finish(
    steps: Steps[dict[str, Any]],
    done: Callable[[dict[str, Any]], None],
    refused: Callable[[SynapError], None],
) -> Iterator[None]:
    try:
        payload = yield from steps
    except SynapError as error:
        refused(error)
    else:
        done(payload)


def _command(hub: Hub, connection: HubConnection, request: Request, cors: Headers) -> None:
    if request.method != "POST":
        _answer(connection, 405, {"error": "method not allowed"}, [("Allow", "POST"), *cors])
        return
    reply: dict[str, Any] = {"success": False, "request_id": None, "payload": None, "error": None}
    answer: synap.Answer | SynapError
    try:
        value = decode(request.body)
        if not isinstance(value, dict) or not isinstance(value.get("command"), str):
            raise SynapError("Invalid request: Missing 'command' field")
        reply["request_id"] = value.get("request_id")
        synap.check_command(connection, value["command"])
        answer = _run(hub, connection, value["command"], value.get("payload"))
    except JsonError as error:
        answer = SynapError(f"Invalid request: not JSON: {error.text}")
    except SynapError as error:
        answer = error

    def done(payload: dict[str, Any]) -> None:
        _answer(connection, 200, {**reply, "success": True, "payload": payload}, cors)

    def refused(error: SynapError) -> None:
        _answer(connection, 200, {**reply, "error": error.text}, cors)

    if isinstance(answer, SynapError):
        refused(answer)
    else:
        _reply(connection, answer, done, refused)


def _rest(hub: Hub, connection: HubConnection, request: Request, cors: Headers) -> None:
    try:
        found = synap.rest(request.method, request.path, request.body)
        if found is None:
            _answer(connection, 404, {"error": "no such path"}, cors)
            return
        command, payload = found
        synap.check_command(connection, command, counted=True)
        _reply(
            connection,
            _run(hub, connection, command, payload),
            lambda value: _answer(connection, 200, value, cors),
            partial(_refuse_command, connection, cors=cors),
        )
    except JsonError as error:
        _answer(connection, 400, {"error": f"Invalid request: not JSON: {error.text}"}, cors)
    except SynapError as error:
        _refuse_command(connection, error, cors)
