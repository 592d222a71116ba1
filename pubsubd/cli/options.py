"""How a command that is a client reaches the daemon."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import click

from pubsubd.client import Client, ConnectError, open_client
from pubsubd.limits import MIB


@dataclass(frozen=True, slots=True)
class Target:
    """Which daemon a command talks to."""

    host: str
    port: int
    unix: str | None

    @asynccontextmanager
    async def connect(
        self, *, reconnect: bool = False, max_payload: int = MIB, **more: Any
    ) -> AsyncIterator[Client]:
        """Open a client; how to start a daemon is told when there seems to be none."""
        try:
            async with open_client(
                self.host,
                self.port,
                unix=self.unix,
                reconnect=reconnect,
                max_payload=max_payload,
                **more,
            ) as client:
                yield client
        except ConnectError as exc:
            if isinstance(exc.__cause__, ConnectionRefusedError | FileNotFoundError):
                raise click.ClickException(
                    f'{exc}; is the daemon running? ("pubsubd serve")'
                ) from exc
            raise


def connects(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--host``, ``--port`` and ``--unix``; ``function`` gets them as ``target``."""

    @click.option(
        "--host",
        default="127.0.0.1",
        show_default=True,
        envvar="PUBSUBD_HOST",
        show_envvar=True,
        help="The daemon's host name or address.",
    )
    @click.option(
        "--port",
        type=click.IntRange(1, 65535),
        metavar="PORT",
        default=9014,
        show_default=True,
        envvar="PUBSUBD_PORT",
        show_envvar=True,
        help="The daemon's TCP port.",
    )
    @click.option(
        "--unix",
        type=click.Path(),
        metavar="PATH",
        envvar="PUBSUBD_UNIX",
        show_envvar=True,
        help="The daemon's Unix socket, instead of a host and port.",
    )
    @functools.wraps(function)
    def wrapper(*args: Any, host: str, port: int, unix: str | None, **kwargs: Any) -> Any:
        return function(*args, target=Target(host, port, unix), **kwargs)

    return wrapper
