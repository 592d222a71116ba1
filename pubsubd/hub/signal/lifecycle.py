"""Messages about the connection itself: login, heartbeat, statistics, the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice

from pubsubd.access.identity import AuthError, Login
from pubsubd.broker.auth import MAX_FAILURES
from pubsubd.broker.logins import Check
from pubsubd.hub import messages as m
from pubsubd.hub import replies as r
from pubsubd.hub.actors import canonical
from pubsubd.hub.ids import new_id
from pubsubd.hub.password_job import PasswordJob
from pubsubd.hub.render import dress
from pubsubd.hub.signal.base import Signal
from pubsubd.hub.signal.reading import RefusedError, read_metadata, shown, whole
from pubsubd.hub.sums import find_metrics
from pubsubd.protocol.errors import ProtocolError

_AT_ONCE = 1_000  # actors of a connection that are gone before its hub:disconnect is answered


def connect(signal: Signal, message: m.Incoming, payload: m.Connect) -> None:
    """Agree on a dialect, and log in where a token is required."""
    metadata = read_metadata(message.metadata, m.ConnectMetadata)
    version = metadata.protocol_version
    signal.publications.clear()
    if version is not None:
        signal.dialect = "A"
    elif payload.version is not None:
        signal.dialect = "B"
        version = payload.version
    else:
        raise RefusedError("version_mismatch", "Missing protocolVersion in metadata")
    ours = m.VERSION_A if signal.dialect == "A" else m.VERSION_B
    if version.split(".")[0] != ours.split(".")[0]:
        if signal.dialect == "A":
            text = f"Protocol version mismatch: client={shown(version)}, server={ours}"
        else:
            text = f"Protocol version {ours} required, got {shown(version)}"
        raise RefusedError("version_mismatch", text, {"expected": ours, "received": version[:64]})
    if signal.dialect == "A" and not metadata.capabilities:
        raise RefusedError("unauthorized", "capabilities must be a non-empty array")
    connection, hub = signal.connection, signal.connection.hub
    allowed = list(metadata.capabilities or ("send", "receive", "discover"))
    token = metadata.auth_token or payload.jwt
    welcome = partial(_welcome, signal, message, allowed)
    if payload.user is not None and payload.password is not None and hub.broker.access.able:
        connection.step = _log_in_user(signal, message, payload.user, payload.password, welcome)
        return
    if (token and hub.broker.access.able) or not connection.known:
        _log_in(signal, token)
    welcome()


def _welcome(signal: Signal, message: m.Incoming, allowed: list[str]) -> None:
    """Answer somebody who is let in."""
    connection, hub = signal.connection, signal.connection.hub
    if connection.identity is not None and connection.identity.capabilities is not None:
        allowed = sorted(connection.identity.capabilities)
    if not signal.session_id:
        signal.session_id = f"session-{new_id()}"
    sender = message.sender if isinstance(message.sender, str) else signal.address
    if canonical(sender) is not None and signal.latest_actor() is None:
        signal.locate(sender)
    identity = connection.identity
    actor = identity.actor if identity is not None and identity.actor else signal.address
    actor = dress(canonical(actor) or actor, connection.wrapped)
    in_b: r.Capabilities | list[str] = allowed
    in_a = r.Capabilities(max_actors_per_instance=hub.limits.max_actors)
    signal.reply(
        message,
        "hub:connected",
        r.Connected(
            session_id=signal.session_id,
            server_version=m.VERSION_A,
            max_message_size=signal.connection.limits.max_message,
            heartbeat_interval=int(signal.connection.limits.heartbeat * 1000 / 2),
            capabilities=in_a if signal.dialect == "A" else in_b,
            actor_identity=actor,
            server_time=hub.now(),
        ),
        {"actorIdentity": actor},
    )


def _log_in(signal: Signal, token: str | None) -> None:
    connection, hub = signal.connection, signal.connection.hub
    closes = signal.dialect == "B"
    if not token:
        raise RefusedError("unauthorized", "a token is required", closes=closes)
    try:
        found = hub.broker.access.check(connection.peer, None, token, hub.wall())
    except AuthError as error:
        raise _failure(signal, error, closes=closes) from None
    assert isinstance(found, Login)  # tokens are checked at once
    connection.enter(found)


def _log_in_user(
    signal: Signal, message: m.Incoming, user: str, password: str, welcome: Callable[[], None]
) -> Iterator[None]:
    """Log a user in whose password may take long to check."""
    connection, hub = signal.connection, signal.connection.hub
    try:
        found: Login | Check | AuthError | None
        found = hub.broker.access.check(connection.peer, user, password, hub.wall())
        if isinstance(found, Check):
            connection.peer.job = PasswordJob(connection, found)
            yield
            found, connection.verdict = connection.verdict, None
        if isinstance(found, AuthError):
            raise found
        assert isinstance(found, Login)  # the job is done before the next step
        connection.enter(found)
    except AuthError as error:
        signal.refuse(_failure(signal, error, closes=False), message)
    else:
        welcome()


def _failure(signal: Signal, error: AuthError, *, closes: bool) -> RefusedError:
    """Count a login that has failed, and return what answers it."""
    peer = signal.connection.peer
    signal.connection.hub.broker.counters.errors[error.code] += 1
    peer.failures += 1
    return RefusedError("unauthorized", error.text, closes=closes or peer.failures >= MAX_FAILURES)


def heartbeat(signal: Signal, message: m.Incoming, payload: m.Heartbeat) -> None:
    """Answer a heartbeat."""
    ack = r.HeartbeatAck(
        timestamp=whole(payload.timestamp), server_time=signal.connection.hub.now()
    )
    signal.reply(message, "hub:heartbeat_ack", ack)


def disconnect(signal: Signal, message: m.Incoming, _payload: m.Nothing) -> None:
    """Forget the connection, answer, and close it."""
    connection, hub = signal.connection, signal.connection.hub
    for actor in list(islice(hub.registry.of(connection), _AT_ONCE)):  # the others when it leaves
        hub.registry.unregister(actor.key)
        if hub.broker.delivery.turn.over():
            break
    name = "hub:disconnect" if signal.dialect == "A" else "hub:disconnect_ack"
    signal.reply(message, name, r.Disconnected(session_id=signal.session_id))
    connection.close(ProtocolError("goodbye", "disconnected"), tell=True)


def queue_stats(signal: Signal, message: m.Incoming, _payload: m.Nothing) -> None:
    """Answer with what waits for this connection, and what it has sent."""
    connection = signal.connection
    pending, most = connection.peer.outbox.size, connection.max_pending
    age = max(connection.hub.clock() - signal.since, 1e-3)
    stats = r.QueueStats(
        queue_depth=pending,
        processing_rate=round(signal.processed / age, 3),
        pause_threshold=most // 2,
        resume_threshold=most // 2,
        pending=pending,
        processed=signal.processed,
        failed=signal.failed,
        paused=pending > most // 2,
        **connection.hub.daemon,
    )
    name = "hub:queue_stats_response" if signal.dialect == "A" else "hub:queue_stats_result"
    signal.reply(message, name, stats)


def metrics(signal: Signal, message: m.Incoming, _payload: m.Nothing) -> None:
    """Answer with the counters of the hub, in steps: other workers may have to be asked."""
    signal.connection.step = _tell_metrics(signal, message)


def _tell_metrics(signal: Signal, message: m.Incoming) -> Iterator[None]:
    found = yield from find_metrics(signal.connection.hub)
    signal.reply(message, "hub:metrics_response", found)


def refresh_token(signal: Signal, message: m.Incoming, payload: m.Token) -> None:
    """Give a new token for one that still holds."""
    hub = signal.connection.hub
    if hub.authority is None:
        raise RefusedError("invalid_token", "no tokens are in use here")
    if not payload.token:
        raise RefusedError("invalid_token", "token is required")
    try:
        token, expires_at = hub.authority.refresh(payload.token, hub.wall())
        signal.connection.enter(hub.broker.access.admit(hub.authority.verify(token, hub.wall())))
    except AuthError as error:
        raise RefusedError("invalid_token", error.text) from None
    refreshed = r.TokenRefreshed(token=token, expires_at=expires_at)
    signal.reply(message, "hub:token_refreshed", refreshed)
