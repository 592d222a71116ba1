"""Work that is done in steps, so that others are served in between."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TypeVar

Value = TypeVar("Value")

Steps = Generator[None, None, Value]
"""Makes something, and yields wherever it may pause."""


class Later:
    """Whether something was done, which is known later.

    Attributes:
        done: called with that then.
    """

    done: Callable[[bool], None]


def finish(steps: Steps[Value]) -> Value:
    """Return what ``steps`` make, made without a pause."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            value: Value = done.value
            return value
