"""The hub port: programs and browsers speak JSON to the same names.

Read :mod:`pubsubd.hub.connection` first, which is one connection, then :mod:`pubsubd.hub.core`,
which is what they share; each dialect has a module of its own: :mod:`~pubsubd.hub.signal`,
:mod:`~pubsubd.hub.synap`, :mod:`~pubsubd.hub.envelopes`. What is spoken stands in pubsubd-hub(7).
"""
