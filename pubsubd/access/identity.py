"""Identities of tokens and users, and the errors of logins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from pubsubd.protocol.errors import PubsubdError

_PART_OF = {"publish": "send", "broadcast": "send", "subscribe": "receive"}


class AuthError(PubsubdError):
    """A login that fails.

    Attributes:
        code: ``login-failed`` or ``login-throttled``; of an :class:`Authority` ``unauthorized`` or
            ``invalid_token``.
        text: why, in one line for a person.
    """

    def __init__(self, code: str, text: str) -> None:
        super().__init__(f"{code} {text}")
        self.code = code
        self.text = text


@dataclass(frozen=True, slots=True)
class Identity:
    """The subject of a token, and its capabilities.

    Attributes:
        actor: the address, or None if it names none.
        capabilities: what it allows; None for everything.
        expires_at: seconds since the epoch.
    """

    actor: str | None
    capabilities: frozenset[str] | None
    expires_at: float | None

    def allows(self, action: str) -> bool:
        """Return whether it allows ``action``: one of the capabilities, "" for none in particular.

        ``publish`` and ``broadcast`` are part of ``send``, and ``subscribe`` of ``receive``, unless
        the token names one of these three, which narrows it to those it names.
        """
        allowed = self.capabilities
        if not action or allowed is None or action in allowed:
            return True
        return _PART_OF.get(action) in allowed and not allowed.intersection(_PART_OF)


class Authority(Protocol):
    """Checks tokens, as :class:`pubsubd.access.tokens.KeyAuthority` does."""

    def verify(self, token: str, now: float) -> Identity:
        """Return who ``token`` is for, at ``now`` seconds since the epoch; raises AuthError."""

    def refresh(self, token: str, now: float) -> tuple[str, int]:
        """Return a new token for one that is good, and when it expires; raises AuthError."""


@dataclass(frozen=True, slots=True)
class Login:
    """Somebody who may come in.

    Attributes:
        name: who it is, empty for nobody in particular.
        credential: what has told, see :attr:`pubsubd.broker.peer.Peer.credential`.
        identity: what the token says, if it was one that an :class:`Authority` has checked.
    """

    name: str
    credential: object
    identity: Identity | None = None
