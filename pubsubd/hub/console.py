"""The console: a page for a browser that subscribes and publishes."""

from __future__ import annotations

import base64
import functools
import hashlib
import re
from importlib import resources

_INLINE = {
    kind: re.compile(f"<{kind}>(.*?)</{kind}>".encode(), re.DOTALL).findall
    for kind in ("script", "style")
}


@functools.cache
def page() -> tuple[bytes, list[tuple[str, str]]]:
    """Return the page, and the headers that let a browser run what is in it and nothing else."""
    text = resources.files("pubsubd.hub").joinpath("console.html").read_bytes()
    rules = ["default-src 'none'", "connect-src 'self' ws: wss:"]
    for kind, find in _INLINE.items():
        hashes = (base64.b64encode(hashlib.sha256(part).digest()).decode() for part in find(text))
        rules.append(" ".join((f"{kind}-src", *(f"'sha256-{one}'" for one in hashes))))
    rules += ["base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'"]
    return text, [
        ("Content-Security-Policy", "; ".join(rules)),
        ("Cross-Origin-Opener-Policy", "same-origin"),
        ("Referrer-Policy", "no-referrer"),
    ]
