"""Profiles: what they may say, what goes before them, and their errors."""

from __future__ import annotations

import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import pytest

from pubsubd.cli import options, profiles
from pubsubd.client import Login, Tls, Token
from pubsubd.protocol.errors import ConfigError

NONE = dict.fromkeys(("unix", "tls_ca", "tls_certificate", "tls_key", "user"))
DEFAULTS = {**NONE, "host": "127.0.0.1", "port": 9014, "tls": False}
DEFAULTS |= dict.fromkeys(("password_file", "token_file"))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    found = profiles.folder()
    found.mkdir(parents=True)
    return found


def write(folder: Path, text: str, mode: int = 0o600, name: str = "p") -> Path:
    path = folder / f"{name}.toml"
    path.write_text(text)
    path.chmod(mode)
    return path


def filled(**given: Any) -> dict[str, Any]:
    """Return what the profile ``p`` adds to the defaults and ``given``."""
    found = profiles.fill(DEFAULTS | given, given, "p")
    return {key: value for key, value in found.items() if DEFAULTS.get(key) != value}


def test_a_profile_fills_what_is_not_given(folder: Path) -> None:
    write(folder, 'host = "h"\nport = 1\ntls = true\nuser = "ann"\npassword = "s"\n')
    whole = {"host": "h", "port": 1, "tls": True, "user": "ann", "password": "s"}
    assert filled() == whole
    assert filled(port=9014) == {key: whole[key] for key in whole if key != "port"}
    assert filled(host="x") == whole | {"host": "x"}


def test_files_are_beside_the_profile_or_in_the_home_directory(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/ann")
    write(folder, 'tls_ca = "ca.pem"\nunix = "/run/s"\ntoken_file = "~/token"\n')
    ca = str(folder / "ca.pem")
    assert filled() == {"tls_ca": ca, "unix": "/run/s", "token_file": "/home/ann/token"}


@pytest.mark.parametrize(
    ("text", "given", "left"),
    [
        ('unix = "/s"\nport = 1', {"host": "h"}, {"host": "h", "port": 1}),
        ('unix = "/s"\nhost = "h"', {"port": 1}, {"host": "h", "port": 1}),
        ('user = "a"\npassword = "s"', {"user": "b"}, {"user": "b"}),
        ('user = "a"\npassword = "s"', {"token_file": "t"}, {"token_file": "t"}),
        ('token = "t"', {"user": "b"}, {"user": "b"}),
        (
            'user = "a"\npassword = "s"',
            {"password_file": "f"},
            {"user": "a", "password_file": "f"},
        ),
        (
            'tls_certificate = "/c"\ntls_key = "/k"',
            {"tls_certificate": "/d"},
            {"tls_certificate": "/d"},
        ),
    ],
)
def test_a_given_option_replaces_what_belongs_to_it(
    folder: Path, text: str, given: Mapping[str, Any], left: dict[str, Any]
) -> None:
    write(folder, text)
    assert filled(**given) == left


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('port = 1\nhots = "x"', "line 2: hots is no key of a profile; perhaps host?"),
        ("port = 65536", "line 1: port has to be a number from 1 to 65535"),
        ("port = true", "line 1: port has to be a number from 1 to 65535"),
        ("tls = 1", "line 1: tls has to be true or false"),
        ('host = ""', "line 1: host has to be a text that is not empty"),
        ('host = "\\u0000"', "line 1: host has to be a text that is not empty"),
        ("host = [1]", "line 1: host has to be a text that is not empty"),
        (
            'user = "a"\npassword = "s"\ntoken = "t"',
            "line 3: password and token exclude",
        ),
        (
            'token = "t"\nuser = "a"',
            "line 2: token and user exclude each other: ",
        ),
        ('password = "s"', "line 1: password needs a user"),
        ('tls_key = "k"', "line 1: tls_key needs a tls_certificate"),
    ],
)
def test_an_error_names_the_file_and_the_key_and_shows_no_secret(
    folder: Path, text: str, why: str
) -> None:
    path = write(folder, text)
    with pytest.raises(ConfigError) as caught:
        filled()
    assert str(caught.value).startswith(f"{path}, {why}")
    assert '"s"' not in str(caught.value)


def test_what_is_no_profile_is_told_with_those_that_there_are(folder: Path) -> None:
    with pytest.raises(ConfigError, match=rf"no profile p: {folder}/p.toml does not exist$"):
        filled()
    for name in ("b", "a", ".hidden"):
        write(folder, "", name=name)
    assert profiles.names() == ["a", "b"]
    with pytest.raises(ConfigError, match=r"does not exist; there are: a, b$"):
        filled()
    with pytest.raises(ConfigError, match=r"'\.\./a' is no name for a profile"):
        profiles.fill(DEFAULTS, (), "../a")


def test_a_relative_configuration_folder_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ann")
    for text in ("", "relative"):
        monkeypatch.setenv("XDG_CONFIG_HOME", text)
        assert profiles.folder() == Path("/home/ann/.config/pubsubd/profiles")


@pytest.mark.parametrize("secret", ['user = "a"\npassword = "s"', 'token = "s"'])
def test_a_secret_that_others_can_read_is_warned_of(
    folder: Path, secret: str, capsys: pytest.CaptureFixture[str]
) -> None:
    key = secret.rpartition("\n")[2].partition(" ")[0]
    for mode in (0o600, stat.S_IRUSR):
        write(folder, secret, mode)
        filled()
    write(folder, 'token_file = "t"', 0o644)
    filled()
    assert capsys.readouterr().err == ""
    for mode in (0o640, 0o604):
        path = write(folder, secret, mode)
        filled()
        assert capsys.readouterr().err == (
            f"pubsubd: others can read the {key} in {path}: chmod 600 {path}\n"
        )


def connected(*words: str, **env: str) -> options.Target:
    """Return what a command with these words would connect to."""
    found = []

    @click.command()
    @options.connects
    def command(target: options.Target) -> None:
        found.append(target)

    command.main(list(words), standalone_mode=False)
    return found[0]


def test_flags_go_before_variables_and_those_before_the_profile(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(folder, 'host = "h"\nport = 1\ntls_ca = "/ca"\nuser = "ann"\npassword = "s"\n')
    login = Login("ann", "s")
    assert connected("--profile=p") == options.Target("h", 1, None, Tls("/ca"), login)
    monkeypatch.setenv("PUBSUBD_PROFILE", "p")
    monkeypatch.setenv("PUBSUBD_PORT", "2")
    assert connected() == options.Target("h", 2, None, Tls("/ca"), login)
    assert connected("--port=9014").port == 9014
    assert connected("--unix=/s") == options.Target("h", 2, "/s", None, login)
    write(folder, 'token = "t"\n')
    assert connected().login == Token("t")
    monkeypatch.delenv("PUBSUBD_PROFILE")
    assert connected() == options.Target("127.0.0.1", 2)


def test_profiles_are_proposed(folder: Path) -> None:
    for name in ("prod", "play", "test"):
        write(folder, "", name=name)
    (option,) = (
        one for one in click.command()(options.connects(print)).params if one.name == "profile"
    )
    found = option.shell_complete(click.Context(click.Command("x")), "p")
    assert [one.value for one in found] == ["play", "prod"]
