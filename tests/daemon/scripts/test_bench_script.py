"""scripts/bench: its arguments, and that it computes the bytes it waits for correctly.

Its figures are no matter of tests.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest

from benchlib import readme, topology, workercases
from benchlib.cases import idle_texts, mixed, names_own, new_names
from benchlib.hubcases import CASES, GROUPS
from benchlib.meter import Cores, on_one_core, without_preempting
from benchlib.profiles import parse_perf, parse_spy
from benchlib.protocols import WIRES, Want
from benchlib.report import Result, judge, limit, number, text
from benchlib.runners import Reading
from benchlib.servers import SCANNER
from benchlib.traffic import Load, Plan
from tests.daemons import DEADLINE, ROOT

BENCH = ROOT / "scripts" / "bench"
pytestmark = pytest.mark.longest(5 * DEADLINE)


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(BENCH), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def test_list_names_every_case_in_its_group() -> None:
    done = bench("--list")
    assert done.returncode == 0
    listed = [line.split()[0] for line in done.stdout.splitlines()]
    assert listed == [word for name, cases in GROUPS.items() for word in (f"{name}:", *cases)]
    assert list(CASES) == [name for cases in GROUPS.values() for name in cases]


def test_the_analysis_has_cases_of_its_own() -> None:
    done = bench("topology", "--list")
    assert done.returncode == 0
    assert [line.split()[0] for line in done.stdout.splitlines()] == list(topology.CASES)
    wrong = bench("topology", "beauty")
    assert (wrong.returncode, "no such case: 'beauty'" in wrong.stderr) == (2, True)


@pytest.mark.parametrize(("kind", "number"), [("mesh", 3), ("windows", 2), ("links", 100)])
def test_the_analysis_is_measured_on_the_same_data_each_time(
    kind: str, number: int, tmp_path: Path
) -> None:
    program = str(BENCH.parent / "benchlib" / "topologydata.py")
    made = []
    for name in ("one", "other"):
        words = [sys.executable, program, kind, str(tmp_path / name), str(number)]
        subprocess.run(words, check=True, timeout=2 * DEADLINE)
        files = sorted((tmp_path / name).iterdir())
        made.append([(file.name, file.read_bytes()) for file in files])
    assert made[0] == made[1] != []


def test_what_a_run_took_is_held_against_its_bound() -> None:
    slow = topology.Target("total", 20, "s")
    fast = topology.Target("times as fast", 10, "x")
    verdicts = [topology.judge(one, at) for at in (9.0, 21.0) for one in (slow, fast)]
    assert [words.split()[-1] for words in verdicts] == ["ok", "MISS", "MISS", "ok"]


@pytest.mark.parametrize(
    ("arguments", "cases"),
    [
        ([], list(GROUPS["line"])),
        (["line"], list(GROUPS["line"])),
        (["hub"], list(GROUPS["hub"])),
        (["mesh"], list(GROUPS["mesh"])),
        (["--paper", "16", "workers"], list(GROUPS["workers"])),
        (["all"], list(CASES)),
        (["hub", "discover"], list(GROUPS["hub"])),
        (["churn", "ws-one-acked", "churn"], ["churn", "ws-one-acked"]),
    ],
)
def test_a_group_stands_for_its_cases(
    arguments: list[str], cases: list[str], script: Callable[[str], ModuleType]
) -> None:
    assert script("bench").parse(arguments).case == cases


def test_help_names_the_question_and_every_option() -> None:
    done = bench("--help")
    assert done.returncode == 0
    assert "Is this daemon as fast" in done.stdout
    options = "runs seconds servers quick short before json markdown list check paper taskset"
    assert [option for option in options.split() if f"--{option}" not in done.stdout] == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["no-such-case"],
        ["hub", "no-such-case"],
        ["--servers", "pubsubd,apache"],
        ["--servers", ""],
        ["--runs", "0"],
        ["--runs", "few"],
        ["--extra", "-1"],
        ["--paper", "0"],
        ["--taskset", "1"],
        ["--taskset", "65"],
        ["--seconds", "0"],
        ["--json", "/no/such/directory/file"],
        ["--before", "/no/such/checkout"],
        ["--no-such-option"],
    ],
)
def test_nonsense_is_refused_with_status_2(
    arguments: list[str], refuse: Callable[..., None]
) -> None:
    refuse("bench", *arguments)


def test_a_server_that_does_not_start_is_an_error_with_status_1(tmp_path: Path) -> None:
    mute = tmp_path / "python"
    mute.write_text("#!/bin/sh\necho cannot run today >&2\nexit 7\n")
    mute.chmod(0o755)
    done = bench("one-16", "--servers", "pubsubd", "--quick", "--python", str(mute))
    assert done.returncode == 1
    assert "ended with status 7" in done.stdout
    assert "cannot run today" in done.stdout


DOUBLING = """#!{python}
import json, os, socket, sys, threading

listener = socket.create_server(("127.0.0.1", 0))
subscribers = []


def serve(link):
    seen = 0
    for line in link.makefile("rb"):
        if line.startswith(b"sub "):
            subscribers.append(link)
        elif line.startswith(b"pub //pubsubd/ping "):
            link.sendall(line)
        else:
            seen += 1
            for subscriber in subscribers:
                subscriber.sendall(line * (2 if seen == {doubled} else 1))


path = sys.argv[sys.argv.index("--ports-file") + 1]
with open(path + "~", "w") as file:
    json.dump({{"line": {{"host": "127.0.0.1", "port": listener.getsockname()[1]}}}}, file)
os.rename(path + "~", path)
while True:
    threading.Thread(target=serve, args=[listener.accept()[0]], daemon=True).start()
"""


@pytest.mark.parametrize(("doubled", "status"), [(0, 0), (3, 1), (5000, 1)])
def test_one_message_doubled_among_thousands_fails_the_run(
    tmp_path: Path, doubled: int, status: int
) -> None:
    server = tmp_path / "python"
    server.write_text(DOUBLING.format(python=sys.executable, doubled=doubled))
    server.chmod(0o755)
    options = ["--servers", "pubsubd", "--quick", "--runs", "1", "--seconds", "0.05"]
    done = bench("one-16", *options, "--python", str(server))
    assert done.returncode == status, done.stdout + done.stderr
    assert ("ERROR one-16: pubsubd: " in done.stdout) == bool(status)


def test_another_checkout_is_measured_beside_this_one(tmp_path: Path) -> None:
    (tmp_path / "old" / "pubsubd").mkdir(parents=True)
    server = tmp_path / "python"
    started = f'#!{sys.executable}\nimport os\nopen("{tmp_path}/trees", "a").write('
    started += 'os.environ["PYTHONPATH"] + chr(10))\n'
    server.write_text(started + DOUBLING.format(python=sys.executable, doubled=0))
    server.chmod(0o755)
    options = ["--servers", "pubsubd", "--quick", "--runs", "1", "--seconds", "0.05"]
    before = ["--before", str(tmp_path / "old"), "--python", str(server)]
    done = bench("one-16", *options, *before)
    assert done.returncode == 0, done.stdout + done.stderr
    _version, *trees = (tmp_path / "trees").read_text().split()
    assert trees == [str(ROOT), str(tmp_path / "old")]
    head, _, *rows = (line.split() for line in done.stdout.splitlines())
    assert head[2:4] == ["pubsubd", "before"]
    judged = [(row[1], row[3]) for row in rows if "before" in row]
    assert judged == [("rate", "0.98"), ("cpu_s", "1.02")]


def test_a_missing_package_leaves_its_server_out_and_says_how_to_get_it(tmp_path: Path) -> None:
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S -E -P "$@"\n')
    bare.chmod(0o755)
    done = bench("ws-one-acked", "--servers", "websockets", "--quick", "--python", str(bare))
    assert done.returncode == 0
    told = f"websockets is not installed and left out ({bare} -m pip install 'websockets>=13')"
    assert told in done.stderr.splitlines()


def test_a_server_that_is_in_none_of_the_cases_has_no_column() -> None:
    done = bench("ws-one-acked", "--servers", "nats,redis")
    assert done.returncode == 0
    assert done.stdout.split()[:3] == ["case", "metric", "asked"]


class Bytes(NamedTuple):
    """What one protocol's bytes are, written by hand; subscription number 1, the second."""

    publish: bytes
    answer: bytes
    subscribe: bytes
    confirmed: bytes
    unsubscribe: bytes
    delivered: bytes
    delivered_to_prefix: bytes


HAND_WRITTEN = {
    "pubsubd": Bytes(
        b"pub n7 5 hello\n",
        b"",
        b"sub n7\n",
        b"",
        b"unsub n7\n",
        b"pub n7 5 hello\n",
        b"pub n7 5 hello\n",
    ),
    "nats": Bytes(
        b"PUB n7 5\r\nhello\r\n",
        b"",
        b"SUB n7 2\r\n",
        b"",
        b"UNSUB 2\r\n",
        b"MSG n7 2 5\r\nhello\r\n",
        b"MSG n7 2 5\r\nhello\r\n",
    ),
    "redis": Bytes(
        b"*3\r\n$7\r\nPUBLISH\r\n$2\r\nn7\r\n$5\r\nhello\r\n",
        b":12\r\n",
        b"*2\r\n$9\r\nSUBSCRIBE\r\n$2\r\nn7\r\n",
        b"*3\r\n$9\r\nsubscribe\r\n$2\r\nn7\r\n:2\r\n",
        b"*2\r\n$11\r\nUNSUBSCRIBE\r\n$2\r\nn7\r\n",
        b"*3\r\n$7\r\nmessage\r\n$2\r\nn7\r\n$5\r\nhello\r\n",
        b"*4\r\n$8\r\npmessage\r\n$2\r\nn*\r\n$2\r\nn7\r\n$5\r\nhello\r\n",
    ),
    "mosquitto": Bytes(
        b"\x30\x09\x00\x02n7hello",
        b"",
        b"\x82\x07\x00\x02\x00\x02n7\x00",
        b"\x90\x03\x00\x02\x00",
        b"\xa2\x06\x00\x02\x00\x02n7",
        b"\x30\x09\x00\x02n7hello",
        b"\x30\x09\x00\x02n7hello",
    ),
}


@pytest.mark.parametrize("name", WIRES)
def test_frames_are_the_bytes_written_by_hand(name: str) -> None:
    wire, want = WIRES[name], Want("exact", b"n7")
    assert HAND_WRITTEN[name] == Bytes(
        wire.publish(b"n7", b"hello"),
        wire.published(12, b"n7", b"hello"),
        wire.subscribe(1, want),
        wire.subscribed(1, want),
        wire.unsubscribe(1, want),
        wire.deliver(1, want, b"n7", b"hello"),
        wire.deliver(1, Want("prefix", b"n"), b"n7", b"hello"),
    )


def test_substrings_are_patterns_where_there_are_patterns() -> None:
    want = Want("contains", b"x")
    assert WIRES["pubsubd"].subscribe(0, want) == b"sub x\n"
    assert WIRES["redis"].subscribe(0, want) == b"*2\r\n$10\r\nPSUBSCRIBE\r\n$3\r\n*x*\r\n"
    assert [name for name, wire in WIRES.items() if wire.supports(want)] == ["pubsubd", "redis"]


@pytest.mark.parametrize(
    ("size", "length"),
    [(124, b"\x7f"), (125, b"\x80\x01"), (16380, b"\xff\x7f"), (16381, b"\x80\x80\x01")],
)
def test_mqtt_lengths_grow_where_the_standard_says(size: int, length: bytes) -> None:
    assert WIRES["mosquitto"].publish(b"a", bytes(size))[1:].startswith(length + b"\x00\x01a")


def test_the_mqtt_greeting_is_a_legal_connect() -> None:
    assert WIRES["mosquitto"].hello == b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x00\x00\x00"


@pytest.mark.parametrize("name", WIRES)
def test_each_of_a_hundred_subscribers_gets_its_own_ten_names(name: str) -> None:
    load = Load(names_own(block=False), WIRES[name])
    messages = names_own(block=False).messages
    assert len(load.streams) == 100
    per_message = len(WIRES[name].deliver(0, Want("exact", b"n0000"), *messages[0]))
    longer = 4 if name == "nats" else 0  # every tenth has a subscription id of two digits
    assert {len(stream) for stream in load.streams} == {40 * per_message + longer}
    assert load.answer == WIRES[name].published(1, b"", b"") * len(messages)


def test_redis_answers_with_the_number_of_receivers() -> None:
    both, none = (Want("exact", b"a"),), (Want("exact", b"b"),)
    plan = Plan(((b"a", b"1"), (b"c", b"2")), (both, both, none))
    load = Load(plan, WIRES["redis"])
    assert load.answer == b":2\r\n:0\r\n"
    assert [len(stream) > 0 for stream in load.streams] == [True, True, False]


@pytest.mark.parametrize("name", WIRES)
def test_new_names_never_occur_twice_and_have_one_length(name: str) -> None:
    load = Load(new_names(), WIRES[name])
    blobs = [bytes(next(load.blobs(0)))]
    blobs += [bytes(blob) for blob in load.blobs(3 * load.messages)]
    assert [len(blob) for blob in blobs] == [load.size] * 4
    wire = WIRES[name]
    first = wire.publish(b"n0000000000", new_names().messages[0][1])
    assert blobs[0].startswith(first)
    for i, blob in enumerate(blobs):
        assert blob.count(b"n%010d" % (i * load.messages)) == 1
        assert blob.count(b"n%010d" % ((i + 1) * load.messages)) == 0


def test_mixed_has_every_name_with_every_length_once_per_blob() -> None:
    kinds = {(name, len(payload)) for name, payload in mixed().messages}
    assert len(mixed().messages) == len(kinds) == 6400
    assert mixed() == mixed()


def test_idle_texts_are_different_and_match_none_of_the_names() -> None:
    texts = idle_texts(1000)
    assert len(set(texts)) == 1000
    assert not any(text in b"n%04d" % i for text in texts for i in range(1000))


def readings(metric: str, *values: float, others: float = 0.0) -> list[Reading]:
    return [Reading({metric: value}, Cores(others=others)) for value in values]


def test_a_rate_is_compared_with_the_better_peer_round_by_round() -> None:
    result = Result(CASES["one-16"])
    result.readings = {
        "pubsubd": readings("rate", 40, 20, 44),
        "nats": readings("rate", 20, 10, 20),
        "redis": readings("rate", 12, 12, 12),
        "py-relay": readings("rate", 44, 22, 80),
    }
    verdict = judge(result, result.case.targets[0])
    assert (verdict.against, verdict.measured, verdict.word) == ("nats", 2.0, "ok")
    assert (verdict.low, verdict.high) == (2.0, 2.1)  # the quartiles
    floor = judge(result, result.case.targets[1])
    assert (floor.against, floor.measured, floor.word) == ("py-relay", 10 / 11, "at floor")
    (line, *_) = [line for line in text([result], ["pubsubd", "nats"]).splitlines() if "±" in line]
    assert line.split()[2:6] == ["40", "±25%", "20", "±25%"]


def one_16() -> Result:
    result = Result(CASES["one-16"])
    result.readings = {
        "pubsubd": readings("rate", 90, 92, 400) + readings("cpu_s", 0.04),
        "redis": readings("rate", 10, 10, 40) + readings("cpu_s", 0.5),
        "py-relay": readings("rate", 180, 184, 800),
    }
    return result


def test_the_readme_has_a_line_for_all_that_is_compared() -> None:
    page = (ROOT / "README.md").read_text()
    readme.check(page, list(CASES))
    filled = readme.fill(page, [one_16()])
    line = "| 1 publisher, 1 subscriber | 9.2 (9.1 to 9.6) | 0.08 | 0.5; - |"
    assert line in filled.splitlines()
    assert [old for old in page.splitlines() if old not in filled.splitlines()] == [
        old for old in page.splitlines() if old.startswith("| 1 publisher, 1 subscriber |")
    ]
    assert readme.markdown([one_16()]).splitlines()[2] == line


def test_the_readme_has_lines_of_their_own_for_the_compiled_scanner() -> None:
    page, result = (ROOT / "README.md").read_text(), Result(CASES["mixed"])
    result.readings = {
        "pubsubd": readings("rate", 30),
        SCANNER: readings("rate", 90),
        "redis": readings("rate", 20),
        "c-relay": readings("rate", 180),
    }
    filled = readme.fill(page, [result]).splitlines()
    assert "| 64 names with 100 lengths mixed | 1.5 | - | -; 0.17 |" in filled
    assert "| 64 names with 100 lengths mixed, with it | 4.5 | - | -; 0.5 |" in filled
    del result.readings[SCANNER]
    assert len(readme.markdown([result]).splitlines()) == 3
    assert "+scanner" not in text([result], ["pubsubd", "redis"])


def test_the_compiled_scanner_is_measured_beside_what_does_without_it(tmp_path: Path) -> None:
    server = tmp_path / "python"
    started = f"""#!{sys.executable}
import os, sys
if "--version" in sys.argv:
    sys.exit(print("pubsubd 1" + " (compiled scanner)" * (os.environ["PUBSUBD_SCANNER"] == "")))
open("{tmp_path}/chosen", "a").write(os.environ["PUBSUBD_SCANNER"] + "\\n")
"""
    server.write_text(started + DOUBLING.format(python=sys.executable, doubled=0))
    server.chmod(0o755)
    options = ["--quick", "--runs", "1", "--seconds", "0.05", "--python", str(server)]
    done = bench("names-one", "--servers", f"pubsubd,{SCANNER}", *options)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "chosen").read_text() == "python\n\n"
    rows = [line.split() for line in done.stdout.splitlines()]
    assert rows[0][2:4] == ["pubsubd", SCANNER]
    assert rows[2][3] != "-"


def test_a_scanner_that_is_not_there_is_left_out_and_told(tmp_path: Path) -> None:
    bare = tmp_path / "python"
    bare.write_text("#!/bin/sh\necho pubsubd 1\n")
    bare.chmod(0o755)
    done = bench("mixed", "--servers", SCANNER, "--quick", "--python", str(bare))
    assert done.returncode == 0
    told = f"{SCANNER} is not installed and left out ({bare} -m pip install ./scanner)"
    assert told in done.stderr.splitlines()


def test_a_page_without_such_a_line_is_refused_before_anything_is_measured(
    tmp_path: Path, refuse: Callable[..., None]
) -> None:
    page = tmp_path / "README.md"
    page.write_text((ROOT / "README.md").read_text().replace("| each name new |", "| new |"))
    refuse("bench", "new-names", "--markdown", str(page))
    refuse("bench", "new-names", "--markdown", str(tmp_path / "none"))
    refuse("bench", "new-names", "--markdown", "-", "--json", "-")


def test_a_short_run_has_only_the_servers_that_a_case_is_compared_with() -> None:
    assert CASES["one-16"].compared == ("pubsubd", "nats", "redis", "c-relay", "py-relay")
    assert CASES["churn"].compared == ("pubsubd",)
    assert CASES["ws-one-acked"].compared == ("pubsubd", "websockets")


@pytest.mark.parametrize(
    ("server", "cores", "word"),
    [
        ("pubsubd", Cores(generator=0.5, server=0.95), "server"),
        ("pubsubd", Cores(generator=0.95, server=0.95), "both"),
        ("redis", Cores(generator=0.95, server=0.5), "generator"),
        ("nats", Cores(generator=0.4, server=1.45), "machine"),
        ("nats", Cores(generator=0.4, server=1.1), "waits"),  # it could have used the rest
        ("pubsubd", Cores(generator=0.4, server=0.5, others=1.0), "others"),
        ("pubsubd", Cores(generator=0.4, server=0.5), "waits"),
    ],
)
def test_what_limited_a_run_is_told_by_who_used_the_cores(
    server: str, cores: Cores, word: str
) -> None:
    assert limit(server, cores, machine=2) == word


def test_the_floor_is_measured_on_the_same_sockets() -> None:
    # Over TLS, that in Python; over a link, two of them.
    cases = ["names-own", "latency-busy", "hub-fan-100", "mesh-two-16", "tls-fan-10"]
    cases.append("tls-handshakes")
    servers = ["--servers", "pubsubd,c-relay,py-relay", "--python", sys.executable]
    done = bench(*cases, *servers, "--runs", "1", "--extra", "0", "--seconds", "0.05")
    assert done.returncode == 0, done.stdout + done.stderr
    head, _, *rows = (line.split() for line in done.stdout.splitlines())
    assert head[2:5] == ["pubsubd", "c-relay", "py-relay"]
    figures = {(row[0], row[1]): row[2:5] for row in reversed(rows)}  # a metric's first row
    measured = [("names-own", metric) for metric in ("rate", "cpu_s", "limit")]
    measured += [("latency-busy", "p99_us"), ("hub-fan-100", "deliveries"), ("mesh-two-16", "rate")]
    for key in measured:
        assert "-" not in figures[key]
    for key in [("tls-fan-10", "rate"), ("tls-handshakes", "handshakes")]:
        assert [figure == "-" for figure in figures[key]] == [False, True, False]


@pytest.mark.parametrize("arguments", [[], ["no-such-case"], ["one-16", "--tree", "/nowhere"]])
def test_profile_refuses_nonsense(arguments: list[str], refuse: Callable[..., None]) -> None:
    refuse("profile", *arguments)


SPYING = """#!/bin/sh
while [ $# -gt 0 ]; do
    [ "$1" = -o ] && printf '%s\\n' \
        'run (pubsubd/daemon/run.py:9);receive (pubsubd/broker/broker.py:344) 60' \
        'run (pubsubd/daemon/run.py:9);receive (pubsubd/broker/broker.py:345) 30' \
        'run (pubsubd/daemon/run.py:9) 10' \
        'run (pubsubd/daemon/run.py:9);get_events (trio/_core/_io_epoll.py:243) 900' > "$2"
    shift
done
"""


def test_profile_shows_the_shares_of_the_time_at_work(tmp_path: Path) -> None:
    spy = tmp_path / "spy"
    spy.write_text(SPYING)
    spy.chmod(0o755)
    command = [sys.executable, str(BENCH.with_name("profile")), "latency", "--py-spy", str(spy)]
    command += ["--seconds", "0.2", "--python", sys.executable]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    shown = [line.split() for line in done.stdout.splitlines()]
    assert shown[0][0] == "latency:"
    assert ["90.0%", "broker/broker.py"] in shown
    assert ["90.0%", "90.0%", "broker/broker.py:receive"] in shown
    assert ["10.0%", "100.0%", "daemon/run.py:run"] in shown
    assert "get_events" not in done.stdout.partition("spy, beside")[2]


PERF = """# Overhead  Shared Object  Symbol
    42.90%|python3.11                |[.] _PyEval_EvalFrameDefault
    39.50%|[kernel.kallsyms]         |[k] _copy_from_iter
    10.10%|[kernel.kallsyms]         |[k] tcp_sendmsg_locked
     7.50%|libc.so.6                 |[.] malloc
"""


def test_perf_s_report_is_summed_by_kernel_interpreter_and_library() -> None:
    profile = parse_perf(PERF)
    assert {part: round(share, 3) for part, share in profile.parts.items()} == {
        "interpreter": 0.429,
        "kernel": 0.496,
        "libc.so.6": 0.075,
    }
    assert profile.functions["_copy_from_iter (kernel)"] == (0.395, 0.0)


def test_lines_are_told_apart_if_that_is_asked() -> None:
    raw = "run (pubsubd/a.py:9);f (pubsubd/b.py:1) 3\nrun (pubsubd/a.py:9);f (pubsubd/b.py:2) 1\n"
    assert parse_spy(raw).functions["b.py:f"] == (1.0, 1.0)
    assert parse_spy(raw, by_line=True).functions["b.py:f:1"] == (0.75, 0.75)
    assert "--seconds" in parse_spy("wait (threading.py:327) 9\n").text(5)


def test_what_more_workers_carry_follows_from_what_two_take() -> None:
    case = CASES["workers-mixed"]
    taken = [
        Reading({"one": 1.0, "two": 1.0, "one_s": one, "two_s": two}, Cores())
        for one, two in ((0.4, 0.2), (0.4, 0.24), (0.5, 0.35))
    ]
    paper = workercases.paper([Result(case, {"pubsubd": taken}), one_16()], 16)
    *_, line = paper.splitlines()
    assert line.split()[-3:] == ["4.0", "13.3", "16.0"]  # a fifth of the work is not shared
    assert case.title in line
    assert len(paper.splitlines()) == 3
    assert workercases.speedup(0.6, 2, 1) == pytest.approx(1 / 0.6)
    assert workercases.speedup(0.48, 8, 7) == 8  # it may be measured, but not be


def test_a_latency_over_its_bound_is_a_miss() -> None:
    result = Result(CASES["latency"])
    result.readings = {
        "pubsubd": readings("p99_us", 30),
        "nats": readings("p99_us", 20),
    }
    verdicts = {target.metric: judge(result, target).word for target in result.case.targets}
    assert verdicts == {"median_us": "-", "p99_us": "MISS", "cpu_s": "-"}  # nothing to compare
    assert "MISS" in text([result], ["pubsubd", "nats"])


def test_the_least_disturbed_rounds_are_kept_in_their_order() -> None:
    result = Result(CASES["one-16"])
    result.readings["pubsubd"] = [
        *readings("rate", 1, others=0.9),
        *readings("rate", 2, others=0.1),
        *readings("rate", 3, others=0.5),
        *readings("rate", 4, others=0.0),
    ]
    result.keep_quietest(3)
    assert result.values("pubsubd", "rate") == [2, 3, 4]


@pytest.mark.parametrize(
    ("value", "shown"),
    [(None, "-"), (0.5, "0.5"), (999.4, "999"), (1000, "1k"), (6155104, "6.16M"), (75e6, "75M")],
)
def test_figures_have_three_digits(value: float | None, shown: str) -> None:
    assert number(value) == shown


def test_what_more_workers_carry_on_one_core_is_told_beside_one() -> None:
    case = workercases.spread(CASES["workers-all-to-all"], 6)
    taken = [
        Reading(
            {
                "one_s": 0.4,
                "two_s": 0.25,
                "two_all_s": 0.5,
                "four_s": four,
                "four_all_s": 0.6,
                "6_s": 0.1,
                "6_all_s": 0.6,
            }
        )
        for four in (0.2, 0.16, 0.1)
    ]
    told = workercases.measured([Result(case, {"pubsubd": taken}), one_16()], 6).splitlines()
    assert told[2].split() == ["2", "4", "6"]
    assert told[3].split()[-6:] == ["1.6", "(1.25)", "2.5", "(1.50)", "4.0", "(1.50)"]
    assert told[3].startswith("16:16, 16 B")  # more than one for each worker
    assert len(told) == 4
    assert workercases.spread(CASES["one-16"], 6) is CASES["one-16"]


def test_the_clients_of_two_workers_have_as_much_under_way_for_each_as_those_of_one() -> None:
    plan = new_names()
    assert workercases.for_each(plan, 1) == plan
    assert workercases.for_each(plan, 2) == replace(plan, window=2 * plan.window)


def test_more_load_is_as_much_for_each_publisher() -> None:
    plan = workercases.more_load(new_names())
    assert (plan.publishers, len(plan.subscribers)) == (16, 1)
    assert plan.window == 16 * new_names().window


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is one core")
def test_what_is_measured_on_one_core_leaves_the_other_to_the_generator() -> None:
    with subprocess.Popen(["sleep", "60"]) as other:
        before = os.sched_getaffinity(0)
        with on_one_core([other.pid]):
            one, here = os.sched_getaffinity(other.pid), os.sched_getaffinity(0)
        assert (len(one), len(here), one & here) == (1, 1, set())
        assert os.sched_getaffinity(0) == os.sched_getaffinity(other.pid) == before
        other.kill()


def test_the_generator_of_workers_cases_interrupts_no_server() -> None:
    before = os.sched_getscheduler(0)
    with subprocess.Popen(["sleep", "60"]) as server:
        with without_preempting():
            assert os.sched_getscheduler(0) == os.SCHED_BATCH
            assert os.sched_getscheduler(server.pid) == before
        server.kill()
    assert os.sched_getscheduler(0) == before


def test_what_the_generator_of_workers_cases_leaves_out_is_told() -> None:
    quick = ("--servers", "pubsubd", "--runs", "1", "--extra", "0", "--seconds", "0.1")
    assert workercases.NOTE in bench(*quick, "workers-mixed").stdout.splitlines()
    assert workercases.NOTE not in bench(*quick, "one-16").stdout.splitlines()
