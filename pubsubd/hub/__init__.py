"""The hub port: programs and browsers speak JSON to the same names.

Input goes down this list: :mod:`~pubsubd.hub.protocol` reads and takes turns,
:mod:`~pubsubd.hub.dispatch` finds the dialect of each message, and a dialect carries it out:
:mod:`~pubsubd.hub.signal`, :mod:`~pubsubd.hub.synap`, :mod:`~pubsubd.hub.envelopes`, or
:mod:`~pubsubd.hub.web` for requests over HTTP. They all work on a
:mod:`~pubsubd.hub.connection`, ask the :mod:`~pubsubd.hub.policy`, and share the state in
:mod:`~pubsubd.hub.core`. The protocols are documented in pubsubd-hub(7).
"""
