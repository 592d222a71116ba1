"""``pubsubd serve``: the flags, the log, and the exit status of the daemon."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable
from typing import Any, TypeAlias

import click
import trio

from pubsubd import daemon
from pubsubd.cli.values import seconds, show_size, size, some_seconds
from pubsubd.errors import ConfigError
from pubsubd.limits import HubLimits, Limits
from pubsubd.wire import escape

_Decorator: TypeAlias = Callable[[Callable[..., Any]], Callable[..., Any]]

_DEFAULT = Limits()
_HUB = HubLimits()
_LEVELS = ("debug", "info", "warning", "error")
_PRIORITIES = {"DEBUG": 7, "INFO": 6, "WARNING": 4, "ERROR": 3, "CRITICAL": 2}  # as in syslog(3)


class _OneLine(logging.Formatter):
    """One line an event; for the journal with its priority instead of time and level."""

    def __init__(self, *, journal: bool) -> None:
        super().__init__()
        self.converter = time.gmtime
        self._journal = journal

    def format(self, record: logging.LogRecord) -> str:
        line = record.getMessage()
        if record.exc_info:
            line += f' traceback="{escape(self.formatException(record.exc_info))}"'
        if self._journal:
            return f"<{_PRIORITIES.get(record.levelname, 6)}>{line}"
        stamp = self.formatTime(record, "%Y-%m-%dT%H:%M:%S")
        return f"time={stamp}.{int(record.msecs):03d}Z level={record.levelname.lower()} {line}"


def _start_log(level: str) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_OneLine(journal="JOURNAL_STREAM" in os.environ))
    logger = logging.getLogger("pubsubd")
    logger.addHandler(handler)
    logger.setLevel(level.upper())
    logger.propagate = False


def _setting(flag: str, *name: str, **more: Any) -> _Decorator:
    """Return an option whose value may also stand in PUBSUBD_..., with its default in the help."""
    envvar = "PUBSUBD_" + flag.removeprefix("--").replace("-", "_").upper()
    more.setdefault("show_default", True)
    return click.option(flag, *name, envvar=envvar, show_envvar=True, **more)


def _hub_settings(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the flags of the hub port."""
    for setting in reversed(
        (
            _setting(
                "--hub-port",
                type=click.IntRange(0, 65535),
                metavar="PORT",
                default=9015,
                help="TCP port for JSON clients; 0 takes a free one.",
            ),
            _setting("--no-hub", is_flag=True, help="No port for JSON clients."),
            _setting(
                "--hub-auth",
                type=click.Path(dir_okay=False),
                metavar="FILE",
                help="Ask for tokens (JWT), and check them with the key in this file.",
            ),
            _setting(
                "--hub-host",
                multiple=True,
                metavar="NAME",
                show_default=False,
                help="A host name that browsers may use for the hub port; may be repeated.",
            ),
            _setting(
                "--hub-origin",
                multiple=True,
                metavar="ORIGIN",
                show_default=False,
                help="A web origin whose pages may use the hub port, * for all; may be repeated.",
            ),
            _size("--hub-max-message", _HUB.max_message, "The most of one JSON message."),
            _size("--hub-max-pending", _HUB.max_pending, "The most that may wait for one there."),
            _setting(
                "--hub-rate",
                type=click.FloatRange(min=0),
                metavar="N",
                default=f"{_HUB.rate:g}",
                help="hub:* messages a minute of one connection; 0 for any number.",
            ),
            _count("--hub-burst", _HUB.burst, "hub:* messages at once of one connection."),
            _seconds(
                "--hub-heartbeat",
                _HUB.heartbeat,
                "Silence after which a hub:* client is taken for dead.",
                kind=some_seconds,
            ),
            _count("--hub-max-actors", _HUB.max_actors, "Registered actors."),
            _seconds("--hub-ttl", _HUB.ttl, "How long a registration holds.", kind=some_seconds),
            _seconds(
                "--hub-max-ttl", _HUB.max_ttl, "How long one may hold at most.", kind=some_seconds
            ),
            _count("--hub-page", _HUB.page, "Actors or topics in one answer."),
            _count("--hub-topic-length", _HUB.topic_length, "Characters of a hub:* topic."),
            _setting("--hub-any-topic", is_flag=True, help="Let hub:* topics be any legal name."),
            _count("--hub-max-topics", _HUB.max_topics, "Topics that are remembered."),
            _seconds(
                "--hub-topic-idle",
                _HUB.topic_idle,
                "How long an unused topic is remembered.",
                kind=some_seconds,
            ),
            _count(
                "--hub-max-topic-subscribers",
                _HUB.max_topic_subscribers,
                "Subscribers of one topic on the hub port.",
            ),
            _count("--hub-max-wildcards", _HUB.max_wildcards, "Wildcard subscriptions in all."),
            _count("--hub-max-subscribers", _HUB.max_subscribers, "Synap subscribers in all."),
        )
    ):
        function = setting(function)
    return function


def _mesh_settings(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the flags of the mesh."""
    for setting in reversed(
        (
            _setting(
                "--peer",
                "mesh_peers",
                multiple=True,
                metavar="HOST:PORT",
                show_default=False,
                help="Link to this daemon; may be repeated.",
            ),
            _setting(
                "--mesh", "mesh_name", metavar="NAME", help="Name of the mesh.  [default: default]"
            ),
            _setting(
                "--node",
                "mesh_node",
                metavar="ID",
                help="This daemon's id in the mesh.  [default: its address]",
            ),
            _setting(
                "--mesh-secret-file",
                type=click.Path(dir_okay=False),
                metavar="FILE",
                help="Link only to daemons that have the same secret.",
            ),
            _setting(
                "--discover",
                "mesh_discover",
                type=click.Choice(["linked", "any"]),
                is_flag=False,
                flag_value="linked",
                metavar="[any]",
                help="Link to daemons that linked ones tell of, or that any client does.",
            ),
            _setting(
                "--discover-allow",
                "mesh_allow",
                multiple=True,
                metavar="NETWORK",
                show_default=False,
                help="A network that discovered addresses have to be in; may be repeated.",
            ),
            _setting(
                "--max-peers",
                "mesh_max_peers",
                type=click.IntRange(min=1),
                metavar="N",
                default=8,
                help="Links up to which discovered daemons are dialled.",
            ),
            _setting(
                "--advertise",
                "mesh_advertise",
                metavar="HOST:PORT",
                help="Where other daemons can dial this one.  [default: where it listens]",
            ),
            _seconds(
                "--mesh-heartbeat",
                1.0,
                "Time between two signs of life; after two without any a link is given up.",
                kind=some_seconds,
            ),
            _setting(
                "--export-edges",
                "mesh_export",
                type=click.Path(file_okay=False),
                metavar="DIR",
                help="Write edge lists of the mesh to this directory.",
            ),
            _seconds("--export-interval", 60.0, "Time between two edge lists.", kind=some_seconds),
        )
    ):
        function = setting(function)
    return function


def _size(flag: str, default: int, text: str) -> _Decorator:
    return _setting(flag, type=size(least=1), metavar="SIZE", default=show_size(default), help=text)


def _count(flag: str, default: int, text: str) -> _Decorator:
    return _setting(flag, type=click.IntRange(min=1), metavar="N", default=default, help=text)


def _seconds(
    flag: str, default: float, text: str, *, kind: Callable[[str], float] = seconds
) -> _Decorator:
    return _setting(flag, type=kind, metavar="SECONDS", default=f"{default:g}", help=text)


@click.command()
@_setting(
    "--host", default="127.0.0.1", help="Name or address to listen on; an empty one for no TCP."
)
@_setting(
    "--port",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    default=9014,
    help="TCP port to listen on; 0 takes a free one.",
)
@_setting("--unix", type=click.Path(), metavar="PATH", help="Listen on this Unix socket as well.")
@_setting(
    "--ports-file",
    type=click.Path(dir_okay=False),
    metavar="PATH",
    help="Write the addresses as JSON to this file once they accept.",
)
@_setting("--insecure", is_flag=True, help="Allow a host that is not loopback: there is no login.")
@_size("--max-payload", _DEFAULT.max_payload, "The most data of one message.")
@_count("--max-subscriptions", _DEFAULT.max_subscriptions, "Substrings of one connection.")
@_count(
    "--max-connections",
    _DEFAULT.max_connections,
    "Connections at a time, or fewer if there are not as many file descriptors.",
)
@_size("--max-pending", _DEFAULT.max_pending, "The most that may wait for one consumer.")
@_setting(
    "--slow-consumer",
    type=click.Choice(["throttle", "disconnect", "drop"]),
    default=_DEFAULT.slow_consumer,
    help="Wait for a slow consumer and then cut it, cut it at once, or drop what is too much.",
)
@_seconds(
    "--stall-timeout",
    _DEFAULT.stall_timeout,
    "How long publishers wait for a consumer that takes nothing.",
)
@_seconds(
    "--stall-budget",
    _DEFAULT.stall_budget,
    f"How long, in {_DEFAULT.stall_window:g} s, publishers wait for one consumer.",
)
@_seconds(
    "--command-timeout",
    _DEFAULT.command_timeout,
    "Silence allowed in the middle of a command.",
    kind=some_seconds,
)
@_seconds(
    "--drain-timeout", _DEFAULT.drain_timeout, "How long an ending daemon goes on delivering."
)
@_hub_settings
@_mesh_settings
@_setting("--log-level", type=click.Choice(_LEVELS), default="info", help="The least that is told.")
@click.pass_obj
def command(
    caught: list[int],
    /,
    host: str,
    port: int,
    unix: str | None,
    ports_file: str | None,
    insecure: bool,
    log_level: str,
    hub_port: int,
    no_hub: bool,
    hub_auth: str | None,
    hub_host: tuple[str, ...],
    hub_origin: tuple[str, ...],
    mesh_secret_file: str | None,
    mesh_heartbeat: float,
    export_interval: float,
    **limits: Any,
) -> None:
    """Run the daemon in the foreground; its log goes to standard error.

    SIGTERM and SIGINT end it: what was received before is delivered, for at most --drain-timeout,
    and the status is 0. A second one ends it at once, with status 1.

    Sizes are bytes, or as 64KiB, 8MiB. Flags go before environment variables.
    """
    if caught:
        return  # told to end before there was anything to do
    hub_limits = {name: limits.pop(name) for name in list(limits) if name.startswith("hub_")}
    mesh = {name: limits.pop(name) for name in list(limits) if name.startswith("mesh_")}
    wanted = {name.removeprefix("mesh_"): value for name, value in mesh.items() if value}
    options = None
    if wanted.keys() - {"max_peers", "allow"}:
        options = daemon.MeshOptions(
            **wanted,
            secret_file=mesh_secret_file,
            heartbeat=mesh_heartbeat,
            export_interval=export_interval,
        )
    elif mesh_secret_file is not None:
        raise click.UsageError("--mesh-secret-file is of no use without --peer or --mesh")
    config = daemon.Config(
        host=host or None,
        port=port,
        hub_port=None if no_hub else hub_port,
        unix=unix,
        ports_file=ports_file,
        insecure=insecure,
        limits=Limits(**limits),
        hub_limits=HubLimits(
            **{name.removeprefix("hub_"): value for name, value in hub_limits.items()}
        ),
        hub_auth=hub_auth,
        hub_hosts=hub_host,
        hub_origins=hub_origin,
        mesh=options,
    )
    _start_log(log_level)
    # The list, not its content: it may still be filled until the daemon's own handlers are there.
    trio.run(_serve, config, caught)


async def _serve(config: daemon.Config, caught: list[int]) -> None:
    try:
        await daemon.run(config, early_signals=caught)
    except ConfigError as exc:
        raise click.UsageError(str(exc)) from exc
