"""Options by which client commands connect to the daemon and log in.

No option takes a secret: every user of a machine can see the arguments of every process.
"""

from __future__ import annotations

import functools
import getpass
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import click
from click.core import ParameterSource

from pubsubd.client import (
    Client,
    ConnectError,
    DaemonError,
    Login,
    Tls,
    TlsError,
    Token,
    open_client,
)
from pubsubd.client.dial import Connect, address
from pubsubd.client.line import connector
from pubsubd.protocol.limits import KIB, MIB
from pubsubd.protocol.wire import escape

LARGEST = 1024 * MIB
"""Bytes of the largest message that a command takes; the limit that counts is the daemon's."""

_MAX_SECRET = 64 * KIB  # bytes read of a file with one

_Made = TypeVar("_Made", Login, Token)
_Decorator: TypeAlias = Callable[[Callable[..., Any]], Callable[..., Any]]


@dataclass(frozen=True, slots=True)
class Target:
    """The daemon that a command connects to.

    Attributes:
        host, port: its TCP address.
        unix: the path of its Unix socket, used instead; it needs no TLS.
        tls: authorities and client certificate; None for no TLS.
        login: a password or a token; None for no login.
    """

    host: str
    port: int
    unix: str | None = None
    tls: Tls | None = None
    login: Login | Token | None = None

    @property
    def where(self) -> str:
        """Its address, for people."""
        return address(self.host, self.port, self.unix)

    def connector(self) -> Connect:
        """Return what makes connections without a client; see :meth:`connect` for failures."""
        return connector(self.host, self.port, self.unix, self.tls or False, self.login)

    @asynccontextmanager
    async def connect(
        self, *, reconnect: bool = False, max_payload: int = LARGEST, **more: Any
    ) -> AsyncIterator[Client]:
        """Open a client; on failure, suggest the option that may help."""
        try:
            async with open_client(
                self.host,
                self.port,
                unix=self.unix,
                tls=self.tls or False,
                login=self.login,
                reconnect=reconnect,
                max_payload=max_payload,
                **more,
            ) as client:
                yield client
        except TlsError as exc:
            if self.tls is None:
                raise click.ClickException(f"{exc}; use --tls") from exc
            raise
        except DaemonError as exc:
            if self.login is None and exc.code in ("login-required", "login-timeout"):
                raise click.ClickException(f"{exc}; use --user or --token-file") from exc
            raise
        except ConnectError as exc:
            if isinstance(exc.__cause__, ConnectionRefusedError | FileNotFoundError):
                raise click.ClickException(
                    f'{exc}; is the daemon running? ("pubsubd serve")'
                ) from exc
            raise


def _option(flag: str, variable: str, text: str, **more: Any) -> _Decorator:
    """Return an option that can also be set by an environment variable."""
    return click.option(flag, envvar=f"PUBSUBD_{variable}", show_envvar=True, help=text, **more)


def _file(flag: str, variable: str, text: str, metavar: str = "FILE") -> _Decorator:
    return _option(flag, variable, text, type=click.Path(), metavar=metavar)


def _propose_profiles(_context: click.Context, _option: click.Parameter, word: str) -> list[str]:
    from pubsubd.cli import profiles  # noqa: PLC0415  (as below)

    return [name for name in profiles.names() if name.startswith(word)]


def _host(text: str) -> str:
    """Return the host to connect to, of those that the daemon is told in the same variable."""
    host = next(iter(text.split()), "")
    if not host:
        raise click.BadParameter("must not be empty")
    return "localhost" if host == "*" else host


_OPTIONS: tuple[_Decorator, ...] = (
    _option(
        "--host",
        "HOST",
        "The daemon's host name or address.",
        type=_host,
        metavar="HOST",
        default="127.0.0.1",
        show_default=True,
    ),
    _option(
        "--port",
        "PORT",
        "The daemon's TCP port.",
        type=click.IntRange(1, 65535),
        metavar="PORT",
        default=9014,
        show_default=True,
    ),
    _file("--unix", "UNIX", "Use the daemon's Unix socket instead of a host and port.", "PATH"),
    _option(
        "--tls",
        "CLIENT_TLS",
        "Encrypt the connection, and check the daemon's certificate.",
        is_flag=True,
    ),
    _file(
        "--tls-ca",
        "CLIENT_TLS_CA",
        "Trust the authorities in this file instead of the system's; implies --tls.",
    ),
    _file(
        "--tls-certificate",
        "CLIENT_CERTIFICATE",
        "Identify yourself with the certificate in this file; implies --tls.",
    ),
    _file(
        "--tls-key",
        "CLIENT_KEY",
        "The certificate's private key, if it is in a file of its own.",
    ),
    _option(
        "--user",
        "USER",
        "Log in as NAME; asks for the password unless there is a --password-file.",
        metavar="NAME",
    ),
    _file(
        "--password-file",
        "PASSWORD_FILE",
        "Read the password for --user from the first line of this file.",
    ),
    _file("--token-file", "TOKEN_FILE", "Log in with the token in the first line of this file."),
    _option(
        "--profile",
        "PROFILE",
        "Take these options from this profile, where they are not given.",
        metavar="NAME",
        shell_complete=_propose_profiles,
    ),
)


NAMES = (
    "host",
    "port",
    "unix",
    "tls",
    "tls_ca",
    "tls_certificate",
    "tls_key",
    "user",
    "password_file",
    "token_file",
    "profile",
)
_GIVEN = (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT)


def connects(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options to connect and log in; ``function`` gets them as ``target``."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        options = {name: kwargs.pop(name) for name in NAMES}
        return function(*args, target=_target(**options), **kwargs)

    decorated: Callable[..., Any] = wrapper
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return decorated


def _target(*, profile: str | None, **options: Any) -> Target:
    """Return the daemon that options and a profile name."""
    if profile is not None:
        from pubsubd.cli import profiles  # noqa: PLC0415  (most commands have none)

        source = click.get_current_context().get_parameter_source
        given = [name for name in options if source(name) in _GIVEN]
        options = profiles.fill(options, given, profile)
    files = [options[f"tls_{name}"] for name in ("ca", "certificate", "key")]
    if files[2] is not None and files[1] is None:
        raise click.UsageError("--tls-key needs a --tls-certificate.")
    wanted = options["tls"] or any(files)
    secure = Tls(*files) if wanted and options["unix"] is None else None
    login = _login(
        options["user"],
        options["password_file"],
        options["token_file"],
        options.get("password"),
        options.get("token"),
    )
    return Target(options["host"], options["port"], options["unix"], secure, login)


def _login(
    user: str | None,
    password_file: str | None,
    token_file: str | None,
    password: str | None,
    token: str | None,
) -> Login | Token | None:
    """Return the password or token to log in with; ask for a password that is nowhere."""
    if token is not None:
        return _made(Token, token)
    if token_file is not None:
        if user is not None:
            raise click.UsageError(
                "--token-file and --user exclude each other: the token says who you are."
            )
        return _made(Token, _first_line(token_file))
    if user is None:
        if password_file is not None:
            raise click.UsageError("--password-file needs a --user.")
        return None
    if password is None:
        password = _ask(user) if password_file is None else _first_line(password_file)
    return _made(Login, user, password)


def _made(make: Callable[..., _Made], *words: str) -> _Made:
    try:
        return make(*words)
    except ValueError as exc:  # which quotes nothing
        raise click.ClickException(str(exc)) from None


def _first_line(path: str) -> str:
    with Path(path).open("rb") as file:
        line = file.readline(_MAX_SECRET)
    try:
        return line.rstrip(b"\r\n").decode()
    except UnicodeDecodeError:
        raise click.ClickException(f"{click.format_filename(path)} is not UTF-8") from None


def _ask(user: str) -> str:
    """Ask for a password on the terminal, without showing it."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        raise click.UsageError(
            "--user needs a --password-file, as there is no terminal to ask for the password."
        ) from None
    try:
        return getpass.getpass(f"Password of {escape(user)}: ")
    except EOFError:
        raise click.Abort from None
