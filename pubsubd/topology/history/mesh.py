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
    parts = [
        _count(links, window, first=first, links=there, new=there & ~was, lost=lost),
        _count(links.where("vanishes"), F.col("following"), lost=one),
        _count(
            daemons,
            window,
            first=first,
            daemons=F.col("present"),
            joined=F.col("joined").isNotNull(),
            left=F.col("left").isNotNull(),
        ),
        _count(daemons.where("vanishes"), F.col("following"), left=one),
    ]
    new = F.when(F.col("first") > 0, 0).otherwise(F.col("new"))
    both, either = F.col("links") - new, F.col("links") + F.col("lost")
    return (
        reduce(DataFrame.union, parts)
        .groupBy("mesh", "window")
        .agg(*(F.sum(name).alias(name) for name in _COUNTED))
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


def _count(frame: DataFrame, window: Column, **those: Column) -> DataFrame:
    """Return ``mesh``, ``window``, and 1 or 0 for each counter of :data:`_COUNTED`."""
    no = F.lit(False)
    return frame.select(
        "mesh",
        window.alias("window"),
        *(those.get(name, no).cast("bigint").alias(name) for name in _COUNTED),
    )


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
    ends = (F.col("low"), F.col("high"))
    alone = (F.col("id"), F.lit(None).cast("string"))
    gone = F.when(F.size(losers) > 0, by_loss).otherwise(silent)
    parts = [
        _happened(links, F.explode("starts"), "link-up", ends, by_dial),
        _happened(links, F.explode("stops"), "link-down", ends, by),
        _happened(
            links.where(unheard & (F.size("stops") == 0)), "last_told", "link-down", ends, silent
        ),
        _happened(links.where("vanishes"), "last_told", "link-down", ends, silent),
        _happened(
            daemons.where(F.col("joined").isNotNull()), "joined", "daemon-joined", alone, F.lit("")
        ),
        _happened(daemons.where(F.col("left").isNotNull()), "left", "daemon-left", alone, gone),
        _happened(
            daemons.where("vanishes"),
            F.coalesce("told_last", "named_last"),
            "daemon-left",
            alone,
            silent,
        ),
    ]
    # One that was told late may be in two windows.
    keys = ("mesh", "at", "kind", "src", "dst")
    return reduce(DataFrame.union, parts).groupBy(*keys).agg(F.min("detail").alias("detail"))


def _happened(
    frame: DataFrame, at: Column | str, kind: str, ends: tuple[Column, Column], detail: Column
) -> DataFrame:
    when = F.col(at) if isinstance(at, str) else at
    return frame.select("mesh", *ends, when.alias("at"), detail.alias("detail")).select(
        "mesh",
        F.timestamp_micros("at").alias("at"),
        F.lit(kind).alias("kind"),
        ends[0].alias("src"),
        ends[1].alias("dst"),
        "detail",
    )


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
