"""Changes of a mesh from window to window: churn, events, and the graph at each end."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pubsubd.topology.history.ends import OTHER

_NAMED = 5  # neighbours that have lost a daemon


def tell_churn(states: DataFrame, daemons: DataFrame) -> DataFrame:
    """Return :data:`CHURN` from the rows of :func:`reconcile` and :func:`daemon_states`."""
    links = states.where(F.col("low") != F.col("high"))
    there, was = F.col("there"), F.col("was_there")
    one, window = F.lit(True), F.col("window")
    first = F.col("previous").isNull()
    # A window that no other precedes is compared with its own beginning.
    came = (first & F.col("last").isNotNull()) | (F.size("starts") > 0)
    lost = ~there & (was | came)
    of_links = [
        _count(window, one, first=first, links=there, new=there & ~was, lost=lost),
        _count(F.col("following"), F.col("vanishes"), lost=one),
    ]
    of_daemons = [
        _count(
            window,
            one,
            first=first,
            daemons=F.col("present"),
            joined=F.col("joined").isNotNull(),
            left=F.col("left").isNotNull(),
        ),
        _count(F.col("following"), F.col("vanishes"), left=one),
    ]
    parts = [
        frame.select("mesh", F.inline(F.array_compact(F.array(*those))))
        for frame, those in ((links, of_links), (daemons, of_daemons))
    ]
    new = F.when(F.col("first") > 0, 0).otherwise(F.col("new"))
    both, either = F.col("links") - new, F.col("links") + F.col("lost")
    sums = [F.sum(name).alias(name) for name in _COUNTED if name != "first"]
    return (
        reduce(DataFrame.union, parts)
        .groupBy("mesh", "window")
        # As in _bounds().
        .agg(F.max(F.struct("first"))["first"].alias("first"), *sums)
        .select(
            "mesh",
            "window",
            "daemons",
            "joined",
            "left",
            "links",
            new.alias("new_links"),
            F.col("lost").alias("lost_links"),
            F.when(either > 0, both / either).alias("jaccard"),
        )
    )


_COUNTED = ("first", "daemons", "joined", "left", "links", "new", "lost")


def _count(window: Column, when: Column, **those: Column) -> Column:
    """Return ``window``, and 1 or 0 for each counter of :data:`_COUNTED`; null if not ``when``."""
    no = F.lit(False)
    counters = (those.get(name, no).cast("bigint").alias(name) for name in _COUNTED)
    return F.when(when, F.struct(window.alias("window"), *counters))


def tell_events(states: DataFrame, daemons: DataFrame) -> DataFrame:
    """Return :data:`EVENTS` from the rows of :func:`reconcile` and :func:`daemon_states`."""
    links = states.where(F.col("low") != F.col("high"))
    unheard = (F.col("was_there") | F.col("last").isNotNull()) & ~F.col("there")
    silent = F.lit("not told of any more")
    by_both = (F.size("low_downs") > 0) & (F.size("high_downs") > 0)
    teller = F.when(F.size("low_downs") > 0, F.col("low")).otherwise(F.col("high"))
    by = F.when(by_both, F.lit("told by both ends")).otherwise(F.concat(F.lit("told by "), teller))
    by_dial = F.concat(F.lit("dialled by "), F.col("dialled")["src"])
    losers = F.col("losers")
    more = (F.size(losers) - _NAMED).cast("string")
    by_loss = F.concat(
        F.lit("lost by "),
        F.array_join(F.slice(losers, 1, _NAMED), ", "),
        F.when(F.size(losers) > _NAMED, F.concat(F.lit(" and "), more, F.lit(" more"))).otherwise(
            F.lit("")
        ),
    )
    gone = F.when(F.size(losers) > 0, by_loss).otherwise(silent)
    of_links = F.concat(
        F.transform("starts", lambda at: _happened(at, "link-up", by_dial)),
        F.transform("stops", lambda at: _happened(at, "link-down", by)),
        _those(
            (unheard & (F.size("stops") == 0), _happened("last_told", "link-down", silent)),
            (F.col("vanishes"), _happened("last_told", "link-down", silent)),
        ),
    )
    last = F.coalesce("told_last", "named_last")
    of_daemons = _those(
        (F.col("joined").isNotNull(), _happened("joined", "daemon-joined", F.lit(""))),
        (F.col("left").isNotNull(), _happened("left", "daemon-left", gone)),
        (F.col("vanishes"), _happened(last, "daemon-left", silent)),
    )
    alone = (F.col("id").alias("src"), F.lit(None).cast("string").alias("dst"))
    ends = (F.col("low").alias("src"), F.col("high").alias("dst"))
    events = links.select("mesh", *ends, F.inline(of_links)).union(
        daemons.select("mesh", *alone, F.inline(of_daemons))
    )
    # One that was told late may be in two windows.
    keys = ("mesh", F.timestamp_micros("at").alias("at"), "kind", "src", "dst")
    return events.groupBy(*keys).agg(F.min("detail").alias("detail"))


def _those(*found: tuple[Column, Column]) -> Column:
    """Return an array of those whose condition holds."""
    return F.array_compact(F.array(*(F.when(condition, event) for condition, event in found)))


def _happened(at: Column | str, kind: str, detail: Column) -> Column:
    when = F.col(at) if isinstance(at, str) else at
    return F.struct(when.alias("at"), F.lit(kind).alias("kind"), detail.alias("detail"))


def tell_arcs(states: DataFrame, daemons: DataFrame) -> DataFrame:
    """Return :data:`ARCS`."""
    arcs = F.array(
        *(
            F.when(
                F.col(f"{end}_is_up"), F.struct(F.col(end).alias("src"), F.col(other).alias("dst"))
            )
            for end, other in OTHER.items()
        )
    )
    linked = states.select("mesh", "window", F.inline(F.filter(arcs, lambda arc: arc.isNotNull())))
    alone = daemons.where(F.col("present") & (F.col("links") == 0))
    return linked.union(alone.select("mesh", "window", *_exists("id")))


def list_arcs(rows: DataFrame) -> DataFrame:
    """Return :data:`ARCS` of the good rows of bare lists."""
    return rows.select("mesh", "window", "src", "dst")


def add_nodes(nodes: DataFrame) -> Callable[[DataFrame], DataFrame]:
    """Return the step that adds all ``nodes`` (column ``id``) to each mesh of a bare list.

    Where daemons have told of themselves, one that nobody tells of is not there.
    """

    def add(arcs: DataFrame) -> DataFrame:
        graphs = arcs.where(F.col("window").isNull()).select("mesh", "window").distinct()
        there = graphs.crossJoin(F.broadcast(nodes.select("id")))
        return arcs.union(there.select("mesh", "window", *_exists("id")))

    return add


def _exists(daemon: str) -> list[Column]:
    return [F.col(daemon).alias("src"), F.lit(None).cast("string").alias("dst")]
