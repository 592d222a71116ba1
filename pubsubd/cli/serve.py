"""``pubsubd serve``: the flags, the log, and the exit status of the daemon."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import click
import trio
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from pubsubd.cli.line_writer import PATIENCE, LineWriter
from pubsubd.cli.logs import start_log
from pubsubd.cli.streams import echo
from pubsubd.daemon import run as daemon
from pubsubd.daemon.check import dry_run, switch_user
from pubsubd.daemon.in_force import find_fixed_changes, record
from pubsubd.daemon.service import find_service
from pubsubd.daemon.warnings import expiries, listening, readable_users, sandboxed, warnings
from pubsubd.protocol.errors import ConfigError
from pubsubd.settings.config import Config
from pubsubd.settings.load import Settings, describe_restart, load
from pubsubd.settings.setting import Setting
from pubsubd.settings.table import SETTINGS
from pubsubd.transport.clock import LoopClock

_Decorator: TypeAlias = Callable[[Callable[..., Any]], Callable[..., Any]]

_SERVICE_FILE = Path("/etc/pubsubd/pubsubd.toml")
_PATHS = ("PATH", "FILE", "DIR")
_GIVEN = (
    ParameterSource.COMMANDLINE,
    ParameterSource.ENVIRONMENT,
)


def _leave_to_shell(
    _context: click.Context, _option: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Let the shell complete the name of a file."""
    return [CompletionItem(incomplete, type="file")]


def _reader(setting: Setting) -> Callable[[str], Any]:
    """Return a function that reads a value from the command line or a variable."""

    def read(text: str) -> Any:
        try:
            return setting.kind.from_text(text)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None

    return read


def _option(setting: Setting) -> _Decorator:
    """Return the flag of a setting, with its variable, and its default in the help."""
    kind, more = setting.kind, dict[str, Any]()
    default = setting.default
    if kind.flag:
        more = {"is_flag": True, "default": False}
    elif kind.many:
        more = {"multiple": True, "default": default, "show_default": bool(default)}
    elif default is not None:
        more = {"default": kind.show(default)}
    if kind.choices:
        more["type"] = click.Choice(kind.choices)
    elif not kind.flag:
        more |= {"type": _reader(setting), "metavar": kind.metavar}
        if kind.metavar in _PATHS:
            more["shell_complete"] = _leave_to_shell
    if setting.name == "discover":  # its value is optional
        more |= {"is_flag": False, "flag_value": kind.choices[0], "metavar": kind.metavar}
    more.setdefault("show_default", default is not None)
    return click.option(
        setting.flag,
        setting.name,
        envvar=setting.variable,
        show_envvar=True,
        help=setting.help,
        **more,
    )


def _options(function: Callable[..., Any]) -> Callable[..., Any]:
    for setting in reversed(SETTINGS.values()):
        function = _option(setting)(function)
    return function


@click.command()
@click.option(
    "--config",
    "path",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    envvar="PUBSUBD_CONFIG",
    show_envvar=True,
    help="Read settings from this file, in TOML; see pubsubd.conf(5).",
)
@click.option(
    "--check",
    is_flag=True,
    help="Check the settings, and the files and addresses in them, without serving.",
)
@click.option(
    "--as-user",
    metavar="NAME",
    help="With --check: check as this user, such as the service's; needs root.",
)
@_options
@click.pass_context
def command(
    context: click.Context,
    /,
    path: Path | None,
    check: bool,
    as_user: str | None,
    **values: Any,
) -> None:
    """Run the daemon in the foreground. The log goes to standard error.

    SIGTERM or SIGINT stops it: it delivers what it has received, for at most --drain-timeout, and
    ends with status 0. A second signal stops it at once, with status 1. SIGHUP reloads the
    settings file.

    Sizes are in bytes, or written as 64KiB or 8MiB. Flags override environment variables, which
    override the file.
    """
    caught: list[int] = context.obj
    if caught:
        return  # a signal came before there was anything to do
    given = {
        name: value
        for name, value in values.items()
        if context.get_parameter_source(name) in _GIVEN
    }
    if as_user is not None and not check:
        raise click.UsageError("--as-user is for --check.")
    try:
        if check:
            _check(given, path, as_user)
            return
        settings = load(given, path)
    except ConfigError as exc:
        raise click.UsageError(str(exc)) from exc
    level, form = settings.values["log_level"], settings.values["log_format"]
    log = start_log(level, form)
    try:
        if settings.config.workers > 1:
            _supervise(settings, caught, partial(start_log, level, form))
            return
        # Pass the list itself: signals may still be added until the daemon's own handlers are set.
        trio.run(_serve, settings, caught, clock=LoopClock())
    finally:
        log.close(PATIENCE)


def _check(given: Mapping[str, Any], path: Path | None, as_user: str | None) -> None:
    """Print what is to be said about the settings.

    Raises:
        ConfigError: the daemon would not start with them.
    """
    logging.getLogger("pubsubd").addHandler(logging.NullHandler())  # what matters is printed
    service = None if path is None else find_service(path)
    told = []
    if path is None:
        told.append(f"no --config: only flags, variables and defaults were checked{_hint()}")
    if as_user is not None:
        switch_user(as_user)
    elif service is not None and service.user and os.geteuid() == 0:
        told.append(
            f"checked with the rights of root, but {service.unit} runs as {service.user}: use"
            f" --as-user {service.user}"
        )
    settings = load(given, path)
    prepared = dry_run(settings.config, service)
    made = () if service is None else service.directories
    stuck, process = find_fixed_changes(settings, [*made, os.environ.get("RUNTIME_DIRECTORY", "")])
    if stuck and os.environ.get("MAINPID") == str(process):
        raise ConfigError(describe_restart(stuck))  # systemd asks whether it can be reloaded
    if stuck:
        told.append(f"a reload of the running daemon will be refused: {describe_restart(stuck)}")
    passed = {} if service is None else service.sockets
    told += [*warnings(prepared, passed), *sandboxed(settings.config, service)]
    for text in (*told, *readable_users(settings.config), *expiries(prepared)):
        echo(f"Warning: {text}", err=True)
    echo("the settings are good" if path is None else f"{path} is good")
    for line in listening(settings.config, passed):
        echo(line)
    if settings.config.workers > 1:
        echo(f"{settings.config.workers} workers")


def _hint() -> str:
    return f"; the service has {_SERVICE_FILE}" if _SERVICE_FILE.exists() else ""


def _supervise(settings: Settings, caught: list[int], log: Callable[[int], LineWriter]) -> None:
    # One worker needs none of this.
    from pubsubd.daemon.workers.supervisor import Supervisor  # noqa: PLC0415

    record(settings)
    try:
        Supervisor(settings, caught, log).run()
    except ConfigError as exc:
        raise click.UsageError(str(exc)) from exc


async def _serve(settings: Settings, caught: list[int]) -> None:
    def reload() -> Config:
        nonlocal settings
        settings = settings.reload()
        return settings.config

    record(settings)
    try:
        await daemon.run(settings.config, early_signals=caught, reload=reload)
    except ConfigError as exc:
        raise click.UsageError(str(exc)) from exc
