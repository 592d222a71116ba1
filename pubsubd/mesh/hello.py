"""The handshake of two daemons, without I/O: their ids, and the proof of a shared secret.

    dialler:   1 <mesh> <node> <life> <start> <nonce>
    acceptor:  1 <mesh> <node> <life> <start> <nonce> <proof>
    dialler:   proof <proof>
    acceptor:  welcome

each as the data of ``pub //pubsubd/hello``. ``life`` is the incarnation. A proof is HMAC-SHA256 by
the secret (RFC 2104) over the side that gives it and both of the first two messages, so it holds
for these two daemons and these two nonces only; the secret itself is never sent. Without a secret a
proof is ``-``.
"""

from __future__ import annotations

import hmac
import secrets
from dataclasses import dataclass

from pubsubd.mesh.adverts import AdvertError, check_node
from pubsubd.protocol.errors import ProtocolError
from pubsubd.protocol.wire import escape

VERSION = 1
MAX_HELLO = 512
"""Bytes of a hello that are looked at: more than a legal one has."""

HELLO = b"//pubsubd/hello"
WELCOME = b"welcome"


@dataclass(frozen=True, slots=True)
class Hello:
    """The first message of a daemon to another.

    Attributes:
        nonce: hexadecimal digits, new for each hello.
    """

    mesh: str
    node: str
    incarnation: int
    start: int
    nonce: str

    def text(self) -> bytes:
        """Return the hello as it is sent, without a proof."""
        words = (VERSION, self.mesh, self.node, self.incarnation, self.start, self.nonce)
        return " ".join(map(str, words)).encode()


def new_nonce() -> str:
    """Return 128 random bits."""
    return secrets.token_hex(16)


def parse_hello(data: bytes, words: int) -> tuple[Hello, str]:
    """Return the hello and the proof, if it has one.

    Args:
        data: the text of the hello.
        words: the number of words: 6, or 7 with a proof.

    Raises:
        ProtocolError: ``bad-hello``.
    """
    parts = data[:MAX_HELLO].decode("utf-8", "replace").split(" ")
    if parts[0] != str(VERSION) and parts[0].isdigit():
        raise ProtocolError("bad-hello", f"version {escape(parts[0], 20)}; this is {VERSION}")
    if len(parts) != words or not all(
        one.isascii() and one.isdigit() and len(one) <= 18 for one in parts[3:5]
    ):
        raise ProtocolError("bad-hello", "it is not: 1 MESH NODE LIFE START NONCE")
    try:
        mesh, node = check_node(parts[1], "name of a mesh"), check_node(parts[2])
    except AdvertError as error:
        raise ProtocolError("bad-hello", str(error)) from None
    if not 16 <= len(parts[5]) <= 64:
        raise ProtocolError("bad-hello", "the nonce has not 16 to 64 digits")
    incarnation, start = map(int, parts[3:5])
    proof = parts[6] if words == 7 else ""
    return Hello(mesh, node, incarnation, start, parts[5]), proof


def prove(secret: bytes | None, side: str, dialler: Hello, acceptor: Hello) -> str:
    """Return the proof that ``side``, ``dialler`` or ``acceptor``, gives."""
    if secret is None:
        return "-"
    said = b"\n".join([b"pubsubd mesh", side.encode(), dialler.text(), acceptor.text()])
    return hmac.new(secret, said, "sha256").hexdigest()


def check_proof(
    proof: str, secret: bytes | None, side: str, dialler: Hello, acceptor: Hello
) -> None:
    """Raise ProtocolError unless ``proof`` is the one that ``side`` has to give."""
    expected = prove(secret, side, dialler, acceptor)
    if not hmac.compare_digest(proof.encode("utf-8", "replace"), expected.encode()):
        if secret is None:
            raise ProtocolError("bad-secret", "the other daemon has a secret, and this one none")
        if proof == "-":
            raise ProtocolError("bad-secret", "the other daemon has no secret")
        raise ProtocolError("bad-secret", "the other daemon's secret is not this one's")
