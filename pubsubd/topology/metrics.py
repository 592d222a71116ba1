"""Metrics of a mesh: each with its unit, definition, source and healthy range.

Invariants:

- Every metric of a snapshot is here, under the name that it has in all tables and reports.
- The manual page ``pubsubd-topology(1)`` says the same words; a test holds it to that.
- Texts are plain ASCII, and each sentence of a definition ends with a full stop.

Unless a definition says otherwise, a metric is of the undirected mesh: links without self-loops,
each one once.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass

COUNTED = "counted"
"""The source of what needs no algorithm: it is counted, exactly."""

_ANY = "any; compare it with earlier windows"
_TWIN = "as a yardstick only"


@dataclass(frozen=True)
class Metric:
    """One figure of a mesh in a window.

    Attributes:
        name: in tables and reports.
        label: for a person, a few words.
        unit: what is counted, as ``daemons``; ``share`` is a number from 0 to 1, ``ratio`` any
            number without a unit.
        definition: one to three sentences.
        source: where the definition or the algorithm comes from; :data:`COUNTED` for neither.
        healthy: the range in which there is nothing to do.
        least: the smallest healthy value; None where there is none, or it depends on others.
        most: the largest one, likewise.
    """

    name: str
    label: str
    unit: str
    definition: str
    source: str = COUNTED
    healthy: str = _ANY
    least: float | None = None
    most: float | None = None

    def is_healthy(self, value: float | None) -> bool | None:
        """Return whether ``value`` is in the healthy range; None where that cannot be said."""
        if value is None or (self.least is None and self.most is None):
            return None
        low = self.least is None or value >= self.least
        return low and (self.most is None or value <= self.most)


_SIZE = (
    Metric("daemons", "Daemons", "daemons", "Daemons that exist at the end of the window."),
    Metric(
        "links",
        "Links",
        "links",
        "Pairs of different daemons of which at least one tells that its link to the other is up."
        " Who has dialled whom does not matter, and neither does how often it is told.",
    ),
    Metric(
        "arcs",
        "Arcs",
        "arcs",
        "Ordered pairs (a, b) of different daemons, where a tells that its link to b is up. A link"
        " that both ends tell of has two arcs.",
    ),
    Metric(
        "self_loops",
        "Self-loops",
        "daemons",
        "Daemons with a link to themselves. They are counted here and take no part in anything"
        " else.",
        healthy="0",
        most=0,
    ),
    Metric(
        "one_way_links",
        "One-sided links",
        "links",
        "Links that only one of their ends tells of. In a list of two columns that names each pair"
        " once, all are.",
        healthy="0 where all daemons export",
        most=0,
    ),
    Metric(
        "reciprocity",
        "Reciprocity",
        "share",
        "Share of the arcs whose opposite is an arc as well.",
        "Newman, Forrest, Balthrop 2002",
        "100 % where all daemons export",
        least=1,
    ),
)

_DEGREES = (
    Metric(
        "degree_mean",
        "Mean degree",
        "links",
        "Mean number of links of a daemon.",
        least=3,
        healthy="3 or more",
    ),
    Metric(
        "degree_median",
        "Median degree",
        "links",
        "Half of the daemons have as many links or fewer.",
        least=2,
        healthy="2 or more",
    ),
    Metric(
        "degree_max",
        "Largest degree",
        "links",
        "Links of the daemon that has most.",
        healthy="up to 10 times the median",
    ),
    Metric(
        "degree_gini",
        "Inequality of degrees",
        "ratio",
        "Gini coefficient of the degrees: 0 where all daemons have equally many links, near 1"
        " where a few have all of them.",
        "Gini 1912",
        "below 0.5",
        most=0.5,
    ),
    Metric(
        "degree_top1_share",
        "Link ends on the top 1 %",
        "share",
        "Share of all ends of links that the 1 % of daemons with most links have, at least one"
        " daemon.",
        healthy="below 10 %, from 100 daemons on",
    ),
    Metric(
        "degree_tail_exponent",
        "Tail exponent of degrees",
        "ratio",
        "Exponent a of the power law k^-a that fits the large degrees best, by discrete maximum"
        " likelihood. Below 3 there are hubs without which the mesh falls apart.",
        "Clauset, Shalizi, Newman 2009",
        "above 3, or none",
        least=3,
    ),
    Metric(
        "leaves",
        "Leaves",
        "daemons",
        "Daemons with exactly one link: the loss of it, or of"
        " the daemon at its other end, cuts them off.",
        healthy="0",
        most=0,
    ),
    Metric(
        "isolated", "Isolated daemons", "daemons", "Daemons without a link.", healthy="0", most=0
    ),
    Metric(
        "share_two_neighbours",
        "At least 2 neighbours",
        "share",
        "Share of the daemons with two links or more.",
        healthy="100 %",
        least=1,
    ),
    Metric(
        "share_three_neighbours",
        "At least 3 neighbours",
        "share",
        "Share of the daemons with three links or more.",
        healthy="above 90 %",
        least=0.9,
    ),
)

_COMPONENTS = (
    Metric(
        "components",
        "Components",
        "components",
        "Parts of the mesh between which there is no path, isolated daemons included. More than"
        " one means that the mesh is partitioned.",
        "Hopcroft, Tarjan 1973",
        "1",
        most=1,
    ),
    Metric(
        "largest_component",
        "Largest component",
        "daemons",
        "Daemons in the component that has most.",
        healthy="all daemons",
    ),
    Metric(
        "largest_component_arcs",
        "Arcs of the largest component",
        "arcs",
        "Arcs between daemons of the largest component, and self-loops of its daemons.",
    ),
    Metric(
        "strong_components",
        "Strong components",
        "components",
        "Largest sets of daemons in which each one reaches each other one along arcs. More of them"
        " than components means that links are told by one end only.",
        "Tarjan 1972",
        "as many as components, where all daemons export",
    ),
    Metric(
        "largest_strong_component",
        "Largest strong component",
        "daemons",
        "Daemons in the strong component that has most.",
        "Tarjan 1972",
        "all daemons, where all of them export",
    ),
    Metric(
        "largest_strong_component_arcs",
        "Arcs of the largest strong component",
        "arcs",
        "Arcs between daemons of the largest strong component, and self-loops of its daemons.",
        "Tarjan 1972",
    ),
)

_CUTS = (
    Metric(
        "articulation_daemons",
        "Articulation daemons",
        "daemons",
        "Daemons whose loss alone splits their component: single points of failure. The daemons"
        " that one cuts off are those that are then not in the largest piece that is left.",
        "Hopcroft, Tarjan 1973",
        "0",
        most=0,
    ),
    Metric(
        "bridges",
        "Bridges",
        "links",
        "Links whose loss alone splits their component. A bridge cuts off the daemons on its"
        " smaller side.",
        "Tarjan 1974",
        "0",
        most=0,
    ),
    Metric(
        "worst_cut_off",
        "Most that one loss cuts off",
        "daemons",
        "Daemons cut off by the loss of one daemon or one link, for the one where these are most.",
        healthy="0",
        most=0,
    ),
    Metric(
        "two_link_cuts",
        "Two-link cuts",
        "pairs",
        "Pairs of links, neither of them a bridge, whose loss together splits their component."
        " They are found by random 64-bit labels; an error has a probability below 2^-40.",
        "Pritchard, Thurimella 2011",
        "0; in a ring all pairs are",
        most=0,
    ),
)

_REDUNDANCY = (
    Metric(
        "core_max",
        "Largest core number",
        "links",
        "The largest k for which there is a k-core: a set of daemons each of which has k links or"
        " more to others of the set.",
        "Seidman 1983; Batagelj, Zaversnik 2003",
        "2 or more",
        least=2,
    ),
    Metric(
        "clustering_mean",
        "Mean clustering",
        "share",
        "Mean over all daemons of the share of pairs of its neighbours that are linked; 0 for a"
        " daemon with fewer than two. High values mean links that add little reach.",
        "Watts, Strogatz 1998",
        "below 30 %",
        most=0.3,
    ),
    Metric(
        "triangles",
        "Triangles",
        "triangles",
        "Sets of three daemons that are all linked to each other.",
    ),
    Metric(
        "closed_triads",
        "Closed triads",
        "share",
        "T / (W - 2 T), for T triangles and W paths of two links; 0 where there is none. It is the"
        " share of closed triangles as SNAP prints it.",
        "Leskovec, Krevl 2014 (SNAP)",
    ),
    Metric(
        "transitivity",
        "Transitivity",
        "share",
        "3 T / W, for T triangles and W paths of two links; 0 where there is none.",
        "Newman, Watts, Strogatz 2002",
    ),
)

_HOPS = (
    Metric(
        "diameter",
        "Diameter",
        "hops",
        "The most hops between two daemons of the largest component, on a shortest path. Where"
        " only some sources could be searched from, it is a lower bound.",
        "Then et al. 2014; Crescenzi et al. 2013",
        "up to 1.5 times that of the twin, and below the hops that messages may go",
    ),
    Metric(
        "diameter_upper",
        "Diameter, at most",
        "hops",
        "No two daemons of the largest component"
        " are farther apart. Equal to the diameter where that is exact.",
        "Crescenzi et al. 2013",
        "equal to the diameter",
    ),
    Metric(
        "effective_diameter",
        "Effective diameter",
        "hops",
        "Within so many hops are 90 % of the ordered pairs of daemons of the largest component,"
        " interpolated between whole hops.",
        "Leskovec, Kleinberg, Faloutsos 2007",
        "up to 1.25 times that of the twin",
    ),
    Metric(
        "hops_mean",
        "Mean hops",
        "hops",
        "Mean length of the shortest paths between different daemons of the largest component."
        " Where it is from sampled sources, the error is half of its 95 % interval.",
        "Then et al. 2014",
        "up to 1.25 times that of the twin",
    ),
)

_CENTRALITY = (
    Metric(
        "pagerank_max",
        "Largest PageRank",
        "share",
        "Share of time that a random walk along arcs is at the daemon where it is most; with"
        " probability 0.15, and where there is no arc on, it goes to a random daemon.",
        "Page, Brin, Motwani, Winograd 1999",
        "below 10 / daemons",
    ),
    Metric(
        "betweenness_max",
        "Largest betweenness",
        "share",
        "Share of the ordered pairs of other daemons whose shortest paths lead over a daemon,"
        " for the daemon where it is most. Where it is from sampled pivots, its error is told.",
        "Brandes 2001; Brandes, Pich 2007",
        "below 10 %, from 100 daemons on",
    ),
)

_REGIONS = (
    Metric(
        "regions",
        "Regions",
        "regions",
        "Sets of daemons with many links inside and few to others, found so that modularity is"
        " large.",
        "Blondel et al. 2008 (Louvain)",
    ),
    Metric(
        "modularity",
        "Modularity",
        "ratio",
        "Share of links inside regions, from 0 to 1, less what it would be if the ends of links"
        " were paired at random.",
        "Newman, Girvan 2004",
        "below 0.7",
        most=0.7,
    ),
    Metric(
        "minimum_cut",
        "Minimum cut",
        "links",
        "The fewest links whose loss separates the two largest regions completely; 0 if there is no"
        " path between them.",
        "Dinic 1970",
        "3 or more",
        least=3,
    ),
)

_SPECTRUM = (
    Metric(
        "spectral_gap",
        "Spectral gap",
        "ratio",
        "Second smallest eigenvalue of the normalised Laplacian of the largest component: how fast"
        " what one daemon tells spreads everywhere.",
        "Chung 1997; Lanczos 1950",
        "at least half of that of the twin; never to be judged alone",
    ),
    Metric(
        "algebraic_connectivity",
        "Algebraic connectivity",
        "ratio",
        "Second smallest eigenvalue of the Laplacian of the largest component. The number of links"
        " that have to fail before it splits is not below it, unless all daemons are linked.",
        "Fiedler 1973",
        "above 0.1",
        least=0.1,
    ),
)

_CURVE = (
    "Mean size of the largest component, as a share of all daemons, while the daemons are removed"
    " from none to all in equal steps, "
)
_HALF = (
    "Share of the daemons after whose removal the largest component has less than half of the"
    " daemons that it had, when daemons are removed "
)
_RANDOM = "in random order, as failures come; mean of several seeded orders."
_TARGETED = "by degree in the intact mesh, largest first, as an attacker would."

_RESILIENCE = (
    Metric(
        "robustness_random",
        "Robustness, random",
        "share",
        _CURVE + _RANDOM,
        "Albert, Jeong, Barabasi 2000; Schneider et al. 2011",
        "above 35 %",
        least=0.35,
    ),
    Metric(
        "robustness_targeted",
        "Robustness, targeted",
        "share",
        _CURVE + _TARGETED,
        "Albert, Jeong, Barabasi 2000; Schneider et al. 2011",
        "at least 0.7 times that of the twin",
    ),
    Metric(
        "half_lost_random",
        "Half lost, random",
        "share",
        _HALF + _RANDOM,
        "Albert, Jeong, Barabasi 2000",
        "above 40 %",
        least=0.4,
    ),
    Metric(
        "half_lost_targeted",
        "Half lost, targeted",
        "share",
        _HALF + _TARGETED,
        "Albert, Jeong, Barabasi 2000",
        "at least 0.7 times that of the twin",
    ),
)

_TWIN_IS = (
    " The twin is a random mesh that is nearly regular, with as many daemons as the largest"
    " component: the union of random cycles."
)


def _of_the_twin(metric: Metric) -> Metric:
    """Return the metric that is ``metric`` of the twin."""
    return Metric(
        f"twin_{metric.name}",
        f"{metric.label}, twin",
        metric.unit,
        f"The metric {metric.name} of the twin of the mesh.",
        metric.source,
        _TWIN,
    )


_TWINS = (
    Metric(
        "twin_degree",
        "Degree, twin",
        "links",
        "Links of each daemon of the twin: the even number nearest to the mean degree of the"
        " largest component, at least 2." + _TWIN_IS,
        "Friedman 2008",
        _TWIN,
    ),
    *map(
        _of_the_twin,
        (
            _HOPS[3],
            _HOPS[2],
            _SPECTRUM[0],
            *_RESILIENCE,
        ),
    ),
)

_ADVICE = (
    Metric(
        "advice_links",
        "Links to add",
        "links",
        "New links that leave no articulation daemon and no bridge, those that join components"
        " included.",
        "Eswaran, Tarjan 1976; Hsu, Ramachandran 1993",
        "0",
        most=0,
    ),
    Metric(
        "advice_links_least",
        "Links to add, at least",
        "links",
        "No fewer new links can do that: the larger one of half the leaf blocks, rounded up, and"
        " the most pieces that the loss of one daemon leaves, less one.",
        "Eswaran, Tarjan 1976; Hsu, Ramachandran 1993",
        "0",
        most=0,
    ),
    Metric(
        "bridge_links",
        "Links to add against bridges",
        "links",
        "New links that leave no bridge, if articulation daemons may stay.",
        "Eswaran, Tarjan 1976",
        "0",
        most=0,
    ),
    Metric(
        "bridge_links_least",
        "Links to add against bridges, at least",
        "links",
        "No fewer new links can do that: half the leaves of the tree that is left when all but the"
        " bridges is contracted, rounded up.",
        "Eswaran, Tarjan 1976",
        "0",
        most=0,
    ),
    Metric(
        "shortcut_hops_mean",
        "Mean hops with shortcuts",
        "hops",
        "Mean hops of the largest component after the advised shortcuts, new links that are chosen"
        " one after the other so that each lowers the mean most.",
        "Meyerson, Tagiku 2009",
        "not far below the mean hops",
    ),
)

METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        *_SIZE,
        *_DEGREES,
        *_COMPONENTS,
        *_CUTS,
        *_REDUNDANCY,
        *_HOPS,
        *_CENTRALITY,
        *_REGIONS,
        *_SPECTRUM,
        *_RESILIENCE,
        *_TWINS,
        *_ADVICE,
    )
}
"""Name -> metric, in the order of the manual page."""


def explain(name: str) -> str:
    """Describe the metric ``name`` in lines of at most 80 columns.

    Raises:
        KeyError: there is no such metric.
    """
    metric = METRICS[name]
    fields = (
        ("unit", metric.unit),
        ("source", metric.source),
        ("healthy", metric.healthy),
    )
    lines = [f"{metric.name}: {metric.label}", ""]
    lines += textwrap.wrap(metric.definition, 76, initial_indent="    ", subsequent_indent="    ")
    lines.append("")
    for word, text in fields:
        head = f"    {word + ':':9}"
        lines += textwrap.wrap(text, 76, initial_indent=head, subsequent_indent=" " * len(head))
    return "\n".join(lines)
