"""Layer 2: the reports of all daemons, reconciled into the history of links and daemons.

Each export has the rows of all observers that its daemon knows, so many exports report the same
end of a link. Only the words of the two ends count, whoever passed them on:

- An end's *sessions* are the values of ``since`` that it was up with, in whole seconds. One lasts
  from ``since``, or from the first row of the mesh in the window, to when it was told of last.
- An end is *up at the window's end* if its latest row, by ``ts`` and then by ``since``, is up; if
  that was told not longer than ``stale`` before the last row of the mesh in the window; and if
  neither end has told that the session is over: a ``down`` since later than that row, or than
  10 seconds before it (:data:`~pubsubd.topology.history.ends.SLACK`). So the links of a daemon that
  died are down once its neighbours tell so.
- A link is ``up`` if both ends are up, ``one-sided`` if one is, else ``down``.
- Availability is the share of the time from the first to the last row of the mesh in the window
  that the better end's sessions cover; an end that is up at the end is taken to stay so until then.
- Counters begin with a session. What a link carried in a window is what the counters of an end
  grew by since the window before, and that of the end that counted more. A session that is older
  than that and was not told of then counts from its first row.
- Round trips: percentiles over all rows of the window, exact, interpolated linearly.
- ``down`` rows are repeated in every export. One counts in the window that has it first, and not
  at all if the link ended before the first row of the mesh, or a day before the window.

Rows of bare lists have no time, and so no history.

Sums are of whole numbers, and nothing depends on the order of rows: the same rows give the same
history however they are dealt to tasks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import DataFrame

from pubsubd.topology.history.daemons import daemon_states, tell_daemons
from pubsubd.topology.history.ends import gather
from pubsubd.topology.history.links import reconcile, tell_links
from pubsubd.topology.history.mesh import add_nodes, list_arcs, tell_arcs, tell_churn, tell_events

__all__ = [
    "ARCS",
    "CHURN",
    "DAEMONS",
    "EVENTS",
    "LINKS",
    "History",
    "add_nodes",
    "list_arcs",
    "make_history",
]

LINKS = (
    "mesh string, window timestamp, src string, dst string, dialled_by string, state string,"
    " ends int, one_sided boolean, told_by string, asymmetric boolean, availability double,"
    " flaps int, rtt_p50 double, rtt_p95 double, rtt_p99 double, src_rtt_p50 double,"
    " dst_rtt_p50 double, messages bigint, bytes bigint, src_messages bigint,"
    " dst_messages bigint, first_seen timestamp, last_seen timestamp"
)
"""Links that were up in a window or ended in it; ``src`` < ``dst`` in the order of their bytes.

``ends`` have told of it; ``told_by`` is the end that is up if it is the only one; ``flaps`` is how
often it ended; ``first_seen`` and ``last_seen`` are the times of rows with it up; figures with the
name of an end are that end's.
"""

DAEMONS = (
    "mesh string, window timestamp, id string, present boolean, told boolean, links bigint,"
    " availability double, flaps bigint, messages bigint, bytes bigint, first_seen timestamp,"
    " last_seen timestamp, address string, version string, site string, rack string"
)
"""Daemons that told something in a window, or that others told to be linked.

``present``: at the window's end; ``told``: it is an observer; ``links`` at the window's end;
``availability`` is that of its best link; ``first_seen`` and ``last_seen`` are of rows with it as
the observer, or, if there are none, of rows with its links; the columns after these are what it
told of itself last.
"""

CHURN = (
    "mesh string, window timestamp, daemons bigint, joined bigint, left bigint, links bigint,"
    " new_links bigint, lost_links bigint, jaccard double"
)
"""Differences of a mesh from the window before.

``joined`` and ``left`` are how many such events a window has; links are those not down at the
window's end; ``lost_links`` are down then and were up at the end of the window before or came in
this one; ``jaccard`` is links in both / links in either. The first window is compared with its own
beginning: with all links that were up in it.
"""

EVENTS = "mesh string, at timestamp, kind string, src string, dst string, detail string"
"""Events: ``link-up``, ``link-down``, ``daemon-joined``, ``daemon-left`` (``src``)."""

ARCS = "mesh string, window timestamp, src string, dst string"
"""Graph at a window's end: ``src`` reports its link to ``dst`` as up. Where ``dst`` is null, the
row says that ``src`` exists."""


@dataclass(frozen=True)
class History:
    """The tables, none of them computed yet.

    Attributes:
        links, daemons, churn, events, arcs: :data:`LINKS`, :data:`DAEMONS`, :data:`CHURN`,
            :data:`EVENTS`, :data:`ARCS`.
    """

    links: DataFrame
    daemons: DataFrame
    churn: DataFrame
    events: DataFrame
    arcs: DataFrame


def make_history(
    rows: DataFrame,
    window: int,
    stale: int | None = None,
    keep: Callable[[DataFrame], DataFrame] = lambda frame: frame,
) -> History:
    """Return the history of all meshes.

    Args:
        rows: as :func:`pubsubd.topology.cleaning.clean` returns them, without those of bare lists,
            which have no times.
        window: seconds, the same that the rows were cut into.
        stale: seconds; a quarter of a window if None, 5 minutes at most.
        keep: computes a frame once, since several tables are made of it.
    """
    stale = min(300, window // 4) if stale is None else stale
    accounts = keep(rows.transform(gather))
    links = keep(accounts.transform(reconcile(stale)))
    daemons = keep(links.transform(daemon_states(stale)))
    return History(
        links=links.transform(tell_links),
        daemons=daemons.transform(tell_daemons),
        churn=tell_churn(links, daemons),
        events=tell_events(links, daemons),
        arcs=tell_arcs(links, daemons),
    )
