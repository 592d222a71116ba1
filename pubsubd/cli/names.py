"""Names of requests and answers: the convention of pubsubd-protocol(7), REQUEST AND REPLY.

A request is published as ``NAME/req/ID``, its answer as ``//reply/ID``, and an error as
``//reply/ID/error``.
"""

from __future__ import annotations

import secrets

_FORWARD = "//fwd/"
MAX_ID = 256
"""Bytes of an identifier: no name that is made with it is too long."""


def plain(name: str) -> str:
    """Return the name of the original if ``name`` is that of a forwarded copy."""
    return "//" + name.removeprefix(_FORWARD) if name.startswith(_FORWARD) else name


def new_id(inbox: str | None) -> str:
    """Return an identifier with 128 random bits, which begins with ``inbox`` and a slash."""
    bits = secrets.token_hex(16)
    return bits if inbox is None else f"{inbox}/{bits}"


def request(name: str, identifier: str) -> str:
    """Return the name of a request."""
    return f"{name}/req/{identifier}"


def answer(identifier: str) -> str:
    """Return the name of an answer."""
    return f"//reply/{identifier}"


def error(identifier: str) -> str:
    """Return the name of an answer that is an error."""
    return f"{answer(identifier)}/error"


def copy(name: str) -> str:
    """Return the name of the forwarded copy, which crosses the mesh; local names have none."""
    return _FORWARD + name[2:] if name.startswith("//") else name


def identifier_of(name: str, requests: str) -> str | None:
    """Return the identifier of a request, or None if it is none that can be answered.

    Args:
        name: of the message.
        requests: what names of requests begin with.
    """
    found = name.removeprefix(requests)
    return found if name != found and 0 < len(found.encode()) <= MAX_ID else None
