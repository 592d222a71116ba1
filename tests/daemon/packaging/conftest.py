"""What the tests of packages build once for all of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.packages import EPOCH, build, copy_checkout, fake_wheels, quick_python


@pytest.fixture(scope="session")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of this checkout, so that a build leaves nothing behind."""
    return copy_checkout(tmp_path_factory.mktemp("checkout") / "pubsubd")


@pytest.fixture(scope="session")
def archive(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The archive of the checkout's sources."""
    return build(
        "sdist", checkout, tmp_path_factory.mktemp("archive"), SOURCE_DATE_EPOCH=str(EPOCH)
    )


@pytest.fixture(scope="session")
def wheel(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkout's wheel."""
    to = tmp_path_factory.mktemp("wheel")
    return build("wheel", checkout, to, SOURCE_DATE_EPOCH=str(EPOCH))


@pytest.fixture(scope="session")
def wheels(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the checkout's wheel, and empty ones of what it needs."""
    return fake_wheels(wheel, tmp_path_factory.mktemp("wheels"))


@pytest.fixture(scope="session")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python to install with."""
    return quick_python(tmp_path_factory.mktemp("python"))
