"""What the paths of the hub port do: the console page, health, metrics, Synap, and WebSocket.

Everything a browser could be made to send by a stranger's page is checked first: the Host, against
names that an attacker's DNS could point here, and the Origin.
"""

from __future__ import annotations

import base64
import datetime
import functools
import hashlib
import math
import re
from collections import deque
from collections.abc import Iterator
from functools import partial
from importlib import resources
from typing import TYPE_CHECKING, Any

import msgspec

from pubsubd import __version__
from pubsubd.access.identity import AuthError, Login
from pubsubd.broker.logins import Check, origin
from pubsubd.hub import synap
from pubsubd.hub.auth import credentials
from pubsubd.hub.http import HttpError, HttpReader, Request, check_host, check_origin, cors_headers
from pubsubd.hub.strict import JsonError, decode
from pubsubd.hub.synap import SynapError
from pubsubd.protocol.errors import ProtocolError

if TYPE_CHECKING:
    from pubsubd.broker.turn import Steps
    from pubsubd.hub.connection import HubConnection

_encode = msgspec.json.Encoder().encode
_Headers = list[tuple[str, str]]

STATISTICS = b"//pubsubd/stats"
"""Who may receive this name may read the metrics."""

_SOCKETS = ("/", "/ws", "/pubsub/ws")
_ANSWERED = ("pubsub.topics", "pubsub.info", "pubsub.stats")  # commands that ask the daemon
_ACTIONS = {
    "pubsub.publish": "publish",
    "pubsub.subscribe": "subscribe",
    "pubsub.topics": "discover",
    "pubsub.info": "discover",
}
_INLINE = {
    kind: re.compile(f"<{kind}>(.*?)</{kind}>".encode(), re.DOTALL).findall
    for kind in ("script", "style")
}


def check_command(connection: HubConnection, command: str, *, counted: bool = False) -> None:
    """Raise SynapError if this connection may not give ``command``.

    Args:
        connection: the connection.
        command: for example ``pubsub.publish``.
        counted: whether it has been counted as a request already.
    """
    if command in _ANSWERED and not counted and (wait := _wait(connection)):
        raise SynapError(_rate_text(connection, wait), 429)
    action = _ACTIONS.get(command, "")
    if not connection.may(action):
        raise SynapError(
            f"Unauthorized: the token does not allow {command}"
            if connection.known
            else "Unauthorized: a token is required"
        )


def _wait(connection: HubConnection) -> float:
    """Count a request; return in how many seconds it may be made, 0 for now."""
    return 0.0 if connection.again else connection.hub.broker.wait_for_request(connection.peer)


def _rate_text(connection: HubConnection, wait: float) -> str:
    connection.hub.broker.counters.errors["rate-limited"] += 1
    rate = connection.peer.terms.limits.request_rate
    return f"Rate limited: over {rate:g} requests a second; try again in {wait:.2g} s"


def refuse(connection: HubConnection, error: HttpError) -> None:
    """Answer a request that is none, and end the connection."""
    _answer(connection, error.status, {"error": error.text}, close=True)
    connection.close(ProtocolError("bad-http", f"{error.status} {error.text}"))


def refusal(error: ProtocolError) -> bytes:
    """Return the answer to a connection that is not let in, whatever it was about to say."""
    body = _encode({"error": f"{error.code}: {error.text}"})
    return HttpReader(0).respond(503, body, close=True)


def answer(connection: HubConnection, request: Request, events: deque[Any]) -> None:
    """Answer one request, or go on as a WebSocket."""
    hub = connection.hub
    host, origin = request.headers.get("host"), request.headers.get("origin")
    if not check_host(host, hub.hosts):
        _answer(connection, 421, {"error": "this Host is not served here"})
        return
    if not check_origin(origin, host or "", hub.origins):
        _answer(connection, 403, {"error": "this Origin is not allowed"})
        return
    cors: _Headers = []
    if origin is not None:
        cors = cors_headers(origin)
        if request.method == "OPTIONS":
            connection.put_raw(connection.http.respond(204, headers=cors))
            return
    if request.upgrade:
        _upgrade(connection, request, events)
        return
    if request.method != "POST" and (wait := _wait(connection)):
        headers = [("Retry-After", str(math.ceil(wait))), *cors]
        _answer(connection, 429, {"error": _rate_text(connection, wait)}, headers)
        return
    if request.path in ("/health", "/healthz", "/readyz"):
        state = hub.state if request.path == "/readyz" else "ok"
        if _reads(connection, request, cors):
            _answer(connection, 200 if state == "ok" else 503, _health(connection, state), cors)
    elif request.path == "/":
        _console(connection, request)
    elif request.path in _SOCKETS:
        headers = [("Upgrade", "websocket"), ("Sec-WebSocket-Version", "13"), *cors]
        _answer(connection, 426, {"error": "this is a WebSocket: ask for an upgrade"}, headers)
    elif not _log_in(connection, request, events, cors, needed=True):
        pass
    elif request.path == "/metrics":
        if _reads(connection, request, cors):
            _metrics(connection, request, cors)
    elif request.path == "/api/v1/command":
        _command(connection, request, cors)
    else:
        _rest(connection, request, cors)


def _answer(
    connection: HubConnection,
    status: int,
    value: Any,
    headers: _Headers | None = None,
    *,
    close: bool = False,
) -> None:
    body = _encode(value)
    connection.put_raw(connection.http.respond(status, body, headers=headers or [], close=close))


def _reads(connection: HubConnection, request: Request, cors: _Headers) -> bool:
    """Return whether a request is for what can only be read; if not, it is answered."""
    if request.method in ("GET", "HEAD"):
        return True
    _answer(connection, 405, {"error": "method not allowed"}, [("Allow", "GET, HEAD"), *cors])
    return False


def _metrics(connection: HubConnection, request: Request, cors: _Headers) -> None:
    """Tell the metrics to who may receive the statistics, of which they are another form."""
    scrape, permission = connection.hub.scrape, connection.peer.permission
    if scrape is None:
        _answer(connection, 404, {"error": "no such path"}, cors)
    elif not connection.may("receive") or (
        permission is not None and not permission.may_receive(STATISTICS)
    ):
        connection.hub.broker.counters.errors["not-allowed"] += 1
        _answer(connection, 403, {"error": f"no right to receive {STATISTICS.decode()}"}, cors)
    else:
        connection.step = _tell_metrics(connection, scrape(request.headers.get("accept", "")), cors)


def _tell_metrics(
    connection: HubConnection, making: Steps[tuple[bytes, str]], cors: _Headers
) -> Iterator[None]:
    body, kind = yield from making
    connection.put_raw(connection.http.respond(200, body, content_type=kind, headers=cors))


def _health(connection: HubConnection, status: str) -> dict[str, Any]:
    now = datetime.datetime.fromtimestamp(connection.hub.wall(), datetime.UTC)
    stamp = now.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return {"status": status, "service": "pubsubd", "version": __version__, "timestamp": stamp}


def _console(connection: HubConnection, request: Request) -> None:
    if not _reads(connection, request, []):
        return
    kind = "text/html; charset=utf-8"
    page, headers = _page()
    connection.put_raw(connection.http.respond(200, page, content_type=kind, headers=headers))


@functools.cache
def _page() -> tuple[bytes, _Headers]:
    """Return the page, and the headers that let a browser run what is in it and nothing else."""
    page = resources.files("pubsubd.hub").joinpath("console.html").read_bytes()
    rules = ["default-src 'none'", "connect-src 'self' ws: wss:"]
    for kind, find in _INLINE.items():
        hashes = (base64.b64encode(hashlib.sha256(text).digest()).decode() for text in find(page))
        rules.append(" ".join((f"{kind}-src", *(f"'sha256-{one}'" for one in hashes))))
    rules += ["base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'"]
    return page, [
        ("Content-Security-Policy", "; ".join(rules)),
        ("Cross-Origin-Opener-Policy", "same-origin"),
        ("Referrer-Policy", "no-referrer"),
    ]


def _log_in(
    connection: HubConnection, request: Request, events: deque[Any], cors: _Headers, *, needed: bool
) -> bool:
    """Take what a request says of who sends it.

    False if it is not to be gone on with: it is answered already, or a password has to be checked
    before, and then it is the first of ``events`` again.
    """
    access = connection.hub.broker.access
    given = _credentials(request, signed=access.authority is not None)
    verdict, connection.verdict = connection.verdict, None
    connection.leave_request()
    status = 401
    if given is None or not access.able:
        if connection.known or not needed:
            return True
        connection.hub.broker.counters.errors["login-required"] += 1
    else:
        try:
            found = verdict or access.check(origin(connection.peer), *given, connection.hub.wall())
            if isinstance(found, AuthError):
                raise found
            if isinstance(found, Login):
                connection.enter_for_request(found)
                return True
            connection.peer.job = _Waiting(connection, found)
            events.appendleft(request)
            return False
        except AuthError as error:
            connection.hub.broker.counters.errors[error.code] += 1
            if error.code == "login-throttled":
                status = 429
    headers = [] if status == 429 else [("WWW-Authenticate", "Bearer")]
    if headers and access.users:
        headers.append(("WWW-Authenticate", 'Basic realm="pubsubd", charset="UTF-8"'))
    connection.put_raw(connection.http.respond(status, headers=[*headers, *cors]))
    return False


def _credentials(request: Request, *, signed: bool) -> tuple[str | None, str] | None:
    """Return the name and the password that a request has, or no name and a token.

    A signed token may come as a password; it is told by its form.
    """
    given = credentials(request.headers.get("authorization"))
    if given is None:
        token = "".join(request.query.get("access_token", [])[:1])
        return (None, token) if token else None
    if signed and given[1].startswith("eyJ") and given[1].count(".") == 2:  # {" in base64
        return None, given[1]
    return given


class _Waiting:
    """A password that is to be checked for a request; see :class:`pubsubd.broker.peer.Job`."""

    __slots__ = ("_connection", "check")

    def __init__(self, connection: HubConnection, check: Check) -> None:
        self._connection, self.check = connection, check

    def finish(self) -> None:
        """Let the request be answered."""
        try:
            self._connection.verdict = self.check.result
        except AuthError as error:
            self._connection.verdict = error


def _upgrade(connection: HubConnection, request: Request, events: deque[Any]) -> None:
    if request.path not in _SOCKETS:
        _answer(connection, 404, {"error": "no WebSocket here: use /ws"})
        return
    # Others may still say who they are in hub:connect.
    if not _log_in(connection, request, events, [], needed=request.path == "/pubsub/ws"):
        return
    topics = [
        topic for text in request.query.get("topics", []) for topic in text.split(",") if topic
    ]
    if request.path != "/pubsub/ws":
        connection.upgrade(connection.http)
        return
    if not topics:
        _answer(connection, 400, {"error": "Invalid request: At least one topic required"})
        return
    try:
        check_command(connection, "pubsub.subscribe")
        answer = _run(connection, "pubsub.subscribe", {"topics": topics}, connection)
    except SynapError as error:
        _refuse_command(connection, error, [])
        return
    connection.reply(
        answer, partial(_connect, connection), partial(_refuse_command, connection, cors=[])
    )


def _connect(connection: HubConnection, _payload: dict[str, Any]) -> None:
    connection.upgrade(connection.http)
    assert connection.subscriber is not None
    connection.put(_encode(synap.connected(connection.subscriber)))


def _refuse_command(connection: HubConnection, error: SynapError, cors: _Headers) -> None:
    _answer(connection, synap.status(error), {"error": error.text}, cors)


def _run(
    connection: HubConnection, command: str, payload: object, session: HubConnection | None = None
) -> synap.Answer:
    """Carry out a command of Synap's; what it leads to is not the connection's, but a session's."""
    peer = connection.peer
    return connection.hub.synap.run(command, payload, session, peer.permission, peer.identity)


def _command(connection: HubConnection, request: Request, cors: _Headers) -> None:
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
        check_command(connection, value["command"])
        answer = _run(connection, value["command"], value.get("payload"))
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
        connection.reply(answer, done, refused)


def _rest(connection: HubConnection, request: Request, cors: _Headers) -> None:
    try:
        found = synap.rest(request.method, request.path, request.body)
        if found is None:
            _answer(connection, 404, {"error": "no such path"}, cors)
            return
        command, payload = found
        check_command(connection, command, counted=True)
        connection.reply(
            _run(connection, command, payload),
            lambda value: _answer(connection, 200, value, cors),
            partial(_refuse_command, connection, cors=cors),
        )
    except JsonError as error:
        _answer(connection, 400, {"error": f"Invalid request: not JSON: {error.text}"}, cors)
    except SynapError as error:
        _refuse_command(connection, error, cors)
