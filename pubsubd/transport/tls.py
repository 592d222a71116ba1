"""TLS on a non-blocking socket: what the connection reads and sends, with the same calls.

Strategy: OpenSSL works on memory, and this class moves what it makes and takes. So a read of the
socket is one system call however many records it holds, and so is a send. That memory is the
context's, one for all its connections: it keeps the size of the most that was ever in it, which
was half a megabyte each otherwise.

Invariants:

- Nothing is in the context's memory between two calls, whatever goes wrong: OpenSSL keeps itself
  what it has of a record that is not whole, and what it has made is taken in any case.

- After :meth:`TlsSocket.recv`, no whole record is left that was not handed out, unless something is
  ``held``: else waiting for the socket to be readable never waits for what is here already.
- What :meth:`TlsSocket.send` has taken is sent before anything else; ``pending`` tells whether
  some of it is not yet.
- Nothing OpenSSL writes of its own accord, as answers to key updates, grows without bound.
- It takes little at once of what it is slow with: 256 KiB of key updates take it 0.2 s. The rest is
  ``held``, and the next :meth:`TlsSocket.recv` goes on with it.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Callable, Sequence
from time import perf_counter

from pubsubd.files.bounded import check_regular
from pubsubd.protocol.errors import ConfigError, ProtocolError
from pubsubd.protocol.limits import KIB, MIB, READ_SIZE
from pubsubd.transport.trust import Context, end_watch, explain_refusal

_RECORD = 16 * KIB  # bytes in one record at most (RFC 8446, section 5.1)
_HANDSHAKE = 0x16  # first byte of a client that speaks TLS (RFC 8446, section 5.1)
_CIPHERS = "@SECLEVEL=2:ECDHE+AESGCM:ECDHE+CHACHA20"  # of TLS 1.2; those of 1.3 are all good
_AT_ONCE = 16 * KIB  # bytes given to OpenSSL between two looks at the clock
_LITTLE = 2 * KIB  # where it is slow: some 80 key updates, which are 27 bytes and 20 µs each
_SLOW = 0.001  # seconds after which the rest is held
_MOST = 2 * READ_SIZE  # bytes taken to send at once: a read, and what was left of the one before
_MAX_UNSENT = MIB  # bytes, besides what was given to send, that may wait


class TlsSocket:
    """A connected, non-blocking socket that speaks TLS, with the methods a connection uses.

    Args:
        raw: the socket.
        context: what it is encrypted with, of :func:`server_context` or :func:`client_context`.
        server_name: whom to expect at the other end, for a client; None for a server.
        clock: seconds.

    Attributes:
        secure: whether the handshake is done.
        secured: called once it is.
        held: what was read and is not decrypted yet.
        ahead: what :meth:`read_ahead` has come to, for the next :meth:`recv`.
    """

    __slots__ = (
        "_at_once",
        "_clock",
        "_context",
        "_name",
        "_plain",
        "_ssl",
        "_unsent",
        "ahead",
        "held",
        "raw",
        "secure",
        "secured",
    )

    def __init__(
        self,
        raw: socket.socket,
        context: ssl.SSLContext,
        server_name: str | None = None,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        assert isinstance(context, Context)
        self._clock = clock
        self.raw = raw
        self.secure = False
        self.secured: Callable[[], None] = _nothing
        self._context = context
        self._name = server_name
        self._plain = False  # the other end does not speak TLS, and is told so
        self._unsent = memoryview(b"")
        self._at_once = _AT_ONCE
        self.held = b""
        self.ahead: bytes | Exception | None = None
        # Made when the first bytes come: a connection that says nothing takes no memory for it.
        self._ssl: ssl.SSLObject | None = None

    def fileno(self) -> int:
        """Return the descriptor."""
        return self.raw.fileno()

    def close(self) -> None:
        """Close the socket, without a word."""
        self.raw.close()
        self.secured = _nothing

    @property
    def context(self) -> ssl.SSLContext:
        """What it is encrypted with at present."""
        return self._context if self._ssl is None else self._ssl.context

    @property
    def pending(self) -> bool:
        """Whether something that was taken is not sent yet."""
        return bool(self._unsent)

    @property
    def identity(self) -> str | None:
        """The common name of the certificate that the other end has shown, if it has."""
        certificate = None if self._ssl is None else self._ssl.getpeercert()
        for part in (certificate or {}).get("subject", ()):
            for field in part:
                if field[0] == "commonName":
                    return str(field[1])
        return None

    def explain(self, error: ssl.SSLError) -> str:
        """Return what went wrong: whose certificate was not good, if it was that."""
        return (self._ssl and explain_refusal(error, self._ssl)) or explain(error)

    def greet(self) -> None:
        """Begin the handshake, as a client."""
        self._begin(server=False)
        _empty(self._context.outgoing)
        try:
            self._shake()
        except ssl.SSLWantReadError:
            pass
        finally:
            self._take()

    def recv(self, most: int) -> bytes:
        """Return what came, decrypted: ``b""`` at the end.

        Args:
            most: bytes to read from the socket; up to one record more may be returned.

        Raises:
            BlockingIOError: nothing yet.
            ProtocolError: ``tls-required``, the other end does not speak TLS.
            ssl.SSLError: it does not as it should.
        """
        if self.ahead is not None:
            ahead, self.ahead = self.ahead, None
            if isinstance(ahead, Exception):
                raise ahead
            return ahead
        data, self.held = self.held or self.raw.recv(most), b""
        if self._ssl is None:
            if not data:
                return b""
            if data[0] != _HANDSHAKE:
                self._plain = True
                raise ProtocolError("tls-required", "this port speaks TLS, and what came does not")
            self._begin(server=True)
        if not data:
            if not self.secure:
                raise ssl.SSLEOFError(ssl.SSL_ERROR_EOF, "cut off")
            return b""
        parts: list[bytes] = []
        ended, secure = False, self.secure
        try:
            self._decrypt(data, parts)
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            ended = True
        if self.secure and not secure:
            self.secured()
        if len(self._unsent) > _MAX_UNSENT:
            raise ssl.SSLError(1, "too much that it has caused is not read by the other end")
        if parts:
            if ended:  # so that the socket is readable again, and the end is noticed
                self.raw.shutdown(socket.SHUT_RD)
            return parts[0] if len(parts) == 1 else b"".join(parts)
        if ended:
            return b""
        raise BlockingIOError

    def read_ahead(self, most: int) -> bool:
        """Let the next :meth:`recv` be now, unless nothing comes of it but a part of a handshake.

        Returns:
            Whether there is something for it.
        """
        try:
            self.ahead = self.recv(most)
        except (BlockingIOError, InterruptedError):
            return bool(self.held)
        except Exception as error:  # noqa: BLE001  (whatever it is, its own task takes it)
            self.ahead = error
        return True

    def _decrypt(self, data: bytes, parts: list[bytes]) -> None:
        """Let OpenSSL take what has come, and add what it holds to ``parts``.

        Raises:
            ssl.SSLError: the end, or an error.
        """
        assert self._ssl is not None
        incoming = self._context.incoming
        _empty(incoming)
        _empty(self._context.outgoing)
        try:
            if len(data) <= _LITTLE:
                self._decrypt_some(data, parts)
            else:
                self._decrypt_much(data, parts)
        finally:
            self._take()  # the alert that says why, too
            _empty(incoming)

    def _decrypt_much(self, data: bytes, parts: list[bytes]) -> None:
        """Let OpenSSL take some after some, and hold the rest once it is slow with them."""
        size, begun = self._at_once, self._clock()
        for at in range(0, len(data), size):
            self._decrypt_some(data[at : at + size], parts)
            if self._clock() - begun > _SLOW * (1 + at // _AT_ONCE) and self.secure:
                self._at_once, self.held = _LITTLE, data[at + size :]
                return
        self._at_once = _AT_ONCE

    def _decrypt_some(self, data: bytes, parts: list[bytes]) -> None:
        assert self._ssl is not None
        incoming = self._context.incoming
        try:
            incoming.write(data)
            if not self.secure:
                self._shake()
            while incoming.pending or self._ssl.pending():  # or it would raise, which takes longer
                if not (part := self._ssl.read(_RECORD)):
                    raise ssl.SSLZeroReturnError
                parts.append(part)
        except ssl.SSLWantReadError:
            pass

    def send(self, data: bytes | memoryview) -> int:
        """Take some of ``data``, and return how much; what is taken is sent, now or by more calls.

        Raises:
            BlockingIOError: nothing is taken, as earlier data is not sent yet.
        """
        if self._plain:
            return self.raw.send(data)
        if self._ssl is None or not self.secure:
            return len(data)  # nobody could read it
        self._flush()
        if self._unsent:
            raise BlockingIOError
        if len(data) > _MOST:
            data = memoryview(data)[:_MOST]
        if data:
            _empty(self._context.outgoing)
            try:
                self._ssl.write(data)  # all of it: memory has room
            finally:
                self._take()
        return len(data)

    def sendmsg(self, parts: Sequence[bytes]) -> int:
        """As :meth:`send`, of several pieces."""
        self._flush()
        if self._unsent:
            raise BlockingIOError
        size = sum(map(len, parts))
        if self._ssl is None or not self.secure or size > _MOST:
            return self.send(b"".join(parts))
        _empty(self._context.outgoing)
        try:
            for part in filter(None, parts):
                self._ssl.write(part)
        finally:
            self._take()
        return size

    def shutdown(self, how: int) -> None:
        """Say that nothing more is sent."""
        if self._ssl is not None and self.secure:
            _empty(self._context.outgoing)
            try:
                with contextlib.suppress(ssl.SSLError):  # the other end has not said so yet
                    self._ssl.unwrap()
            finally:
                self._take()
        if not self._unsent:
            self.raw.shutdown(how)

    def _begin(self, *, server: bool) -> None:
        context = self._context
        self._ssl = context.wrap_bio(
            context.incoming, context.outgoing, server_side=server, server_hostname=self._name
        )

    def _shake(self) -> None:
        assert self._ssl is not None
        self._ssl.do_handshake()
        self.secure = True
        if self._context.watched:
            end_watch(self._ssl)

    def _take(self) -> None:
        """Take what OpenSSL has made, and send it as far as the socket takes it."""
        made = self._context.outgoing.read()
        if self._unsent:
            self._unsent = memoryview(bytes(self._unsent) + made)
            self._flush()
        elif made:
            try:
                sent = self.raw.send(made)
            except (BlockingIOError, InterruptedError):
                sent = 0
            if sent < len(made):
                self._unsent = memoryview(made)[sent:]

    def _flush(self) -> None:
        """Send what was taken, as far as the socket takes it."""
        try:
            while self._unsent:
                self._unsent = self._unsent[self.raw.send(self._unsent) :]
        except (BlockingIOError, InterruptedError):
            return


def _empty(memory: ssl.MemoryBIO) -> None:
    """Let nothing be left of what has gone wrong before."""
    if memory.pending:
        memory.read()


def _nothing() -> None:
    """Do nothing."""


def server_context(
    certificate: str, key: str | None, client_ca: str | None, *, client_required: bool = False
) -> Context:
    """Return what a listener encrypts with: TLS 1.2 and newer.

    Args:
        certificate: PEM file with the certificate, and those between it and the authority's.
        key: PEM file with its private key; None if that is in the same file.
        client_ca: PEM file with authorities whose certificates identify clients; None for none.
        client_required: whether a client without one is refused.

    Raises:
        ConfigError: a file cannot be used.
    """
    context = Context(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(_CIPHERS)
    context.num_tickets = 1  # OpenSSL makes two, which takes 5 % of a handshake
    _load_chain(context, certificate, key)
    if client_ca is not None:
        _load_authorities(context, client_ca)
        context.verify_mode = ssl.CERT_REQUIRED if client_required else ssl.CERT_OPTIONAL
    context.watch(certificate)
    return context


def client_context(
    ca: str | None = None,
    certificate: str | None = None,
    key: str | None = None,
    *,
    watch: bool = False,
) -> Context:
    """Return what a connection that is dialled is encrypted with: TLS 1.2 and newer.

    The name of the other end is checked.

    Args:
        ca: PEM file with the authorities to trust; None for those the system trusts.
        certificate: PEM file to say who dials; None for nobody.
        key: PEM file with its private key; None if that is in the same file.
        watch: whether to be able to tell which certificate was not accepted.

    Raises:
        ConfigError: a file cannot be used.
    """
    context = Context(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(_CIPHERS)
    if ca is None:
        context.load_default_certs()
    else:
        _load_authorities(context, ca)
    if certificate is not None:
        _load_chain(context, certificate, key)
    if watch:
        context.watch(certificate)
    return context


def _load_chain(context: ssl.SSLContext, certificate: str, key: str | None) -> None:
    for path in (certificate, key):
        if path is not None:
            _check_readable(path)
    try:
        context.load_cert_chain(certificate, key, password=_no_password)
    except (OSError, ValueError) as error:
        where = certificate if key is None else f"{certificate} with the key {key}"
        raise ConfigError(f"the certificate {where} cannot be used: {explain(error)}") from None


def _load_authorities(context: ssl.SSLContext, path: str) -> None:
    _check_readable(path)
    try:
        context.load_verify_locations(path)
    except (OSError, ValueError) as error:
        raise ConfigError(f"the authorities in {path} cannot be used: {explain(error)}") from None


def _check_readable(path: str) -> None:
    try:
        check_regular(path)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror or error}") from None


def _no_password() -> str:
    raise ValueError("the key is encrypted, and there is nobody to ask for its password")


def explain(error: Exception) -> str:
    """Return what went wrong, in one line; of OpenSSL's errors, in words of its own."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate is not good: {error.verify_message}"
    if isinstance(error, ssl.SSLEOFError):
        return "it was cut off"
    if isinstance(error, ssl.SSLError):
        reason: str | None = getattr(error, "reason", None)  # which only OpenSSL's own have
        return (reason or str(error.args[-1])).replace("_", " ").lower()
    return str(error)
