"""The settings file, in TOML: read strictly, and every fault told with its line."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pubsubd.files.bounded import read_bounded
from pubsubd.protocol.errors import ConfigError
from pubsubd.settings.kinds import lists
from pubsubd.settings.table import SETTINGS

_MOST = 1024 * 1024  # bytes of a file; tomllib takes time in proportion
_RULE = {"who": lists("NAME"), "publish": lists("NAME"), "receive": lists("NAME")}
_ADDRESSES = lists("ADDRESS", single=True)
_OWN = ("name", "protocol", "address", "tls")  # keys of a listener that are no settings

Spot = tuple[str | int, ...]
"""Where a value stands: keys, and numbers in arrays of tables."""


@dataclass(frozen=True, slots=True)
class File:
    """Contents of a settings file, with values as they are used.

    Attributes:
        path: of the file, as it was given.
        values: name of a setting -> its value.
        listeners: ``[[listener]]`` tables, whose keys are settings, and name, protocol, address
            and tls.
        rules: ``[[acl]]`` tables, with the keys who, publish and receive.
    """

    path: Path
    text: str = field(repr=False)
    values: Mapping[str, Any]
    listeners: tuple[Mapping[str, Any], ...]
    rules: tuple[Mapping[str, tuple[str, ...]], ...]

    def error(self, spot: Spot, text: str) -> ConfigError:
        """Return what is wrong with what stands at ``spot``."""
        return ConfigError(f"{self.path}, line {line_of(self.text, spot)}: {text}")


def read_file(path: Path) -> File:
    """Return what a file says.

    Raises:
        ConfigError: it cannot be read, or something in it is wrong; with the line.
    """
    text, found = read_toml(path)
    values: dict[str, Any] = {}
    file = File(path, text, values, (), ())
    for key, value in found.items():
        if key not in ("listener", "acl"):
            values[key] = _read(file, (key,), value)
    listeners = [
        {key: _read_of_listener(file, (*spot, key), value) for key, value in table.items()}
        for spot, table in _tables(file, "listener", found)
    ]
    rules = [
        {key: _read_of_rule(file, (*spot, key), value) for key, value in table.items()}
        for spot, table in _tables(file, "acl", found)
    ]
    for number, rule in enumerate(rules):
        if not rule.get("who"):
            raise file.error(("acl", number), "who is missing, or empty")
    return File(path, text, values, tuple(listeners), tuple(rules))


def read_toml(path: Path) -> tuple[str, dict[str, Any]]:
    """Return the text of a file, and what it says in TOML.

    Raises:
        ConfigError: it cannot be read, or is no TOML; with the line.
    """
    try:
        data = read_bounded(path, _MOST)
        text = data.decode()
        return text, tomllib.loads(text)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path}, line {line}: this is not UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        end = f"at line {text.count(chr(10)) or 1}, at the end"
        told = str(error).replace("at end of document", end)
        raise ConfigError(f"{path}: {told}") from None
    except ValueError:  # which tomllib lets pass: a number of more digits than int() takes
        raise ConfigError(f"{path} has a number that is out of range") from None
    except RecursionError:
        raise ConfigError(f"{path} is nested too deeply") from None


def _tables(file: File, key: str, found: Mapping[str, Any]) -> list[tuple[Spot, dict[str, Any]]]:
    tables = found.get(key, [])
    if not isinstance(tables, list) or not all(isinstance(one, dict) for one in tables):
        raise file.error((key,), f"{key} has to be tables, each begun by [[{key}]]")
    return [((key, number), table) for number, table in enumerate(tables)]


def _read(file: File, spot: Spot, value: Any) -> Any:
    name = str(spot[-1])
    setting = SETTINGS.get(name)
    if setting is None:
        raise file.error(spot, f"{name} is no setting{near(name, SETTINGS)}")
    try:
        return setting.kind.from_toml(value)
    except ValueError as error:
        raise file.error(spot, f"{name}: {error}") from None


def _read_of_listener(file: File, spot: Spot, value: Any) -> Any:
    name = str(spot[-1])
    if name == "tls":
        if value is not False:
            raise file.error(spot, "tls can only be false; tls_certificate turns it on")
        return False
    if name in ("name", "protocol"):
        if not isinstance(value, str) or not value.isprintable() or not value:
            raise file.error(spot, f"{name}: {value!r} is not a text")
        return value
    if name == "address":
        try:
            return _ADDRESSES.from_toml(value)
        except ValueError as error:
            raise file.error(spot, f"address: {error}") from None
    setting = SETTINGS.get(name)
    if setting is None:
        known = [*_OWN, *(one.name for one in SETTINGS.values() if one.listener)]
        raise file.error(spot, f"{name} is no setting{near(name, known)}")
    if not setting.listener:
        raise file.error(spot, f"{name} is not a setting of one listener, but of the daemon")
    return _read(file, spot, value)


def _read_of_rule(file: File, spot: Spot, value: Any) -> Any:
    name = str(spot[-1])
    if name not in _RULE:
        raise file.error(spot, f"{name} is not who, publish or receive{near(name, _RULE)}")
    try:
        return _RULE[name].from_toml(value)
    except ValueError as error:
        raise file.error(spot, f"{name}: {error}") from None


def near(name: str, known: Iterable[str]) -> str:
    """Return a hint at the known name that may be meant by ``name``, or nothing."""
    close = difflib.get_close_matches(name, known, 1)
    return f"; perhaps {close[0]}?" if close else ""


def line_of(text: str, spot: Spot) -> int:
    """Return the line, from 1, where the statement begins that makes a value of legal TOML.

    A beginning of the text that ends with a line is legal unless it ends within a value. So the
    statement is the first one without which the value is not there.
    """
    lines = text.splitlines(keepends=True)
    begun = 1
    for number in range(1, len(lines) + 1):
        try:
            found = tomllib.loads("".join(lines[:number]))
        except tomllib.TOMLDecodeError:
            continue
        if _has(found, spot):
            break
        begun = number + 1
    return min(begun, max(len(lines), 1))


def _has(found: Any, spot: Spot) -> bool:
    for key in spot:
        try:
            found = found[key]
        except (KeyError, IndexError, TypeError):
            return False
    return True
