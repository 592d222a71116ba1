"""Sections on how far apart daemons are and how much the mesh can lose: hops to the twin."""

from __future__ import annotations

from typing import Any

from pubsubd.topology.metrics import METRICS
from pubsubd.topology.report.parts import (
    MORE,
    Figure,
    Listing,
    Section,
    Status,
    at_least,
    at_most,
    judge,
    metric_figure,
)
from pubsubd.topology.report.snapshot_view import SnapshotView
from pubsubd.topology.report.texts import count, number, percent, quantity

_LARGE = 100  # daemons; in a small mesh most daemons are near each other
_PAIRS = (
    # metric, whether more is better
    ("hops_mean", False),
    ("effective_diameter", False),
    ("spectral_gap", True),
    ("robustness_random", True),
    ("robustness_targeted", True),
    ("half_lost_random", True),
    ("half_lost_targeted", True),
)


def hops(facts: SnapshotView, parameters: dict[str, Any]) -> Section:
    """Section: distances that messages travel."""
    section = Section("hops", "Hops", pictures=["hops"])
    histogram = [(hop, pairs) for hop, pairs in facts.histogram("hops") if hop > 0]
    total = sum(pairs for _, pairs in histogram)
    if not total:
        section.silent = True
        why = facts.metric("hops_mean").why if facts.whole("links") else None
        section.advice = (
            f"Distances were {why}."
            if why
            else "No two daemons are linked, so there are no distances."
        )
        return section
    low, high = facts.value("diameter"), facts.value("diameter_upper")
    section.figures = [
        metric_figure(facts, "hops_mean", fits=at_most(facts, "hops_mean", 1.25, "twin_hops_mean")),
        metric_figure(
            facts,
            "effective_diameter",
            fits=at_most(facts, "effective_diameter", 1.25, "twin_effective_diameter"),
        ),
        metric_figure(
            facts,
            "diameter",
            judged=False,
            note=f"to {number(high)}" if low is not None and high and high > low else "",
        ),
    ]
    ttl = parameters.get("ttl")
    if isinstance(ttl, int):
        beyond = sum(pairs for hop, pairs in histogram if hop > ttl) / total
        section.figures.append(
            Figure(
                f"Pairs more than {count(ttl, 'hop')} apart",
                percent(beyond),
                "0 %",
                judge(beyond == 0),
            )
        )
    if section.status is Status.LOOK:
        where = "" if facts.left_out("shortcut_hops_mean") else " listed under Links to add"
        section.advice = f"Paths are longer than in a random mesh: add shortcuts{where}."
    elif why := facts.left_out("twin_hops_mean"):
        section.advice = f"The paths of a random mesh, to compare these with, are {why}."
    else:
        section.advice = "Paths are about as short as this number of links allows."
    return section


def redundancy(facts: SnapshotView) -> Section:
    """Section: paths around a loss."""
    section = Section("redundancy", "Redundancy")
    section.figures = [
        metric_figure(facts, "share_two_neighbours"),
        metric_figure(facts, "share_three_neighbours"),
        metric_figure(facts, "degree_mean"),
        metric_figure(facts, "core_max"),
        metric_figure(facts, "minimum_cut"),
        metric_figure(facts, "regions"),
        metric_figure(facts, "modularity"),
        metric_figure(
            facts,
            "spectral_gap",
            fits=at_least(facts, "spectral_gap", 0.5, "twin_spectral_gap"),
        ),
        metric_figure(facts, "algebraic_connectivity"),
    ]
    leaves, names = facts.daemons_where("degree", 1, MORE)
    section.add(
        Listing("Daemons with one link", {"Daemon": "name"}, [[name] for name in names], leaves)
    )
    cut = facts.value("minimum_cut")
    if cut is not None and cut <= MORE:  # nobody looks at thousands of them
        section.add(
            Listing(
                "Links whose loss would separate the two largest regions",
                {"One end": "name", "Other end": "name"},
                [list(pair) for pair in facts.cut],
            )
        )
    few = facts.whole("leaves") + facts.whole("isolated")
    if facts.value("leaves") is None:
        section.advice = f"Paths around a loss were {facts.metric('leaves').why}."
    elif few:
        section.advice = (
            f"Give {count(few, 'daemon')} a second link: a single failure can cut"
            f" {'it' if few == 1 else 'them'} off."
        )
    elif cut is not None and cut < 3:
        section.advice = "Add links between the two largest regions: only a few hold them together."
    else:
        section.advice = "Every daemon has another path when it loses a link."
    return section


def resilience(facts: SnapshotView) -> Section:
    """Section: size of the mesh while daemons are removed."""
    section = Section("resilience", "Resilience", pictures=["resilience"])
    section.figures = [
        metric_figure(facts, "half_lost_random"),
        metric_figure(
            facts,
            "half_lost_targeted",
            fits=at_least(facts, "half_lost_targeted", 0.7, "twin_half_lost_targeted"),
        ),
        metric_figure(facts, "robustness_random"),
        metric_figure(
            facts,
            "robustness_targeted",
            fits=at_least(facts, "robustness_targeted", 0.7, "twin_robustness_targeted"),
        ),
    ]
    targeted, twin = facts.value("half_lost_targeted"), facts.value("twin_half_lost_targeted")
    if targeted is None:
        why = facts.left_out("half_lost_targeted")
        section.advice = f"What is lost is {why}." if why else "There are too few daemons to tell."
    else:
        section.advice = (
            f"Half of the mesh is lost when the {percent(targeted)} of daemons with the most links"
            " fail"
        )
        if twin is not None:
            section.advice += f"; in a random mesh of that size it would take {percent(twin)}"
        section.advice += (
            ": spread the links more evenly."
            if section.figures[1].status is Status.LOOK
            else ", which is as good as this number of links allows."
            if section.figures[1].status is Status.GOOD
            else "."
        )
    return section


def twin(facts: SnapshotView) -> Section:
    """Return the mesh beside a random one of its size."""
    section = Section("twin", "Compared with a random mesh")
    rows = []
    for name, more in _PAIRS:
        mine, other = facts.metric(name), facts.metric(f"twin_{name}")
        if mine.value is None or other.value is None:
            continue
        unit = METRICS[name].unit
        better = mine.value == other.value or (mine.value > other.value) == more
        rows.append(
            [
                METRICS[name].label,
                quantity(mine.value, unit, mine.error),
                quantity(other.value, unit, other.error),
                f"{number(mine.value / other.value, 3)} \N{MULTIPLICATION SIGN}"
                if other.value
                else "",
                "as good or better" if better else "worse",
            ]
        )
    if not rows:
        section.silent = True
        why = facts.left_out("twin_hops_mean") or facts.left_out("twin_half_lost_random")
        section.advice = (
            f"The random mesh is {why}."
            if why
            else "There are too few daemons to compare with a random mesh."
        )
        return section
    section.add(
        Listing(
            f"The twin has {number(facts.whole('largest_component'))} daemons with"
            f" {number(facts.value('twin_degree'))} links each",
            {
                "Metric": "text",
                "This mesh": "number",
                "Twin": "number",
                "Ratio": "number",
                "This mesh is": "text",
            },
            rows,
        )
    )
    worse = sum(row[-1] == "worse" for row in rows)
    section.advice = (
        f"A random mesh with about as many links is better in {worse} of {len(rows)} respects."
        if worse
        else "The mesh is as good as a random one with about as many links."
    )
    return section


def clustering(facts: SnapshotView) -> Section:
    """Section: links between daemons that are near anyway."""
    section = Section("clustering", "Clustering")
    section.figures = [
        metric_figure(facts, name, judged=facts.whole("daemons") >= _LARGE)
        for name in ("clustering_mean", "triangles", "transitivity", "closed_triads")
    ]
    section.advice = (
        "Many links join daemons that are near each other anyway: let some of them lead"
        " farther away."
        if section.status is Status.LOOK
        else "Few links are spent on triangles."
        if section.status is Status.GOOD
        else "In a mesh as small as this one, most daemons are near each other."
    )
    return section
