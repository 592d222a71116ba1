"""Reading of what is wanted of a section, and the rights that sections need."""

from __future__ import annotations

from collections.abc import Mapping

from pubsubd.broker.peer import Peer
from pubsubd.protocol import wire
from pubsubd.protocol.errors import ProtocolError

_NAME = 64  # characters of a key in an error


def need(asker: Peer, name: bytes) -> None:
    """Check that somebody may make a request, which a section stands for.

    Raises:
        ProtocolError: it is not allowed.
    """
    rights = asker.permission
    if rights is not None and not rights.may_publish(name):
        raise ProtocolError(rights.code, f"{wire.quote(name)}: no right to publish that")


def check_keys(given: Mapping[str, object], section: str, *known: str) -> None:
    """Check the keys of what is wanted of a section.

    Raises:
        ProtocolError: ``bad-request``, there is an unknown one.
    """
    if unknown := given.keys() - set(known):
        shown = wire.escape(min(unknown), _NAME)
        has = f"{section} has {', '.join(known)}" if known else f"{section} has no keys"
        raise ProtocolError("bad-request", f"{shown}: {has}")


def read_number(name: str, value: object, least: float, most: float) -> float:
    """Return a number from a request.

    Raises:
        ProtocolError: ``bad-request``, it is none, or not from ``least`` to ``most``.
    """
    whole = isinstance(least, int)
    kinds = (int,) if whole else (int, float)
    if type(value) not in kinds or not least <= value <= most:  # type: ignore[operator]
        what = "a whole number" if whole else "a number"
        raise ProtocolError("bad-request", f"{name} is {what} from {least:g} to {most:g}")
    return value  # type: ignore[return-value]
