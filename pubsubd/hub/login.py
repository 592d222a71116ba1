"""The login of a request over HTTP: Basic, Bearer, or a token in the query (RFC 9110, section 11).

It lasts until the next request, or for good if the connection becomes a WebSocket.
"""

from __future__ import annotations

import base64
import binascii
from collections import deque
from typing import Any

from pubsubd.access.identity import AuthError, Login
from pubsubd.hub.connection import HubConnection
from pubsubd.hub.http import Request
from pubsubd.hub.password_job import PasswordJob

Headers = list[tuple[str, str]]


def log_in(
    connection: HubConnection, request: Request, events: deque[Any], cors: Headers, *, needed: bool
) -> bool:
    """Log the connection in as the sender of a request.

    Returns:
        False if the request must not go on: it is answered already, or a password has to be checked
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
            found = verdict or access.check(connection.peer, *given, connection.hub.wall())
            if isinstance(found, AuthError):
                raise found
            if isinstance(found, Login):
                connection.enter_for_request(found)
                return True
            connection.peer.job = PasswordJob(connection, found)
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

    A signed token may come as a password; its form shows that.
    """
    given = credentials(request.headers.get("authorization"))
    if given is None:
        token = "".join(request.query.get("access_token", [])[:1])
        return (None, token) if token else None
    if signed and given[1].startswith("eyJ") and given[1].count(".") == 2:  # {" in base64
        return None, given[1]
    return given


def credentials(header: str | None) -> tuple[str | None, str] | None:
    """Return the credentials of an Authorization header: name and password, or None and a token.

    None if it holds neither.
    """
    kind, _, value = (header or "").strip().partition(" ")
    value = value.strip()
    if kind.lower() == "bearer":
        return (None, value) if value else None
    if kind.lower() == "basic":
        try:
            name, colon, password = base64.b64decode(value, validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError, ValueError):
            return None
        return (name, password) if colon and password else None
    return None
