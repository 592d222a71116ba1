"""Certificates as files hold them: for whom and for what they are, and until when.

OpenSSL decides what is accepted; what is read here is for those who have to renew them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from pubsubd.files.bounded import read_bounded
from pubsubd.protocol.errors import ConfigError
from pubsubd.protocol.wire import escape

_LONGEST = 200  # characters of a subject
_BLOCK = re.compile(
    rb"-----BEGIN CERTIFICATE-----\s.*?-----END CERTIFICATE-----", re.DOTALL
)  # RFC 7468, section 5.1


@dataclass(frozen=True, slots=True)
class Certificate:
    """One certificate.

    Attributes:
        subject: whose it is, as in RFC 4514, in one printable line.
        not_before, not_after: since and until when it is valid, in seconds since the epoch.
        names: host names and addresses that it is for.
        serves, dials: whether a server, or a client, may use it.
    """

    subject: str
    not_before: float
    not_after: float
    names: tuple[str, ...] = ()
    serves: bool = True
    dials: bool = True

    def covers(self, host: str) -> bool:
        """Return whether a client that asks for ``host`` accepts it (RFC 6125, section 6.4)."""
        host = host.lower()
        parent = "*." + host.partition(".")[2]
        return any(name.lower() in (host, parent) for name in self.names)


def read_certificates(path: str) -> tuple[Certificate, ...]:
    """Return the certificates in a PEM file, in their order.

    One that only OpenSSL can read is left out.

    Raises:
        ConfigError: the file cannot be read.
    """
    try:
        data = read_bounded(Path(path))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror or error}") from None
    found = []
    for block in _BLOCK.findall(data):
        try:
            found.append(_read(x509.load_pem_x509_certificate(block)))
        except ValueError:
            continue
    return tuple(found)


def latest_of_each(certificates: Iterable[Certificate]) -> tuple[Certificate, ...]:
    """Return the certificate of each subject that is valid longest: it was renewed by that one."""
    found: dict[str, Certificate] = {}
    for one in certificates:
        other = found.get(one.subject)
        if other is None or other.not_after < one.not_after:
            found[one.subject] = one
    return tuple(found.values())


def _read(certificate: x509.Certificate) -> Certificate:
    names: list[str] = []
    purposes = None
    for extension in certificate.extensions:
        value = extension.value
        if isinstance(value, x509.SubjectAlternativeName):
            names += value.get_values_for_type(x509.DNSName)
            names += map(str, value.get_values_for_type(x509.IPAddress))
        elif isinstance(value, x509.ExtendedKeyUsage):
            purposes = set(value)
    anything = purposes is None or ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE in purposes
    return Certificate(
        escape(certificate.subject.rfc4514_string(), _LONGEST),
        certificate.not_valid_before_utc.timestamp(),
        certificate.not_valid_after_utc.timestamp(),
        tuple(map(escape, names)),
        serves=anything or ExtendedKeyUsageOID.SERVER_AUTH in (purposes or ()),
        dials=anything or ExtendedKeyUsageOID.CLIENT_AUTH in (purposes or ()),
    )
