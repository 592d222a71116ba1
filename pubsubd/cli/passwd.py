"""``pubsubd passwd``: passwords and tokens in a users file."""

from __future__ import annotations

import contextlib
import os
import sys
from functools import partial
from pathlib import Path

import click

from pubsubd.access.users import (
    MAX_SECRET,
    check_secret,
    check_user,
    edit,
    hash_password,
    make_token,
    parse_users,
)
from pubsubd.cli.streams import echo, visible
from pubsubd.files.whole import locked, write_whole
from pubsubd.protocol.errors import ConfigError


@click.command()
@click.option(
    "--stdin",
    "from_stdin",
    is_flag=True,
    help="Read the password from the first line of standard input.",
)
@click.option("--token", is_flag=True, help="Create a token, print it, and add it to the user.")
@click.option("--delete", is_flag=True, help="Remove the user, with all passwords and tokens.")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.argument("name")
def command(file: Path, name: str, from_stdin: bool, token: bool, delete: bool) -> None:
    """Set a user's password in a users file, which is created if it does not exist.

    The file holds only hashes, from which no password or token can be recovered. A running daemon
    uses the change after a reload.
    """
    if from_stdin + token + delete > 1:
        raise click.UsageError("--stdin, --token and --delete exclude each other.")
    try:
        check_user(name)
        if delete:
            _change(file, name, None)
            return
        if token:
            secret, stored = make_token()
        else:
            secret = ""
            stored = hash_password(_ask(name, from_stdin=from_stdin))
    except ValueError as error:
        raise click.UsageError(f"{error}.") from None
    _change(file, name, stored)
    if token:
        echo(secret)


def _ask(name: str, *, from_stdin: bool) -> str:
    """Return a new password; raise ValueError if it is not acceptable."""
    if from_stdin:
        line = sys.stdin.buffer.readline(MAX_SECRET + 2)
        secret = line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8", "surrogateescape")
    else:
        secret = click.prompt(
            f"Password of {visible(name)}", hide_input=True, confirmation_prompt=True, err=True
        )
    check_secret(secret)
    return secret


def _change(file: Path, name: str, stored: str | None) -> None:
    """Add a line for a user, or remove all of them."""
    path = file.resolve()  # keep a symbolic link in place
    with locked(path.parent), locked(path):  # the file alone may be mounted in several folders
        try:
            with path.open("rb") as old:
                text, kept = old.read().decode(), os.fstat(old.fileno())
        except FileNotFoundError:
            text, kept = "", None
        except UnicodeDecodeError:
            raise ConfigError(f"the users file {file} is not UTF-8") from None
        parse_users(text, str(file))
        new = edit(text, name, stored)
        if stored is None and new == text:
            raise click.ClickException(f"{file} has no user {name}")
        write_whole(path, new.encode(), mode=0o600, prepare=partial(_keep, kept))


def _keep(kept: os.stat_result | None, descriptor: int) -> None:
    """Give a file the owner of the one before.

    Only the owner can read it, and the group if it could read that one.
    """
    if kept is not None:
        with contextlib.suppress(PermissionError):
            os.fchown(descriptor, kept.st_uid, kept.st_gid)
            os.fchmod(descriptor, kept.st_mode & 0o640 | 0o600)
