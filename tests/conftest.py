"""What more than one test file needs: a real daemon, and connections to it.

A test that asks for ``daemon`` has one of its own, with the default settings; for other
settings there is ``start``. ``shared`` is one daemon for a whole file, for tests that only
look at what their own connections hear. Each daemon is ended by SIGTERM when its test is
over, and the test fails if it does not end with status 0 or its log is not as it should be.
"""

from __future__ import annotations

import gc
import signal
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn

import pytest
from hypothesis import HealthCheck, settings

from tests.browser import Browser, Page
from tests.certificates import Certificates, make
from tests.daemons import ROOT, Daemon, Line
from tests.hangs import (
    pytest_runtest_call,
    pytest_runtest_setup,
    pytest_runtest_teardown,
    pytest_sessionfinish,
)
from tests.leftovers import pytest_runtest_makereport, pytest_runtest_protocol

# Hundredths of the examples that scripts/test --fast and scripts/test try; see tests/examples.py.
# None has a limit of time: a machine may be busy.
for name, examples in (("fast", 15), ("usual", 15), ("thorough", 100)):
    settings.register_profile(
        name,
        max_examples=examples,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
settings.load_profile("thorough")

__all__ = [
    "pytest_runtest_call",
    "pytest_runtest_makereport",
    "pytest_runtest_protocol",
    "pytest_runtest_setup",
    "pytest_runtest_teardown",
    "pytest_sessionfinish",
]

MISSING = "not installed: pip install --editable '.[test-topology]'"

_LONG = 32  # characters of a value that make no good name for a test


def pytest_configure() -> None:
    """Let SIGTERM do what Ctrl-C does, so that daemons are ended as well when the tests are."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    gc.disable()  # while tests are collected, which makes little garbage


def pytest_collection_finish() -> None:
    """Keep what is there by now out of collections of garbage: a sixth of the time is theirs."""
    gc.collect()
    gc.freeze()
    gc.enable()


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Name a test the same in each run, although what it is given may be a key made for the run."""
    if not isinstance(val, str | bytes):
        return None
    return argname if len(val) > _LONG or not val.isascii() else None


class WithoutSpark(pytest.File):
    """A file of tests of the analysis, where what that needs is not installed."""

    def collect(self) -> NoReturn:
        """Skip all of it."""
        pytest.skip(f"what the analysis needs is {MISSING}")


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.File | None:
    """Skip the tests of the analysis where it is not installed, so that all others can run."""
    folders = module_path.relative_to(ROOT).parts
    if {"topology", "spark"}.intersection(folders) and find_spec("pyspark") is None:
        return WithoutSpark.from_parent(parent, path=module_path)
    return None


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Daemon]]:
    """Start daemons: the arguments are flags of ``serve`` and those of :class:`Daemon`."""
    started: list[Daemon] = []

    def start_one(*flags: str, **more: Any) -> Daemon:
        daemon = Daemon(tmp_path / f"daemon{len(started)}", *flags, **more)
        started.append(daemon)
        return daemon

    yield start_one
    _stop(started)


@pytest.fixture
def daemon(start: Callable[..., Daemon]) -> Daemon:
    """A daemon of this test's own, with the default settings."""
    return start()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon that the tests of a file share."""
    daemon = Daemon(tmp_path_factory.mktemp("shared"))
    yield daemon
    _stop([daemon])


@pytest.fixture
def dial(start: Callable[..., Daemon]) -> Iterator[Callable[..., Line]]:
    """Connect to a daemon; the connections are closed before the daemon is stopped."""
    lines: list[Line] = []

    def dial_one(daemon: Daemon, **more: Any) -> Line:
        line = Line(daemon.address, **more)
        lines.append(line)
        return line

    yield dial_one
    for line in lines:
        line.close()


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One browser for all tests; ``with browser.page() as page`` opens a page of its own."""
    with Browser(tmp_path_factory.mktemp("browser")) as one:
        yield one


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """An empty page of the browser."""
    with browser.page() as one:
        yield one


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Certificates for servers and clients, good ones and bad ones, in files."""
    return make(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="session")
def parquet() -> Any:
    """Pyarrow's module that reads Parquet files; without it, what asks for it is skipped."""
    return pytest.importorskip("pyarrow.parquet", reason=f"pyarrow is {MISSING}")


def _stop(daemons: list[Daemon]) -> None:
    failures: list[BaseException] = []
    for daemon in daemons:
        try:
            daemon.stop()
        except BaseException as error:  # noqa: BLE001  (the others have to be stopped as well)
            failures.append(error)
    if failures:
        raise failures[0]
