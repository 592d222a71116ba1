"""A password that takes too long to check for the loop, and the connection that waits for it."""

from __future__ import annotations

from pubsubd.access.identity import AuthError
from pubsubd.broker.logins import Check
from pubsubd.hub.connection import HubConnection


class PasswordJob:
    """A password to be checked for a connection; see :class:`pubsubd.broker.peer.Job`.

    What has come of it is the connection's ``verdict`` then.
    """

    __slots__ = ("_connection", "check")

    def __init__(self, connection: HubConnection, check: Check) -> None:
        self._connection, self.check = connection, check

    def finish(self) -> None:
        """Let the connection go on."""
        try:
            self._connection.verdict = self.check.result
        except AuthError as error:
            self._connection.verdict = error
