"""scripts/chaos: that each scenario passes in its short form, and what would make it fail."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from soaklib.daemons import Daemon
from soaklib.probes import Times
from soaklib.scenario import judge_probe, judge_traffic
from soaklib.scenarios import SCENARIOS
from soaklib.streams import COPIED, RUN, FastReader, Runs, SlowReader, mark
from soaklib.traffic import Report
from soaklib.verdict import Verdict, percentile
from soaklib.wires import SoakError, frame, over, synap_publish
from soaklib.workers import Told, Worker
from tests.daemons import DEADLINE, ROOT

SCRIPTS = ROOT / "scripts"
pytestmark = pytest.mark.longest(6 * DEADLINE)


def chaos(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPTS / "chaos"), *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=5 * DEADLINE, check=False
    )


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_scenario_passes(name: str) -> None:
    done = chaos("--short", "--json", "-", name)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert [one["name"] for one in told["scenarios"]] == [name]
    assert told["scenarios"][0]["good"]
    assert any(check["good"] for check in told["scenarios"][0]["checks"])
    assert f"{name}: passed" in done.stderr


def test_list_names_every_scenario_and_what_it_does() -> None:
    done = chaos("--list")
    assert (done.returncode, done.stderr) == (0, "")
    assert [line.split()[0] for line in done.stdout.splitlines()] == list(SCENARIOS)
    assert all(one.title.endswith(".") for one in SCENARIOS.values())


def test_parts_of_a_scenario_can_be_done_alone() -> None:
    done = chaos("--short", "--json", "-", "hostile", "--only", "hub-pin*", "--only", "heal?h")
    assert done.returncode == 0, done.stderr
    checks = json.loads(done.stdout)["scenarios"][0]["checks"]
    judged = [one["what"] for one in checks if one["good"] is not None]
    assert judged == ["health", "attacks, of all there are"]


@pytest.mark.parametrize(
    "arguments", [["no-such-scenario"], ["--seed", "x"], ["--json", "/none/file"], ["--fast"]]
)
def test_nonsense_is_refused_with_status_2(
    arguments: list[str], refuse: Callable[..., None]
) -> None:
    refuse("chaos", *arguments)


# What would be seen


class Stream:
    """A fast stream and who reads it."""

    def __init__(self) -> None:
        self.runs = Runs("p00", COPIED)
        self.reader = FastReader(["p00"], {"p00": self.runs})
        self.flow = self.reader.flows["p00"]

    def message(self, number: int) -> bytes:
        return self.runs.message(number)


@pytest.fixture
def stream() -> Stream:
    return Stream()


@pytest.mark.parametrize("step", [1, 7, 1_000, 100_000])
def test_a_stream_that_is_whole_is_seen_as_whole_however_it_is_cut(
    stream: Stream, step: int
) -> None:
    data = b"".join(stream.runs[number] for number in range(5))
    data = frame(b"//pubsubd/error", b"slow-consumer x") + data
    for at in range(0, len(data), step):
        stream.reader.feed(data[at : at + step])
    assert stream.flow.received == stream.flow.next == 5 * RUN
    assert (stream.flow.lost, stream.flow.doubled, stream.flow.late, stream.flow.changed) == (
        0,
    ) * 4
    assert stream.reader.told == ["slow-consumer"]
    assert stream.reader.strange == []


def test_one_message_that_is_missing_is_seen(stream: Stream) -> None:
    for number in (0, 1, 3, 4):
        stream.reader.feed(stream.message(number))
    assert (stream.flow.lost, stream.flow.doubled, stream.flow.received) == (1, 0, 4)


def test_one_that_comes_again_is_seen(stream: Stream) -> None:
    for number in (0, 1, 1, 2):
        stream.reader.feed(stream.message(number))
    assert (stream.flow.lost, stream.flow.doubled, stream.flow.late) == (0, 1, 0)


def test_one_that_comes_late_is_not_lost_and_the_next_time_it_is_double(stream: Stream) -> None:
    for number in (0, 3, 1, 2, 1):
        stream.reader.feed(stream.message(number))
    assert (stream.flow.lost, stream.flow.doubled, stream.flow.late) == (0, 1, 2)


def test_one_byte_that_is_another_is_seen(stream: Stream) -> None:
    data = bytearray(stream.runs[0])
    data[-3] ^= 1
    stream.reader.feed(bytes(data))
    assert stream.flow.changed == 1
    assert stream.flow.received == RUN - 1


def test_what_breaks_with_a_connection_is_excused_once(stream: Stream) -> None:
    stream.reader.feed(stream.message(0))
    stream.reader.break_off()
    for number in (5, 6, 9):
        stream.reader.feed(stream.message(number))
    assert (stream.flow.excused, stream.flow.lost) == (4, 2)
    for number in (2, 2):
        stream.reader.feed(stream.message(number))
    assert (stream.flow.excused, stream.flow.late, stream.flow.doubled) == (3, 1, 1)


def test_a_frame_of_nobody_is_seen(stream: Stream) -> None:
    stream.reader.feed(frame(b"//fwd/soak/q00", b"x" * 40) * 2)
    assert len(stream.reader.strange) == 2


@pytest.mark.parametrize("kind", ["line", "ndjson", "ws", "hub"])
def test_slow_streams_are_found_in_whatever_is_spoken(kind: str) -> None:
    reader = SlowReader(["s00"])
    for number in (0, 1, 1, 3):
        data = mark("s00", number)
        if kind == "line":
            reader.feed(frame(b"//fwd/slow/s00", data))
        elif kind == "hub":
            text = b'{"payload":{"name":"//fwd/slow/s00","data":"%b"},"message":"%b"}\n'
            reader.feed(text % (data, data))
        else:
            said = over("ndjson", synap_publish("//slow/s00", data.decode()))
            reader.feed(said if kind == "ndjson" else b"\x81\x7e\x01\x00" + said[:-1])
    flow = reader.flows["s00"]
    assert (flow.received, flow.lost, flow.doubled, flow.changed) == (3, 1, 1, 0)


def test_a_checksum_that_does_not_fit_is_seen() -> None:
    reader = SlowReader(["s00"])
    reader.feed(frame(b"//fwd/slow/s00", mark("s00", 0).replace(b"00000000", b"00000001", 1)))
    assert reader.flows["s00"].changed == 1


@pytest.mark.parametrize(
    "fault", ["", "lost", "tail", "doubled", "late", "changed", "broken", "told"]
)
def test_a_verdict_is_bad_if_one_thing_is(stream: Stream, fault: str) -> None:
    numbers = {"lost": (0, 2), "doubled": (0, 1, 1), "late": (0, 2, 1)}.get(fault, (0, 1))
    for number in numbers:
        stream.reader.feed(stream.message(number))
    if fault == "changed":
        stream.flow.changed += 1
    sent = {"p00": stream.flow.next + (fault == "tail")}
    report = Report(sent=sent, flows={"sub": {"p00": stream.flow}})
    if fault == "broken":
        report.broken["sub"] = 1
    if fault == "told":
        report.told["sub"] = ["internal-error"]
    verdict = Verdict("x", timed=True)
    judge_traffic(verdict, report)
    assert verdict.good == (not fault), verdict.text()


def test_a_verdict_is_bad_if_nothing_was_delivered_or_nothing_looked_at() -> None:
    verdict = Verdict("x", timed=True)
    assert not verdict.good
    judge_traffic(verdict, Report())
    assert not verdict.good


def test_times_are_judged_in_the_long_form_only() -> None:
    slow = Times([60.0] * 100)
    for timed in (False, True):
        verdict = Verdict("x", timed=timed)
        judge_probe(verdict, "a probe", slow)
        assert verdict.good != timed
    lost = Verdict("x", timed=False)
    judge_probe(lost, "a probe", Times([1.0], missing=1))
    assert not lost.good


def test_percentiles() -> None:
    assert percentile([float(n) for n in range(1, 101)], 0.99) == 100.0
    assert percentile([float(n) for n in range(1, 101)], 0.5) == 51.0
    assert percentile([], 0.5) == 0.0


# What they stand on


def _fail(told: Told) -> None:
    told.answer("here")
    told.hear()
    raise ValueError("on purpose")


def test_what_goes_wrong_in_a_worker_is_told_to_who_asks() -> None:
    with Worker(_fail) as worker:
        assert worker.answer() == "here"
        with pytest.raises(SoakError, match="ValueError: on purpose"):
            worker.ask("anything")


def test_a_daemon_that_does_not_start_is_told_with_its_log(tmp_path: Path) -> None:
    with pytest.raises(SoakError, match="No such option"):
        Daemon(tmp_path, "--nothing")


def busy(told: Told) -> None:
    told.answer(os.getpid())
    while True:
        pass  # it never hears that nobody needs it any more


def test_a_worker_that_is_busy_is_ended() -> None:
    with Worker(busy) as worker:
        pid = worker.answer()
    assert not Path(f"/proc/{pid}").exists()
