"""What the paths of the hub port do: the console page, health, Synap, and the way to WebSocket.

Everything a browser could be made to send by a stranger's page is checked first: the Host, against
names that an attacker's DNS could point here, and the Origin.
"""

from __future__ import annotations

import datetime
import functools
from collections import deque
from importlib import resources
from typing import TYPE_CHECKING, Any

import msgspec

from pubsubd import __version__
from pubsubd.errors import ProtocolError
from pubsubd.hub import synap
from pubsubd.hub.auth import AuthError, bearer
from pubsubd.hub.http import HttpError, HttpReader, Request, check_host, check_origin, cors_headers
from pubsubd.hub.strict import JsonError, decode
from pubsubd.hub.synap import SynapError

if TYPE_CHECKING:
    from pubsubd.hub.session import HubTalk

_encode = msgspec.json.Encoder().encode
_Headers = list[tuple[str, str]]

_SOCKETS = ("/", "/ws", "/pubsub/ws")
_ACTIONS = {
    "pubsub.publish": "publish",
    "pubsub.subscribe": "subscribe",
    "pubsub.topics": "discover",
    "pubsub.info": "discover",
}
_CONSOLE_HEADERS = [
    (
        "Content-Security-Policy",
        (
            "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline';"
            " connect-src 'self' ws: wss:; frame-ancestors 'none'"
        ),
    ),
    ("X-Content-Type-Options", "nosniff"),
]


def check_command(talk: HubTalk, command: str) -> None:
    """Raise SynapError if this connection may not give ``command``."""
    action = _ACTIONS.get(command, "")
    if not talk.may(action):
        raise SynapError(
            f"Unauthorized: the token does not allow {command}"
            if talk.identity
            else "Unauthorized: a token is required"
        )


def refuse(talk: HubTalk, error: HttpError) -> None:
    """Answer a request that is none, and end the connection."""
    _answer(talk, error.status, {"error": error.text}, close=True)
    talk.close(ProtocolError("bad-http", f"{error.status} {error.text}"))


def refusal(error: ProtocolError) -> bytes:
    """Return the answer to a connection that is not let in, whatever it was about to say."""
    body = _encode({"error": f"{error.code}: {error.text}"})
    return HttpReader(0).respond(503, body, close=True)


def answer(talk: HubTalk, request: Request, events: deque[Any]) -> None:
    """Answer one request, or go on as a WebSocket."""
    hub = talk.hub
    host, origin = request.headers.get("host"), request.headers.get("origin")
    if not check_host(host, hub.hosts):
        _answer(talk, 421, {"error": "this Host is not served here"})
        return
    if not check_origin(origin, host or "", hub.origins):
        _answer(talk, 403, {"error": "this Origin is not allowed"})
        return
    cors: _Headers = []
    if origin is not None:
        cors = cors_headers(origin)
        if request.method == "OPTIONS":
            talk.put_raw(talk.http.respond(204, headers=cors))
            return
    if request.upgrade:
        _upgrade(talk, request, events)
        return
    if request.path in ("/health", "/healthz", "/readyz"):
        if request.method in ("GET", "HEAD"):
            _answer(talk, 200, _health(talk), cors)
        else:
            _answer(talk, 405, {"error": "method not allowed"}, [("Allow", "GET, HEAD"), *cors])
    elif request.path == "/":
        _console(talk, request)
    elif request.path in _SOCKETS:
        headers = [("Upgrade", "websocket"), ("Sec-WebSocket-Version", "13"), *cors]
        _answer(talk, 426, {"error": "this is a WebSocket: ask for an upgrade"}, headers)
    elif not _log_in(talk, request):
        talk.put_raw(talk.http.respond(401, headers=[("WWW-Authenticate", "Bearer"), *cors]))
    elif request.path == "/api/v1/command":
        _command(talk, request, cors)
    else:
        _rest(talk, request, cors)


def _answer(
    talk: HubTalk, status: int, value: Any, headers: _Headers | None = None, *, close: bool = False
) -> None:
    body = _encode(value)
    talk.put_raw(talk.http.respond(status, body, headers=headers or [], close=close))


def _health(talk: HubTalk) -> dict[str, Any]:
    now = datetime.datetime.fromtimestamp(talk.hub.wall(), datetime.UTC)
    stamp = now.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return {"status": "ok", "service": "pubsubd", "version": __version__, "timestamp": stamp}


def _console(talk: HubTalk, request: Request) -> None:
    if request.method not in ("GET", "HEAD"):
        _answer(talk, 405, {"error": "method not allowed"}, [("Allow", "GET, HEAD")])
        return
    kind = "text/html; charset=utf-8"
    talk.put_raw(talk.http.respond(200, _page(), content_type=kind, headers=_CONSOLE_HEADERS))


@functools.cache
def _page() -> bytes:
    return resources.files("pubsubd.hub").joinpath("console.html").read_bytes()


def _log_in(talk: HubTalk, request: Request) -> bool:
    """Take the token of a request, if tokens are asked for; False if it is missing or not good."""
    hub = talk.hub
    if hub.authority is None:
        return True
    token = bearer(request.headers.get("authorization"))
    if token is None:
        token = "".join(request.query.get("access_token", [])[:1])
    if not token:
        return False
    try:
        talk.identity = hub.authority.verify(token, hub.wall())
    except AuthError:
        return False
    return True


def _upgrade(talk: HubTalk, request: Request, events: deque[Any]) -> None:
    hub = talk.hub
    if request.path not in _SOCKETS:
        _answer(talk, 404, {"error": "no WebSocket here: use /ws"})
        return
    offered = "authorization" in request.headers or "access_token" in request.query
    needed = request.path == "/pubsub/ws"
    # Others may still say who they are in hub:connect.
    if hub.authority is not None and (offered or needed) and not _log_in(talk, request):
        talk.put_raw(talk.http.respond(401, headers=[("WWW-Authenticate", "Bearer")]))
        return
    topics = [
        topic for text in request.query.get("topics", []) for topic in text.split(",") if topic
    ]
    if request.path != "/pubsub/ws":
        talk.upgrade(talk.http, events)
        return
    if not topics:
        _answer(talk, 400, {"error": "Invalid request: At least one topic required"})
        return
    try:
        check_command(talk, "pubsub.subscribe")
        hub.synap.run("pubsub.subscribe", {"topics": topics}, talk)
    except SynapError as error:
        _answer(talk, 400, {"error": error.text})
        return
    talk.upgrade(talk.http, events)
    assert talk.subscriber is not None
    talk.put(_encode(synap.connected(talk.subscriber)))


def _command(talk: HubTalk, request: Request, cors: _Headers) -> None:
    if request.method != "POST":
        _answer(talk, 405, {"error": "method not allowed"}, [("Allow", "POST"), *cors])
        return
    reply: dict[str, Any] = {"success": False, "request_id": None, "payload": None, "error": None}
    try:
        value = decode(request.body)
        if not isinstance(value, dict) or not isinstance(value.get("command"), str):
            raise SynapError("Invalid request: Missing 'command' field")
        reply["request_id"] = value.get("request_id")
        check_command(talk, value["command"])
        reply["payload"] = talk.hub.synap.run(value["command"], value.get("payload"), None)
        reply["success"] = True
    except JsonError as error:
        reply["error"] = f"Invalid request: not JSON: {error.text}"
    except SynapError as error:
        reply["error"] = error.text
    _answer(talk, 200, reply, cors)


def _rest(talk: HubTalk, request: Request, cors: _Headers) -> None:
    try:
        found = synap.rest(request.method, request.path, request.body)
        if found is None:
            _answer(talk, 404, {"error": "no such path"}, cors)
            return
        command, payload = found
        check_command(talk, command)
        _answer(talk, 200, talk.hub.synap.run(command, payload, None), cors)
    except JsonError as error:
        _answer(talk, 400, {"error": f"Invalid request: not JSON: {error.text}"}, cors)
    except SynapError as error:
        _answer(talk, synap.status(error), {"error": error.text}, cors)
