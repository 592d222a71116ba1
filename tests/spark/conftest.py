"""What the tests with Java share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def archives(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let all Javas use one archive of classes: a run of the analysis makes it, if it is not there.

    It stays for the next time the tests are run.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(request.config.cache.mkdir("java")))
        yield
