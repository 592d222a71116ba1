"""``serve --check``: what a start would meet on this machine, for the user who is to start it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from pubsubd.daemon.check import dry_run, switch_user
from pubsubd.daemon.service import PassedSocket, Service, find_service
from pubsubd.daemon.warnings import expiries, sandboxed, warnings
from pubsubd.protocol.errors import ConfigError
from pubsubd.settings.load import load
from tests import forks
from tests.certificates import Certificates, Pair
from tests.daemons import DEADLINE, Daemon, environment

Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a settings file, with the test's directory for ``DIR``."""

    def write_one(text: str) -> Path:
        path = tmp_path / "pubsubd.toml"
        path.write_text(text.replace("DIR", str(tmp_path)), encoding="utf-8")
        return path

    return write_one


def look(path: Path, service: Service | None = None) -> list[str]:
    """Return the warnings about a file."""
    prepared = dry_run(load({}, path).config, service)
    passed = {} if service is None else service.sockets
    return [*warnings(prepared, passed), *expiries(prepared)]


def listener(name: str, address: str, more: str = "") -> str:
    return f'[[listener]]\nprotocol = "line"\nname = "{name}"\naddress = "{address}"\n{more}\n'


def command(*words: str, **more: str) -> subprocess.CompletedProcess[str]:
    return forks.run(
        [sys.executable, "-m", "pubsubd", "serve", "--check", *words],
        env=environment() | more,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )


# Errors


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("port = 9999\nhub_port = 9999\n", "line and hub have the same address: 127.0.0.1:9999"),
        (
            "insecure = true\n" + listener("a", "0.0.0.0:9999") + listener("b", "127.0.0.1:9999"),
            "the listeners a and b have the same address: 127.0.0.1:9999",
        ),
        (
            listener("a", "unix:DIR/s") + listener("b", "unix:DIR/s"),
            "the listeners a and b have the same address: DIR/s",
        ),
        (
            "insecure = true\nhost = '192.0.2.1'\nport = 0\nhub_port = 0\n",
            "cannot listen on 192.0.2.1:0: Cannot assign requested address",
        ),
        ("unix = 'DIR/none/socket'\n", "DIR/none/socket: there is no directory DIR/none"),
        ("unix = 'DIR/pubsubd.toml'\n", "DIR/pubsubd.toml: this is not a socket"),
        (f"unix = 'DIR/{'x' * 108}'\n", "the path of a socket has at most 107 bytes"),
        ("ports_file = 'DIR/none/ports'\n", "ports_file: there is no directory DIR/none"),
        ("ports_file = 'DIR'\n", "ports_file: DIR is a directory"),
        ("host = ''\n", "nothing to listen on"),
        ("host = ''\nunix = 'DIR/s'\nmesh = 'm'\n", "a mesh needs a TCP port"),
    ],
)
def test_what_a_start_would_fail_with_is_an_error(
    text: str, said: str, write: Write, tmp_path: Path
) -> None:
    ports = "" if "port = 9" in text or "port = 0" in text or "[[" in text else "port = 0\n"
    if ports and "host = ''" not in text:
        ports += "hub_port = 0\n"
    with pytest.raises(ConfigError) as told:
        look(write(ports + text))
    assert said.replace("DIR", str(tmp_path)) in str(told.value)


def serve(*flags: str) -> subprocess.CompletedProcess[str]:
    """Try to start a daemon that does not start."""
    return forks.run(
        [sys.executable, "-m", "pubsubd", "serve", *flags],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )


def test_a_start_says_the_same_of_equal_ports() -> None:
    done = serve("--port=9999", "--hub-port=9999")
    assert done.returncode == 2
    assert "the listeners line and hub have the same address: 127.0.0.1:9999\n" in done.stderr


def test_addresses_that_a_running_daemon_has_are_no_error(
    write: Write, start: Callable[..., Daemon], tmp_path: Path
) -> None:
    daemon = start(f"--unix={tmp_path}/socket")
    path = write(f"port = {daemon.address[1]}\nhub_port = {daemon.hub[1]}\nunix = 'DIR/socket'\n")
    assert look(path) == []
    assert (tmp_path / "socket").is_socket()
    daemon.stop()
    assert look(path) == []
    assert not (tmp_path / "socket").exists()


# Warnings


def test_rules_for_people_who_cannot_log_in_are_warned_of(
    write: Write, certificates: Certificates
) -> None:
    rules = (
        '[[acl]]\nwho = ["*", "ann"]\nreceive = ["a"]\n'
        '[[acl]]\nwho = ["alise", "root"]\npublish = ["a"]\n'
    )
    ports = "port = 0\nhub_port = 0\n"
    users = write("").with_name("users")
    users.write_text(f"ann:sha256${'0' * 64}\n", encoding="utf-8")
    users.chmod(0o600)
    known = f'users_file = "{users}"\n'
    assert look(write(ports + known + rules)) == [
        f"[[acl]] table 2 is for alise, who is not in {users}",
        f"[[acl]] table 2 is for root, who is not in {users}",
    ]
    assert look(write(ports + known + "unix = 'DIR/s'\n" + rules)) == [
        f"[[acl]] table 2 is for alise, who is neither in {users} nor a user of this machine"
    ]
    assert look(write(ports + rules))[0] == (
        "[[acl]] table 1 is for ann, but there is no users_file to log in with"
    )
    many = ", ".join(f'"u{number}"' for number in range(13))
    assert len(told := look(write(f"{ports}[[acl]]\nwho = [{many}]\n"))) == 11
    assert told[-1] == "[[acl]] tables are for 3 more such names"
    # A certificate can have any name.
    pair = certificates.lasting_server(-1, 365, "localhost")
    tls = f"tls_certificate = '{pair.certificate}'\ntls_key = '{pair.key}'\n"
    told = look(write(f"{ports}{tls}tls_client_ca = '{certificates.ca}'\n{rules}"))
    assert [text for text in told if "acl" in text] == []


def test_a_directory_for_edge_lists_that_cannot_be_used_is_warned_of(write: Write) -> None:
    ports = "port = 0\nhub_port = 0\n"
    path = write(ports + "export_edges = 'DIR/edges'\n")
    edges = path.with_name("edges")
    assert look(path) == [
        f"export_edges: there is no directory {edges}; the daemon will make it",
    ]
    edges.touch()
    assert look(path) == [f"export_edges: {edges} is not a directory"]
    edges.unlink()
    edges.mkdir()
    assert look(path) == []
    told = look(write(ports + "export_edges = '/proc/none/edges'\n"))
    assert told[0].startswith("export_edges: there is no directory /proc/none/edges")


def tls(pair: Pair, more: str = "") -> str:
    return (
        f"port = 0\nhub_port = 0\ntls_certificate = '{pair.certificate}'\n"
        f"tls_key = '{pair.key}'\n{more}"
    )


def test_certificates_that_expire_or_are_not_valid_are_warned_of(
    write: Write, certificates: Certificates
) -> None:
    good = certificates.lasting_server(-1, 365, "localhost")
    assert look(write(tls(good))) == []
    cases = [
        (certificates.lasting_server(-365, 20, "localhost"), "expires in 19 days, on 20"),
        (certificates.lasting_server(-365, -2, "localhost"), "expired on 20"),
        (certificates.lasting_server(2, 365, "localhost"), "is not valid before 20"),
    ]
    for pair, said in cases:
        (text,) = look(write(tls(pair)))
        assert text.startswith(
            f"tls_certificate {pair.certificate}: the certificate of CN=localhost {said}"
        )
        assert text.endswith(" UTC")
    # So are those that follow it in its file, and authorities.
    chain = write("").with_name("chain.pem")
    chain.write_bytes(good.certificate.read_bytes() + certificates.ca.read_bytes())
    ca = f"{certificates.ca}: the certificate of CN=authority expires in less than a day"
    (text,) = look(write(tls(Pair(chain, good.key))))
    assert "chain.pem: the certificate of CN=authority expires in less than a day, on 20" in text
    (text,) = look(write(tls(good, f"tls_client_ca = '{certificates.ca}'\n")))
    assert text.startswith(f"tls_client_ca {ca}")
    (text,) = look(
        write(f"port=0\nhub_port=0\nmesh='m'\nmesh_tls=true\nmesh_tls_ca='{certificates.ca}'\n")
    )
    assert text.startswith(f"mesh_tls_ca {ca}")
    assert str(datetime.now(UTC).year)[:2] in text


def test_a_certificate_for_other_names_or_purposes_is_warned_of(
    write: Write, certificates: Certificates
) -> None:
    pair = certificates.lasting_server(-1, 365, "*.example.org")
    what = f"tls_certificate {pair.certificate}"
    assert look(write(tls(pair, "hub_host = ['hub.example.org', 'hub.example']\n"))) == [
        f"{what} is for *.example.org, and not for hub.example"
    ]
    assert look(write(tls(pair, "mesh = 'm'\nadvertise = 'one.example:9014'\n"))) == [
        f"{what} is for *.example.org, and not for one.example"
    ]
    nameless = certificates.lasting_server(-1, 365)
    assert look(write(tls(nameless))) == [
        (
            f"tls_certificate {nameless.certificate} names no host (subjectAltName), so that"
            " clients refuse it"
        )
    ]
    client = certificates.client("ann")
    told = look(write(tls(client)))
    assert any("is not for servers (extendedKeyUsage)" in text for text in told)
    dials = f"mesh_tls_certificate = '{pair.certificate}'\nmesh_tls_key = '{pair.key}'\n"
    told = look(write(f"port = 0\nhub_port = 0\nmesh = 'm'\nmesh_tls = true\n{dials}"))
    assert told == [
        (
            f"mesh_tls_certificate {pair.certificate} is not for clients (extendedKeyUsage), so"
            " that daemons refuse it"
        )
    ]


def test_a_key_of_another_certificate_is_an_error(write: Write, certificates: Certificates) -> None:
    pair = Pair(certificates.server_certificate, certificates.server("localhost").key)
    with pytest.raises(ConfigError, match="key values mismatch"):
        look(write(tls(pair)))


def test_secrets_that_everybody_can_read_are_warned_of(
    write: Write, certificates: Certificates, tmp_path: Path
) -> None:
    pair = certificates.lasting_server(-1, 365, "localhost")
    secret, users = tmp_path / "secret", tmp_path / "users"
    secret.write_text("x" * 32)
    users.write_text("")
    files = f"mesh = 'm'\nmesh_secret_file = '{secret}'\nusers_file = '{users}'\n"
    path = write(tls(pair, files))
    for file, mode in ((pair.key, 0o604), (secret, 0o644), (users, 0o644)):
        file.chmod(mode)
    done = command(f"--config={path}")
    assert done.returncode == 0
    assert done.stderr.splitlines() == [
        f"Warning: {setting} {file}: every user of this machine can read it; chmod o-r {file}"
        for setting, file in (
            ("tls_key", pair.key),
            ("mesh_secret_file", secret),
            ("users_file", users),
        )
    ]
    for file in (pair.key, secret, users):
        file.chmod(0o640)
    assert command(f"--config={path}").stderr == ""


# The command


def test_warnings_are_lines_and_the_status_is_0(write: Write) -> None:
    path = write("port = 0\nhub_port = 0\n[[acl]]\nwho = ['ann']\n")
    done = command(f"--config={path}")
    assert done.returncode == 0
    assert done.stdout == f"{path} is good\nline: 127.0.0.1:0\nhub: 127.0.0.1:0\n"
    assert done.stderr == (
        "Warning: [[acl]] table 1 is for ann, but there is no users_file to log in with\n"
    )


def test_without_a_file_the_check_says_that_there_was_none() -> None:
    done = command("--port=0", "--hub-port=0")
    assert done.returncode == 0
    assert done.stdout == "the settings are good\nline: 127.0.0.1:0\nhub: 127.0.0.1:0\n"
    assert done.stderr.startswith(
        "Warning: no --config: only flags, variables and defaults were checked"
    )


# The eyes of another user


@pytest.fixture
def open_directory() -> Iterator[Path]:
    """A directory that every user may enter."""
    directory = Path(tempfile.mkdtemp())
    directory.chmod(0o755)
    yield directory
    shutil.rmtree(directory)


def test_as_user_checks_what_that_user_can_read_and_use(
    open_directory: Path, certificates: Certificates
) -> None:
    if os.geteuid():
        pytest.skip("only root can become another user")
    pair = certificates.lasting_server(-1, 365, "localhost")
    certificate = shutil.copy(pair.certificate, open_directory / "tls.pem")
    key = shutil.copy(pair.key, open_directory / "tls.key")
    os.chmod(certificate, 0o644)
    os.chmod(key, 0o600)
    path = open_directory / "pubsubd.toml"
    text = f"port = 0\nhub_port = 0\ntls_certificate = '{certificate}'\ntls_key = '{key}'\n"
    path.write_text(text, encoding="utf-8")
    assert command(f"--config={path}").returncode == 0
    words = ("--as-user=nobody", f"--config={path}")
    done = command(*words)
    assert done.returncode == 2
    assert done.stderr.endswith(f"Error: cannot read {key}: Permission denied\n")
    os.chmod(key, 0o644)
    assert command(*words).returncode == 0
    path.write_text(text + f"unix = '{open_directory}/socket'\n", encoding="utf-8")
    assert f"no permission to write to {open_directory}\n" in command(*words).stderr
    path.write_text("port = 1\nhub_port = 0\n", encoding="utf-8")
    done = command(*words)
    unprivileged = Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").read_text()
    if int(unprivileged) > 1:
        assert done.stderr.endswith("Error: cannot listen on 127.0.0.1:1: Permission denied\n")


def test_as_user_needs_root_a_user_and_a_check(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="there is no user no-such-user"):
        switch_user("no-such-user")
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    with pytest.raises(ConfigError, match="--as-user needs root"):
        switch_user("root")
    done = serve("--as-user=nobody")
    assert done.returncode == 2
    assert "--as-user is for --check." in done.stderr


# What systemd passes

_SYSTEMCTL = r"""#!/bin/sh
# As systemctl of systemd 252 answers.
case $* in
*pubsubd.service*)
    printf '%s\n' \
        'ExecStart={ path=/usr/bin/pubsubd ; argv[]=/usr/bin/pubsubd serve --config FILE ; }' \
        'ProtectHome=yes' 'PrivateTmp=no' 'ProtectSystem=strict' 'ReadWritePaths=/srv/a -/srv/b' \
        'User=nobody' 'RuntimeDirectory=pubsubd-of-a-test' 'StateDirectory=pubsubd pubsubd/edges' \
        'TriggeredBy=pubsubd.socket pubsubd-hub.socket gone.socket' ;;
*)
    printf '%s\n' 'Id=pubsubd.socket' 'Listen=LISTEN (Stream)' 'Listen=[::1]:9014 (Stream)' \
        'FileDescriptorName=line' 'LoadState=loaded' '' \
        'Id=pubsubd-hub.socket' 'Listen=127.0.0.1:9015 (Stream)' 'FileDescriptorName=hub' \
        'LoadState=loaded' '' 'Id=gone.socket' 'FileDescriptorName=gone' 'LoadState=masked' ;;
esac
"""


@pytest.fixture
def systemctl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Path, str], None]:
    """Put a systemctl in place that knows of a service: its file, and where its socket listens."""

    def put(file: Path, address: str = "127.0.0.1:9014") -> None:
        program = tmp_path / "bin" / "systemctl"
        program.parent.mkdir(exist_ok=True)
        program.write_text(_SYSTEMCTL.replace("FILE", str(file)).replace("LISTEN", address))
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")

    return put


def test_what_systemd_knows_of_the_service_is_found(
    write: Write, systemctl: Callable[..., None]
) -> None:
    path = write("")
    systemctl(path)
    assert find_service(path) == Service(
        "pubsubd.service",
        "nobody",
        ("/run/pubsubd-of-a-test", "/var/lib/pubsubd", "/var/lib/pubsubd/edges"),
        {
            "line": [
                PassedSocket("127.0.0.1:9014", "pubsubd.socket"),
                PassedSocket("[::1]:9014", "pubsubd.socket"),
            ],
            "hub": [PassedSocket("127.0.0.1:9015", "pubsubd-hub.socket")],
        },
        hidden=("/home", "/root", "/run/user"),
        writable=("/srv/a", "/srv/b"),
    )
    assert find_service(path.with_name("other.toml")) is None


def test_settings_that_socket_activation_overrides_are_warned_of(
    write: Write, systemctl: Callable[..., None]
) -> None:
    path = write("insecure = true\nhost = '0.0.0.0'\nunix = '/run/pubsubd-of-a-test/socket'\n")
    systemctl(path)
    told = look(path, find_service(path))
    assert told == [
        (
            "host has no effect on the listener line: systemd passes a socket for 127.0.0.1:9014,"
            " [::1]:9014, which is used instead of 0.0.0.0:9014; systemctl edit pubsubd.socket"
            " changes that"
        ),
        (
            "host has no effect on the listener hub: systemd passes a socket for 127.0.0.1:9015,"
            " which is used instead of 0.0.0.0:9015; systemctl edit pubsubd-hub.socket changes that"
        ),
    ]
    # Neither a default nor an address that the socket has.
    assert look(write("hub_port = 9015\n"), find_service(path)) == []


def test_files_that_the_service_cannot_reach_are_warned_of(
    write: Write, systemctl: Callable[..., None]
) -> None:
    path = write(
        "users_file = '/root/users'\nports_file = '/srv/c/ports'\nexport_edges = '/srv/b/edges'\n"
        "unix = '/run/pubsubd-of-a-test/socket'\nhub_auth = '/etc/key'\n"
    )
    systemctl(path)
    config = load({}, path).config
    assert sandboxed(config, find_service(path)) == [
        "/root/users is hidden from pubsubd.service (ProtectHome=, PrivateTmp=)",
        "/srv/c/ports is in a directory that pubsubd.service may not write to (ReadWritePaths=)",
    ]
    assert sandboxed(config, None) == []


def test_what_systemd_passes_is_checked_as_at_a_start(
    write: Write, systemctl: Callable[..., None]
) -> None:
    path = write("no_hub = true\n")
    systemctl(path)
    with pytest.raises(ConfigError, match=r"pubsubd-hub\.socket passes a socket named 'hub', and"):
        look(path, find_service(path))
    systemctl(write(""), "192.0.2.7:9014")
    with pytest.raises(ConfigError, match=r"192\.0\.2\.7 is not loopback"):
        look(path, find_service(path))


def test_root_is_told_to_check_as_the_user_of_the_service(
    open_directory: Path, systemctl: Callable[..., None]
) -> None:
    if os.geteuid():
        pytest.skip("only root can become another user")
    path = open_directory / "pubsubd.toml"
    path.touch(mode=0o644)
    systemctl(path)
    done = command(f"--config={path}")
    assert done.stderr == (
        "Warning: checked with the rights of root, but pubsubd.service runs as nobody: use"
        " --as-user nobody\n"
    )
    done = command(f"--config={path}", "--as-user=nobody")
    assert (done.returncode, done.stderr) == (0, "")
