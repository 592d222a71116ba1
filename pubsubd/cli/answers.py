"""Answers of the daemon to requests, read into the types of a command."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import msgspec

from pubsubd.cli.streams import echo
from pubsubd.protocol.errors import PubsubdError
from pubsubd.protocol.wire import escape

_Answer = TypeVar("_Answer")


def warn_silent(numbers: Sequence[int]) -> None:
    """Say on standard error which workers have not answered, so that their part is missing."""
    if numbers:
        which = ", ".join(map(str, numbers))
        noun = "worker" if len(numbers) == 1 else "workers"
        echo(f"pubsubd: no answer from {noun} {which}: what is theirs is missing", err=True)


def read_answer(answer: bytes, kind: type[_Answer], what: str) -> _Answer:
    """Return an answer in JSON as a ``kind``.

    Raises:
        PubsubdError: it has no ``what``, which is for people.
    """
    try:
        return msgspec.json.decode(answer, type=kind)
    except msgspec.DecodeError as exc:
        raise PubsubdError(f"the daemon's answer has no {what}: {escape(str(exc))}") from exc
