"""What a request over HTTP says of who sends it (RFC 9110, section 11)."""

from __future__ import annotations

import base64
import binascii


def credentials(header: str | None) -> tuple[str | None, str] | None:
    """Return what an Authorization header holds: Basic's name and password, or no name and a token.

    None if it holds neither.
    """
    kind, _, value = (header or "").strip().partition(" ")
    value = value.strip()
    if kind.lower() == "bearer":
        return (None, value) if value else None
    if kind.lower() == "basic":
        try:
            name, colon, password = base64.b64decode(value, validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError, ValueError):
            return None
        return (name, password) if colon and password else None
    return None
