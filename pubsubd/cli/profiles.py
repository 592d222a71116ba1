"""Profiles: where a daemon is and how to log in there, in a file that has a name.

A profile is ``pubsubd/profiles/NAME.toml`` in the user's configuration folder. Its keys are the
options of all commands, with ``_`` for ``-``, and ``password`` and ``token``.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import click

from pubsubd.cli.streams import echo
from pubsubd.protocol.errors import ConfigError
from pubsubd.settings.file import line_of, near, read_toml

_PATHS = ("unix", "tls_ca", "tls_certificate", "tls_key", "password_file", "token_file")
_SECRETS = ("password", "password_file", "token", "token_file")
KEYS = ("host", "port", "tls", "user", "password", "token", *_PATHS)
"""The keys that a profile may have."""

_REPLACES: Mapping[str, Collection[str]] = {
    "host": ("unix",),
    "port": ("unix",),
    "tls_certificate": ("tls_key",),
    "user": _SECRETS,
    "password_file": _SECRETS,
    "token_file": ("user", *_SECRETS),
}
"""An option -> keys of a profile that have no meaning beside it."""

_is_name = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*").fullmatch


def folder() -> Path:
    """Return the folder of all profiles (XDG Base Directory Specification 0.8)."""
    config = Path(os.environ.get("XDG_CONFIG_HOME", ""))
    if not config.is_absolute():
        config = Path(os.path.expanduser("~/.config"))  # which never fails
    return config / "pubsubd" / "profiles"


def names() -> list[str]:
    """Return the names of all profiles."""
    return sorted(path.stem for path in folder().glob("*.toml") if _is_name(path.stem))


def fill(options: Mapping[str, Any], given: Collection[str], name: str) -> dict[str, Any]:
    """Return options, with those of a profile where flags and variables give none.

    Args:
        options: the value of each option.
        given: the options that flags or variables have set.
        name: of the profile.

    Raises:
        ConfigError: there is no such profile, or it cannot be used.
    """
    profile = _read(name)
    for option in given:
        for key in (option, *_REPLACES.get(option, ())):
            profile.pop(key, None)
    return {**options, **profile}


def _read(name: str) -> dict[str, Any]:
    """Return what a profile says; warn if others can read a secret in it."""
    if not _is_name(name):
        raise ConfigError(
            f"{name!r} is no name for a profile: it may have letters, digits, '_', '-' and '.'"
        )
    path = folder() / f"{name}.toml"
    if not path.exists():
        known = names()
        others = f"; there are: {', '.join(known)}" if known else ""
        shown = click.format_filename(path)
        raise ConfigError(f"there is no profile {name}: {shown} does not exist{others}")
    text, found = read_toml(path)

    def fail(key: str, why: str) -> ConfigError:
        return ConfigError(f"{path}, line {line_of(text, (key,))}: {why}")

    for key, value in found.items():
        if key not in KEYS:
            raise fail(key, f"{key} is no key of a profile{near(key, KEYS)}")
        if why := _fault(key, value):
            raise fail(key, f"{key} has to be {why}")
    secrets = [key for key in _SECRETS if key in found]
    if len(secrets) > 1:
        raise fail(secrets[1], f"{secrets[0]} and {secrets[1]} exclude each other")
    if secrets and secrets[0].startswith("token") and "user" in found:
        raise fail("user", f"{secrets[0]} and user exclude each other: the token says who you are")
    if secrets and secrets[0].startswith("password") and "user" not in found:
        raise fail(secrets[0], f"{secrets[0]} needs a user")
    if "tls_key" in found and "tls_certificate" not in found:
        raise fail("tls_key", "tls_key needs a tls_certificate")
    if {"password", "token"} & found.keys() and path.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH):
        shown = click.format_filename(path)
        echo(f"pubsubd: others can read the {secrets[0]} in {shown}: chmod 600 {shown}", err=True)
    for key in _PATHS:
        if key in found:
            found[key] = str(path.parent / os.path.expanduser(found[key]))
    return found


def _fault(key: str, value: Any) -> str | None:
    """Return what the value of a key should be, or None if it is good."""
    if key == "tls":
        return None if isinstance(value, bool) else "true or false"
    if key == "port":
        port = isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 65535
        return None if port else "a number from 1 to 65535"
    text = isinstance(value, str) and value and value.isprintable()
    return None if text else "a text that is not empty"
