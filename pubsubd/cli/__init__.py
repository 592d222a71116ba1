"""The commands: the only place for click, printing and exit codes.

Each command is the ``command`` of its own module, which is imported when it is run: ``serve`` does
not load what ``bench`` draws with, and ``--help`` loads click alone.
"""

from __future__ import annotations

import errno
import gc
import io
import os
import re
import sys
import traceback
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from pubsubd import __version__
from pubsubd.cli.line_writer import PATIENCE, write_in_time
from pubsubd.cli.streams import drop_output, echo, encoded, open_streams
from pubsubd.protocol.errors import ConfigError, PubsubdError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

COMMANDS = {
    "serve": "Run the daemon in the foreground.",
    "pub": "Publish messages.",
    "sub": "Print the messages whose names contain a text.",
    "req": "Send a request, and print the answer.",
    "reply": "Answer requests with a text, or with what a command prints.",
    "passwd": "Set a user's password, or create a token.",
    "ping": "Measure the time of a round trip to the daemon.",
    "stats": "Show the daemon's counters.",
    "top": "Show what goes on in the daemon, as it changes.",
    "connections": "Show who is connected, with traffic and backlog.",
    "kill": "End connections.",
    "explain": "Show who would receive a name, and why.",
    "trace": "Show the way of a name through the mesh.",
    "peers": "Show the daemon's links, and the daemons it knows.",
    "edges": "Print the links of the whole mesh.",
    "mesh-sim": "Simulate a mesh.",
    "topology": "Report where the mesh would break.",
    "schema": "Print the schemas of the hub port's messages.",
    "bench": "Measure the daemon's throughput and latency.",
}
"""Every command and its short help."""


_SERVICE = re.compile(r"(?:tcp|udp|sctp)://[^\s/]+:\d+")
_PORTS = ("PUBSUBD_PORT", "PUBSUBD_HUB_PORT")


class _Commands(click.Group):
    """A group that imports a command when it is needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # the reader has closed our output; click would call that a failure
            return 0

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = import_module(f"pubsubd.cli.{cmd_name.replace('-', '_')}").command
        assert isinstance(command, click.Command)
        gc.freeze()  # what was imported stays
        gc.enable()
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem  # noqa: PLC0415  (as click does)

        found = [
            CompletionItem(name, help=text)
            for name, text in COMMANDS.items()
            if name.startswith(incomplete)
        ]
        return found + click.Command.shell_complete(self, ctx, incomplete)


def _tell_version(context: click.Context, _option: click.Parameter, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:
        from pubsubd.routing.scanner import describe_scanner  # noqa: PLC0415  (not for --help)

        scanner = describe_scanner()
        echo(f"pubsubd {__version__}" + (f" ({scanner})" if scanner else ""))
        context.exit()


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_tell_version,
    help="Show the version and exit.",
)
def group() -> None:
    """A publish/subscribe daemon with a line protocol that you can speak with nc.

    \b
    Exit status:
      0    done
      1    failed: no connection, an error from the daemon, or a timeout
      2    wrong usage
      130  interrupted (Ctrl-C); "serve" drains instead, and ends with status 0

    With PUBSUBD_DEBUG=1, an unexpected failure shows its traceback.
    """  # noqa: D301  (click wants the character)


def main(caught: list[int]) -> int:
    """Run the command line and return the exit status.

    Args:
        caught: collects the signals that arrive before ``serve`` can handle them.
    """
    try:
        open_streams()
        _pass_over_services()
        status = group.main(prog_name="pubsubd", obj=caught, standalone_mode=False)
        sys.stdout.flush()
    except BaseException as exc:  # noqa: BLE001  (the last chance to report it)
        drop_output()
        return _tell(_alone(exc))
    return status if isinstance(status, int) else 0


def _pass_over_services() -> None:
    """Drop what Kubernetes sets in every container for a Service that is named pubsubd."""
    for name, value in list(os.environ.items()):
        if name.startswith("PUBSUBD_") and _SERVICE.fullmatch(value):
            del os.environ[name]
            if name in _PORTS:  # the others have no meaning here
                why = "Kubernetes has set it for a Service"
                echo(f"pubsubd: passing over {name}={value}: {why}", err=True)


def _alone(exc: BaseException) -> BaseException:
    """Return an exception of a group: an interrupt if there is one, otherwise the first."""
    while isinstance(exc, BaseExceptionGroup):
        interrupts = exc.subgroup(KeyboardInterrupt)
        exc = (interrupts or exc).exceptions[0]
    return exc


def _tell(exc: BaseException) -> int:
    """Print one line about ``exc`` and return the exit status for it."""
    if isinstance(exc, SystemExit):
        return exc.code if isinstance(exc.code, int) else 1
    if isinstance(exc, KeyboardInterrupt | click.Abort):
        return 130
    if isinstance(exc, BrokenPipeError):
        return 0  # the reader has closed our output
    if isinstance(exc, click.UsageError):
        shown = io.StringIO()
        exc.show(shown)
        _say(shown.getvalue())
        return exc.exit_code
    if isinstance(exc, click.ClickException):
        message, status = exc.format_message(), exc.exit_code
    elif isinstance(exc, PubsubdError):
        message, status = str(exc), 2 if isinstance(exc, ConfigError) else 1
    elif isinstance(exc, OSError) and exc.strerror:
        message, status = exc.strerror, 1  # without the number
        if exc.errno == errno.EBADF and exc.filename is None:
            message = "standard input or output is closed"
        if exc.filename is not None:
            message = f"{click.format_filename(exc.filename)}: {message}"
    else:
        message, status = f"internal error: {type(exc).__name__}: {exc}", 1
    if os.environ.get("PUBSUBD_DEBUG"):
        _say("".join(traceback.format_exception(exc)))
    _say(f"pubsubd: {' '.join(message.split())}\n")
    return status


def _say(text: str) -> None:
    """Write to standard error; the end of the daemon does not depend on whether that is read."""
    if sys.argv[1:2] == ["serve"]:
        write_in_time(sys.stderr.fileno(), encoded(text, err=True), PATIENCE)
    else:
        echo(text, err=True, nl=False)
