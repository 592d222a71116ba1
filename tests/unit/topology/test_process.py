"""The process that uses Spark: how signals leave it."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from pubsubd.topology.process import ended_in_order


@pytest.fixture(autouse=True)
def signals() -> Iterator[None]:
    """Let the signals do what they do in a program, and what they did before."""
    usual = {
        signal.SIGTERM: signal.SIG_DFL,
        signal.SIGHUP: signal.SIG_DFL,
        signal.SIGINT: signal.default_int_handler,
    }
    before = {number: signal.signal(number, one) for number, one in usual.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def fail_after(number: int) -> None:
    """Fail on the way out, as what asks a Java does that the same signal has ended."""
    try:
        signal.raise_signal(number)
    finally:
        raise ConnectionError("Java is gone")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_program_told_to_end_ends_so_whatever_fails_on_the_way(number: int) -> None:
    with pytest.raises(SystemExit) as end, ended_in_order():
        fail_after(number)
    assert end.value.code == 128 + number


def test_what_ignores_the_end_of_its_terminal_goes_on() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as under nohup
    with ended_in_order():
        signal.raise_signal(signal.SIGHUP)


def test_an_interrupt_stays_one_whatever_fails_on_the_way() -> None:
    with pytest.raises(KeyboardInterrupt), ended_in_order():
        fail_after(signal.SIGINT)


def test_a_failure_without_a_signal_stays_what_it_is() -> None:
    with pytest.raises(ConnectionError), ended_in_order():
        raise ConnectionError("Java is gone")
