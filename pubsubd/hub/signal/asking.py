"""Requests to the daemon, ``//pubsubd/...``, as ``hub:request``: the same as on the line port."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from msgspec import Raw

from pubsubd.access.identity import AuthError, Login
from pubsubd.broker.auth import MAX_FAILURES
from pubsubd.broker.broker import OPEN
from pubsubd.broker.delivery import AUTH
from pubsubd.broker.logins import Check
from pubsubd.broker.turn import Steps
from pubsubd.hub import messages as m
from pubsubd.hub import replies as r
from pubsubd.hub.signal.base import Signal
from pubsubd.protocol import wire
from pubsubd.protocol.errors import ProtocolError

_TEXTS = (b"//pubsubd/ping", wire.HELP)  # requests whose answers are not JSON
_LINKS = b"//pubsubd/hello"  # begins a link between daemons, which is the line port's
_CODES = {
    "not-allowed": "unauthorized",
    "login-required": "unauthorized",
    "login-failed": "unauthorized",
    "login-throttled": "unauthorized",
    "rate-limited": "rate_limited",
}

_encode = msgspec.json.Encoder().encode


def request(signal: Signal, message: m.Incoming, payload: m.Request) -> None:
    """Carry out a request to the daemon, and answer with ``hub:response``."""
    connection = signal.connection
    name = (payload.name or "").encode("utf-8", "replace")
    message = msgspec.structs.replace(message, payload=m.ABSENT, metadata=m.ABSENT)
    try:
        data = _data(payload.data)
        if name == AUTH:
            _log_in(signal, message, data.decode())
            return
        if name not in OPEN:
            for action in ("publish", "subscribe"):  # as on the line port, which has no others
                if not connection.may(action):
                    raise ProtocolError("not-allowed", "the token allows too little for requests")
            connection.hub.policy.check_publishing(name, connection.peer.permission)
        if name == _LINKS:
            raise ProtocolError("unknown-request", f"{wire.quote(name)} is for the line port")
        answer = connection.hub.broker.ask(connection.peer, name, data)
    except ProtocolError as error:
        refuse(signal, message, error)
        return
    if isinstance(answer, bytes):
        respond(signal, message, name, answer)
    elif answer is not None:
        connection.step = _answer(signal, message, name, answer)


def respond(signal: Signal, message: m.Incoming, name: bytes, answer: bytes) -> None:
    """Queue an answer, or a part of what is sent as long as somebody looks."""
    text = _encode(answer.decode("utf-8", "replace")) if name in _TEXTS else answer
    signal.reply(message, "hub:response", r.Response(name.decode(), Raw(text)))


def refuse(signal: Signal, message: m.Incoming, error: ProtocolError) -> None:
    """Queue a hub:error with the code of the line protocol as its reason."""
    signal.connection.hub.broker.counters.errors[error.code] += 1
    code = _CODES.get(error.code, "internal_error")
    signal.error(code, error.text, {"reason": error.code}, message)
    if error.closes:
        signal.connection.close(error, tell=True)


def _data(raw: Raw) -> bytes:
    """Return the data of a request: a text as it is, and anything else as JSON."""
    text = bytes(raw)
    if not text or text == b"null":
        return b""
    if text[:1] != b'"':
        return text
    value: str = msgspec.json.decode(text)
    return value.encode()


def _answer(
    signal: Signal, message: m.Incoming, name: bytes, making: Steps[bytes]
) -> Iterator[None]:
    over = signal.connection.hub.broker.delivery.turn.over
    try:
        while True:
            try:
                next(making)
            except StopIteration as done:
                respond(signal, message, name, done.value)
                return
            if over():
                yield
    except ProtocolError as error:
        refuse(signal, message, error)


def _log_in(signal: Signal, message: m.Incoming, data: str) -> None:
    """Log in with a name and a password, or with a token; a password is checked elsewhere."""
    connection = signal.connection
    name, gap, secret = data.partition(" ")
    try:
        found = connection.hub.broker.access.check(
            connection.peer, name if gap else None, secret if gap else name, connection.hub.wall()
        )
    except AuthError as error:
        _refuse_login(signal, message, error)
        return
    if isinstance(found, Login):
        _enter(signal, message, found)
    else:
        connection.peer.job = _PasswordJob(signal, message, found)


def _enter(signal: Signal, message: m.Incoming, login: Login) -> None:
    signal.publications.clear()
    signal.connection.enter(login)
    text = _encode(f"ok {wire.escape(login.name)}")
    signal.reply(message, "hub:response", r.Response(AUTH.decode(), Raw(text)))


def _refuse_login(signal: Signal, message: m.Incoming, error: AuthError) -> None:
    """Answer a login that has failed; the connection ends with the last that may."""
    connection = signal.connection
    connection.peer.failures += 1
    refuse(signal, message, ProtocolError(error.code, error.text))
    if connection.peer.failures >= MAX_FAILURES:
        text = f"{connection.peer.failures} logins: {error.text}"
        connection.hub.broker.counters.errors["too-many-failures"] += 1
        connection.close(ProtocolError("too-many-failures", text), tell=True)


class _PasswordJob:
    """A password that is to be checked; see :class:`pubsubd.broker.peer.Job`."""

    __slots__ = ("_message", "_signal", "check")

    def __init__(self, signal: Signal, message: m.Incoming, check: Check) -> None:
        self._signal, self._message, self.check = signal, message, check

    def finish(self) -> None:
        """Answer; the connection goes on, and sends it."""
        if self._signal.connection.left:
            return
        try:
            login = self.check.result
        except AuthError as error:
            _refuse_login(self._signal, self._message, error)
        else:
            _enter(self._signal, self._message, login)
