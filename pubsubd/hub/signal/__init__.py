"""Signal Hub: the ``hub:*`` messages of one connection, in both dialects.

:mod:`~pubsubd.hub.signal.base` keeps the state of a connection, :mod:`~pubsubd.hub.signal.requests`
lists all messages; one function carries out each of them, in the module of its domain. The name of
a reply depends on the dialect that hub:connect has fixed, its payload is the union of what both
promise. Addresses are written as the client writes them, ``@(runtime/id)`` or ``runtime/id``; both
are the same address.
"""

from pubsubd.hub.signal.base import Signal, Signals
from pubsubd.hub.signal.requests import REQUESTS, handle, remember

__all__ = ["REQUESTS", "Signal", "Signals", "handle", "remember"]
