"""Do page, rules and dashboard speak of the metrics that there are, and do they work?"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pubsubd.daemon.metrics import AUTH_CODES, MAX_LINKS
from pubsubd.protocol.limits import MAX_CACHED_HEADERS, MAX_CACHED_NAMES
from tests.certificates import Certificates
from tests.daemon.pages.test_pages import OPERATIONS, rendered, source
from tests.daemons import DEADLINE, ROOT, Daemon, tool, wait_until
from tests.scrapes import Scrape, scrape

FILES = ROOT / "contrib" / "prometheus"
DASHBOARD = json.loads((FILES / "pubsubd-dashboard.json").read_text(encoding="utf-8"))
RULES = (FILES / "alerts.yml").read_text(encoding="utf-8")
MINE = re.compile(r"\b(?:pubsubd|process)_\w+")


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Iterator[Scrape]:
    """What a daemon with a link tells: every family has samples."""
    directory = tmp_path_factory.mktemp("mesh")
    tls = ("--mesh-tls", f"--mesh-tls-ca={certificates.ca}")
    daemons = [Daemon(directory / "a", "--node", "a", "--mesh-heartbeat", "1", *tls)]
    try:
        to = "{}:{}".format(*daemons[0].address)
        daemons.append(
            Daemon(directory / "b", "--node", "b", "--mesh-heartbeat", "1", "--peer", to)
        )
        seen: list[Scrape] = []

        def measured() -> object:
            seen.append(scrape(daemons[0]))
            return seen[-1].samples["pubsubd_mesh_link_round_trip_seconds"]

        wait_until(measured, "a round trip is measured")
        yield seen[-1]
    finally:
        for daemon in daemons:
            daemon.stop()


def promtool(*arguments: str | Path) -> str:
    done = subprocess.run(
        [tool("promtool"), *arguments],
        capture_output=True,
        check=False,
        text=True,
        timeout=DEADLINE,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


# The page


def test_the_page_lists_the_metrics_that_a_scrape_has_with_their_types_and_labels(
    told: Scrape,
) -> None:
    listed = re.findall(
        r"^\.It Li (\w+) Pq (\w+)(?: by (.*))?$", source(OPERATIONS), flags=re.MULTILINE
    )
    page = {name: (kind, set(labels.split(" , ")) - {""}) for name, kind, labels in listed}
    assert len(listed) == len(page)
    labels = {name: told.labels(name) for name in told.types}
    assert not labels["pubsubd_faults_total"]  # there are none, so nothing tells of a place
    labels["pubsubd_faults_total"] = {"place"}
    assert page == {name: (kind, labels[name]) for name, kind in told.types.items()}


def test_every_family_of_a_scrape_has_samples(told: Scrape) -> None:
    for name, kind in told.types.items():
        if name == "pubsubd_faults_total":
            continue
        assert told.samples[f"{name}_count" if kind == "histogram" else name], name


def test_the_page_tells_the_real_numbers() -> None:
    page = rendered(OPERATIONS)
    assert f"of {MAX_LINKS} links at most" in page
    assert f"are cached, at most {MAX_CACHED_NAMES:,}." in page
    assert f"are cached, at most {MAX_CACHED_HEADERS:,}." in page


def test_the_page_tells_the_codes_that_are_refusals() -> None:
    about = source(OPERATIONS).split(".It Li pubsubd_auth_refusals_total")[1].split(".El")[0]
    listed = about.split("The codes are\n")[1].split("Each refused")[0]
    assert set(re.findall(r"[\w:-]+-\w+|unauthorized|hub:\w+", listed)) == set(AUTH_CODES)


# The rules


def test_the_configuration_and_its_rules_can_be_loaded() -> None:
    assert "SUCCESS" in promtool("check", "config", FILES / "prometheus.yml")


def test_the_rules_fire_when_they_should() -> None:
    assert "SUCCESS" in promtool("test", "rules", FILES / "alerts_test.yml")


def test_every_rule_is_made_to_fire_by_its_tests() -> None:
    rules = re.findall(r"- alert: (\w+)", RULES)
    tests = (FILES / "alerts_test.yml").read_text(encoding="utf-8")
    fired = set(re.findall(r'ALERTS\{alertname="(\w+)", alertstate="firing", severity', tests))
    fired |= set(re.findall(r"alertname: (\w+)\n.*\n\s+exp_alerts", tests))
    assert set(rules) == fired
    assert len(rules) == len(set(rules))


def test_every_rule_says_what_has_happened_and_what_to_do() -> None:
    for rule in RULES.split("- alert: ")[1:]:
        assert re.search(r"summary: .*\$labels\.instance", rule), rule
        about = re.search(r"description: >-\n((?:\s{12}.*\n)+)", rule)
        assert about, rule
        assert len(about[1].split()) > 12, rule
        assert re.search(r"severity: (page|ticket)\b", rule), rule


def test_the_rules_speak_of_metrics_and_labels_that_there_are(told: Scrape) -> None:
    expressions = re.findall(r"expr: (?:>-\n((?:\s{10}.*\n)+)|(.*)\n)", RULES)
    assert len(expressions) == RULES.count("expr:")
    for several, one in expressions:
        check_names(several or one, told)


def test_the_events_and_reasons_that_the_rules_name_are_logged() -> None:
    code = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "pubsubd").rglob("*.py"))
    for event in re.findall(r"event=([\w-]+)", RULES):
        assert f'"{event}"' in code or f"event={event}" in code, event
    for reason in re.findall(r"reason=([\w-]+)", RULES):
        assert f'"{reason}"' in code, reason


def check_names(expression: str, told: Scrape) -> None:
    """Look whether a scrape has what an expression asks for."""
    for name, selector in re.findall(r"\b((?:pubsubd|process)_\w+)(?:\{([^}]*)\})?", expression):
        assert told.samples[name], f"{name} in {expression}"
        labels = {"job": "", "instance": ""}
        known = {one for key in told.samples[name] for one in key}
        for label, how, value in re.findall(r'(\w+)(=~?)"([^"]*)"', selector):
            if label in labels:
                continue
            values = value.split("|") if how == "=~" else [value]
            assert {f"{label}={one}" for one in values} <= known, f"{label} in {expression}"


# The dashboard


def expressions() -> Iterator[str]:
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", []):
            yield target["expr"]
    for annotation in DASHBOARD["annotations"]["list"]:
        yield annotation["expr"]


def plain(expression: str) -> str:
    """Return an expression without the variables of Grafana."""
    text = expression.replace("$__rate_interval", "5m")
    return text.replace("$instance", ".*").replace("$job", "pubsubd")


def test_prometheus_understands_every_expression_of_the_dashboard(tmp_path: Path) -> None:
    rules = [
        {"record": f"panel:{number}", "expr": plain(expression)}
        for number, expression in enumerate(expressions())
    ]
    assert len(rules) > 50
    file = tmp_path / "rules.yml"  # JSON is YAML
    file.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    assert f"SUCCESS: {len(rules)} rules found" in promtool("check", "rules", file)


def test_the_dashboard_asks_for_metrics_that_there_are(told: Scrape) -> None:
    for expression in expressions():
        assert MINE.search(expression), expression
        assert "$" not in plain(expression), expression
        check_names(plain(expression), told)
    for variable in DASHBOARD["templating"]["list"]:
        check_names(variable.get("definition", ""), told)


def test_the_dashboard_groups_by_labels_that_there_are(told: Scrape) -> None:
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", []):
            labels = {"job", "instance"}
            for name in MINE.findall(target["expr"]):
                labels |= {one.partition("=")[0] for key in told.samples[name] for one in key}
            for group in re.findall(r"by \(([^)]*)\)", target["expr"]):
                assert set(group.split(", ")) <= labels, target["expr"]
            assert set(re.findall(r"{{(\w+)}}", target["legendFormat"])) <= labels, target


def test_the_dashboard_shows_nearly_all_that_is_told(told: Scrape) -> None:
    shown = {name.removesuffix("_bucket") for text in expressions() for name in MINE.findall(text)}
    assert set(told.types) - shown == {
        "pubsubd_mesh_info",  # labels for queries
        "pubsubd_mesh_adverts_received_total",  # their bytes are shown
        "pubsubd_mesh_adverts_sent_total",
        "process_virtual_memory_bytes",
        "pubsubd_faults_total",  # there are none, or rules tell of them
        "pubsubd_task_restarts_total",
        "pubsubd_tasks_down",
        "pubsubd_log_lines_lost_total",
    }


def test_the_dashboard_is_in_order() -> None:
    panels: list[dict[str, Any]] = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24, panel["title"]
        cells = {
            (at["x"] + across, at["y"] + down)
            for across in range(at["w"])
            for down in range(at["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells
        if panel["type"] != "row":
            assert panel["description"], panel["title"]
            assert panel["datasource"]["uid"] == "${datasource}"
    rows = [panel["title"] for panel in panels if panel["type"] == "row"]
    assert rows == [
        "Traffic",
        "Connections",
        "Slow consumers",
        "Routing",
        "Hub port",
        "Mesh",
        "Security",
        "Process",
    ]
