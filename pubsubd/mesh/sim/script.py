"""Scripts of a simulation: actions and their times, a line each."""

from __future__ import annotations

from dataclasses import dataclass

from pubsubd.protocol import wire
from pubsubd.protocol.errors import ProtocolError, PubsubdError


class ScriptError(PubsubdError):
    """An invalid action of a script, in one line."""


@dataclass(frozen=True, slots=True)
class Action:
    """A line of a script, see :func:`parse_script`."""

    at: float
    verb: str
    args: tuple[str, ...]

    def __str__(self) -> str:
        return " ".join((self.verb, *self.args))


_ARGS = {
    "kill": (1, 1),
    "vanish": (1, 1),
    "start": (1, 1),
    "kill-random": (1, 1),
    "vanish-random": (1, 1),
    "cut": (2, 2),
    "swallow": (2, 2),
    "heal": (2, 2),
    "subscribe": (2, 2),
    "unsubscribe": (2, 2),
    "publish": (2, 4),
    "skew": (2, 2),
    "actors": (1, 2),
}


def parse_script(text: str) -> list[Action]:
    """Return the actions of a script: ``at <seconds> <action> <arguments>`` a line, ``#`` comments.

    ====================================  ==========================================================
    kill NODE, start NODE                 end a daemon: its connections close; start it, or all
    vanish NODE                           end it as a power cut does: nothing more comes, no close
    kill-random N%, vanish-random N%      so many of those that live
    cut A B, swallow A B, heal A B        close the link, or let it lose all bytes; mend either
    subscribe NODE SUBSTRING              a client of the daemon subscribes; ``unsubscribe`` so too
    publish NODE NAME [TIMES [SECONDS]]   a client publishes, so often, so far apart (1, 0.1)
    skew NODE SECONDS                     its clock is so much ahead of the others, or behind
    actors COUNT [RATE]                   so many are registered; RATE a second go to other daemons
    ====================================  ==========================================================

    In the place of a NODE may stand ``any``, for one of the living daemons by chance, ``N%``, for
    so many of them, and ``all``. A publisher by chance is another one each time.

    Raises:
        ScriptError: a line that is not like this, by its number.
    """
    actions = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        try:
            actions.append(_parse_action(words))
        except ScriptError as error:
            raise ScriptError(f"line {number}: {error}") from None
    return sorted(actions, key=lambda action: action.at)


def _parse_action(words: list[str]) -> Action:
    if len(words) < 3 or words[0] != "at":
        raise ScriptError("it is not: at <seconds> <action> <arguments>")
    at, verb, args = read_seconds(words[1]), words[2], tuple(words[3:])
    if verb not in _ARGS:
        raise ScriptError(f"{wire.quote(verb.encode())} is none of: {', '.join(_ARGS)}")
    least, most = _ARGS[verb]
    if not least <= len(args) <= most:
        wanted = f"{least}" if least == most else f"{least} to {most}"
        raise ScriptError(f"{verb} takes {wanted} arguments, not {len(args)}")
    if verb.endswith("-random"):
        read_share(args[0])
    if verb in ("subscribe", "unsubscribe", "publish"):
        try:
            wire.check_name(args[1].encode())
        except ProtocolError as error:
            raise ScriptError(error.text) from None
    if verb == "skew":
        read_skew(args[1])
    if verb == "publish" and len(args) > 2:
        read_times(args[2])
        read_seconds(*args[3:])
    if verb == "actors":
        read_times(args[0])
        read_seconds(*args[1:])
    return Action(at, verb, args)


def read_seconds(text: str = "0.1") -> float:
    """Return a number of seconds from 0 on; raise ScriptError."""
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not 0 <= found < 1e9:
        raise ScriptError(f"{wire.quote(text.encode())} is not a number of seconds")
    return found


def read_skew(text: str) -> float:
    """Return a number of seconds, which may be negative; raise ScriptError."""
    return -read_seconds(text[1:]) if text.startswith("-") else read_seconds(text)


def read_times(text: str = "1") -> int:
    """Return a number of times to publish; raise ScriptError."""
    if not (text.isascii() and text.isdigit() and len(text) < 8):
        raise ScriptError(f"{wire.quote(text.encode())} is not how often to publish")
    return int(text)


def read_share(text: str) -> float:
    """Return ``N%`` as a number from 0 to 1; raise ScriptError."""
    try:
        found = float(text[:-1]) / 100 if text.endswith("%") else -1.0
    except ValueError:
        found = -1.0
    if not 0 <= found <= 1:
        raise ScriptError(f"{wire.quote(text.encode())} is not a share like 10%")
    return found
