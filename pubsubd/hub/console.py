"""The console: a page for a browser that shows the daemon at work, subscribes and publishes.

The files in ``console/`` are served as they are; there is no build step, and nothing else is
served. Their names are looked up in a table, so no path leads anywhere else.
"""

from __future__ import annotations

import functools
from importlib import resources
from typing import NamedTuple

_TYPES = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
_INDEX = "index.html"

_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        # 'self' alone does not cover WebSockets in every browser.
        "connect-src 'self'{sockets}",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)


class File(NamedTuple):
    """A file of the console, with its media type."""

    content: bytes
    media_type: str


@functools.cache
def files() -> dict[str, File]:
    """Return the files of the console, by the path under which each is served."""
    found = {}
    for file in resources.files("pubsubd.hub").joinpath("console").iterdir():
        kind = _TYPES.get(file.name.rpartition(".")[2])
        if kind is not None:
            path = "/" if file.name == _INDEX else f"/console/{file.name}"
            found[path] = File(file.read_bytes(), kind)
    return found


def headers(host: str | None) -> list[tuple[str, str]]:
    """Return the headers that let a browser run what the console is made of and nothing else.

    Args:
        host: of the request, after :func:`pubsubd.hub.browsers.check_host`.
    """
    # The grammar of the policy has no addresses in brackets (CSP, section 2.3.1).
    sockets = f" ws://{host} wss://{host}" if host and not host.startswith("[") else ""
    return [
        ("Content-Security-Policy", _POLICY.format(sockets=sockets)),
        ("Cross-Origin-Opener-Policy", "same-origin"),
        ("Referrer-Policy", "no-referrer"),
    ]
