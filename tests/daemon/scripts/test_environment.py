"""Does ``.venv`` come with a line a step, and only when it has to?"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.daemons import DEADLINE, ROOT
from tests.packages import quick_python

pytestmark = pytest.mark.longest(10 * DEADLINE)

# A package without dependencies, so that no network is needed; its build fails on request.
SETTINGS = """\
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
"""
BACKEND = '''
import pathlib, zipfile

WHEEL = {
    "pubsubd.py": "def main(): pass",
    "pubsubd-1.dist-info/METADATA": """\\
Metadata-Version: 2.1
Name: pubsubd
Version: 1
Provides-Extra: test
Provides-Extra: test-topology
""",
    "pubsubd-1.dist-info/WHEEL": """\\
Wheel-Version: 1.0
Root-Is-Purelib: true
Tag: py3-none-any
""",
    "pubsubd-1.dist-info/entry_points.txt": "[console_scripts]\\npubsubd = pubsubd:main\\n",
}

def build_editable(directory, config_settings=None, metadata_directory=None):
    if pathlib.Path("broken").exists():
        raise RuntimeError("this build is broken")
    name = "pubsubd-1-py3-none-any.whl"
    with zipfile.ZipFile(pathlib.Path(directory, name), "w") as archive:
        for path, text in WHEEL.items():
            archive.writestr(path, text)
        record = "pubsubd-1.dist-info/RECORD"
        archive.writestr(record, "".join(f"{path},,\\n" for path in [*WHEEL, record]))
    return name
'''


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout that has the scripts and next to nothing else."""
    (tmp_path / "scripts").mkdir()
    for name in ("serve", "test"):
        shutil.copy(ROOT / "scripts" / name, tmp_path / "scripts")
    (tmp_path / "pyproject.toml").write_text(SETTINGS)
    (tmp_path / "backend.py").write_text(BACKEND)
    (tmp_path / "setup.cfg").write_text("")
    quick_python(tmp_path / "bin")
    return tmp_path


def bash(checkout: Path, code: str) -> tuple[int, list[str]]:
    """Run ``code``, and return its status and what it prints, without what differs each time."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith("PIP_")}
    done = subprocess.run(
        ["bash", "-c", code],
        cwd=checkout,
        env=kept | {"PIP_NO_INDEX": "1", "PATH": f"{checkout / 'bin'}:{os.environ['PATH']}"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
        text=True,
        timeout=4 * DEADLINE,
    )
    return done.returncode, re.sub(r"\d+(\.\d+)*", "N", done.stdout).splitlines()


def prepare(checkout: Path, extra: str) -> tuple[int, list[str]]:
    return bash(checkout, f"source scripts/serve; prepare_venv '{extra}'")


def installed(what: str) -> tuple[int, list[str]]:
    """Return what is told of an install."""
    return 0, [
        f"bash: installing pubsubd{what} into .venv",
        "bash:   unpacking N packages",
        "bash: installed in N s",
    ]


def test_the_environment_comes_step_by_step_and_only_when_it_has_to(checkout: Path) -> None:
    status, told = prepare(checkout, "")
    assert (status, told[1:]) == installed("")
    assert told[0] == "bash: making .venv with Python N"
    assert prepare(checkout, "") == (0, [])
    assert prepare(checkout, "test") == installed(" and what its tests need")
    assert prepare(checkout, "test") == prepare(checkout, "") == (0, [])
    # What is there stays there when something has changed.
    (checkout / "setup.cfg").write_text("# changed")
    assert prepare(checkout, "") == installed(" and what its tests need")
    assert prepare(checkout, "test") == (0, [])
    # What pip says of a failure is shown, and nothing counts as installed.
    (checkout / "setup.cfg").write_text("# changed again")
    (checkout / "broken").touch()
    status, told = prepare(checkout, "")
    assert status == 1
    assert any("RuntimeError: this build is broken" in line for line in told)
    assert told[-1].startswith("bash: the install failed; ")
    assert told[-1].endswith("/.venv/pubsubd-install.log has all that pip says")
    assert not (checkout / ".venv" / "pubsubd-stamp").exists()


def test_packages_are_told_as_they_come_and_the_large_ones_with_their_sizes(checkout: Path) -> None:
    said = r"""\
Obtaining file:///home/ann/pubsubd
Collecting trio>=0.30 (from pubsubd==0.1.0)
  Downloading trio-0.32.0-py3-none-any.whl.metadata (8.5 kB)
Collecting pyspark>=4.3
  Downloading https://packages.example/pyspark-4.3.0.tar.gz (434.2 MB)
  Using cached ruff-0.14.0-py3-none-manylinux_2_17_x86_64.whl (12.5 MB)
Using cached trio-0.32.0-py3-none-any.whl (512 kB)
Installing collected packages: ruff, trio, pyspark
Successfully installed pyspark-4.3.0 ruff-0.14.0 trio-0.32.0
"""
    assert bash(checkout, f"source scripts/serve; tell_steps <<'.'\n{said}.\n")[1] == [
        "bash:   trio",
        "bash:   pyspark",
        "bash:     pyspark-N.tar.gz (N MB)",
        "bash:     ruff-N-pyN-none-manylinux_N_N_xN_N.whl (N MB)",
        "bash:   unpacking N packages",
    ]


@pytest.mark.parametrize(
    ("arguments", "extra"),
    [
        ("", "test-topology"),
        ("--slowest", "test-topology"),
        ("--thorough", "test-topology"),
        ("--fast", "test"),
        ("--fast routing hub", "test"),
        ("--fast topology", "test-topology"),
        ("--slowest --fast routing", "test"),
        ("tests/unit/hub/test_auth.py", "test"),
        ("tests/spark -x", "test-topology"),
    ],
)
def test_spark_is_for_those_who_test_all_or_the_analysis(
    arguments: str, extra: str, checkout: Path
) -> None:
    (checkout / "scripts" / "serve").write_text("prepare_venv() { echo $1; exit; }\n")
    assert bash(checkout, f"scripts/test {arguments}") == (0, [extra])
