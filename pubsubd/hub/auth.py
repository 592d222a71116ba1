"""Who a client is and what it may do, whatever tells it."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import Protocol

from pubsubd.errors import PubsubdError


class AuthError(PubsubdError):
    """A token that does not do.

    Attributes:
        code: ``unauthorized`` or ``invalid_token``.
        text: why, in one line for a person.
    """

    def __init__(self, code: str, text: str) -> None:
        super().__init__(f"{code} {text}")
        self.code = code
        self.text = text


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a token is for.

    Attributes:
        actor: the address, or None if it names none.
        capabilities: what it allows; None for everything.
        expires_at: seconds since the epoch.
    """

    actor: str | None
    capabilities: frozenset[str] | None
    expires_at: float | None


class Authority(Protocol):
    """Checks tokens, as :class:`pubsubd.hub.tokens.KeyAuthority` does."""

    def verify(self, token: str, now: float) -> Identity:
        """Return who ``token`` is for, at ``now`` seconds since the epoch; raises AuthError."""

    def refresh(self, token: str, now: float) -> tuple[str, int]:
        """Return a new token for one that is good, and when it expires; raises AuthError."""


def bearer(header: str | None) -> str | None:
    """Return the token of an Authorization header: Bearer, or the password of Basic."""
    kind, _, value = (header or "").strip().partition(" ")
    value = value.strip()
    if kind.lower() == "bearer":
        return value or None
    if kind.lower() == "basic":
        try:
            _, colon, password = base64.b64decode(value, validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError, ValueError):
            return None
        return password if colon and password else None
    return None
