"""Does what is built and installed hold what it should, and the same each time?

Nothing here uses a network or changes this machine: the packages that pubsubd needs are empty
ones, and everything goes below a directory of the test.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from pubsubd import __version__
from tests.daemons import DEADLINE, ROOT, tool
from tests.packages import EPOCH, SHARED_OBJECT, build, run

SETTINGS = "etc/pubsubd/pubsubd.toml"


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def files_below(directory: Path) -> list[str]:
    return sorted(
        str(path.relative_to(directory))
        for path in directory.rglob("*")
        if path.is_symlink() or not path.is_dir()
    )


# The archive of the sources


def test_the_sources_are_packed_into_the_same_bytes_anywhere(
    checkout: Path, archive: Path, tmp_path: Path
) -> None:
    other_checkout = tmp_path / "elsewhere"
    shutil.copytree(checkout, other_checkout, ignore=shutil.ignore_patterns("*.egg-info"))
    for path in other_checkout.rglob("*"):
        os.utime(path, (1, 1))
    mask = os.umask(0o077)
    try:
        (other_checkout / "tests" / "__pycache__").mkdir(exist_ok=True)
        (other_checkout / "tests" / "__pycache__" / "x.cpython-311.pyc").write_bytes(b"x")
        other = build("sdist", other_checkout, tmp_path / "other", SOURCE_DATE_EPOCH=str(EPOCH))
    finally:
        os.umask(mask)
    assert digest(archive) == digest(other)
    with tarfile.open(archive) as packed:
        members = packed.getmembers()
    assert {member.mtime for member in members} == {EPOCH}
    assert {(member.uid, member.uname, member.gid, member.gname) for member in members} == {
        (0, "", 0, "")
    }
    assert {member.mode for member in members} == {0o644, 0o755}


def test_the_archive_of_the_sources_has_all_of_them(checkout: Path, archive: Path) -> None:
    with tarfile.open(archive) as file:
        packed = {member.name.partition("/")[2]: member for member in file.getmembers()}
    there = {
        name
        for name in files_below(checkout)
        if not re.search(r"egg-info|__pycache__|^build/", name)
    }
    made = {name for name in packed if name == "PKG-INFO" or ".egg-info/" in name}
    assert there - packed.keys() <= {".gitignore"}
    assert packed.keys() - there == made
    assert packed["scripts/serve"].mode == 0o755


def test_what_was_built_from_the_archive_is_what_was_built_from_the_checkout(
    archive: Path, wheel: Path, tmp_path: Path
) -> None:
    run("tar", "-C", tmp_path, "-xf", archive)
    source = tmp_path / f"pubsubd-{__version__}"
    built = build("wheel", source, tmp_path, SOURCE_DATE_EPOCH=str(EPOCH))
    assert digest(built) == digest(wheel)


# scripts/install and scripts/uninstall


def install(checkout: Path, to: Path, wheels: Path, python: Path, *options: str) -> None:
    run(
        *(checkout / "scripts" / "install", "--destdir", to, "--wheels", wheels, *options),
        PYTHON=str(python),
        PIP_DISABLE_PIP_VERSION_CHECK="1",
    )


def test_it_is_installed_upgraded_and_removed(
    checkout: Path, wheels: Path, python: Path, tmp_path: Path
) -> None:
    install(checkout, tmp_path, wheels, python)
    local = tmp_path / "usr/local"
    command = local / "bin/pubsubd"
    assert not os.readlink(command).startswith("/")
    (environment,) = local.glob("lib/pubsubd/venv.*")
    there = f"/usr/local/lib/pubsubd/{environment.name}/bin/python"
    # The second form is pip's where the path was too long for the kernel, as that of a test may be.
    begins = (f"#!{there}\n", f"#!/bin/sh\n'''exec' {there} ")
    assert command.read_text(encoding="utf-8").startswith(begins)
    assert (environment / "bin/python").exists()
    assert list(
        environment.glob("lib/python3.*/site-packages/pubsubd/broker/__pycache__/broker.*.pyc")
    )
    for path in environment.rglob("*"):
        if path.is_file() and not path.is_symlink() and path.suffix != ".so":
            assert os.fsencode(tmp_path) not in path.read_bytes(), path
    for page in (checkout / "man").iterdir():
        assert (local / f"share/man/man{page.suffix[1:]}" / page.name).is_file()
    assert (local / "share/bash-completion/completions/pubsubd").is_file()
    assert (local / "share/fish/vendor_completions.d/pubsubd.fish").is_file()
    assert (local / "share/zsh/site-functions/_pubsubd").is_file()
    assert (local / "lib/sysusers.d/pubsubd.conf").is_file()
    assert (local / "lib/tmpfiles.d/pubsubd.conf").is_file()
    units = {path.name for path in (local / "lib/systemd/system").iterdir()}
    assert units == {"pubsubd.service", "pubsubd.socket", "pubsubd-hub.socket"}
    unit = (local / "lib/systemd/system/pubsubd.service").read_text(encoding="utf-8")
    assert "\nExecStart=/usr/local/bin/pubsubd serve --config /etc/pubsubd/pubsubd.toml\n" in unit
    assert (tmp_path / SETTINGS).stat().st_mode & 0o777 == 0o640
    assert (tmp_path / SETTINGS).parent.stat().st_mode & 0o777 == 0o750

    # Again, over settings that were changed and a file of an earlier version.
    before = files_below(tmp_path)
    (tmp_path / SETTINGS).write_text("port = 9024\n", encoding="utf-8")
    (local / "share/pubsubd/old").write_text("", encoding="utf-8")
    with (local / "lib/pubsubd/installed").open("a", encoding="utf-8") as file:
        file.write("/usr/local/share/pubsubd/old\n")
    install(checkout, tmp_path, wheels, python, "--scanner")
    (upgraded,) = local.glob("lib/pubsubd/venv.*")
    assert upgraded != environment
    files = [name.replace(upgraded.name, environment.name) for name in files_below(tmp_path)]
    assert before == [name for name in files if "pubsubd_scanner" not in name]
    assert before != files
    assert (tmp_path / SETTINGS).read_text(encoding="utf-8") == "port = 9024\n"

    run(checkout / "scripts" / "uninstall", "--destdir", tmp_path)
    assert files_below(tmp_path) == [SETTINGS]
    run(checkout / "scripts" / "uninstall", "--destdir", tmp_path, "--purge")
    assert files_below(tmp_path) == []
    assert not list(tmp_path.rglob("*pubsubd*"))


def test_an_install_that_fails_changes_nothing(
    checkout: Path, wheels: Path, python: Path, tmp_path: Path
) -> None:
    some = tmp_path / "wheels"
    some.mkdir()
    for wheel in wheels.glob("pubsubd-*"):  # and nothing of what it needs
        shutil.copy(wheel, some)
    to = tmp_path / "to"
    found = subprocess.run(
        [checkout / "scripts" / "install", "--destdir", to, "--wheels", some],
        capture_output=True,
        check=False,
        env=os.environ | {"PYTHON": str(python)},
        text=True,
        timeout=4 * DEADLINE,
    )
    assert found.returncode == 1
    assert "the install failed" in found.stderr
    assert files_below(to) == []


@pytest.mark.parametrize("name", ["install", "uninstall", "build-deb"])
def test_the_scripts_say_how_they_are_used(name: str) -> None:
    script = ROOT / "scripts" / name
    question, _, usage = run(script, "--help").splitlines()[:3]
    assert question.endswith("?")
    assert usage.strip().startswith(f"scripts/{name} [--")
    found = subprocess.run([script, "--bogus"], capture_output=True, check=False, timeout=DEADLINE)
    assert found.returncode == 1
    assert b"unknown argument --bogus" in found.stderr


# The Debian package


def build_deb(checkout: Path, wheels: Path, to: Path) -> Path:
    told = run(
        *(checkout / "scripts" / "build-deb", "--wheels", wheels, "--out", to),
        PYTHON=sys.executable,
        SOURCE_DATE_EPOCH=str(EPOCH),
        PIP_DISABLE_PIP_VERSION_CHECK="1",
    )
    return Path(told.strip())


def test_the_debian_package_is_the_same_bytes_each_time_and_has_what_it_should(
    checkout: Path, wheels: Path, tmp_path: Path
) -> None:
    dpkg_deb = tool("dpkg-deb")
    package = build_deb(checkout, wheels, tmp_path / "one")
    mask = os.umask(0o077)
    try:
        elsewhere = shutil.copytree(checkout, tmp_path / "elsewhere")
        other = build_deb(elsewhere, wheels, tmp_path / "other")
    finally:
        os.umask(mask)
    assert package.name == other.name
    assert digest(package) == digest(other)

    control = run(dpkg_deb, "--field", package)
    fields = dict(re.findall(r"^([A-Za-z-]+): (.*)$", control, re.MULTILINE))
    assert fields["Package"] == "pubsubd"
    assert fields["Version"].startswith(f"{__version__}-1")
    assert fields["Architecture"] == run(tool("dpkg"), "--print-architecture").strip()
    minor = sys.version_info.minor
    assert f"python3 (>= 3.{minor}), python3 (<< 3.{minor + 1})" in fields["Depends"]
    assert "@" not in control.replace("@localhost", "")
    assert run(dpkg_deb, "--info", package, "conffiles") == f"/{SETTINGS}\n"

    for script in ("preinst", "postinst", "prerm", "postrm"):
        text = (ROOT / "contrib/debian" / script).read_text(encoding="utf-8")
        assert run(dpkg_deb, "--info", package, script) == text

    listed = run(dpkg_deb, "--contents", package)
    found = {
        path: (mode, owner)
        for mode, owner, path in re.findall(
            r"^(\S+) (\S+) +\d+ \S+ \S+ \./(\S*)$", listed, re.MULTILINE
        )
    }
    assert {owner for _, owner in found.values()} == {"root/root"}
    assert found[SETTINGS] == ("-rw-r-----", "root/root")
    assert found["etc/pubsubd/"] == ("drwxr-x---", "root/root")
    assert found["usr/bin/pubsubd"][0] == "-rwxr-xr-x"
    assert f"usr/lib/pubsubd/{SHARED_OBJECT}/_core.so" in found
    for path in (
        *("pubsubd/__main__.py", "pubsubd/py.typed", "trio/__init__.py"),
        *(f"pubsubd-{__version__}.dist-info/METADATA",),
    ):
        assert f"usr/lib/pubsubd/{path}" in found
    for page in (checkout / "man").iterdir():
        assert f"usr/share/man/man{page.suffix[1:]}/{page.name}.gz" in found
    for path in (
        *("systemd/system/pubsubd.service", "systemd/system/pubsubd.socket"),
        *("systemd/system/pubsubd-hub.socket", "sysusers.d/pubsubd.conf"),
        *("tmpfiles.d/pubsubd.conf",),
    ):
        assert f"usr/lib/{path}" in found
    for path in (
        *("bash-completion/completions/pubsubd", "fish/vendor_completions.d/pubsubd.fish"),
        *("zsh/vendor-completions/_pubsubd",),
    ):
        assert f"usr/share/{path}" in found
    for path in ("copyright", "changelog.gz", "changelog.Debian.gz"):
        assert f"usr/share/doc/pubsubd/{path}" in found
    assert not re.search(
        r"__pycache__|RECORD|direct_url|\.pyc|usr/lib/pubsubd/(bin|share)/", listed
    )


# Both at once


def dpkg(root: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    """Run dpkg for a system below ``root`` that has nothing installed."""
    return subprocess.run(
        [tool("dpkg"), f"--root={root}", "--force-script-chrootless", "--force-not-root", *words],
        capture_output=True,
        check=False,
        env=os.environ | {"PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"},
        text=True,
        timeout=DEADLINE,
    )


@pytest.fixture
def small_deb(tmp_path: Path) -> Path:
    """A package of that name with one file, and the scripts of the real one."""
    stage = tmp_path / "stage"
    (stage / "DEBIAN").mkdir(parents=True)
    (stage / "usr/lib/pubsubd").mkdir(parents=True)
    (stage / "usr/lib/pubsubd/here").touch()
    (stage / "DEBIAN/control").write_text(
        "Package: pubsubd\nVersion: 1\nArchitecture: all\nMaintainer: m <m@localhost>\n"
        "Description: d\n"
    )
    shutil.copy(ROOT / "contrib/debian/preinst", stage / "DEBIAN")
    run(tool("dpkg-deb"), "--root-owner-group", "--build", stage, tmp_path / "pubsubd.deb")
    return tmp_path / "pubsubd.deb"


@pytest.fixture
def dpkg_root(tmp_path: Path) -> Path:
    """A system without packages."""
    (tmp_path / "root/var/lib/dpkg/updates").mkdir(parents=True)
    (tmp_path / "root/var/lib/dpkg/info").mkdir()
    (tmp_path / "root/var/lib/dpkg/status").touch()
    return tmp_path / "root"


@pytest.mark.parametrize("prefix", ["/usr/local", "/usr"])
def test_the_debian_package_is_refused_where_scripts_install_was(
    prefix: str, small_deb: Path, dpkg_root: Path
) -> None:
    list_ = dpkg_root / prefix[1:] / "lib/pubsubd/installed"
    list_.parent.mkdir(parents=True)
    list_.touch()
    done = dpkg(dpkg_root, "--unpack", small_deb)
    assert done.returncode == 1
    assert f"scripts/install has put pubsubd in {prefix}.\n" in done.stderr
    assert f"First run scripts/uninstall --prefix {prefix}; it" in done.stderr
    assert not (dpkg_root / "usr/lib/pubsubd/here").exists()
    list_.unlink()
    assert dpkg(dpkg_root, "--unpack", small_deb).returncode == 0
    assert (dpkg_root / "usr/lib/pubsubd/here").exists()


def test_scripts_install_is_refused_where_the_debian_package_is(
    small_deb: Path, dpkg_root: Path, tmp_path: Path
) -> None:
    if os.geteuid():
        pytest.skip("only root can install beside packages")
    assert dpkg(dpkg_root, "--unpack", small_deb).returncode == 0
    (tmp_path / "empty").mkdir()
    found = {}
    for name, words in (
        ("install", ["--prefix", str(tmp_path / "to"), "--wheels", str(tmp_path / "empty")]),
        ("uninstall", ["--prefix", "/usr"]),
    ):
        found[name] = subprocess.run(
            [ROOT / "scripts" / name, *words],
            capture_output=True,
            check=False,
            env=os.environ | {"DPKG_ADMINDIR": str(dpkg_root / "var/lib/dpkg")},
            text=True,
            timeout=DEADLINE,
        )
        assert found[name].returncode == 1
        assert not (tmp_path / "to").exists()
    assert "the Debian package pubsubd is installed: first run" in found["install"].stderr
    assert "these files are the Debian package's, too" in found["uninstall"].stderr


def test_the_command_of_the_debian_package_uses_nothing_of_its_users(
    wheels: Path, tmp_path: Path
) -> None:
    launcher = (ROOT / "contrib/debian/launcher").read_text(encoding="utf-8")
    first, _, code = launcher.partition("\n")
    assert first == "#!/usr/bin/python3 -sP"
    library = tmp_path / "lib"
    (library / "pubsubd").mkdir(parents=True)
    (library / "pubsubd" / "__init__.py").touch()
    (library / "pubsubd" / "__main__.py").write_text("def main():\n    return 7\n")
    for place in ("script", "here"):  # as one in the working directory would be
        (tmp_path / place).mkdir()
        (tmp_path / place / "sys.py").write_text("raise SystemExit(8)\n")
        (tmp_path / place / "pubsubd.py").write_text("raise SystemExit(9)\n")
    script = tmp_path / "script" / "pubsubd"
    script.write_text(code.replace("/usr/lib/pubsubd", str(library)), encoding="utf-8")
    found = subprocess.run(
        [sys.executable, "-sP", script],
        cwd=tmp_path / "here",
        check=False,
        env=os.environ | {"PYTHONPATH": str(tmp_path / "script")},
        timeout=DEADLINE,
    )
    assert found.returncode == 7
