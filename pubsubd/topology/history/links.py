"""State of each link in a window, reconciled from the reports of both ends."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F

from pubsubd.topology.history.ends import ENDS, LINK, OTHER, SECOND, SLACK, says_up

FACTOR = 2.0
"""Ratio of the larger figure to the smaller from which the ends count as asymmetric."""

RTT_APART = 1.0
"""Milliseconds by which round trips have to differ as well."""

MESSAGES_APART = 100
"""Messages by which counters have to differ as well."""


_USED_UP = (
    "rtts",
    "began",
    "told_first",
    "told_last",
    *(
        f"{end}_{what}"
        for end in ENDS
        for what in (
            *("rtts", "ups", "availability", "bytes"),
            *("ups_before", "sinces_before", "downs_before"),
        )
    ),
)
"""Columns that nothing is made of after :func:`reconcile`: most of the room that a row takes."""


def reconcile(stale: int) -> Callable[[DataFrame], DataFrame]:
    """Return the step from the rows of :func:`gather` to one row per link and window.

    Args:
        stale: seconds for which an end counts as up after its last row.
    """

    def states(accounts: DataFrame) -> DataFrame:
        by_link = Window.partitionBy(*LINK).orderBy("window")
        before = [
            F.lag(f"{end}_{what}").over(by_link).alias(f"{end}_{what}_before")
            for end in ENDS
            for what in ("ups", "sinces", "downs")
        ]
        frame = accounts.select("*", *before).join(
            F.broadcast(_bounds(accounts)), ["mesh", "window"]
        )
        return (
            frame.transform(_judge(stale))
            .transform(_measure)
            .transform(_date)
            .transform(_compare(by_link))
            .drop(*_USED_UP)
        )

    return states


def _bounds(accounts: DataFrame) -> DataFrame:
    """Return the first and last report of each mesh in each window, and its windows around it."""
    by_mesh = Window.partitionBy("mesh").orderBy("window")
    # As structs: to aggregate plain numbers, Spark compiles code, whatever its settings are.
    return (
        accounts.groupBy("mesh", "window")
        .agg(
            F.min(F.struct("told_first"))["told_first"].alias("began"),
            F.max(F.struct("told_last"))["told_last"].alias("ended"),
        )
        .select(
            "*",
            F.lag("window").over(by_mesh).alias("previous"),
            F.lead("window").over(by_mesh).alias("following"),
            F.lag("ended").over(by_mesh).alias("previous_ended"),
            F.min("began").over(Window.partitionBy("mesh")).alias("mesh_began"),
        )
    )


def _judge(stale: int) -> Callable[[DataFrame], DataFrame]:
    """Return the step that finds the ends up at the window's end, and the losses they report."""

    def judge(frame: DataFrame) -> DataFrame:
        columns = []
        for end, other in OTHER.items():
            up = F.col(f"{end}_up")
            slack = up["last"] - SLACK * SECOND
            own, others = (F.array_max(f"{one}_downs") for one in (end, other))
            lost = ~says_up(other) & (others > slack) & (others >= up["since"])
            over = (own > slack) & (own > up["since"])
            fresh = up["last"] >= F.col("ended") - stale * SECOND
            no = F.lit(False)
            columns += [
                F.when(says_up(end) & F.coalesce(lost, no), others).alias(f"{end}_lost"),
                (
                    says_up(end)
                    & F.coalesce(fresh, no)
                    & ~F.coalesce(over, no)
                    & ~F.coalesce(lost, no)
                ).alias(f"{end}_is_up"),
            ]
        return frame.select("*", *columns)

    return judge


def _measure(frame: DataFrame) -> DataFrame:
    """Compute the figures of ends in a window."""
    rtts = {end: F.col(f"{end}_rtts") for end in ENDS}
    both = F.sort_array(F.concat(*rtts.values()))
    columns = []
    for end in ENDS:
        columns += [
            _percentile(rtts[end], 50).alias(f"{end}_rtt_p50"),
            _covered(end).alias(f"{end}_availability"),
            _carried(end, "messages").alias(f"{end}_messages"),
            _carried(end, "bytes").alias(f"{end}_bytes"),
        ]
    percentiles = [_percentile(F.col("rtts"), p).alias(f"rtt_p{p}") for p in (50, 95, 99)]
    return frame.select("*", both.alias("rtts"), *columns).select("*", *percentiles)


def _percentile(values: Column, percent: int) -> Column:
    """The percentile of a sorted array, interpolated linearly; null if it is empty."""
    place = (F.size(values) - 1) * F.lit(percent)
    index = F.floor(place / 100).cast("int")
    low = F.get(values, index)
    high = F.coalesce(F.get(values, index + 1), low)
    return low + (high - low) * (F.pmod(place, F.lit(100)) / 100)


def _covered(end: str) -> Column:
    """The share of a window that an end was up; null if it told nothing."""
    began, ended = F.col("began"), F.col("ended")
    latest = F.col(f"{end}_up")["since"]

    def add(total: Column, session: Column) -> Column:
        stays = F.col(f"{end}_is_up") & (session["since"] == latest)
        until = F.when(stays, ended).otherwise(session["last"])
        return total + F.greatest(until - F.greatest(session["since"], began), F.lit(0))

    covered = F.aggregate(f"{end}_ups", F.lit(0).cast("bigint"), add)
    whole = F.least(covered, ended - began) / (ended - began)
    share = F.when(ended > began, whole).otherwise(
        F.when(F.col(f"{end}_is_up"), 1.0).otherwise(0.0)
    )
    return F.when(F.col(f"{end}_last").isNotNull(), share)


def _carried(end: str, counter: str) -> Column:
    """Growth of an end's counter since the window before; null if the end was not up."""
    ups, before = F.col(f"{end}_ups"), F.col(f"{end}_ups_before")

    def add(total: Column, session: Column) -> Column:
        known = F.filter(before, lambda one: one["since"] == session["since"])
        new = session["since"] > F.coalesce("previous_ended", F.unix_micros("window"))
        first = F.when(new, F.lit(0)).otherwise(session[f"{counter}_first"])
        base = F.coalesce(F.get(known, F.lit(0))[counter], first)
        return total + F.greatest(session[counter] - base, F.lit(0))

    return F.when(F.size(ups) > 0, F.aggregate(ups, F.lit(0).cast("bigint"), add))


def _date(frame: DataFrame) -> DataFrame:
    """Find when the link began and ended (``starts``, ``stops``) and no earlier window has it.

    Both ends report it; the one that reports more of them is believed.
    """
    none = F.array().cast("array<bigint>")
    columns = []
    for name, what, after in (
        ("starts", "sinces", F.col("mesh_began")),
        ("stops", "downs", F.col("mesh_began") - SECOND),  # they are cut to seconds
    ):
        before = {end: F.coalesce(f"{end}_{what}_before", none) for end in ENDS}
        fresh = {end: F.array_except(f"{end}_{what}", before[end]) for end in ENDS}
        fuller = F.size(fresh["low"]) >= F.size(fresh["high"])
        chosen = F.when(fuller, fresh["low"]).otherwise(fresh["high"])
        known = F.concat(before["low"], before["high"])
        columns.append(F.filter(chosen, _unknown(known, after)).alias(name))
    return frame.select("*", *columns)


def _unknown(known: Column, after: Column) -> Callable[[Column], Column]:
    def keep(at: Column) -> Column:
        return (at > after) & ~F.exists(known, lambda one: F.abs(one - at) <= SLACK * SECOND)

    return keep


def _compare(by_link: WindowSpec) -> Callable[[DataFrame], DataFrame]:
    """Return the step that compares a link with itself in the windows before and after."""

    def compare(frame: DataFrame) -> DataFrame:
        there = F.col("low_is_up") | F.col("high_is_up")
        was = (F.lag("there").over(by_link)) & (F.lag("window").over(by_link) == F.col("previous"))
        ends_here = F.col("following") < F.coalesce(
            F.lead("window").over(by_link), F.lit("9999-12-31").cast("timestamp")
        )
        no = F.lit(False)
        told = F.col("last").isNotNull()
        return (
            frame.withColumn("there", there)
            .select(
                "*",
                F.coalesce(was, no).alias("was_there"),
                F.coalesce(F.col("there") & ends_here, no).alias("vanishes"),
                F.coalesce("last", F.lag("last").over(by_link)).alias("last_told"),
            )
            .select(
                "*",
                # Not those that ended long ago, which exports repeat.
                (told | F.col("was_there") | (F.size("stops") > 0)).alias("counts"),
                F.greatest(
                    F.size("stops"), F.size("low_sinces") - 1, F.size("high_sinces") - 1
                ).alias("flaps"),
                F.coalesce(F.greatest("low_availability", "high_availability"), F.lit(0.0)).alias(
                    "availability"
                ),
                F.coalesce(F.greatest("low_messages", "high_messages"), F.lit(0)).alias("messages"),
                F.coalesce(F.greatest("low_bytes", "high_bytes"), F.lit(0)).alias("bytes"),
            )
        )

    return compare


def tell_links(states: DataFrame) -> DataFrame:
    """Return :data:`LINKS`."""
    low, high = F.col("low_is_up"), F.col("high_is_up")
    ends = [F.col(f"{end}_last").isNotNull().cast("int") for end in ENDS]
    apart = F.coalesce(
        _differ("rtt_p50", RTT_APART) | _differ("messages", MESSAGES_APART), F.lit(False)
    )
    return states.where(F.col("counts") & (F.col("low") != F.col("high"))).select(
        "mesh",
        "window",
        F.col("low").alias("src"),
        F.col("high").alias("dst"),
        F.col("dialled")["src"].alias("dialled_by"),
        F.when(low & high, "up").when(low | high, "one-sided").otherwise("down").alias("state"),
        (ends[0] + ends[1]).alias("ends"),
        (low != high).alias("one_sided"),
        F.when(low & ~high, F.col("low")).when(high & ~low, F.col("high")).alias("told_by"),
        apart.alias("asymmetric"),
        "availability",
        "flaps",
        "rtt_p50",
        "rtt_p95",
        "rtt_p99",
        F.col("low_rtt_p50").alias("src_rtt_p50"),
        F.col("high_rtt_p50").alias("dst_rtt_p50"),
        "messages",
        "bytes",
        F.col("low_messages").alias("src_messages"),
        F.col("high_messages").alias("dst_messages"),
        F.timestamp_micros("first").alias("first_seen"),
        F.timestamp_micros("last").alias("last_seen"),
    )


def _differ(what: str, least: float) -> Column:
    """True if the ends' figures differ by :data:`FACTOR` and by ``least``; null: unknown."""
    ends = [F.col(f"{end}_{what}") for end in ENDS]
    # greatest() and least() leave out what is null.
    more, less = F.greatest(*ends), F.least(*ends)
    both = ends[0].isNotNull() & ends[1].isNotNull()
    return both & (more >= FACTOR * less) & (more - less >= least)
