"""The certificate of the servers' TLS variant: RSA with 2,048 bits, made anew by openssl."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from functools import cache
from typing import NamedTuple

from .links import BenchError


class Pair(NamedTuple):
    """The files of a certificate and of its key, in PEM."""

    certificate: str
    key: str


@cache
def _directory() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="bench-tls-")


@cache
def certificate() -> Pair:
    """One for this process, which removes it at its end; raises BenchError without openssl."""
    if shutil.which("openssl") is None:
        raise BenchError("openssl is not installed (apt-get install openssl)")
    directory = _directory().name
    pair = Pair(f"{directory}/certificate.pem", f"{directory}/key.pem")
    made = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost"
    words = [*made.split(), "-out", pair.certificate, "-keyout", pair.key]
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    if done.returncode:
        raise BenchError(f"openssl: {done.stderr.strip()}")
    return pair
