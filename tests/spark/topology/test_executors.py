"""A graph in blocks that are left to Spark gives what blocks in one process give."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pubsubd.topology.distributed.blocks import spread_blocks
from pubsubd.topology.distributed.survey import survey
from pubsubd.topology.distributed.triangles import cluster
from pubsubd.topology.distributed.whole import analyse, analyse_blocks
from tests.topologies import SMALL, Arcs, clique
from tests.unit.topology.test_distributed import draw, spread, table_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def frame_of(spark: SparkSession, arcs: Arcs, partitions: int) -> DataFrame:
    return spark.createDataFrame(table_of(arcs)).repartition(partitions)


@pytest.mark.parametrize(("partitions", "count"), [(1, 3), (5, 2)])
def test_the_executors_have_the_same_blocks(
    spark: SparkSession, partitions: int, count: int
) -> None:
    arcs = [*draw(7, 12, 60), *SMALL["three components"]]
    local = spread(arcs, count)
    with spread_blocks(frame_of(spark, arcs, partitions), count) as blocks:
        assert blocks.ids.equals(local.ids)
        ends = [one.collect(lambda b: (b.tails, b.indices, b.told)) for one in (blocks, local)]
        for one, other in zip(*ends, strict=True):
            assert one.tolist() == other.tolist()
        both = [cluster(one, survey(one), 2).local.tolist() for one in (blocks, local)]
        assert both[0] == both[1]
        assert max(both[0]) > 0


def test_the_executors_tell_the_same_and_forget_the_blocks(spark: SparkSession) -> None:
    # Links in both directions: a few rounds are enough.
    arcs: Arcs = [*clique(4), *((b, a) for a, b in clique(4)), ("x", "x")]
    kept = spark._jsparkSession.sharedState().cacheManager()
    assert kept.isEmpty()
    assert analyse(frame_of(spark, arcs, 2), 5, 2).equals(analyse_blocks(spread(arcs, 1), 5))
    assert kept.isEmpty()


def test_spark_has_no_blocks_of_a_graph_without_daemons(spark: SparkSession) -> None:
    empty = spark.createDataFrame([], "src string, dst string")
    with spread_blocks(empty) as blocks:
        assert blocks.n == 0
        assert len(survey(blocks).degrees) == 0
