"""The physical floor: relays that parse nothing, in C and in Python, on the same sockets.

One process that reads from a socket and sends what it has read to all who want it cannot
be faster than these (``relay.c``, ``relay.py``); what a server takes beyond that is its
own. Messages that go to only some of the subscribers cannot be told apart without parsing:
of these, a relay that shares gives each an equal part of each read. Over TLS there is the one in
Python, with the same OpenSSL as pubsubd; it parses nothing but TLS.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from .certificate import certificate
from .protocols import Pubsubd, Want, Wire

C_RELAY, PYTHON_RELAY = FLOORS = ("c-relay", "py-relay")
AT_FLOOR = 1.15  # within this of the relay in Python, a server is at its floor
COMPILER = "cc"
_HERE = Path(__file__).parent


class Relayed(Pubsubd):
    """The line protocol's messages; a connection that begins with ``sub x`` gets them.

    At least if they are of the first publication that they come with, and its name begins so.
    There are no pings, as nobody would answer.
    """

    name = "relay"
    ping = pong = pong_subscribed = b""

    def supports(self, want: Want) -> bool:
        return want.kind != "contains"

    def subscribe(self, index: int, want: Want) -> bytes:
        return b"" if index else b"sub %b\n" % want.text[:1]

    def subscribed(self, index: int, want: Want) -> bytes:
        return b"" if index else b"ok\n"


class Shared(Relayed):
    """The same where each subscriber gets an equal part, whichever bytes these are."""

    exact = False


RELAYED: Wire = Relayed()
SHARED: Wire = Shared()


def why_missing(name: str) -> str | None:
    """How to get what the relay `name` needs, if it is not there."""
    if name == C_RELAY and shutil.which(COMPILER) is None:
        return "apt-get install gcc"
    return None


@cache
def _compiled() -> tuple[tempfile.TemporaryDirectory[str], str]:
    """The program, in a directory that is there for as long as this process."""
    directory = tempfile.TemporaryDirectory(prefix="bench-relay-")
    program = f"{directory.name}/relay"
    subprocess.run([COMPILER, "-O2", "-o", program, str(_HERE / "relay.c")], check=True)
    return directory, program


def command(name: str, python: str, port: int, variant: str, peer: int = 0) -> list[str]:
    """How the relay `name` is started; a `variant` may be ``share`` or, in Python, ``tls``.

    With a `peer`, it gets what comes to the relay that listens there.
    """
    program = [_compiled()[1]] if name == C_RELAY else [python, str(_HERE / "relay.py")]
    words = [variant] if variant in {"share", "tls"} else []
    if peer:
        words = ["from", str(peer)]
    if variant == "tls":
        pair = certificate()
        words += [pair.certificate, pair.key]
    return [*program, str(port), *words]
