"""Reasons of failed handshakes: whose certificate was not accepted, by whom and why.

OpenSSL gives the reason, but not the certificate that it has refused. So the contexts made here
look at the messages of a handshake, as Python lets them for debugging, and keep the first
certificate that comes, where one may. Once the handshake is done, the connection gets another
context, so that nothing that is said later is looked at.
"""

from __future__ import annotations

import contextlib
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pubsubd.protocol.wire import escape

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

_CERTIFICATE = 11  # the message with the certificates (RFC 8446, section 4; RFC 5246, section 7.4)
_HEADER = 4  # bytes before a message of the handshake: its type and its length
_LARGEST = 16_384  # bytes of a certificate that is kept
_SHOWN = 200  # characters of a name in it
_REFUSED = (
    "BAD_CERTIFICATE",
    "UNSUPPORTED_CERTIFICATE",
    "CERTIFICATE_REVOKED",
    "CERTIFICATE_EXPIRED",
    "CERTIFICATE_UNKNOWN",
    "UNKNOWN_CA",
)  # alerts of who does not accept our certificate (RFC 8446, section 6.2)


class Handshake(ssl.SSLObject):
    """TLS on memory, which keeps the certificate that the other end shows.

    Attributes:
        shown: that certificate, in DER; empty before it has come.
        own: names the one that is shown to the other end; empty for none.
    """

    shown = b""
    own = ""


class Context(ssl.SSLContext):
    """A context whose failed handshakes can be explained.

    Attributes:
        certificate: names the one that is shown to the other end; empty for none.
        watched: whether handshakes are looked at.
        incoming, outgoing: the memory between OpenSSL and the sockets of all its connections,
            which is empty between two calls.
    """

    sslobject_class = Handshake
    certificate = ""
    watched = False
    incoming: ssl.MemoryBIO
    outgoing: ssl.MemoryBIO

    def __init__(self, _protocol: int) -> None:
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()

    def watch(self, path: str | None) -> None:
        """Be able to tell which certificates were not accepted.

        Handshakes are looked at from now on, which is dear, if the other end may show one.

        Args:
            path: PEM file that begins with the certificate that is shown; None for none.
        """
        from cryptography import x509  # noqa: PLC0415  (9 MiB that only TLS needs)

        if self.verify_mode != ssl.CERT_NONE:
            self._msg_callback = _note
            self.watched = True
        if path is not None:
            with contextlib.suppress(OSError, ValueError):
                self.certificate = _name(x509.load_pem_x509_certificate(Path(path).read_bytes()))


_AFTER = {
    True: ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER),
    False: ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
}
_AFTER[True].verify_mode = ssl.CERT_OPTIONAL  # or Python would not tell who the client is


def end_watch(handshake: ssl.SSLObject) -> None:
    """Look at nothing more that is said on a connection whose handshake is done."""
    context = handshake.context
    if isinstance(context, Context) and context.watched:
        if isinstance(handshake, Handshake):
            handshake.own = context.certificate  # who dials hears later that it is not accepted
            handshake.shown = b""
        handshake.context = _AFTER[handshake.server_side]


def _note(
    handshake: object, direction: str, version: int, _content: int, message: Any, data: bytes
) -> None:
    """Keep the first certificate that comes: called with each message, raises nothing."""
    if direction == "read" and message == _CERTIFICATE and isinstance(handshake, Handshake):
        at = _HEADER
        if version == ssl.TLSVersion.TLSv1_3:
            at += 1 + int.from_bytes(data[at : at + 1])  # the context of the request
        at += 3  # the length of the list
        size = int.from_bytes(data[at : at + 3])
        if size <= _LARGEST:
            handshake.shown = data[at + 3 : at + 3 + size]


def explain_refusal(error: ssl.SSLError, handshake: ssl.SSLObject) -> str | None:
    """Return whose certificate was not accepted, by whom and why; None if it was not that."""
    other = "client" if handshake.server_side else "server"
    reason = getattr(error, "reason", None) or ""  # which only OpenSSL's own have
    if isinstance(error, ssl.SSLCertVerificationError):
        shown = _describe(getattr(handshake, "shown", b""))
        return f"the {other}'s certificate is not good: {error.verify_message}{shown}"
    if reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
        return "the client has shown no certificate, and this listener requires one"
    if reason == "TLSV13_ALERT_CERTIFICATE_REQUIRED":
        return "the server requires a certificate, and this daemon has shown none"
    if "ALERT_" in reason and reason.endswith(_REFUSED):
        own = getattr(handshake.context, "certificate", "") or getattr(handshake, "own", "")
        alert = reason.partition("ALERT_")[2].replace("_", " ").lower()
        return f"the {other} does not accept this daemon's certificate: {alert}{own}"
    return None


def _describe(der: bytes) -> str:
    from cryptography import x509  # noqa: PLC0415  (loaded by the context already)

    try:
        return _name(x509.load_der_x509_certificate(der))
    except ValueError:
        return ""


def _name(certificate: Certificate) -> str:
    subject, issuer = certificate.subject.rfc4514_string(), certificate.issuer.rfc4514_string()
    return f" (subject {escape(subject, _SHOWN)}, issuer {escape(issuer, _SHOWN)})"
