"""Rights of a connection to Synap's commands, and their rate."""

from __future__ import annotations

from pubsubd.hub.connection import HubConnection
from pubsubd.hub.synap.requests import SynapError

_ANSWERED = ("pubsub.topics", "pubsub.info", "pubsub.stats")  # commands that ask the daemon
_ACTIONS = {
    "pubsub.publish": "publish",
    "pubsub.subscribe": "subscribe",
    "pubsub.topics": "discover",
    "pubsub.info": "discover",
}


def check_command(connection: HubConnection, command: str, *, counted: bool = False) -> None:
    """Raise SynapError if this connection may not give ``command``.

    Args:
        connection: by which it came.
        command: for example ``pubsub.publish``.
        counted: whether it has been counted as a request already.
    """
    if command in _ANSWERED and not counted and not connection.again:
        policy, peer = connection.hub.policy, connection.peer
        if wait := policy.wait_for_request(peer):
            raise SynapError(policy.refuse_request(peer, wait), 429)
    action = _ACTIONS.get(command, "")
    if not connection.may(action):
        raise SynapError(
            f"Unauthorized: the token does not allow {command}"
            if connection.known
            else "Unauthorized: a token is required"
        )
