"""Is each metric defined, and does pubsubd-topology(1) say the same?"""

from __future__ import annotations

import re
import subprocess
import textwrap

import pytest

from pubsubd.topology.metrics import METRICS, Metric, explain
from tests.daemon.pages.test_pages import mandoc
from tests.daemons import ROOT

PAGE = ROOT / "man" / "pubsubd-topology.1"

NAMES = """
    daemons links arcs self_loops one_way_links reciprocity
    degree_mean degree_median degree_max degree_gini degree_top1_share degree_tail_exponent
    leaves isolated share_two_neighbours share_three_neighbours
    components largest_component largest_component_arcs
    strong_components largest_strong_component largest_strong_component_arcs
    articulation_daemons bridges worst_cut_off two_link_cuts
    core_max clustering_mean triangles closed_triads transitivity
    diameter diameter_upper effective_diameter hops_mean
    pagerank_max betweenness_max
    regions modularity minimum_cut
    spectral_gap algebraic_connectivity
    robustness_random robustness_targeted half_lost_random half_lost_targeted
    twin_degree twin_hops_mean twin_effective_diameter twin_spectral_gap
    twin_robustness_random twin_robustness_targeted twin_half_lost_random twin_half_lost_targeted
    advice_links advice_links_least bridge_links bridge_links_least shortcut_hops_mean
"""


def as_mdoc(metric: Metric) -> str:
    """Return the item of the manual page that a metric has."""
    sentences = [
        f"{metric.label}",
        f".Pq {metric.unit} .",
        *re.split(r"(?<=[.]) (?=[A-Z])", metric.definition),
        f"Source: {metric.source}.",
        f"Healthy: {metric.healthy}.",
    ]
    lines = [line for one in sentences for line in textwrap.wrap(one, 78)]
    return "\n".join([f".It Li {metric.name}", *lines])


def shown() -> dict[str, str]:
    """Return the items of the page's section METRICS: name -> source."""
    text = re.search(r"^\.Sh METRICS\n(.*?)^\.Sh ", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert text
    items = re.findall(
        r"^(\.It Li (\w+)\n(?:(?!\.(?:It|El|Ss)).*\n)*)", text[1], flags=re.MULTILINE
    )
    return {name: item.strip() for item, name in items}


def test_each_metric_of_a_snapshot_is_registered_under_its_name() -> None:
    assert sorted(METRICS) == sorted(NAMES.split())
    assert all(metric.name == name for name, metric in METRICS.items())


def test_the_page_defines_each_metric_in_the_same_words() -> None:
    assert shown() == {name: as_mdoc(metric) for name, metric in METRICS.items()}


def test_the_page_has_the_metrics_in_the_order_of_the_registry() -> None:
    assert list(shown()) == list(METRICS)


def test_the_page_has_nothing_that_mandoc_warns_about() -> None:
    found = subprocess.run(
        [mandoc(), "-T", "lint", "-W", "warning", PAGE], capture_output=True, text=True, check=False
    )
    assert (found.stdout + found.stderr, found.returncode) == ("", 0)


@pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS)
def test_a_metric_has_a_unit_whole_sentences_and_a_source(metric: Metric) -> None:
    texts = (metric.label, metric.unit, metric.definition, metric.source, metric.healthy)
    assert all(text.isascii() and text.isprintable() and text for text in texts)
    assert metric.definition.endswith(".")
    assert not metric.source.endswith(".")
    assert metric.unit in {
        *("daemons", "links", "arcs", "components", "pairs", "triangles", "hops", "regions"),
        *("share", "ratio"),
    }


@pytest.mark.parametrize("name", METRICS)
def test_an_explanation_says_everything_within_80_columns(name: str) -> None:
    text = explain(name)
    words = " ".join(text.split())
    assert all(len(line) <= 80 for line in text.splitlines())
    metric = METRICS[name]
    for part in (name, metric.label, metric.unit, metric.definition, metric.source, metric.healthy):
        assert part in words


def test_what_is_no_metric_has_no_explanation() -> None:
    with pytest.raises(KeyError):
        explain("daemon")


@pytest.mark.parametrize(
    ("name", "value", "healthy"),
    [
        ("components", 1, True),
        ("components", 2, False),
        ("share_two_neighbours", 1.0, True),
        ("share_two_neighbours", 0.99, False),
        ("minimum_cut", 3, True),
        ("minimum_cut", 2, False),
        ("minimum_cut", None, None),
        ("daemons", 5, None),
    ],
)
def test_a_value_is_healthy_inside_the_range_and_its_ends(
    name: str, value: float | None, healthy: bool | None
) -> None:
    assert METRICS[name].is_healthy(value) is healthy
