"""Errors of the protocol, each with one code.

The same code stands in the protocol's error line, in the log, in the
statistics and in ``pubsubd-protocol(7)``.
"""

from __future__ import annotations

STAYS = {
    "unknown-command": "the first word is not pub, sub or unsub",
    "bad-name": "a name or substring is missing, not UTF-8, or holds a space or CR",
    "name-too-long": "a name or substring is longer than 1024 bytes",
    "bad-length": "the length is missing or is neither - nor 1 to 10 ASCII digits",
    "not-subscribed": "unsub of a text that is not subscribed",
    "too-many-subscriptions": "one more substring than max_subscriptions",
    "unknown-request": "a pub to a name under //pubsubd/ that is no request",
    "bad-request": "a request whose data cannot be used",
    "unknown-connection": "a number that no connection has, or none that one may see",
    "worker-silent": "a request to a worker that does not answer",
    "too-many-observers": "one more observer of //pubsubd/live than there may be",
    "rate-limited": "more requests a second than request_rate",
    "no-mesh": "a request about the mesh to a daemon that is not part of one",
    "forged-advert": "a pub to a name that is for the daemons of the mesh alone",
    "not-allowed": "a pub to a name that the rules do not let this connection publish",
    "login-required": "a command of a connection that has to log in first",
    "login-failed": "a login with a name, password or token that is not good",
    "login-throttled": "a login from an address from which too many have failed",
}
"""Faults that cost one command: the connection goes on."""

CLOSES = {
    "wrong-length": "the byte after the data is not a line feed",
    "payload-too-large": "the data is over max_payload, or over 65536 bytes without a length",
    "line-too-long": "1088 bytes without a line feed",
    "wrong-port": "a command of the line protocol on the hub port",
    "no-tls": "TLS, where it is not spoken",
    "http-request": "an HTTP request, perhaps sent by a browser on a stranger's behalf",
    "command-timeout": "half a command, then silence for command_timeout",
    "too-many-failures": "three logins of one connection have failed",
    "login-timeout": "no login for auth_timeout where one is required",
    "login-revoked": "what the connection had logged in with holds no longer",
    "too-many-connections": "one more connection than max_connections",
    "killed": "an operator has ended the connection",
    "slow-consumer": "the backlog is over max_pending",
    "bad-proxy-header": "a PROXY header that cannot be read, or is not whole in time",
    "tls-required": "something that is not TLS, where TLS is spoken",
    "tls-failed": "TLS that cannot be understood, or a certificate that is not good",
    "tls-timeout": "not encrypted after handshake_timeout",
    "shutting-down": "the daemon is ending",
    "internal-error": "a fault of the daemon's own",
}
"""Faults that end the connection, each told before the close."""

HUB_CLOSES = {
    "bad-json": "on the hub port, a message that is not JSON",
    "bad-websocket": "on the hub port, a frame that breaks the WebSocket protocol",
    "bad-http": "on the hub port, a request that is not HTTP, or too large",
    "heartbeat-timeout": "on the hub port, a hub:* client that was silent for too long",
    "duplicate-connection": "on the hub port, another connection has registered the address",
    "unauthorized": "on the hub port, a token that is missing or not good",
}
"""Faults that end a connection of the hub port; those of :data:`CLOSES` do so as well."""


MESH_CLOSES = {
    "bad-hello": "between daemons, a hello that is not one",
    "bad-secret": "between daemons, no proof of the mesh's secret",
    "other-mesh": "between daemons, a daemon of another mesh",
    "self-link": "between daemons, a daemon that has dialled itself",
    "duplicate-link": "between daemons, a second link between the same two",
    "duplicate-node": "between daemons, another one has the same id",
    "unlinked": "between daemons, the other one is no longer told to dial this one",
    "link-timeout": "between daemons, nothing was heard for two heartbeats",
}
"""Faults that end a link to another daemon, or a connection that was to become one."""


GOODBYE = "goodbye"
"""Ends a connection that is done: it is no fault, and nobody is told."""


class PubsubdError(Exception):
    """Anything this package raises on purpose."""


class ProtocolError(PubsubdError):
    """A fault of the protocol, as it is told to the peer.

    Attributes:
        code: a key of one of the tables above, or :data:`GOODBYE`.
        text: one line for a person; anything quoted in it is escaped already.
        closes: whether the connection ends because of it.
    """

    def __init__(self, code: str, text: str) -> None:
        super().__init__(f"{code} {text}")
        self.code = code
        self.text = text
        self.closes = code in CLOSES or code in MESH_CLOSES or code == GOODBYE

    def detach(self) -> ProtocolError:
        """Return it without where it was raised, to be kept: these frames hold all that was read.

        One of them holds the peer as well, which holds the error: a cycle.
        """
        self.__traceback__ = self.__cause__ = self.__context__ = None
        return self


class ConfigError(PubsubdError):
    """Settings that a daemon cannot start with, in one line."""


class FailedError(PubsubdError):
    """The daemon cannot go on, because of mistakes of its own, in one line."""


class AbortedError(PubsubdError):
    """The daemon was ended by a second signal, before it had delivered everything."""
