"""Signal Hub: the ``hub:*`` messages of one connection, in both dialects.

:mod:`~pubsubd.hub.signal.base` is what a connection is for it, :mod:`~pubsubd.hub.signal.requests`
the table of all messages; one function each carries them out, in the module of their domain. What
a reply is called follows the dialect that hub:connect has fixed, its payload is the union of what
both promise; addresses are written as the client writes them, ``@(runtime/id)`` or ``runtime/id``,
and are one address here.
"""

from pubsubd.hub.signal.base import Signal, Signals
from pubsubd.hub.signal.requests import REQUESTS, handle

__all__ = ["REQUESTS", "Signal", "Signals", "handle"]
