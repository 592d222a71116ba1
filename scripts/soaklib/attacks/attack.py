"""What an attack is, and which there are.

An attack is a function that is given a :class:`~soaklib.attacks.stage.Stage`, in a process of its
own. It prepares something and then floods the daemon, for the seconds that it is given, with bytes
that were made beforehand: what it does has to be cheap for who does it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .stage import Stage


@dataclass(frozen=True)
class Attack:
    """One attack.

    Attributes:
        name: of it.
        text: what it does, in a line.
        run: does it.
        on: what it is aimed at: requests, messages, commands, paths, and limits that it reaches.
        daemon: what kind of daemon: ``plain``, or one of a ``mesh``, with its ``secret``, with
            ``users``, with ``tls``, with trusted proxies, ``proxied``, of two ``workers`` or five,
            ``many-workers``, or without the compiled scanner, ``python``; several of these, with
            spaces between.
        crowd: whether it is also done by 100 connections at once.
        each: bytes that each of its connections may take by the documented limits.
        table: bytes that what it fills may take by the documented limits.
        delay: milliseconds more that others may wait, by the documented limits or because what
            they say themselves takes so long.
    """

    name: str
    text: str
    run: Callable[[Stage], None]
    on: frozenset[str]
    daemon: str
    crowd: bool
    each: int
    table: int
    delay: float = 0.0


ATTACKS: dict[str, Attack] = {}
"""Name -> attack, in the order in which they are done."""


def attack(
    name: str,
    *on: str,
    daemon: str = "plain",
    crowd: bool = False,
    each: int = 0,
    table: int = 0,
    delay: float = 0.0,
) -> Callable[[Callable[[Stage], None]], Callable[[Stage], None]]:
    """Make a function an attack; the first line of its docstring says what it does."""

    def add(run: Callable[[Stage], None]) -> Callable[[Stage], None]:
        text = (run.__doc__ or "").partition("\n")[0].rstrip(".")
        assert name not in ATTACKS
        ATTACKS[name] = Attack(name, text, run, frozenset(on), daemon, crowd, each, table, delay)
        return run

    return add
