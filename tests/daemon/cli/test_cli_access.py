"""How commands get to a daemon that asks for TLS and a login."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path

import pytest
import trio

from pubsubd.access.users import hash_password, make_token
from pubsubd.client import Login, Message, open_client
from pubsubd.settings.config import Config, TlsFiles
from tests import forks
from tests.certificates import Certificates
from tests.daemons import Daemon
from tests.running import command_line, environment, pubsubd, running

SECRET = "correct horse battery staple"


@asynccontextmanager
async def serving(tmp_path: Path, certificates: Certificates | None = None) -> AsyncIterator[int]:
    """Run a daemon that knows ann, with a token in ``token`` and a password in ``password``."""
    token, line = make_token()
    for name, text in (
        ("users", f"ann:{hash_password(SECRET)}\nann:{line}\n"),
        ("password", f"{SECRET}\r\nanother line\n"),
        ("token", f"{token}\n"),
        ("wrong", "hush-hush\n"),
    ):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o600)
    tls = None
    if certificates is not None:
        paths = certificates.server_certificate, certificates.server_key, certificates.ca
        tls = TlsFiles(*map(str, paths))
    config = Config(
        port=0, hub_port=None, users_file=str(tmp_path / "users"), tls=tls, unix=str(tmp_path / "s")
    )
    async with running(config) as ports:
        yield ports["line"]


async def told(*words: object, port: int | None = None, **env: str) -> tuple[int, str]:
    """Return the status of ``pubsubd stats`` and what standard error tells."""
    done = await pubsubd("stats", "--json", *map(str, words), port=port, **env)
    assert done.stdout.startswith(b'{"version"') == (done.returncode == 0)
    return done.returncode, done.stderr.decode()


async def test_files_and_variables_say_who_asks(tmp_path: Path) -> None:
    password, token = tmp_path / "password", tmp_path / "token"
    async with serving(tmp_path) as port:
        assert await told("--user=ann", "--password-file", password, port=port) == (0, "")
        assert await told("--token-file", token, port=port) == (0, "")
        assert await told(port=port, PUBSUBD_USER="ann", PUBSUBD_PASSWORD_FILE=str(password)) == (
            0,
            "",
        )
        assert await told(port=port, PUBSUBD_TOKEN_FILE=str(token)) == (0, "")


async def test_a_profile_says_who_asks(tmp_path: Path, certificates: Certificates) -> None:
    folder = tmp_path / "pubsubd" / "profiles"
    folder.mkdir(parents=True)
    async with serving(tmp_path, certificates) as port:
        profile = folder / "here.toml"
        token = (tmp_path / "token").read_text().strip()
        profile.write_text(f'port = {port}\ntls_ca = "{certificates.ca}"\ntoken = "{token}"\n')
        profile.chmod(0o600)
        home = {"XDG_CONFIG_HOME": str(tmp_path)}
        assert await told("--profile=here", **home) == (0, "")
        assert await told(PUBSUBD_PROFILE="here", **home) == (0, "")
        profile.write_text(f'port = {port}\ntls_ca = "{certificates.ca}"\n')
        status, error = await told("--profile=here", **home)
        assert status == 1
        assert error.endswith("; use --user or --token-file\n")


async def test_tls_is_spoken_where_an_option_or_variable_says_so(
    tmp_path: Path, certificates: Certificates
) -> None:
    ca, token = certificates.ca, tmp_path / "token"
    ann = certificates.client("ann")
    async with serving(tmp_path, certificates) as port:
        assert await told("--tls-ca", ca, "--token-file", token, port=port) == (0, "")
        shown = ["--tls-certificate", ann.certificate, "--tls-key", ann.key]
        assert await told("--tls", "--tls-ca", ca, *shown, port=port) == (0, "")
        variables = {
            "PUBSUBD_CLIENT_TLS": "1",
            "PUBSUBD_CLIENT_TLS_CA": str(ca),
            "PUBSUBD_CLIENT_CERTIFICATE": str(ann.certificate),
            "PUBSUBD_CLIENT_KEY": str(ann.key),
        }
        assert await told(port=port, **variables) == (0, "")
        system = {"SSL_CERT_FILE": str(ca), "SSL_CERT_DIR": "/nonexistent"}
        assert await told("--tls", "--token-file", token, port=port, **system) == (0, "")


async def test_every_command_that_talks_to_a_daemon_can(
    tmp_path: Path, certificates: Certificates
) -> None:
    how = ["--tls-ca", str(certificates.ca), "--token-file", str(tmp_path / "token")]
    async with serving(tmp_path, certificates) as port:
        for words in (
            ["pub", "n", "x"],
            ["sub", "n", "--timeout=0.01"],
            ["explain", "n"],
            ["bench", "--messages=10", "--latency-messages=1"],
        ):
            done = await pubsubd(*words, *how, port=port)
            assert (done.returncode, done.stderr) == (0, b"")
        for command in ("peers", "edges"):
            done = await pubsubd(command, *how, port=port)
            assert done.stderr.startswith(b"pubsubd: no-mesh: ")


async def test_a_unix_socket_is_reached_without_tls(
    tmp_path: Path, certificates: Certificates
) -> None:
    async with serving(tmp_path, certificates):
        assert await told("--tls", "--unix", tmp_path / "s") == (0, "")


async def test_each_refusal_is_one_clear_line_that_tells_no_secret(
    tmp_path: Path, certificates: Certificates
) -> None:
    wrong = tmp_path / "wrong"
    ca = certificates.ca
    async with serving(tmp_path, certificates) as port:
        where = f"cannot connect to 127.0.0.1:{port}: "
        refused = "login-failed: the name, the password or the token is not good"
        for words, text in (
            (["--tls-ca", ca, "--user=ann", "--password-file", wrong], refused),
            (["--tls-ca", ca, "--token-file", wrong], refused),
            (["--tls-ca", ca], "login-required: "),
            (["--token-file", wrong], where + "it speaks TLS, and we do not; use --tls"),
            (
                ["--tls-ca", certificates.other_ca],
                where + "its certificate is not to be trusted: self-signed certif",
            ),
        ):
            status, error = await told(*words, port=port, PUBSUBD_DEBUG="1")
            assert status == 1
            line = error.splitlines()[-1]
            assert line.startswith(f"pubsubd: {text}")
            assert "hush" not in error
            assert line.endswith("; use --user or --token-file") == (text == "login-required: ")
    async with serving(tmp_path) as port:
        status, error = await told("--tls-ca", ca, port=port)
        text = f"cannot connect to 127.0.0.1:{port}: it does not speak TLS"
        assert (status, error) == (1, f"pubsubd: {text}\n")


def test_a_daemon_in_a_process_of_its_own_lets_in_who_it_knows_and_logs_no_secret(
    start: Callable[..., Daemon], certificates: Certificates, tmp_path: Path
) -> None:
    users, right, wrong = tmp_path / "users", tmp_path / "right", tmp_path / "wrong"
    users.write_text(f"ann:{hash_password(SECRET)}\n")
    users.chmod(0o600)
    right.write_text(SECRET)
    wrong.write_text("hush-hush")
    daemon = start(
        f"--users-file={users}",
        f"--tls-certificate={certificates.server_certificate}",
        f"--tls-key={certificates.server_key}",
        "--log-level=debug",
    )

    def publish(password: Path) -> subprocess.CompletedProcess[str]:
        words = [f"--tls-ca={certificates.ca}", "--user=ann", f"--password-file={password}"]
        return forks.run(
            command_line("pub", "n", "x", *words, port=daemon.address[1]),
            capture_output=True,
            text=True,
            check=False,
            env=environment(),
        )

    done = publish(right)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    done = publish(wrong)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("pubsubd: login-failed: ")
    for secret in (SECRET, "hush"):
        assert secret not in daemon.log
        assert secret not in done.stderr


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--password-file", "/dev/null"], "--password-file needs a --user."),
        (["--user=ann", "--token-file", "/dev/null"], "--token-file and --user exclude each other"),
        (["--tls-key", "/dev/null"], "--tls-key needs a --tls-certificate."),
        (
            ["--user=ann"],
            "--user needs a --password-file, as there is no terminal to ask for the password.",
        ),
        (["--tls-ca", "/nonexistent"], "pubsubd: cannot read /nonexistent: "),
    ],
)
def test_options_that_make_no_sense_are_wrong_usage(words: list[str], text: str) -> None:
    done = forks.run(
        command_line("stats", "--port=1", *words),
        capture_output=True,
        text=True,
        check=False,
        env=environment(),
        stdin=subprocess.DEVNULL,
        start_new_session=True,  # without a terminal, whatever the tests have
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert text in done.stderr


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "a secret to log in with is empty or has controls"),
        (b"hush\x00\n", "a secret to log in with is empty or has controls"),
        (b"hush\xff\n", "is not UTF-8"),
        (None, "No such file or directory"),
    ],
)
async def test_a_file_without_a_secret_is_told(
    content: bytes | None, text: str, tmp_path: Path
) -> None:
    path = tmp_path / "secret"
    if content is not None:
        path.write_bytes(content)
    for words in (["--user=ann", "--password-file", path], ["--token-file", path]):
        status, error = await told(*words, port=1, PUBSUBD_DEBUG="1")
        assert status == 1
        assert error.splitlines()[-1].startswith("pubsubd: ")
        assert text in error.splitlines()[-1]
        assert "hush" not in error


def test_no_option_takes_a_secret() -> None:
    done = forks.run(command_line("stats", "--help"), capture_output=True, text=True, check=True)
    assert "--password-file FILE" in done.stdout
    assert "--password " not in done.stdout
    assert "--token " not in done.stdout


async def test_a_password_is_asked_for_on_the_terminal_which_does_not_show_it(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path) as port:
        seen = await converse("stats", "--json", "--user=ann", port=port, secret=SECRET)
        assert seen.startswith("Password of ann: ")
        assert '{"version"' in seen
        assert SECRET not in seen
        seen = await converse("stats", "--json", "--user=ann", port=port, secret="hush-hush")
        assert "pubsubd: login-failed: " in seen
        assert "hush" not in seen


async def test_the_terminal_is_asked_though_the_input_is_something_else(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.write_bytes(b"hello")
    async with (
        serving(tmp_path) as port,
        open_client(port=port, login=Login("ann", SECRET)) as client,
    ):
        await client.subscribe("n")
        seen = await converse("pub", "n", "--user=ann", port=port, secret=SECRET, stdin=data)
        assert await anext(client) == Message("n", b"hello")
    assert seen.split() == ["Password", "of", "ann:"]


async def test_nothing_typed_ends_a_command_with_130_and_no_word() -> None:
    assert await converse("stats", "--user=ann", port=1, secret=None) == "Password of ann: "


ON_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(1, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""


async def converse(*words: str, port: int, secret: str | None, stdin: Path | None = None) -> str:
    """Run a command on a terminal of its own, type a line when it asks, return what is seen there.

    Args:
        words: of the command.
        port: of the daemon.
        secret: what is typed; None for the end of the input, which fails.
        stdin: what the command reads instead of the terminal.
    """
    ours, theirs = pty.openpty()
    seen = b""
    with os.fdopen(theirs, "r+b", buffering=0) as end, ExitStack() as stack:
        source = end if stdin is None else stack.enter_context(stdin.open("rb"))
        process = await trio.lowlevel.open_process(
            [sys.executable, "-c", ON_TERMINAL, *map(str, command_line(*words, port=port))],
            stdin=source,
            stdout=end,
            stderr=end,
            env=environment(),
            start_new_session=True,
        )
    async with trio.lowlevel.FdStream(ours) as terminal:
        with suppress(trio.BrokenResourceError):  # the command has ended
            async for part in terminal:
                seen += part
                if seen == b"Password of ann: ":
                    await terminal.send_all(b"\4" if secret is None else secret.encode() + b"\n")
    assert (await process.wait() == 130) == (secret is None)
    return seen.decode()
