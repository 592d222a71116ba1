"""Are the units what systemd takes them for, and true to the daemon?

How the daemon talks to systemd is tested elsewhere; here are the files of contrib/systemd and the
example of its settings.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest

from pubsubd.protocol.limits import Limits
from pubsubd.settings.config import Config
from pubsubd.settings.load import load
from pubsubd.settings.table import SETTINGS
from tests.daemons import DEADLINE, ROOT, Daemon, environment, tool
from tests.packages import run

SYSTEMD = ROOT / "contrib" / "systemd"
EXAMPLE = ROOT / "contrib" / "pubsubd.toml"
UNITS = ("pubsubd.service", "pubsubd.socket", "pubsubd-hub.socket")
SOCKETS = {"line": "pubsubd.socket", "hub": "pubsubd-hub.socket"}


def unit(name: str) -> dict[str, list[str]]:
    """Return the values of each directive of a unit."""
    found = defaultdict(list)
    for line in (SYSTEMD / name).read_text(encoding="utf-8").splitlines():
        if "=" in line and not line.startswith("#"):
            key, _, value = line.partition("=")
            found[key].append(value)
    return found


def analyze(*arguments: str | Path) -> str:
    """Return what systemd-analyze says; the test fails if it finds anything wrong."""
    found = subprocess.run(
        [tool("systemd-analyze"), *arguments],
        capture_output=True,
        check=False,
        text=True,
        timeout=DEADLINE,
    )
    assert found.returncode == 0, found.stdout + found.stderr
    assert found.stderr == ""
    return found.stdout


def version() -> int:
    """Return the version of systemd."""
    return int(run(tool("systemd-analyze"), "--version").split()[1])


def render(systemd: int, command: str) -> str:
    """Return the service as scripts/install writes it."""
    code = 'source "$1" && render_service "$2" "$3"'
    return run("bash", "-c", code, "-", ROOT / "scripts" / "install", str(systemd), command)


def test_systemd_finds_nothing_wrong(tmp_path: Path) -> None:
    for name in UNITS[1:]:
        (tmp_path / name).write_bytes((SYSTEMD / name).read_bytes())
    # A command that is there, as pubsubd may not be installed.
    (tmp_path / UNITS[0]).write_text(render(version(), "/bin/true"), encoding="utf-8")
    analyze("verify", "--man=no", *(tmp_path / name for name in UNITS))


def test_the_service_is_hardened(tmp_path: Path) -> None:
    (tmp_path / UNITS[0]).write_text(render(version(), "/bin/true"), encoding="utf-8")
    told = analyze("security", "--offline=true", "--threshold=20", tmp_path / UNITS[0])
    assert "Overall exposure level" in told


def test_an_older_systemd_gets_a_unit_of_a_type_that_it_knows() -> None:
    new, old = render(253, "/usr/bin/pubsubd"), render(252, "/usr/bin/pubsubd")
    assert new == (SYSTEMD / UNITS[0]).read_text(encoding="utf-8")
    changed = [line for line in old.splitlines() if line not in new.splitlines()]
    assert changed == ["Type=notify", "ExecReload=/bin/sh -c 'kill -HUP $MAINPID'"]
    check = "ExecReload=/usr/bin/pubsubd serve --check --config /etc/pubsubd/pubsubd.toml"
    reload = [line for line in old.splitlines() if line.startswith("ExecReload=")]
    assert reload == [check, changed[1]]  # in this order: the second only if the first succeeds
    assert check.replace("/usr", "/usr/local") in render(252, "/usr/local/bin/pubsubd")
    assert "Type=notify-reload" in new.splitlines()
    assert "Type=notify-reload" not in old.splitlines()
    # The comment says it to those who copy the file.
    assert all(f"#     {line}" in new for line in changed)


def test_each_directive_of_the_service_has_its_reason_above_it() -> None:
    lines = (SYSTEMD / UNITS[0]).read_text(encoding="utf-8").splitlines()
    start = lines.index("[Service]")
    for above, line in zip(lines[start:], lines[start + 1 :], strict=False):
        if "=" in line and not line.startswith("#"):
            assert above.startswith("#") or ("=" in above and above), f"no reason: {line}"


def test_the_pages_that_the_units_name_exist() -> None:
    pages = [page for name in UNITS for page in unit(name)["Documentation"][0].split()]
    for page in pages:
        name, section = re.fullmatch(r"man:([a-z.-]+)\((\d)\)", page).groups()  # type: ignore[union-attr]
        assert (ROOT / "man" / f"{name}.{section}").exists(), page


def test_the_sockets_are_those_that_the_daemon_would_listen_on() -> None:
    for one in Config().all_listeners():
        found = unit(SOCKETS[one.name])
        assert found["FileDescriptorName"] == [one.name]
        assert found["ListenStream"] == [f"{host}:{port}" for host, port in one.addresses]
        assert found["Service"] == ["pubsubd.service"]
    assert set(unit(UNITS[0])["Sockets"][0].split()) == set(SOCKETS.values())


def test_the_service_leaves_room_for_the_limits() -> None:
    found, limits = unit(UNITS[0]), Limits()
    assert int(found["LimitNOFILE"][0]) > limits.max_connections + 100
    assert int(found["TimeoutStopSec"][0].removesuffix("s")) > limits.drain_timeout + 2
    assert found["User"] == found["Group"] == ["pubsubd"]
    assert found["ExecStart"] == ["/usr/bin/pubsubd serve --config /etc/pubsubd/pubsubd.toml"]


def test_the_user_is_made(tmp_path: Path) -> None:
    sysusers = tool("systemd-sysusers")
    tried = subprocess.run(
        [sysusers, "--root", tmp_path, "--dry-run", SYSTEMD / "pubsubd.sysusers"],
        capture_output=True,
        check=True,
        text=True,
        timeout=DEADLINE,
    )
    assert "Creating user 'pubsubd'" in tried.stderr
    if os.geteuid():
        pytest.skip("only root can make users, in a directory as well")
    (tmp_path / "etc").mkdir()
    run(sysusers, "--root", tmp_path, SYSTEMD / "pubsubd.sysusers")
    (line,) = (tmp_path / "etc/passwd").read_text(encoding="utf-8").splitlines()
    name, _, _, _, about, home, shell = line.split(":")
    assert (name, about, home) == ("pubsubd", "Publish/subscribe daemon", "/var/lib/pubsubd")
    assert shell.endswith("/nologin")


def test_files_have_their_owners(tmp_path: Path) -> None:
    sysusers, tmpfiles = tool("systemd-sysusers"), tool("systemd-tmpfiles")
    if os.geteuid():
        pytest.skip("only root can give files away")
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/pubsubd").mkdir(mode=0o755)
    (tmp_path / "etc/pubsubd/pubsubd.toml").write_text("port = 9014\n", encoding="utf-8")
    run(sysusers, "--root", tmp_path, SYSTEMD / "pubsubd.sysusers")
    daemon = int((tmp_path / "etc/passwd").read_text(encoding="utf-8").split(":")[2])
    for _ in range(2):
        run(tmpfiles, "--root", tmp_path, "--create", SYSTEMD / "pubsubd.tmpfiles")
        found = {}
        for path in sorted([*tmp_path.glob("etc/pubsubd/**/*"), *tmp_path.glob("*/**/pubsubd")]):
            status = path.stat()
            name = str(path.relative_to(tmp_path))
            found[name] = oct(status.st_mode & 0o7777), status.st_uid, status.st_gid
        assert found == {
            "etc/pubsubd": ("0o750", 0, daemon),
            "etc/pubsubd/pubsubd.toml": ("0o640", 0, daemon),
            "etc/pubsubd/users": ("0o600", daemon, daemon),
            "var/lib/pubsubd": ("0o750", daemon, daemon),
        }
        # What somebody has put there stays.
        (tmp_path / "etc/pubsubd/users").write_text("# nobody\n", encoding="utf-8")
    assert (tmp_path / "etc/pubsubd/users").read_text(encoding="utf-8") == "# nobody\n"
    assert (tmp_path / "etc/pubsubd/pubsubd.toml").read_text(encoding="utf-8") == "port = 9014\n"


# The example of its settings

_COMMENTED = re.compile(r"^#(?=\w+ = |\[\[)", re.MULTILINE)


def test_the_example_changes_nothing(start: Callable[..., Daemon]) -> None:
    assert load({}, EXAMPLE).config == load({}).config
    command = [sys.executable, "-m", "pubsubd", "serve", "--check", "--config", str(EXAMPLE)]
    subprocess.run(command, check=True, env=environment(), timeout=DEADLINE, stdout=subprocess.PIPE)
    start("--config", str(EXAMPLE)).stop()


def test_the_example_is_true_line_for_line(tmp_path: Path) -> None:
    text, count = _COMMENTED.subn("", EXAMPLE.read_text(encoding="utf-8"))
    assert count > 20
    path = tmp_path / "pubsubd.toml"
    path.write_text(text, encoding="utf-8")
    given = load({}, path)
    assert given.config.acl
    examples = {
        *("unix", "users_file", "tls_certificate", "peer", "mesh_secret_file", "export_edges"),
        *("site", "rack", "trusted_proxies"),
    }
    for name, setting in SETTINGS.items():
        if re.search(rf"^{name} = ", text, re.MULTILINE) and name not in examples:
            assert given.values[name] == setting.default, name
