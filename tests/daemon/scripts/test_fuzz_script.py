"""scripts/fuzz: that it finds nothing, and that it would."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

from pubsubd.routing.answers import Answers
from pubsubd.routing.router import Router
from tests.daemons import ROOT

SCRIPT = ROOT / "scripts" / "fuzz"


@pytest.fixture(scope="module")
def fuzz(script):
    return script("fuzz")


def test_random_inputs_lead_to_messages_or_documented_errors() -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--random", "--runs", "3000", "--seed", "1"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "3000 inputs of seed 1: nothing found\n"
    assert (done.returncode, done.stderr) == (0, "")


def test_a_broker_that_forgets_to_drop_an_answer_is_found(
    fuzz, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Answers, "drop_substring", lambda *_: 0)
    monkeypatch.setattr(sys, "argv", ["fuzz", "--random"])
    assert fuzz.main() == 1
    assert "heard" in capsys.readouterr().out


def test_an_exception_is_a_finding(
    fuzz, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Router, "unsubscribe", lambda *_: 1 / 0)
    monkeypatch.setattr(sys, "argv", ["fuzz", "--random"])
    assert fuzz.main() == 1
    assert "ZeroDivisionError" in capsys.readouterr().out


def test_one_input_can_be_repeated(
    fuzz, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "input"
    path.write_bytes(fuzz.generate(random.Random(3)))
    monkeypatch.setattr(sys, "argv", ["fuzz", "--replay", str(path)])
    assert fuzz.main() == 0
    assert capsys.readouterr().out == "nothing found\n"
