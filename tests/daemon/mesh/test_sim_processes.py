"""The simulated mesh as a process: the same in each, and the script that measures a large one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.daemons import DEADLINE, ROOT

SCALE = ROOT / "scripts" / "mesh-scale"
SCRIPT = """
    at 0 subscribe 20% //fwd/x/
    at 0 subscribe any //fwd/x/y
    at 3 publish any //x/y 400 0.05
    at 3 publish any //fwd/x/z 100 0.2
    at 5 kill-random 20%
    at 7 cut n1 n2
    at 9 start all
"""


def test_it_is_the_same_in_every_process(tmp_path: Path) -> None:
    path = tmp_path / "script"
    path.write_text(SCRIPT)
    code = "from pubsubd.cli.mesh_sim import command; command()"
    arguments = [sys.executable, "-c", code, "--ring", "9", "--script", str(path), "--json"]
    found = []
    for number in "12":
        done = subprocess.run(
            arguments,
            env={**os.environ, "PYTHONHASHSEED": number},
            capture_output=True,
            text=True,
            timeout=2 * DEADLINE,
            check=True,
        )
        found.append({**json.loads(done.stdout), "took": None})
    assert found[0] == found[1]


def test_the_scale_is_measured_and_judged() -> None:
    arguments = [sys.executable, str(SCALE), "--daemons", "40", "--seconds", "70", "--json", "-"]
    done = subprocess.run(
        arguments, capture_output=True, text=True, timeout=2 * DEADLINE, check=False
    )
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)["figures"]
    assert all(figure["good"] for figure in figures)
    assert "MISSED" not in done.stderr
    done = subprocess.run(
        [*arguments[:-2], "--heartbeat", "9"],
        capture_output=True,
        text=True,
        timeout=2 * DEADLINE,
        check=False,
    )
    assert done.returncode == 3  # silence is noticed too late then
    assert "MISSED" in done.stdout
