"""What goes on in the daemon, as it changes: the request ``//pubsubd/live``, without I/O.

An *observer* is a connection that has asked for some *sections*, such as the busiest names. At each
tick, every section makes the states that observers want, once for all who want the same, and each
observer is sent what has changed since the state that it was sent last.

- :mod:`~pubsubd.broker.live.observers` keeps the observers, the ticks, and what these cost.
- :mod:`~pubsubd.broker.live.states` compares states.
- :mod:`~pubsubd.broker.live.sections` and :mod:`~pubsubd.broker.live.event_rows` have the broker's
  sections; the mesh adds its own.
- :mod:`~pubsubd.broker.live.names` finds the busiest names, of a sample of the reads.
"""
