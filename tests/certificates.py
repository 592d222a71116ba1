"""Certificates for tests with TLS, signed by an authority that is made for the run.

A test asks for the fixture ``certificates`` and passes the paths to the daemon and the client:

    daemon = start("--tls-certificate", certificates.server_certificate, ...)
    ssl.create_default_context(cafile=certificates.ca)

Everything is real: what must be refused (an expired one, one of another authority, one for another
host) is as good as the others but for that.
"""

from __future__ import annotations

import ipaddress
import ssl
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ec import (
    SECP256R1,
    EllipticCurvePrivateKey,
    generate_private_key,
)
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_DAY = timedelta(days=1)


class Pair(NamedTuple):
    """The files of a certificate and of its key, in PEM."""

    certificate: Path
    key: Path


@dataclass(frozen=True)
class Certificates:
    """The files of one run; made by :func:`make`.

    Attributes:
        ca: the certificate of the authority that signs, and is to be trusted.
        other_ca: that of another authority.
        server_certificate: for ``localhost``, ``127.0.0.1`` and ``::1``.
        server_key: its key.
    """

    directory: Path
    ca: Path
    other_ca: Path
    server_certificate: Path
    server_key: Path
    _authority: _Authority = field(repr=False)
    _other: _Authority = field(repr=False)

    def client(self, name: str) -> Pair:
        """Return a certificate for the client ``name`` (its subject's common name)."""
        return self._authority.sign(name, server=False)

    def server(self, *hosts: str) -> Pair:
        """Return another certificate for a server, at each call a new one."""
        return self._authority.sign(hosts[0], hosts, server=True)

    def lasting_server(self, since: float, until: float, *hosts: str) -> Pair:
        """Return a server's certificate that is valid between two times, in days from now."""
        period = {"since": since * _DAY, "until": until * _DAY}
        return self._authority.sign("localhost", hosts, server=True, **period)

    def expired_server(self) -> Pair:
        """Return a server's certificate that held until yesterday."""
        return self._authority.sign("localhost", _LOCAL, server=True, until=-_DAY)

    def expired_client(self, name: str) -> Pair:
        """Return a client's certificate that held until yesterday."""
        return self._authority.sign(name, server=False, until=-_DAY)

    def strange_server(self) -> Pair:
        """Return a server's certificate of the other authority."""
        return self._other.sign("localhost", _LOCAL, server=True)

    def strange_client(self, name: str) -> Pair:
        """Return a client's certificate of the other authority."""
        return self._other.sign(name, server=False)

    def server_context(
        self, pair: Pair | None = None, *, clients: ssl.VerifyMode = ssl.CERT_NONE
    ) -> ssl.SSLContext:
        """Return what a server takes connections with.

        Args:
            pair: its certificate; None for ``server_certificate``.
            clients: whether clients may or must have a certificate of the authority.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        pair = pair or Pair(self.server_certificate, self.server_key)
        context.load_cert_chain(pair.certificate, pair.key)
        context.verify_mode = clients
        if clients is not ssl.CERT_NONE:
            context.load_verify_locations(self.ca)
        return context

    def client_context(self, pair: Pair | None = None) -> ssl.SSLContext:
        """Return what a client connects with that trusts the authority; ``pair`` is its own."""
        context = ssl.create_default_context(cafile=self.ca)
        if pair is not None:
            context.load_cert_chain(pair.certificate, pair.key)
        return context


_LOCAL = ("localhost", "127.0.0.1", "::1")


def make(directory: Path) -> Certificates:
    """Make an authority, another one, and what is signed by them, with files in ``directory``."""
    authority = _Authority(directory, "authority")
    other = _Authority(directory, "other-authority")
    server = authority.sign("localhost", _LOCAL, server=True)
    return Certificates(
        directory=directory,
        ca=authority.path,
        other_ca=other.path,
        server_certificate=server.certificate,
        server_key=server.key,
        _authority=authority,
        _other=other,
    )


class _Authority:
    """Who signs; the files are numbered."""

    def __init__(self, directory: Path, name: str) -> None:
        self.path = directory / f"{name}.pem"
        self._directory = directory
        self._stem = name
        self._signed = 0
        self._key = generate_private_key(SECP256R1())
        self._name = _name(name)
        public = self._key.public_key()
        identifier = x509.SubjectKeyIdentifier.from_public_key(public)
        self._identifier = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(
            identifier
        )
        certificate = (
            _builder(self._name, self._name, self._key, _DAY)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs=True), critical=True)
            .add_extension(identifier, critical=False)
            .sign(self._key, hashes.SHA256())
        )
        self.path.write_bytes(certificate.public_bytes(Encoding.PEM))

    def sign(
        self,
        name: str,
        hosts: tuple[str, ...] = (),
        *,
        server: bool,
        since: timedelta = -7 * _DAY,
        until: timedelta = _DAY,
    ) -> Pair:
        key = generate_private_key(SECP256R1())
        purpose = ExtendedKeyUsageOID.SERVER_AUTH if server else ExtendedKeyUsageOID.CLIENT_AUTH
        builder = (
            _builder(_name(name), self._name, key, until, since)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
            )
            .add_extension(self._identifier, critical=False)
        )
        if hosts:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_host(host) for host in hosts]), critical=False
            )
        certificate = builder.sign(self._key, hashes.SHA256())
        self._signed += 1
        stem = f"{self._stem}-{self._signed}"
        pair = Pair(self._directory / f"{stem}.pem", self._directory / f"{stem}.key")
        pair.certificate.write_bytes(certificate.public_bytes(Encoding.PEM))
        pair.key.touch(mode=0o600)
        pair.key.write_bytes(
            key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
        )
        return pair


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: EllipticCurvePrivateKey,
    until: timedelta,
    since: timedelta = -7 * _DAY,
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + since)
        .not_valid_after(now + until)
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _host(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)
