"""Synap: the ``pubsub.*`` commands, whatever carries them.

- :mod:`~pubsubd.hub.synap.commands` carries them out;
- :mod:`~pubsubd.hub.synap.subscribers` keeps the subscribers, connected or not;
- :mod:`~pubsubd.hub.synap.elsewhere` finds those of other workers;
- :mod:`~pubsubd.hub.synap.rights` checks whether a connection may give them;
- :mod:`~pubsubd.hub.synap.requests` has the payloads and the errors, over REST as well.
"""

from pubsubd.hub.synap.commands import Answer, Synap, connected
from pubsubd.hub.synap.elsewhere import NAMED
from pubsubd.hub.synap.requests import SynapError, rest, status
from pubsubd.hub.synap.rights import check_command
from pubsubd.hub.synap.subscriber import Subscriber, SynapConnection

__all__ = [
    "NAMED",
    "Answer",
    "Subscriber",
    "Synap",
    "SynapConnection",
    "SynapError",
    "check_command",
    "connected",
    "rest",
    "status",
]
