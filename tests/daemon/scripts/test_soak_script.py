"""scripts/soak: that a short one passes, and that its arguments mean what they say."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from types import ModuleType

import pytest

from soaklib import churn
from soaklib.crowd import Crowd
from soaklib.verdict import Verdict
from tests.daemons import DEADLINE, ROOT

SCRIPTS = ROOT / "scripts"
pytestmark = pytest.mark.longest(5 * DEADLINE)
MIB = 1024 * 1024


def soak(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPTS / "soak"), *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=4 * DEADLINE, check=False
    )


@pytest.mark.parametrize("encrypted", [False, True])
def test_churn_leaves_nothing_behind_and_loses_nothing(encrypted: bool) -> None:
    more = ["--tls", "--mesh", "2"] if encrypted else ["--mesh", "3"]
    done = soak("--short", "--json", "-", "--messages", "30000", "--connections", "200", *more)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["good"]
    seen = {check["what"]: check["seen"] for check in told["checks"]}
    assert seen["messages lost"] == seen["messages doubled"] == "0"
    assert seen["connections that came and went"] == "200"
    assert "soak: passed" in done.stderr


def test_without_arguments_it_is_an_hours_worth(script: Callable[[str], ModuleType]) -> None:
    _, plan = script("soak").parse([])
    assert (plan.messages, plan.connections, plan.daemons) == (50_000_000, 100_000, 5)
    assert plan.seconds == 500


def test_minutes_are_minutes(script: Callable[[str], ModuleType]) -> None:
    _, plan = script("soak").parse(["--minutes", "2", "--rate", "10000"])
    assert (plan.messages, plan.seconds) == (1_200_000, 120)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--minutes", "1", "--messages", "5"],
        ["--messages", "-1"],
        ["--mesh", "0"],
        ["--rate", "10"],
        ["--json", "/none/file"],
        ["more"],
    ],
)
def test_nonsense_is_refused_with_status_2(
    arguments: list[str], refuse: Callable[..., None]
) -> None:
    refuse("soak", *arguments)


@pytest.mark.parametrize(("last", "good"), [(41, True), (44, False)])
def test_memory_that_grows_after_warm_up_is_seen(last: int, good: bool) -> None:
    samples = [*range(20, 40, 2), *[41] * 10, *[42] * 10, *[last] * 10]
    verdict = Verdict("soak", timed=True)
    churn.judge_memory(verdict, [[n * MIB for n in samples]], judged=True)
    assert verdict.good == good
    relaxed = Verdict("soak", timed=False)
    churn.judge_memory(relaxed, [[n * MIB for n in samples]], judged=False)
    relaxed.check("something", 1, good=True)
    assert relaxed.good


def test_connections_that_are_missing_or_saw_something_odd_are_seen() -> None:
    plan = churn.Plan(1, 10, 1.0, 1, tls=False, seed=1)
    for kinds, wrong, good in (
        ({"line": 9, "stopped": 1, "cut for being stopped": 1}, [], True),
        ({"line": 8, "stopped": 1, "cut for being stopped": 1}, [], False),
        ({"line": 10}, ["HTTP: told nothing"], False),
    ):
        verdict = Verdict("soak", timed=True)
        churn.judge_crowd(verdict, plan, Crowd(Counter(kinds), wrong))
        assert verdict.good == good, verdict.text()
