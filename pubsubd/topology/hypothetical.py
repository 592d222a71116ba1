"""What if: the latest window of each mesh without some daemons or links, and with other links."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pubsubd.topology.errors import TopologyError

Link = tuple[str, str]


@dataclass(frozen=True)
class _Supposed:
    """What is to be looked at, sorted by what it is."""

    daemons: list[str]
    cut: list[Link]
    added: list[Link]

    @property
    def names(self) -> list[str]:
        return sorted({*self.daemons, *(end for link in (*self.cut, *self.added) for end in link)})


def latest(arcs: DataFrame) -> DataFrame:
    """Return the arcs of the latest window of each mesh."""
    last = arcs.groupBy("mesh").agg(F.max("window").alias("last"))
    now = F.col("window").eqNullSafe(F.col("last"))
    return arcs.join(F.broadcast(last), "mesh").where(now).select("mesh", "window", "src", "dst")


def suppose(
    arcs: DataFrame, without: Sequence[tuple[str, ...]], added: Sequence[Link]
) -> DataFrame:
    """Return the arcs as they would be; those of earlier windows are as they were.

    A daemon that loses its last link still exists. A link is added to each mesh that has both of
    its ends.

    Args:
        arcs: as :data:`pubsubd.topology.history.ARCS`.
        without: daemons, and links as their two ends.
        added: links.

    Raises:
        TopologyError: no mesh has a daemon or a link that is named, at the end of its latest
            window.
    """
    cut = [(one[0], one[1]) for one in without if len(one) == 2]
    asked = _Supposed([one[0] for one in without if len(one) == 1], cut, list(added))
    last = arcs.groupBy("mesh").agg(F.max("window").alias("last"))
    now = F.col("window").eqNullSafe(F.col("last"))
    flagged = arcs.join(F.broadcast(last), "mesh").select("*", now.alias("now"))
    new = _check(flagged, asked)
    is_gone = F.col("src").isin(asked.daemons)
    lost = F.coalesce(F.col("dst").isin(asked.daemons), F.lit(False))
    for one, other in asked.cut:
        lost = lost | _is_link(one, other)
    kept = flagged.where(~(F.col("now") & is_gone)).select(
        "mesh", "window", "src", F.when(~(F.col("now") & lost), F.col("dst")).alias("dst")
    )
    if not new:
        return kept
    made = arcs.sparkSession.createDataFrame(new, "mesh string, src string, dst string")
    more = made.join(F.broadcast(last), "mesh").select(
        "mesh", F.col("last").alias("window"), "src", "dst"
    )
    return kept.union(more)


def _is_link(one: str, other: str) -> Column:
    def arc(src: str, dst: str) -> Column:
        return (F.col("src") == F.lit(src)) & F.col("dst").eqNullSafe(F.lit(dst))

    return arc(one, other) | arc(other, one)


def _check(flagged: DataFrame, asked: _Supposed) -> list[tuple[str, str, str]]:
    """Return the arcs to add: mesh, src, dst."""
    there = flagged.where("now")
    ends = there.select("mesh", F.col("src").alias("id")).union(
        there.where(F.col("dst").isNotNull()).select("mesh", F.col("dst").alias("id"))
    )
    found = ends.where(F.col("id").isin(asked.names)).distinct().collect()
    known = {(row["mesh"], row["id"]) for row in found}
    for name in asked.names:
        if name not in {daemon for _, daemon in known}:
            raise TopologyError(f"no mesh has a daemon {name} at the end of its latest window")
    if asked.cut:
        links = reduce(Column.__or__, (_is_link(*link) for link in asked.cut))
        rows = there.where(links).select("src", "dst").distinct().collect()
        cut = {frozenset((row["src"], row["dst"])) for row in rows}
        for link in asked.cut:
            if frozenset(link) not in cut:
                text = f"no mesh has a link of {link[0]} and {link[1]} at the end of its"
                raise TopologyError(f"{text} latest window")
    new = []
    for one, other in asked.added:
        meshes = [mesh for mesh, name in sorted(known) if name == one and (mesh, other) in known]
        if not meshes:
            raise TopologyError(f"no mesh has both {one} and {other}, which are to be linked")
        lost = {one, other}.intersection(asked.daemons)
        if lost:
            raise TopologyError(f"{min(lost)} is to be without, and cannot be linked")
        new += [(mesh, *arc) for mesh in meshes for arc in ((one, other), (other, one))]
    return new
