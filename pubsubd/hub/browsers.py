"""Checks of requests that a stranger's web page may have made a browser send: Host and Origin."""

from __future__ import annotations

import ipaddress
import re

_match_host = re.compile(
    r"(\[[0-9a-f:.]+(?:%[a-z0-9._~-]+)?\]|[a-z0-9._-]+)(?::[0-9]{0,5})?"
).fullmatch
_match_origin = re.compile(r"([a-z][a-z0-9+.-]*)://([a-z0-9._~:\[\]-]*)").fullmatch


def check_host(host: str | None, allowed: frozenset[str]) -> bool:
    """Return whether a request for ``host`` can be meant for this daemon.

    A page whose owner lets its name point to this address (DNS rebinding) is recognised by that
    name; localhost and addresses are beyond anyone's DNS. ``allowed`` are further names, with or
    without a port; ``*`` allows all. A request without a Host, which only HTTP/1.0 may leave out,
    is no browser's.
    """
    if host is None:
        return True
    host = host.lower()
    match = _match_host(host)
    if match is None:
        return False
    name: str = match[1]
    if name.startswith("["):
        return _is_address(name[1:-1])
    name = name.removesuffix(".")
    if name == "localhost" or name.endswith(".localhost") or _is_address(name):
        return True
    return any(one.lower() in ("*", host, name) for one in allowed)


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def check_origin(origin: str | None, host: str, allowed: frozenset[str]) -> bool:
    """Return whether a page of ``origin`` may use what is served at ``host``.

    Allowed are no Origin (it is no browser), the origin of ``host`` itself, http or https, and
    those in ``allowed``, where ``*`` stands for all but ``null``.
    """
    if origin is None:
        return True
    if origin == "null":  # of a file or a sandbox: anybody's
        return origin in allowed
    origin = origin.lower()
    match = _match_origin(origin)
    if match is None:
        return False
    if "*" in allowed or any(one.lower().rstrip("/") == origin for one in allowed):
        return True
    scheme, place = match[1], match[2]
    port = {"http": ":80", "https": ":443"}.get(scheme)
    if port is None or not place:
        return False
    return bool(place.removesuffix(port) == host.lower().removesuffix(port))


def cors_headers(origin: str) -> list[tuple[str, str]]:
    """Return the headers that let a page of ``origin`` read an answer.

    ``origin`` has passed :func:`check_origin`. They are also the answer to a preflight: an
    OPTIONS request, to be answered with 204, these headers and no body.
    """
    return [
        ("Vary", "Origin"),
        ("Access-Control-Allow-Origin", origin),
        ("Access-Control-Allow-Methods", "GET, HEAD, POST, OPTIONS"),
        ("Access-Control-Allow-Headers", "Authorization, Content-Type"),
        ("Access-Control-Max-Age", "600"),
    ]
