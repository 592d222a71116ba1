"""The users file: who may come in, by a password or a token.

A line is ``name:hash``, one that begins with ``#`` a comment, and a name may have several lines.
Passwords are stretched by scrypt (RFC 7914), with parameters that OWASP's password storage cheat
sheet lists for it. Tokens are 256 random bits, which need no stretching: their SHA-256 is kept.

Invariants:

- Whoever is asked for, known or not, :meth:`Users.verify` hashes as often, and what it compares
  it compares in constant time.
- No text that leaves this module, be it an error or a ``repr``, holds a secret.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import logging
import os
import secrets
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pubsubd.files.whole import read_whole
from pubsubd.protocol.errors import ConfigError
from pubsubd.protocol.wire import escape

log = logging.getLogger("pubsubd")

MAX_USER = 128
"""Bytes of a user's name."""

MAX_SECRET = 1_024
"""Bytes of a password."""

LEAST_SECRET = 8
"""Characters of a password (OWASP ASVS 5.0, 6.2.1)."""

LOG2_N, BLOCK_SIZE, PARALLEL = 14, 8, 5
"""scrypt's parameters for new passwords: 16 MiB of memory, some 0.2 s."""

_MEMORY = 256 * 1024 * 1024  # bytes, for the hash of a file's line
_HASH_SIZE = 32
_TOKEN_SIZE = 32

REMEMBERED = 8_192
"""Passwords that are remembered; each counts again for an address."""


@dataclass(frozen=True, slots=True)
class Password:
    """A line with a stretched password."""

    log2_n: int
    block_size: int
    parallel: int
    salt: bytes
    digest: bytes
    text: str

    def stretch(self, secret: str) -> bytes:
        """Return the hash of ``secret`` with these parameters, which takes long on purpose."""
        return hashlib.scrypt(
            secret.encode("utf-8", "surrogatepass"),
            salt=self.salt,
            n=1 << self.log2_n,
            r=self.block_size,
            p=self.parallel,
            maxmem=_MEMORY + (1 << 20),
            dklen=len(self.digest),
        )


class Users:
    """The users who may log in; made by :func:`parse_users`.

    Args:
        passwords: name -> lines.
        tokens: SHA-256 of a token -> whose it is.
        lines: what :meth:`holds` answers for: pairs of a name and a hash.
    """

    def __init__(
        self,
        passwords: Mapping[str, tuple[Password, ...]] | None = None,
        tokens: Mapping[bytes, str] | None = None,
        lines: frozenset[tuple[str, str]] = frozenset(),
    ) -> None:
        self._passwords = dict(passwords or {})
        self._tokens = dict(tokens or {})
        self.lines = lines
        # As many hashes as the user with the most lines has, for everybody.
        self._rounds = max(map(len, self._passwords.values()), default=1)
        self._nobody = Password(
            LOG2_N, BLOCK_SIZE, PARALLEL, os.urandom(16), os.urandom(_HASH_SIZE), ""
        )
        self._key = os.urandom(32)
        self._verified: dict[bytes, str] = {}

    def __repr__(self) -> str:
        return f"<Users {len(self.names)}>"

    def __bool__(self) -> bool:
        return bool(self.lines)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Users) and self.lines == other.lines

    def __hash__(self) -> int:
        return hash(self.lines)

    @cached_property
    def names(self) -> frozenset[str]:
        """Those who may log in."""
        return frozenset(name for name, _ in self.lines)

    def holds(self, name: str, line: str) -> bool:
        """Return whether ``name`` still has the hash ``line``, which let somebody in."""
        return (name, line) in self.lines

    def find_token(self, token: str) -> tuple[str, str] | None:
        """Return whose a token is, and its hash as it stands in the file; None if nobody's."""
        digest = hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
        # What is looked up is a hash, of which who asks cannot choose a part.
        name = self._tokens.get(digest)
        return None if name is None else (name, _token_line(digest))

    def recall(self, name: str, secret: str, address: str = "") -> str | None:
        """Return the hash that let ``name`` in with that password before, if it has done so.

        Args:
            name: of the user.
            secret: the password.
            address: from where it has to have done so; empty for anywhere.
        """
        return self._verified.get(self._key_of(name, secret, address))

    def remember(self, name: str, secret: str, line: str, address: str = "") -> None:
        """Let :meth:`recall` return ``line``, under a keyed hash of what it is asked by."""
        if len(self._verified) >= REMEMBERED:
            self._verified.clear()
        self._verified[self._key_of(name, secret, address)] = line

    def verify(self, name: str, secret: str) -> str | None:
        """Return the hash of ``name`` that a password fits; None if there is none.

        Takes a fraction of a second for each line a user can have: not for the loop. What was
        found is remembered, so that it is found at once the next time.
        """
        known = self.recall(name, secret)
        if known is not None:
            return known
        lines = self._passwords.get(name, ())
        found = None
        for number in range(self._rounds):
            line = lines[number] if number < len(lines) else self._nobody
            if hmac.compare_digest(line.stretch(secret), line.digest) and line.text:
                found = line.text
        if found is not None:
            self.remember(name, secret, found)
        return found

    def _key_of(self, name: str, secret: str, address: str) -> bytes:
        # The lengths make it one text for each triple, whatever is in these.
        text = f"{len(address)} {len(name)} {address}{name}{secret}"
        return hmac.digest(self._key, text.encode("utf-8", "surrogatepass"), "sha256")


# The file


def load_users(path: Path) -> Users:
    """Return the users of the file ``path``; one that everybody can read is warned of in the log.

    Raises:
        ConfigError: it cannot be read, or a line not be used.
    """
    try:
        data, found = read_whole(path)
        text, mode = data.decode(), found.st_mode
    except OSError as error:
        raise ConfigError(f"cannot read the users file {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"the users file {path} is not UTF-8") from None
    if mode & stat.S_IROTH:
        log.warning("event=readable-users-file path=%s mode=%03o", escape(str(path)), mode & 0o777)
    return parse_users(text, str(path))


def parse_users(text: str, where: str = "the users file") -> Users:
    """Return the users of a file.

    Args:
        text: what is in it.
        where: what it is called in errors.

    Raises:
        ConfigError: a line cannot be used; it names the line, and never what is secret of it.
    """
    passwords: dict[str, tuple[Password, ...]] = {}
    tokens: dict[bytes, str] = {}
    lines = set()
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, colon, stored = line.strip().partition(":")
        try:
            if not colon:
                raise ValueError("it is not NAME:HASH")
            check_user(name)
            kind, *fields = stored.split("$")
            if kind == "scrypt" and len(fields) == 5:
                passwords[name] = (*passwords.get(name, ()), _read_password(stored, fields))
            elif kind == "sha256" and len(fields) == 1:
                digest = bytes.fromhex(fields[0])
                if len(digest) != 32:
                    raise ValueError("a token's hash has 64 hexadecimal digits")
                if tokens.setdefault(digest, name) != name:
                    raise ValueError("two users have the same token")
                stored = _token_line(digest)
            else:
                raise ValueError("the hash is neither scrypt$... nor sha256$...")
        except ValueError as error:
            raise ConfigError(f"{where}, line {number}: {error}") from None
        lines.add((name, stored))
    return Users(passwords, tokens, frozenset(lines))


def check_user(name: str) -> None:
    """Raise ValueError unless ``name`` can be that of a user."""
    if not name:
        raise ValueError("a user's name is missing")
    if not name.isprintable() or any(char.isspace() or char == ":" for char in name):
        raise ValueError(f"a user's name has no space, colon or control character: {_shown(name)}")
    if name.startswith("#") or name == "*":
        raise ValueError(f"a user cannot be called {_shown(name)}")
    if len(name.encode()) > MAX_USER:
        raise ValueError(f"a user's name has over {MAX_USER} bytes: {_shown(name)}")


def check_secret(secret: str) -> None:
    """Raise ValueError unless ``secret`` can be a new password."""
    if len(secret) < LEAST_SECRET:
        raise ValueError(f"a password has at least {LEAST_SECRET} characters")
    if len(secret.encode("utf-8", "surrogatepass")) > MAX_SECRET:
        raise ValueError(f"a password has at most {MAX_SECRET} bytes")
    if not secret.isprintable():
        raise ValueError("a password has no control characters")


def hash_password(secret: str) -> str:
    """Return what the file keeps of a password."""
    salt = os.urandom(16)
    line = Password(LOG2_N, BLOCK_SIZE, PARALLEL, salt, bytes(_HASH_SIZE), "")
    digest = line.stretch(secret)
    encoded = (base64.b64encode(one).decode() for one in (salt, digest))
    return "$".join(["scrypt", str(LOG2_N), str(BLOCK_SIZE), str(PARALLEL), *encoded])


def make_token() -> tuple[str, str]:
    """Return a new token, and what the file keeps of it."""
    token = "-"
    while token.startswith("-"):  # as an option would
        token = secrets.token_urlsafe(_TOKEN_SIZE)
    return token, _token_line(hashlib.sha256(token.encode()).digest())


def edit(text: str, name: str, stored: str | None) -> str:
    """Return the users file with one more line for ``name``, or with none.

    Args:
        text: what was in it.
        name: of the user.
        stored: the hash. A password replaces all that the user had, a token is added. None
            removes the user.
    """
    kept = []
    for line in text.splitlines():
        whose, _, old = line.strip().partition(":")
        password = old.startswith("scrypt$")
        replaced = stored is None or (password and stored.startswith("scrypt$"))
        if whose != name or line.lstrip().startswith("#") or not replaced:
            kept.append(line)
    if stored is not None:
        kept.append(f"{name}:{stored}")
    return "".join(f"{line}\n" for line in kept)


def _read_password(text: str, fields: list[str]) -> Password:
    *numbers, salt, digest = fields
    if not all(one.isascii() and one.isdigit() and len(one) <= 4 for one in numbers):
        raise ValueError("scrypt's parameters are no numbers")
    log2_n, block_size, parallel = map(int, numbers)
    if not (1 <= log2_n <= 24 and block_size >= 1 and 1 <= parallel <= 16):
        raise ValueError("scrypt's parameters are out of range")
    if 128 * block_size << log2_n > _MEMORY:
        raise ValueError(f"scrypt's parameters take over {_MEMORY >> 20} MiB")
    try:
        raw = [base64.b64decode(one, validate=True) for one in (salt, digest)]
    except binascii.Error:
        raise ValueError("the salt or the hash is not base64") from None
    if len(raw[0]) < 8 or not 16 <= len(raw[1]) <= 64:
        raise ValueError("the salt has under 8 bytes, or the hash not 16 to 64")
    return Password(log2_n, block_size, parallel, raw[0], raw[1], text)


def _token_line(digest: bytes) -> str:
    return f"sha256${digest.hex()}"


def _shown(name: str) -> str:
    return f"'{escape(name.encode('utf-8', 'backslashreplace'), 40)}'"
