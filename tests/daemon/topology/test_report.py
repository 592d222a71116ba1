"""Does a report say what the tables say, to a person and to a program?"""

from __future__ import annotations

import json
import math
import re
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from pubsubd.topology.report import (
    Gone,
    Incident,
    MeshReport,
    Part,
    Report,
    as_json,
    encode,
    render,
    schema,
    terminal_summary,
    write_report,
)
from pubsubd.topology.report.incident import findings
from pubsubd.topology.report.parts import FULL
from pubsubd.topology.report.schema import LIMIT
from pubsubd.topology.report.sections import by_need, sections_of, structure, verdict
from pubsubd.topology.report.snapshot_view import SnapshotView
from pubsubd.topology.report.textfile import exposition
from pubsubd.topology.report.texts import (
    duration,
    number,
    peer_option,
    percent,
    quantity,
    shorten,
    visible,
)
from tests.daemons import DEADLINE, ROOT, tool
from tests.reports import (
    SAMPLES,
    START,
    Rows,
    bare,
    mesh_of,
    metric,
    report_of,
    sample,
    snapshot,
    two_triangles,
)

# Texts


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("n01", "n01"),
        ("\u65e5\u672c", "\u65e5\u672c"),
        ("a\x1b[31m", "a\\x1b[31m"),
        ("\u202egnirts", "\\u202egnirts"),
        ("a\u200bb", "a\\u200bb"),
        ("\U000e0041", "\\U000e0041"),
        ("\ue000", "\\ue000"),
        ("a\u2028b", "a\\u2028b"),
        ("a b", "a b"),
    ],
)
def test_what_is_not_seen_in_a_name_is_written_out(name: str, shown: str) -> None:
    assert visible(name) == shown


def test_a_long_name_keeps_both_of_its_ends() -> None:
    assert shorten("node-0000000017", 9) == "node\u20260017"
    assert shorten("node", 4) == "node"
    assert [len(shorten("n" * 255, room)) for room in (2, 7, 8)] == [2, 7, 8]


@pytest.mark.parametrize(
    ("share", "shown"),
    [
        (0.0, "0 %"),
        (1.0, "100 %"),
        (0.143, "14.3 %"),
        (0.99999, "> 99.9 %"),
        (0.000256, "0.0256 %"),
        (None, "\u2013"),
        (math.nan, "\u2013"),
    ],
)
def test_a_share_is_all_only_if_it_is(share: float | None, shown: str) -> None:
    assert percent(share) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (62586, "62,586"),
        (5.9362, "5.936"),
        (12345.6, "12,346"),
        (3.2e-7, "3.2e-07"),
        (None, "\u2013"),
    ],
)
def test_numbers_have_what_is_significant(value: float | None, shown: str) -> None:
    assert number(value) == shown


def test_what_is_sampled_is_shown_with_its_error() -> None:
    assert quantity(5.884, "hops", 0.0123) == "5.884 \u00b1 0.012"
    assert quantity(0.25, "share", 0.01) == "25 % \u00b1 1 %"
    assert quantity(5.884, "hops") == "5.884"


def test_a_time_span_is_in_the_unit_that_fits() -> None:
    spans = (0.5, 119, 120, 7200, 172_800)
    assert [duration(one) for one in spans] == ["0.5 s", "119 s", "2 min", "2 h", "2 d"]


@pytest.mark.parametrize(
    ("address", "option"),
    [
        ("10.0.0.7:9015", "--peer 10.0.0.7:9015"),
        ("[::1]:9015", "--peer '[::1]:9015'"),
        ("$(reboot):1", "--peer '$(reboot):1'"),
        ("a:1\nreboot", "--peer 'a:1\\x0areboot'"),
        (None, "--peer HOST:PORT"),
    ],
)
def test_an_option_to_paste_is_two_words_for_a_shell(address: str | None, option: str) -> None:
    assert peer_option(address) == option


# What is said


def section(report: Report, key: str) -> Any:
    mesh = report.meshes[0]
    found = sections_of(mesh, SnapshotView(mesh.snapshot), report.parameters)
    return {one.key: one for one in found}[key]


def figures(report: Report, key: str) -> dict[str, tuple[str, str]]:
    return {f.label: (f.value, f.status.word) for f in section(report, key).figures}


def changed(report: Report, **metrics: float) -> Report:
    """Return the report of one mesh with other values of some metrics."""
    mesh = report.meshes[0]
    rows = [row for row in mesh.snapshot.to_pylist() if row["name"] not in metrics]
    rows += [metric(name, value) for name, value in metrics.items()]
    return replace(report, meshes=[replace(mesh, snapshot=snapshot(rows))])


def test_sections_come_in_the_order_in_which_they_matter() -> None:
    mesh = sample().meshes[0]
    assert [one.key for one in sections_of(mesh, SnapshotView(mesh.snapshot), {})] == [
        *("coverage", "partitions", "failure", "domains", "asymmetry", "overload", "hops"),
        *("round-trips", "redundancy", "resilience", "twin", "advice", "churn", "clustering"),
    ]


def test_what_asks_for_something_comes_first_and_else_the_order_stays() -> None:
    mesh = sample().meshes[0]
    sections = sections_of(mesh, SnapshotView(mesh.snapshot), {})
    ordered = by_need(sections)
    assert [one.key for one in ordered[:2]] == ["coverage", "failure"]
    ranks = [(-one.status, sections.index(one)) for one in ordered]
    assert ranks == sorted(ranks)


FIRST = " since the first report."


def incident(**found: Any) -> MeshReport:
    rows = [metric("daemons", 5), metric("components", 1), metric("largest_component", 5)]
    return replace(mesh_of(rows), incident=Incident(new_articulation=(), new_bridges=(), **found))


def test_the_verdict_begins_with_what_broke() -> None:
    mesh = sample().meshes[0]
    assert verdict(mesh, SnapshotView(mesh.snapshot)) == (
        "g has been gone since 2026-11-28 01:01:30 UTC, lost by c, d."
        " New single points of failure since the window of 2026-11-28 01:00 UTC: daemon d;"
        " link c - d."
        " The loss of c alone would cut off 3 daemons (50 %), and there is 1 more such daemon."
    )


@pytest.mark.parametrize(
    ("found", "sentences"),
    [
        (
            {},
            [
                "No daemon is gone, no part is cut off, and no single point of failure is new"
                + FIRST
            ],
        ),
        (
            {"gone": [Gone(f"n{i}", START, "lost by a") for i in range(5)]},
            [
                "5 daemons are gone:"
                + ";".join(f" n{i} since 2026-11-28 00:00 UTC, lost by a" for i in range(3))
                + " and 2 more."
            ],
        ),
        (
            {"gone": [Gone("x"), Gone("y")]},
            ["Listed in the file of --nodes, but nothing tells of them: x, y."],
        ),
        (
            {"parts": [Part(12, ["p", "q", "r", "s"], START), Part(1, ["t"])]},
            ["Cut off from the largest part: p, q, r and 9 more, since 2026-11-28 00:00 UTC; t."],
        ),
        ({"why": "not compared: there are too many"}, []),
    ],
)
def test_each_kind_of_what_broke_is_a_sentence(found: dict[str, Any], sentences: list[str]) -> None:
    mesh = incident(**found)
    told = findings(mesh, SnapshotView(mesh.snapshot))
    assert [one for _, one in told if "not compared" not in one] == sentences


def test_each_section_has_one_sentence_of_advice() -> None:
    for make in SAMPLES.values():
        for mesh in make().meshes:
            for one in sections_of(mesh, SnapshotView(mesh.snapshot), {}):
                assert one.advice.endswith(".")


def test_a_domain_that_parts_others_is_told_with_the_links_against_it() -> None:
    report = sample()
    assert figures(report, "domains") == {
        "Domains whose loss cuts off others: site": ("1 of 2", "worth a look"),
        "Domains whose loss cuts off others: rack": ("\N{EN DASH}", "not judged"),
    }
    found = section(report, "domains")
    assert found.advice == (
        "The loss of the site ber would cut off 2 daemons outside of it: link a - d."
    )
    assert found.listings[0].rows == [["site", "ber", "1", "2", "2", "a - d"]]
    assert section(bare(), "domains").silent


def test_slow_ways_are_told_with_what_a_link_would_save() -> None:
    report = sample()
    assert figures(report, "round-trips") == {
        "Mean, along the ways that messages take": ("30 ms", "worth a look"),
        "Mean, along the fastest ways": ("12.5 ms", "not judged"),
        "Links with a round trip": ("6 of 7", "not judged"),
    }
    found = section(report, "round-trips")
    assert [one.rows for one in found.listings] == [
        [["a", "f", "3", "120 ms", "25 ms"]],
        [["a", "f", "40 ms", "41.2 ms"]],
        [["a", "f", "--peer 10.0.0.6:9015", "25 ms", "95 ms", "6.33 ms"]],
    ]
    assert "between a and f would save 95 ms" in found.advice
    assert section(bare(), "round-trips").silent


def test_a_hypothetical_report_says_so_first() -> None:
    report = sample()
    assert as_json(report)["hypothetical"] is None
    report.without, report.added = [("c",), ("a", "b")], [("d", "f")]
    said = "Hypothetical: without c, without a - b, with d - f"
    assert terminal_summary(report)[0].startswith(f"{said}. {report.meshes[0].mesh}: ")
    assert len(terminal_summary(report)) == len(terminal_summary(sample()))
    assert f"<p class=verdict>{said}.</p></header>" in render(report).replace("\n", "")
    assert as_json(report)["hypothetical"] == {
        "without": [["c"], ["a", "b"]],
        "with": [["d", "f"]],
    }


def test_a_hypothetical_report_has_columns_before_and_after() -> None:
    report = sample()
    (mesh, *_) = report.meshes
    assert as_json(report)["meshes"][0]["before"] is None
    assert "What would change" not in render(report)
    plain = terminal_summary(report)
    daemons = SnapshotView(mesh.snapshot).whole("daemons")
    mesh.before = snapshot([metric("daemons", daemons + 1), metric("spectral_gap", 0.5)])
    before = as_json(report)["meshes"][0]["before"]
    assert before["daemons"]["value"] == daemons + 1
    assert before["bridges"]["value"] is None
    lines = terminal_summary(report)
    assert [lines[0], *lines[10:]] == plain
    assert [line.split() for line in lines[1:3]] == [
        ["what", "if", "before", "after"],
        ["Daemons", f"{daemons + 1}", f"{daemons}"],
    ]
    assert len({len(line) for line in lines[1:10]}) == 1
    table = render(report).partition("What would change")[2].partition("</table>")[0]
    row = "<tr><td>Daemons<td class=number>{}<td class=number>{}</tr>"
    assert row.format(daemons + 1, daemons) in table
    assert "<tr><td>Spectral gap<td class=number>0.5<td" in table


@pytest.mark.parametrize("make", SAMPLES.values(), ids=SAMPLES)
def test_promtool_finds_nothing_to_complain_about_in_the_textfile(
    make: Callable[[], Report],
) -> None:
    text = exposition(make())
    checked = subprocess.run(
        [tool("promtool"), "check", "metrics"],
        input=text,
        capture_output=True,
        timeout=DEADLINE,
        check=False,
    )
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, b"", b"")


def test_the_textfile_has_the_metrics_of_each_mesh_and_no_others() -> None:
    lines = exposition(sample()).decode().splitlines()
    assert 'pubsubd_topology_bridges{mesh="lab"} 1.0' in lines
    assert 'pubsubd_topology_condition{condition="left",mesh="lab"} 1.0' in lines
    assert 'pubsubd_topology_condition{condition="partition",mesh="lab"} 0.0' in lines
    values = [line.partition("{")[0] for line in lines if not line.startswith("#")]
    assert not any("twin" in name for name in values)
    bare_ones = exposition(SAMPLES["no metrics"]()).decode().splitlines()
    assert [line for line in bare_ones if "bridges{" in line] == []


def test_who_is_silent_is_named() -> None:
    report = sample()
    assert figures(report, "coverage") == {
        "Daemons that report their links": ("5 of 7", "worth a look"),
        "Daemons that are gone": ("1", "act"),
        "Versions of pubsubd": ("2", "worth a look"),
        "Longest silence of a reporting daemon": ("12 s", "healthy"),
    }
    gone, versions, silent = section(report, "coverage").listings
    moments = ["2026-11-28 01:01:30 UTC", "lost by c, d", "2026-11-28 01:00 UTC"]
    assert gone.rows == [["g", *moments, "10.0.0.7:9015", "0.1.0"]]
    assert versions.rows == [["0.1.0", "5", "a, b, c, d, e"], ["0.0.9", "1", "f"]]
    assert silent.rows == [["b"]]


def test_an_old_word_is_judged_by_what_is_stale_in_this_run() -> None:
    report = sample()
    report.parameters["stale_seconds"] = 10
    label = "Longest silence of a reporting daemon"
    assert figures(report, "coverage")[label] == ("12 s", "worth a look")


def test_an_id_that_two_daemons_have_is_to_be_acted_on() -> None:
    report = sample()
    report.meshes[0].coverage["duplicate_ids"] = ["x"]
    assert figures(report, "coverage")["Ids used by several daemons"] == ("1", "act")


def test_parts_of_a_mesh_are_named_with_their_members() -> None:
    rows = [{"kind": "daemon", "id": f"n{i}", "degree": 1, "component": i // 3} for i in range(5)]
    numbers = {"daemons": 5, "components": 2, "largest_component": 3}
    report = report_of(mesh_of(rows + [metric(*one) for one in numbers.items()]))
    found = section(report, "partitions")
    assert found.status.word == "act"
    assert [list(row) for row in found.listings[0].rows] == [["2", "n3, n4"]]
    assert structure(SnapshotView(report.meshes[0].snapshot)).startswith(
        "The mesh is in 2 parts: 2 of 5 daemons cannot reach the largest one."
    )


def test_single_points_of_failure_come_with_what_they_cut_off() -> None:
    found = section(sample(), "failure")
    daemons, links = found.listings
    assert daemons.rows == [["1", "c", "3", "50 %", "3"], ["2", "d", "3", "50 %", "3"]]
    assert links.rows == [["c", "d", "3"]]
    assert structure(SnapshotView(sample().meshes[0].snapshot)) == (
        "The loss of c alone would cut off 3 daemons (50 %), and there is 1 more such daemon."
    )


def test_a_mesh_that_nothing_can_split_says_so() -> None:
    rows = [
        row
        for row in two_triangles()
        if row["kind"] not in {"articulation", "bridge", "advice", "metric"}
    ]
    good = {"daemons": 6, "components": 1, "articulation_daemons": 0, "bridges": 0, "leaves": 0}
    report = report_of(mesh_of(rows + [metric(*one) for one in good.items()]))
    assert structure(SnapshotView(report.meshes[0].snapshot)) == (
        "No loss of a single daemon or link can split the mesh."
    )
    assert section(report, "failure").status.word == "healthy"


def test_links_of_one_end_are_held_against_a_mesh_but_not_against_a_list() -> None:
    assert figures(sample(), "asymmetry")["One-sided links"] == ("1", "worth a look")
    assert section(bare(), "asymmetry").silent


def test_ends_that_differ_are_listed_with_what_differs() -> None:
    listing = section(sample(), "asymmetry").listings[1]
    assert list(listing.columns) == ["From", "To", "rtt_factor"]
    assert [list(row) for row in listing.rows] == [["b", "c", "8"]]


@pytest.mark.parametrize(("most", "status"), [(20, "healthy"), (21, "worth a look")])
def test_a_hub_is_judged_by_the_median(most: int, status: str) -> None:
    assert figures(changed(sample(), degree_max=most), "overload")["Largest degree"][1] == status


@pytest.mark.parametrize(
    ("name", "key", "label", "good", "bad"),
    [
        ("hops_mean", "hops", "Mean hops", 1.7 * 1.25, 2.2),
        ("half_lost_targeted", "resilience", "Half lost, targeted", 0.35, 0.34),
    ],
)
def test_distances_and_resilience_are_judged_by_the_twin(
    name: str, key: str, label: str, good: float, bad: float
) -> None:
    assert figures(changed(sample(), **{name: good}), key)[label][1] == "healthy"
    assert figures(changed(sample(), **{name: bad}), key)[label][1] == "worth a look"


def test_pairs_beyond_the_hops_that_messages_may_go_are_counted() -> None:
    report = sample()
    report.parameters["ttl"] = 1
    label = "Pairs more than 1 hop apart"
    assert figures(report, "hops")[label] == ("53.3 %", "worth a look")


def test_the_twin_is_compared_where_both_values_are_known() -> None:
    rows = section(sample(), "twin").listings[0].rows
    assert [(row[0], row[-1]) for row in rows] == [
        ("Mean hops", "worse"),
        ("Half lost, targeted", "worse"),
    ]


def test_what_could_not_be_computed_says_why() -> None:
    figure = section(sample(), "redundancy").figures[-1]
    assert (figure.value, figure.note) == ("\u2013", "it did not converge")


def test_what_was_left_out_is_nowhere_a_healthy_zero() -> None:
    why = "not computed for a graph of more than --local-edges arcs"
    left_out = ("advice_links", "bridge_links", "shortcut_hops_mean", "minimum_cut", "regions")
    left_out += ("twin_hops_mean", "twin_half_lost_targeted", "twin_robustness_targeted")
    rows = [
        row
        for row in two_triangles()
        if row["kind"] not in {"advice", "cut", "map_node", "map_link"}
        and row.get("name") not in left_out
    ]
    rows += [metric(name, None, text=why) for name in left_out]
    report = report_of(mesh_of(rows))
    assert section(report, "advice").advice == f"Which links to add is {why}."
    assert section(report, "twin").advice == f"The random mesh is {why}."
    assert section(report, "hops").advice.endswith(f"to compare these with, are {why}.")
    assert "see Links to add" not in section(report, "failure").advice
    lines = terminal_summary(report)
    assert f"  advice      {why}" in lines
    assert any(line.endswith(f"hubs first (twin: {why})") for line in lines)
    assert f"No picture of the mesh: {why}." in render(report)
    found = as_json(report)["meshes"][0]
    jsonschema.validate(as_json(report), schema())
    nothing = {"total": None, "items": [], "why": why}
    assert [*found["advice"].values(), found["minimum_cut"]] == [nothing] * 5
    assert found["curves"]["twin_targeted"] is None
    assert found["metrics"]["advice_links"]["value"] is None


def test_an_advised_link_is_added_where_the_other_end_can_be_dialled() -> None:
    before_and_after, links = section(sample(), "advice").listings
    assert before_and_after.rows == [["none", "3"], ["all 1", "0"]]
    effect = "no single point of failure is left"
    assert links.rows == [["1", "a", "f", "--peer 10.0.0.6:9015", effect]]
    swapped = sample()
    swapped.meshes[0].addresses = {"a": "10.0.0.1:9015"}
    assert section(swapped, "advice").listings[1].rows[0][1:4] == [
        *("f", "a", "--peer 10.0.0.1:9015")
    ]


def test_of_equal_hubs_the_first_by_name_are_listed() -> None:
    rows: Rows = [{"kind": "daemon", "id": f"n{i:02}", "degree": 3} for i in range(40)]
    facts = SnapshotView(snapshot(rows[::3] + rows[1::3] + rows[2::3]))
    hubs = facts.worst_daemons("degree", 10)
    assert [row["id"] for row in hubs] == [f"n{i:02}" for i in range(10)]


def test_what_is_not_finite_is_no_value() -> None:
    facts = SnapshotView(
        snapshot([metric("diameter", math.inf), metric("hops_mean", 1.0, error=math.nan)])
    )
    assert facts.value("diameter") is None
    assert (facts.metric("hops_mean").value, facts.metric("hops_mean").error) == (1.0, None)


def test_churn_names_the_least_available_and_the_latest_events() -> None:
    found = section(sample(), "churn")
    least, chronic, events = found.listings
    assert least.rows == [["e", "25 %", "25 %"]]
    assert chronic.rows == [["c", "2", "66.7 %"]]
    assert [row[1] for row in events.rows] == ["link up", "daemon left"]
    assert found.pictures == ["churn", "trend", "availability"]
    assert figures(sample(), "churn")["Links kept from window to window"] == (
        "91.7 %",
        "healthy",
    )


def test_a_list_without_times_has_no_history_and_says_so_in_one_line() -> None:
    found = section(bare(), "churn")
    assert found.silent
    assert [*found.figures, *found.listings, *found.pictures] == []


# JSON


@pytest.mark.parametrize("make", SAMPLES.values(), ids=SAMPLES)
def test_json_is_as_its_schema_says(make: Any) -> None:
    jsonschema.Draft202012Validator.check_schema(schema())
    text = encode(make())
    assert text.isascii()
    jsonschema.Draft202012Validator(schema()).validate(json.loads(text))


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"rows": "100"},
        {"unknown": 1},
        {"meshes": [{}]},
    ],
)
def test_the_schema_refuses_what_is_not_a_report(change: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(as_json(sample()) | change, schema())


def test_json_has_what_the_tables_have() -> None:
    report = as_json(sample())
    mesh = report["meshes"][0]
    assert report["rejects"] == {"short": 2, "utf8": 1}
    assert (mesh["mesh"], mesh["window"]) == ("lab", "2026-11-28T00:00:00.000Z")
    assert (mesh["status"], mesh["coverage"]["silent"]) == ("act", ["b"])
    assert mesh["metrics"]["hops_mean"] == {
        "value": 1.8,
        "error": 0.05,
        "unit": "hops",
        "why": None,
    }
    assert mesh["metrics"]["algebraic_connectivity"]["why"] == "it did not converge"
    assert mesh["articulation_daemons"]["items"][0] == {"id": "c", "cut_off": 3}
    assert mesh["bridges"]["items"] == [{"src": "c", "dst": "d", "cut_off": 3}]
    assert mesh["histograms"]["degree"] == [[2, 4], [3, 2]]
    assert mesh["curves"]["targeted"] == [[0, 1], [0.5, 0.2], [1, 0]]
    assert mesh["advice"]["redundancy"]["items"][0]["option"] == "--peer 10.0.0.6:9015"
    assert mesh["events"]["items"][-1]["at"] == "2026-11-28T02:00:00.000Z"
    assert mesh["series"]["bridges"][2] == ["2026-11-28T02:00:00.000Z", 2]


def test_numbers_that_are_none_are_null() -> None:
    rows = [metric("hops_mean", math.nan), metric("diameter", math.inf, error=math.nan)]
    found = as_json(report_of(mesh_of(rows)))["meshes"][0]["metrics"]
    assert [found[name]["value"] for name in ("hops_mean", "diameter")] == [None, None]


def test_long_lists_are_cut_and_say_how_long_they_are() -> None:
    rows: Rows = [
        {"kind": "bridge", "id": f"n{i:04}", "other": "x", "size": i} for i in range(LIMIT + 5)
    ]
    found = as_json(report_of(mesh_of(rows)))["meshes"][0]["bridges"]
    assert (found["total"], len(found["items"])) == (LIMIT + 5, LIMIT)
    assert found["items"][0]["cut_off"] == LIMIT + 4


def test_of_meshes_beyond_the_first_ones_lists_are_short() -> None:
    many: Rows = [{"kind": "bridge", "id": f"n{i:02}", "other": "x", "size": 1} for i in range(20)]
    meshes = [mesh_of([metric("daemons", 9), *many], f"m{i:02}") for i in range(FULL + 1)]
    found = as_json(report_of(*meshes))["meshes"]
    assert [len(one["bridges"]["items"]) for one in found] == [20] * FULL + [10]
    assert found[-1]["bridges"]["total"] == 20


def test_the_page_of_the_manual_names_all_keys() -> None:
    text = (ROOT / "man" / "pubsubd-topology.1").read_text()
    part = text[text.index(".Sh REPORT.JSON") : text.index(".Sh ENVIRONMENT")]
    named = set(re.findall(r"\w+", part))
    report = as_json(sample())
    assert {*report, *report["meshes"][0]} <= named


# The terminal


def test_one_mesh_is_told_in_ten_lines_and_what_broke_before_all_else() -> None:
    assert len(terminal_summary(bare())) == 10
    lines = terminal_summary(sample())
    assert len(lines) == 12
    assert all(len(line) < 120 for line in lines)
    assert lines[1] == "  incident    g has been gone since 2026-11-28 01:01:30 UTC, lost by c, d."
    text = "\n".join(terminal_summary(sample()))
    assert "lab: 6 daemons, 7 links, window of 2026-11-28 00:00 UTC" in text
    assert "100 rows, 3 rejected (2 short, 1 utf8)" in text
    assert "2 articulation daemons, 1 bridge; c cuts off 3 (50 %)" in text
    assert "on a: --peer 10.0.0.6:9015" in text


def test_many_meshes_are_told_in_ten_lines_the_worst_first() -> None:
    good = [mesh_of([metric("daemons", 9), metric("components", 1)], f"m{i:02}") for i in range(20)]
    lines = terminal_summary(report_of(*good, mesh_of(two_triangles(), "worst")))
    assert len(lines) == 10
    assert lines[0].startswith("21 meshes, 100 rows")
    assert lines[1].strip().startswith("worst: 6 daemons in 1 part, 3 single points of failure")
    assert lines[-1].strip() == "and 13 more"


@pytest.mark.parametrize("make", SAMPLES.values(), ids=SAMPLES)
def test_a_summary_cannot_steer_the_terminal(make: Any) -> None:
    lines = terminal_summary(make())
    assert 1 <= len(lines) <= 14
    assert all(line.isprintable() for line in lines)


# Files


def test_a_report_is_two_files_and_nothing_else(tmp_path: Path) -> None:
    write_report(sample(), tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.html", "report.json"]
    assert (tmp_path / "report.json").read_bytes() == encode(sample())


def test_a_file_that_cannot_be_written_is_not_left_in_part(tmp_path: Path) -> None:
    (tmp_path / "report.html").mkdir()
    (tmp_path / "report.html" / "x").touch()
    with pytest.raises(OSError, match=re.escape("report.html")):
        write_report(sample(), tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.html", "report.json"]
