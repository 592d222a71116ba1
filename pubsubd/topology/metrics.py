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
_TWIN = "for comparison only"


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
        "Pairs of different daemons of which at least one reports its link to the other as up."
        " Who dialled, and how often the link is reported, makes no difference.",
    ),
    Metric(
        "arcs",
        "Arcs",
        "arcs",
        "Ordered pairs (a, b) of different daemons where a reports its link to b as up. A link"
        " that both ends report is two arcs.",
    ),
    Metric(
        "self_loops",
        "Self-loops",
        "daemons",
        "Daemons with a link to themselves. They are counted here and ignored everywhere else.",
        healthy="0",
        most=0,
    ),
    Metric(
        "one_way_links",
        "One-sided links",
        "links",
        "Links that only one of their ends reports. In a list of two columns that names each"
        " pair once, all links are one-sided.",
        healthy="0 if all daemons export",
        most=0,
    ),
    Metric(
        "reciprocity",
        "Reciprocity",
        "share",
        "Share of the arcs whose opposite is an arc too.",
        "Newman, Forrest, Balthrop 2002",
        "100 % if all daemons export",
        least=1,
    ),
)

_DEGREES = (
    Metric(
        "degree_mean",
        "Mean degree",
        "links",
        "Mean number of links per daemon.",
        least=3,
        healthy="3 or more",
    ),
    Metric(
        "degree_median",
        "Median degree",
        "links",
        "Half of the daemons have this many links or fewer.",
        least=2,
        healthy="2 or more",
    ),
    Metric(
        "degree_max",
        "Largest degree",
        "links",
        "Links of the daemon with the most links.",
        healthy="up to 10 times the median",
    ),
    Metric(
        "degree_gini",
        "Inequality of degrees",
        "ratio",
        "Gini coefficient of the degrees: 0 if all daemons have equally many links, near 1 if a"
        " few have almost all of them.",
        "Gini 1912",
        "below 0.5",
        most=0.5,
    ),
    Metric(
        "degree_top1_share",
        "Link ends on the top 1 %",
        "share",
        "Share of all link ends that belongs to the 1 % of daemons with the most links, at"
        " least one daemon.",
        healthy="below 10 %, from 100 daemons on",
    ),
    Metric(
        "degree_tail_exponent",
        "Tail exponent of degrees",
        "ratio",
        "Exponent a of the power law k^-a that fits the large degrees best, by discrete maximum"
        " likelihood. Below 3 the mesh has hubs without which it falls apart.",
        "Clauset, Shalizi, Newman 2009",
        "above 3, or none",
        least=3,
    ),
    Metric(
        "leaves",
        "Leaves",
        "daemons",
        "Daemons with exactly one link. The loss of that link, or of the daemon at its other"
        " end, cuts them off.",
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
        "Parts of the mesh without a path between them; an isolated daemon is a part of its"
        " own. If there is more than one, the mesh is partitioned.",
        "Hopcroft, Tarjan 1973",
        "1",
        most=1,
    ),
    Metric(
        "largest_component",
        "Largest component",
        "daemons",
        "Daemons in the largest component.",
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
        "Largest sets of daemons in which every daemon reaches every other along arcs. If there"
        " are more of them than components, some links are reported by one end only.",
        "Tarjan 1972",
        "as many as components, if all daemons export",
    ),
    Metric(
        "largest_strong_component",
        "Largest strong component",
        "daemons",
        "Daemons in the largest strong component.",
        "Tarjan 1972",
        "all daemons, if all of them export",
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
        "Daemons whose loss alone splits their component: single points of failure. Such a loss"
        " cuts off all daemons outside the largest piece that remains.",
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
        "The most daemons that the loss of a single daemon or a single link cuts off.",
        healthy="0",
        most=0,
    ),
    Metric(
        "two_link_cuts",
        "Two-link cuts",
        "pairs",
        "Pairs of links, neither of them a bridge, whose loss together splits their component."
        " They are found by random 64-bit labels, with a probability of error below 2^-40.",
        "Pritchard, Thurimella 2011",
        "0; in a ring every pair is one",
        most=0,
    ),
)

_REDUNDANCY = (
    Metric(
        "core_max",
        "Largest core number",
        "links",
        "The largest k for which there is a k-core: a set of daemons that each have k or more"
        " links to others in the set.",
        "Seidman 1983; Batagelj, Zaversnik 2003",
        "2 or more",
        least=2,
    ),
    Metric(
        "clustering_mean",
        "Mean clustering",
        "share",
        "Share of the pairs of a daemon's neighbours that are linked, 0 if it has fewer than"
        " two; the mean over all daemons. A high value means that many links add little reach.",
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
        "T / (W - 2 T), for T triangles and W paths of two links; 0 where there is none. SNAP"
        " prints it as the share of closed triangles.",
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
        "The most hops that a shortest path between two daemons of the largest component takes."
        " It is a lower bound if only some daemons were searched from.",
        "Then et al. 2014; Crescenzi et al. 2013",
        "up to 1.5 times that of the twin, and below the hop limit of messages",
    ),
    Metric(
        "diameter_upper",
        "Diameter, at most",
        "hops",
        "Upper bound of the diameter: no two daemons of the largest component are farther"
        " apart. It equals the diameter where that is exact.",
        "Crescenzi et al. 2013",
        "equal to the diameter",
    ),
    Metric(
        "effective_diameter",
        "Effective diameter",
        "hops",
        "Hops within which 90 % of the ordered pairs of daemons of the largest component reach"
        " each other, interpolated between whole hops.",
        "Leskovec, Kleinberg, Faloutsos 2007",
        "up to 1.25 times that of the twin",
    ),
    Metric(
        "hops_mean",
        "Mean hops",
        "hops",
        "Mean length of the shortest paths between different daemons of the largest component."
        " If only a sample of daemons was searched from, the error is half of the 95 %"
        " interval.",
        "Then et al. 2014",
        "up to 1.25 times that of the twin",
    ),
)

_CENTRALITY = (
    Metric(
        "pagerank_max",
        "Largest PageRank",
        "share",
        "Share of its time that a random walk along arcs spends at the daemon it visits most."
        " With probability 0.15, and where no arc leads on, the walk jumps to a random daemon.",
        "Page, Brin, Motwani, Winograd 1999",
        "below 10 / daemons",
    ),
    Metric(
        "betweenness_max",
        "Largest betweenness",
        "share",
        "Share of the ordered pairs of other daemons whose shortest paths lead through a"
        " daemon, for the daemon where it is largest. If pivots were sampled, the error is"
        " given.",
        "Brandes 2001; Brandes, Pich 2007",
        "below 10 %, from 100 daemons on",
    ),
)

_REGIONS = (
    Metric(
        "regions",
        "Regions",
        "regions",
        "Sets of daemons with many links inside and few to others, chosen to make the"
        " modularity large.",
        "Blondel et al. 2008 (Louvain)",
    ),
    Metric(
        "modularity",
        "Modularity",
        "ratio",
        "Share of links inside regions, from 0 to 1, minus the share expected if the ends of"
        " links were paired at random.",
        "Newman, Girvan 2004",
        "below 0.7",
        most=0.7,
    ),
    Metric(
        "minimum_cut",
        "Minimum cut",
        "links",
        "The fewest links whose loss completely separates the two largest regions; 0 if there"
        " is no path between them.",
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
        "Second smallest eigenvalue of the normalised Laplacian of the largest component: a"
        " measure of how fast news from one daemon spreads to all.",
        "Chung 1997; Lanczos 1950",
        "at least half that of the twin; never judge it alone",
    ),
    Metric(
        "algebraic_connectivity",
        "Algebraic connectivity",
        "ratio",
        "Second smallest eigenvalue of the Laplacian of the largest component. At least this"
        " many links have to fail before the component splits, unless every daemon is linked to"
        " every other.",
        "Fiedler 1973",
        "above 0.1",
        least=0.1,
    ),
)

_CURVE = (
    "Mean size of the largest component, as a share of all daemons, while daemons are removed"
    " in equal steps from none to all, "
)
_HALF = (
    "Share of the daemons whose removal leaves the largest component with less than half of its"
    " daemons, when daemons are removed "
)
_RANDOM = "in random order, as failures strike; mean of several seeded orders."
_TARGETED = "by degree in the intact mesh, largest first, as an attacker would choose."

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
    " The twin is a nearly regular random mesh with as many daemons as the largest component:"
    " the union of random cycles."
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
        "New links after which there is no articulation daemon and no bridge; those that join"
        " components are included.",
        "Eswaran, Tarjan 1976; Hsu, Ramachandran 1993",
        "0",
        most=0,
    ),
    Metric(
        "advice_links_least",
        "Links to add, at least",
        "links",
        "Lower bound of advice_links: half the leaf blocks, rounded up, or one less than the"
        " most pieces that the loss of one daemon leaves, whichever is larger.",
        "Eswaran, Tarjan 1976; Hsu, Ramachandran 1993",
        "0",
        most=0,
    ),
    Metric(
        "bridge_links",
        "Links to add against bridges",
        "links",
        "New links after which there is no bridge; articulation daemons may remain.",
        "Eswaran, Tarjan 1976",
        "0",
        most=0,
    ),
    Metric(
        "bridge_links_least",
        "Links to add against bridges, at least",
        "links",
        "Lower bound of bridge_links: half the leaves of the tree that remains when everything"
        " but the bridges is contracted, rounded up.",
        "Eswaran, Tarjan 1976",
        "0",
        most=0,
    ),
    Metric(
        "shortcut_hops_mean",
        "Mean hops with shortcuts",
        "hops",
        "Mean hops of the largest component with the advised shortcuts: new links chosen one"
        " after the other, each to lower the mean as much as possible.",
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
