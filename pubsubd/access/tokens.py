"""Tokens checked with a key: JSON Web Tokens (RFC 7519).

The key decides which algorithm is accepted, never the token. No text that leaves this module, be
it an error or a ``repr``, holds a token or a key.

The daemon imports this only if it has a key: what it stands on takes 11 MiB.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import jwt
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed448 import Ed448PublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import (
    load_der_private_key,
    load_der_public_key,
    load_pem_public_key,
)

from pubsubd.access.identity import AuthError, Identity
from pubsubd.files.bounded import read_bounded
from pubsubd.protocol.errors import ConfigError

ISSUER = "signal-hub"
"""The issuer that a token must name."""

MAX_TOKEN = 16_384
"""Characters of a token."""

LEAST_SECRET = 32
"""Bytes of a shared secret: those of a SHA-256 hash (RFC 7518, section 3.2)."""

LEAST_RSA = 2_048
"""Bits of an RSA key (RFC 7518, section 3.3)."""

LONGEST = 86_400
"""Seconds that a refreshed token holds at most."""

_FOREVER = 2**53  # seconds since the epoch, beyond which they are no longer exact


class KeyAuthority:
    """Checks tokens with one key; made by :func:`load_key`.

    Authorities are equal if a token of one is a token of the other; the leeway is no part of that.
    """

    def __init__(self, key: Any, algorithm: str, audiences: frozenset[str], leeway: float) -> None:
        self._key = key
        self._algorithm = algorithm
        self._audiences = audiences
        self._leeway = leeway

    def __repr__(self) -> str:
        return f"<KeyAuthority {self._algorithm}>"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, KeyAuthority):
            return NotImplemented
        return (
            self._algorithm == other._algorithm
            and self._audiences == other._audiences
            and bool(self._key == other._key)
        )

    def __hash__(self) -> int:
        return hash(self._algorithm)

    def verify(self, token: str, now: float) -> Identity:
        """Return who ``token`` is for; ``now`` is in seconds since the epoch.

        Raises:
            AuthError: ``unauthorized``, it is not good, or not any more, or not yet.
        """
        claims = self._claims(token, now)
        capabilities = claims.get("capabilities")
        allowed = None if capabilities is None else frozenset(capabilities)
        return Identity(_actor(claims), allowed, float(claims["exp"]) + self._leeway)

    def refresh(self, token: str, now: float) -> tuple[str, int]:
        """Return a new token for one that is good, and when it expires, in epoch milliseconds.

        It has the same claims and holds as long as the old one was meant to, a day at most.

        Raises:
            AuthError: ``invalid_token``, it is not good, or the key can check but not sign.
        """
        if self._algorithm != "HS256":
            raise AuthError("invalid_token", "tokens are issued elsewhere: the key here is public")
        try:
            claims = self._claims(token, now)
        except AuthError as error:
            raise AuthError("invalid_token", error.text) from None
        issued = claims.get("iat", claims.get("nbf", now))
        life = min(max(float(claims["exp"]) - float(issued), 1.0), LONGEST)
        expires_at = int(now + life)
        claims |= {"iat": int(now), "exp": expires_at}
        return jwt.encode(claims, self._key, algorithm="HS256"), expires_at * 1000

    def _claims(self, token: str, now: float) -> dict[str, Any]:
        token = token.strip()
        if token[:7].lower() == "bearer ":
            token = token[7:].lstrip()
        if not token or len(token) > MAX_TOKEN:
            raise AuthError("unauthorized", "the token is missing, or too long")
        try:
            claims: dict[str, Any] = jwt.decode(
                token,
                self._key,
                algorithms=[self._algorithm],
                issuer=ISSUER,
                options={
                    "require": ["exp", "iss"],
                    "verify_exp": False,  # by our clock, below
                    "verify_nbf": False,
                    "verify_iat": False,
                    "verify_aud": False,  # below, in words of our own
                    "verify_sub": False,
                },
            )
        except jwt.InvalidIssuerError:
            raise AuthError("unauthorized", f"the token's issuer is not {ISSUER}") from None
        except jwt.MissingRequiredClaimError as error:
            raise AuthError("unauthorized", f"the token has no {error.claim}") from None
        except jwt.InvalidAlgorithmError:
            raise AuthError(
                "unauthorized", f"the token is not signed by {self._algorithm}"
            ) from None
        except jwt.InvalidSignatureError:
            raise AuthError("unauthorized", "the token's signature is not good") from None
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
            raise AuthError("unauthorized", "the token cannot be read") from None
        for claim in ("exp", "nbf", "iat"):
            if not _is_time(claims.get(claim, 0)):
                raise AuthError("unauthorized", f"the token's {claim} is no time")
        if claims["exp"] + self._leeway <= now:
            raise AuthError("unauthorized", "the token has expired")
        if claims.get("nbf", 0) - self._leeway > now:
            raise AuthError("unauthorized", "the token does not hold yet")
        self._check_audience(claims.get("aud"))
        actor, capabilities = _actor(claims), claims.get("capabilities")
        if actor is not None and not isinstance(actor, str):
            raise AuthError("unauthorized", "the token's subject is no text")
        if capabilities is not None and not (
            isinstance(capabilities, list) and all(isinstance(one, str) for one in capabilities)
        ):
            raise AuthError("unauthorized", "the token's capabilities are no list of texts")
        return claims

    def _check_audience(self, given: Any) -> None:
        """Refuse a token that is for others (RFC 7519, section 4.1.3)."""
        if given is None:
            if self._audiences:
                raise AuthError(
                    "unauthorized", "the token has no aud, and hub_audience asks for one"
                )
            return
        named = [given] if isinstance(given, str) else given
        if not isinstance(named, list) or not all(isinstance(one, str) for one in named):
            raise AuthError("unauthorized", "the token's aud is neither a text nor a list of texts")
        if self._audiences.isdisjoint(named):
            raise AuthError("unauthorized", "the token's aud names nobody of hub_audience")


def _actor(claims: dict[str, Any]) -> Any:
    actor = claims.get("sub")
    return claims.get("actorId") if actor is None else actor


def _is_time(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _FOREVER


def load_key(path: Path, audiences: Iterable[str] = (), leeway: float = 0.0) -> KeyAuthority:
    """Return what checks tokens with the key in a file.

    A PEM public key is used for RS256 or EdDSA, as its kind is; anything else is the shared secret
    for HS256, without line ends around it.

    Args:
        path: of the file.
        audiences: one of them has to be in the ``aud`` of a token. If there are none, a token has
            to be without ``aud``.
        leeway: seconds by which the clock that ``exp`` and ``nbf`` were set by may differ.

    Raises:
        ConfigError: the file cannot be read, or the key not be used.
    """
    make = partial(KeyAuthority, audiences=frozenset(audiences), leeway=leeway)
    try:
        data = read_bounded(path)
    except OSError as error:
        raise ConfigError(f"cannot read the key in {path}: {error.strerror}") from None
    if b"PRIVATE KEY-----" in data:
        raise ConfigError(f"{path} holds a private key: the public one is needed, to check tokens")
    if b"-----BEGIN" not in data:
        _refuse_other_keys(path, data)
        secret = data.strip(b"\r\n")
        if len(secret) < LEAST_SECRET:
            raise ConfigError(
                f"the secret in {path} has {len(secret)} bytes: {LEAST_SECRET} are the least"
            )
        return make(secret, "HS256")
    try:
        key = load_pem_public_key(data)
    except (ValueError, UnsupportedAlgorithm):
        raise ConfigError(f"{path} is no public key in PEM that can be read") from None
    if isinstance(key, RSAPublicKey):
        if key.key_size < LEAST_RSA:
            raise ConfigError(f"the RSA key in {path} has {key.key_size} bits, under {LEAST_RSA}")
        return make(key, "RS256")
    if isinstance(key, Ed25519PublicKey | Ed448PublicKey):
        return make(key, "EdDSA")
    raise ConfigError(f"{path} is a key for neither RS256 nor EdDSA")


def _refuse_other_keys(path: Path, data: bytes) -> None:
    """Refuse to take for a secret what is a key in another form: anybody may know it."""
    kind = None
    if data.lstrip().startswith((b"ssh-", b"ecdsa-", b"sk-")):
        kind = "an OpenSSH key"
    elif data.lstrip().startswith(b"{") and b'"kty"' in data:
        kind = "a JSON Web Key"
    elif data.startswith(b"\x30"):  # a sequence, as all keys in DER are
        for load in (load_der_public_key, lambda text: load_der_private_key(text, None)):
            with contextlib.suppress(ValueError, TypeError, UnsupportedAlgorithm):
                load(data)
                kind = "a key in DER"
    if kind is not None:
        raise ConfigError(f"{path} holds {kind}: a public key is needed in PEM, or a secret")
