"""Is it known which of the files that settings were read from have changed, and since when?"""

from __future__ import annotations

import os
from pathlib import Path

from pubsubd.daemon.files import ReadFiles, named_files
from pubsubd.settings.load import load


def test_the_file_that_changed_first_is_named_with_its_time(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_text("a")
    two.write_text("b")
    files = ReadFiles([str(one), str(two), str(tmp_path / "none")])
    assert files.describe_change() == ""
    os.utime(one, (1_800_000_000, 1_800_000_000))
    assert files.describe_change() == f"{one} since 2027-01-15 08:00:00 UTC"
    two.write_text("c")
    os.utime(two, (1_700_000_000, 1_700_000_000))
    assert files.describe_change() == f"{two} since 2023-11-14 22:13:20 UTC"
    two.unlink()
    one.unlink()
    assert files.describe_change() == f"{one}, which is gone"
    assert ReadFiles([str(one)]).describe_change() == ""


def test_the_files_are_those_that_settings_name(tmp_path: Path) -> None:
    names = {
        "users_file": "u",
        "hub_auth": "h",
        "tls_certificate": "c",
        "tls_key": "k",
        "tls_client_ca": "a",
        "mesh_secret_file": "s",
        "mesh_tls_ca": "m",
    }
    path = tmp_path / "file.toml"
    lines = [f'{name} = "{value}"' for name, value in names.items()]
    path.write_text("\n".join([*lines, 'mesh = "x"', "mesh_tls = true"]))
    assert set(named_files(load({}, path).config)) == {str(path), *names.values()}
    assert named_files(load({}).config) == []
