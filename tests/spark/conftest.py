"""What the tests with Java share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.analyses import LONGEST, Ran, put_list, run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let what waits for Java have as long as Java has."""
    for item in items:
        if Path(__file__).parent in item.path.parents and not item.get_closest_marker("longest"):
            item.add_marker(pytest.mark.longest(LONGEST + 120))


@pytest.fixture(scope="session", autouse=True)
def archives(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let all Javas use one archive of classes: a run of the analysis makes it, if it is not there.

    It stays for the next time the tests are run.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(request.config.cache.mkdir("java")))
        yield


@pytest.fixture(scope="session")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """The analysis of a list: where it was run, and what came of it."""
    place = put_list(tmp_path_factory.mktemp("ran"))
    words = ("mesh.txt", "--out", "report", "--fail-on", "partition,spof", "--fail-on", "left")
    return place, run(*words, cwd=place)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A Spark session for all tests: two threads, and two partitions of what is shuffled."""
    from pubsubd.topology.spark import spark_session  # noqa: PLC0415  (seconds to import)

    log = tmp_path_factory.mktemp("spark") / "log"
    settings = {"spark.sql.shuffle.partitions": "2"}
    with spark_session("local[2]", log, heap="1g", brief=True, settings=settings) as session:
        yield session
