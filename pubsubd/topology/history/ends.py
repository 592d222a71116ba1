"""Reports of each end of a link, gathered by window."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pubsubd.mesh.edges import ABOUT
from pubsubd.topology.dealing import deal

SLACK = 10
"""Seconds after which all daemons know that a link has ended, clock differences included: rows
of an end that follow its ``down`` sooner than this may be older than the ``down``."""

REPEATED = 86_400
"""Seconds for which the ``down`` of a session counts after it ended. All exports repeat it, those
of old days do not."""

SECOND = 1_000_000
"""One second in the unit of all times here: microseconds since the epoch."""

LINK = ("mesh", "low", "high")
"""Columns that identify a link: its ends in the order of their bytes."""

ENDS = ("low", "high")
OTHER = {"low": "high", "high": "low"}


def gather(rows: DataFrame) -> DataFrame:
    """Return one row for each link and window, with the reports of its ends.

    For an end, ``low`` or ``high`` by the bytes of its name, there are ``_ups`` (its sessions),
    ``_sinces`` (when they began), ``_downs`` (when sessions ended), ``_up`` and ``_down`` (time and
    ``since`` of the latest such row), ``_rtts`` (sorted), ``_first`` and ``_last`` (times of its
    first and last row), and ``_about`` (time of the latest row that tells address, version, site or
    rack of the daemon there, and these).
    """
    at = F.unix_micros("ts")
    spells = (
        rows.withColumn("since", F.unix_seconds("since") * SECOND)
        .groupBy("mesh", "window", "src", "dst", "observer", "state", "since")
        .agg(
            F.min(at).alias("first"),
            F.max(at).alias("last"),
            F.min("messages").alias("messages_first"),
            F.max("messages").alias("messages"),
            F.min("bytes").alias("bytes_first"),
            F.max("bytes").alias("bytes"),
            F.collect_list("rtt_ms").alias("rtts"),  # without those that are null
            F.max(F.when(F.coalesce(*ABOUT).isNotNull(), F.struct(at.alias("at"), *ABOUT))).alias(
                "about"
            ),
        )
    )
    low, up = F.col("observer") == F.col("low"), F.col("state") == "up"
    down = ~up & (F.col("since") >= F.unix_micros("window") - REPEATED * SECOND)
    session = F.struct("since", "last", "messages_first", "messages", "bytes_first", "bytes")
    columns = [
        F.max(F.when(up, F.struct("last", "since", "src"))).alias("dialled"),
        F.min(F.when(up, F.col("first"))).alias("first"),
        F.max(F.when(up, F.col("last"))).alias("last"),
        F.min("first").alias("told_first"),
        F.max("last").alias("told_last"),
    ]
    for end, it in (("low", low), ("high", ~low)):
        latest = F.struct("last", "since")
        columns += [
            F.sort_array(F.collect_list(F.when(it & up, session))).alias(f"{end}_ups"),
            F.sort_array(F.collect_set(F.when(it & up, F.col("since")))).alias(f"{end}_sinces"),
            F.sort_array(F.collect_set(F.when(it & down, F.col("since")))).alias(f"{end}_downs"),
            F.max(F.when(it & up, latest)).alias(f"{end}_up"),
            F.max(F.when(it & down, latest)).alias(f"{end}_down"),
            F.sort_array(F.flatten(F.collect_list(F.when(it & up, F.col("rtts"))))).alias(
                f"{end}_rtts"
            ),
            F.min(F.when(it, F.col("first"))).alias(f"{end}_first"),
            F.max(F.when(it, F.col("last"))).alias(f"{end}_last"),
            F.max(F.when(it, F.col("about"))).alias(f"{end}_about"),
        ]
    spells = spells.select(
        "*", F.least("src", "dst").alias("low"), F.greatest("src", "dst").alias("high")
    )
    # By link alone, so that the windows of one are together for reconcile().
    return deal(spells, *LINK).groupBy(*LINK, "window").agg(*columns)


def says_up(end: str) -> Column:
    """True if the latest row of an end is up."""
    up, down = F.col(f"{end}_up"), F.col(f"{end}_down")
    return up.isNotNull() & F.coalesce(up >= down, F.lit(True))
