"""Is the daemon in this container alive? Status 0 if /healthz on its hub port says so.

The address, and whether TLS is spoken there, are in the same variables as for the daemon.
"""

from __future__ import annotations

import os
import ssl
import sys
import urllib.request
from http.client import HTTPException

SECONDS = 4  # less than the engine gives
EVERYWHERE = {"": "127.0.0.1", "*": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}


def check() -> None:
    """Raise OSError or HTTPException unless the daemon says that it is alive."""
    host, *_ = os.environ.get("PUBSUBD_HOST", "").split() or [""]
    host = EVERYWHERE.get(host, host)
    if ":" in host:
        host = f"[{host}]"
    port = os.environ.get("PUBSUBD_HUB_PORT", "9015")
    scheme, context = "http", None
    if os.environ.get("PUBSUBD_TLS_CERTIFICATE"):
        # Whether it lives is asked, of this container itself, and not who it is.
        scheme, context = "https", ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    # No proxy, whatever the variables say: what is asked is in here.
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
    )
    with opener.open(f"{scheme}://{host}:{port}/healthz", timeout=SECONDS) as answer:
        answer.read()


if __name__ == "__main__":
    try:
        check()
    except (OSError, HTTPException) as error:
        sys.exit(f"not healthy: {error}")
