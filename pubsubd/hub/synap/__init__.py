"""Synap: the ``pubsub.*`` commands, whatever carries them.

:mod:`~pubsubd.hub.synap.commands` is what they do, :mod:`~pubsubd.hub.synap.subscribers` who is
subscribed, connected or not, and :mod:`~pubsubd.hub.synap.requests` what is asked and how it is
refused, over REST as well.
"""

from pubsubd.hub.synap.commands import Answer, Synap, connected
from pubsubd.hub.synap.requests import SynapError, rest, status
from pubsubd.hub.synap.subscribers import Subscriber, SynapConnection

__all__ = [
    "Answer",
    "Subscriber",
    "Synap",
    "SynapConnection",
    "SynapError",
    "connected",
    "rest",
    "status",
]
