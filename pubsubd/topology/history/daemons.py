"""State of each daemon in a window, derived from its links."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pubsubd.mesh.edges import ABOUT
from pubsubd.topology.history.ends import ENDS, OTHER, SECOND, SLACK, says_up


def daemon_states(stale: int) -> Callable[[DataFrame], DataFrame]:
    """Return the step from the rows of :func:`reconcile` to one row per daemon and window.

    A daemon is present at the window's end if one of its links is not down; or if it told something
    not longer than ``stale`` before, and later than :data:`SLACK` after a neighbour lost it.
    """

    def states(links: DataFrame) -> DataFrame:
        sides = F.array(*(_side(end) for end in ENDS))
        by_id = Window.partitionBy("mesh", "id").orderBy("window")
        linked = F.col("links") > 0
        told = F.col("told_last")
        alive = (told >= F.col("ended") - stale * SECOND) & (
            F.col("missed").isNull() | (told > F.col("missed") + SLACK * SECOND)
        )
        no = F.lit(False)
        was = F.lag("present").over(by_id) & (F.lag("window").over(by_id) == F.col("previous"))
        ends_here = F.col("following") < F.coalesce(
            F.lead("window").over(by_id), F.lit("9999-12-31").cast("timestamp")
        )
        sums = ("links", "flaps", "messages", "bytes")
        firsts = ("told_first", "named_first", "since", "lost")
        lasts = ("told_last", "named_last", "missed", "availability", "about")
        bounds = ("previous", "following", "previous_ended", "mesh_began", "ended")
        return (
            links.select("mesh", "window", *bounds, F.inline(sides))
            .where("counts")
            .groupBy("mesh", "window", "id")
            .agg(
                *(F.sum(name).alias(name) for name in sums),
                *(F.min(name).alias(name) for name in firsts),
                *(F.max(name).alias(name) for name in lasts),
                F.sort_array(F.collect_set("loser")).alias("losers"),
                *(F.max(name).alias(name) for name in bounds),
            )
            .withColumn("present", linked | F.coalesce(alive, no))
            .select(
                "*",
                F.coalesce(was, no).alias("was_present"),
                F.coalesce(F.col("present") & ends_here, no).alias("vanishes"),
                (F.col("present") | F.col("named_last").isNotNull()).alias("seen"),
            )
            .select("*", _joined().alias("joined"), _left().alias("left"))
        )

    return states


def _side(end: str) -> Column:
    """Contribution of a link, in one window, to the state of the daemon at one end."""
    other = OTHER[end]
    alone = F.col("low") == F.col("high")
    counts = F.col("counts") & ~alone
    missed = F.when(~says_up(other), F.array_max(f"{other}_downs"))
    zero = F.lit(0).cast("bigint")
    of_link = {
        name: F.when(counts, F.col(name).cast("bigint")).otherwise(zero)
        for name in ("flaps", "messages", "bytes")
    }
    return F.struct(
        F.col(end).alias("id"),
        (counts | F.col(f"{end}_last").isNotNull()).alias("counts"),
        (F.col("there") & ~alone).cast("bigint").alias("links"),
        *(column.alias(name) for name, column in of_link.items()),
        F.when(F.col(f"{end}_lost").isNotNull(), F.col(other)).alias("loser"),
        F.col(f"{end}_first").alias("told_first"),
        F.when(counts, F.col("first")).alias("named_first"),
        F.get(f"{end}_sinces", F.lit(0)).alias("since"),
        F.col(f"{end}_lost").alias("lost"),
        F.col(f"{end}_last").alias("told_last"),
        F.when(counts, F.col("last")).alias("named_last"),
        missed.alias("missed"),
        F.when(counts, F.col("availability")).alias("availability"),
        F.col(f"{end}_about").alias("about"),
    )


def _joined() -> Column:
    """Time at which a daemon joined in a window; null if it did not."""
    known_until = F.coalesce("previous_ended", "mesh_began")
    by_session = F.when(F.col("since") > known_until, F.col("since"))
    # Those of the first window were there before, unless they tell otherwise.
    at = F.when(F.col("previous").isNull(), by_session).otherwise(
        F.coalesce(by_session, "told_first", "named_first")
    )
    return F.when(F.col("seen") & ~F.col("was_present"), at)


def _left() -> Column:
    """Time at which a daemon left in a window; null if it did not."""
    was = F.col("was_present") | F.col("seen")
    return F.when(
        was & ~F.col("present"), F.coalesce("lost", "told_last", "named_last", "previous_ended")
    )


def tell_daemons(daemons: DataFrame) -> DataFrame:
    """Return :data:`DAEMONS` from the rows of :func:`daemon_states`."""
    return daemons.select(
        "mesh",
        "window",
        "id",
        "present",
        F.col("told_last").isNotNull().alias("told"),
        "links",
        F.coalesce("availability", F.lit(0.0)).alias("availability"),
        "flaps",
        "messages",
        "bytes",
        F.timestamp_micros(F.coalesce("told_first", "named_first")).alias("first_seen"),
        F.timestamp_micros(F.coalesce("told_last", "named_last")).alias("last_seen"),
        *(F.col("about")[name].alias(name) for name in ABOUT),
    )
