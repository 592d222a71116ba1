"""What a running daemon says of its mesh, beside what the analysis says of the same mesh."""

from __future__ import annotations

import itertools
import random

import networkx as nx

from pubsubd.broker.turn import finish
from pubsubd.mesh.adverts import Advert, LinkReport
from pubsubd.mesh.linkstate import Table
from pubsubd.mesh.weak_points import Weak, WeakPoints
from pubsubd.topology.kernel.cuts import blocks
from pubsubd.topology.kernel.redundancy import advise
from tests.topologies import graph

Links = set[tuple[str, str]]


def random_meshes(count: int) -> list[Links]:
    """Connected meshes of 2 to 60 daemons, from trees to dense ones."""
    rng = random.Random(20261129)
    made = []
    for number in range(count):
        names = [f"n{one}" for one in rng.sample(range(1000), rng.randrange(2, 60))]
        links = {
            (rng.choice(names[:one][-(number % 9) - 1 :]), names[one])
            for one in range(1, len(names))
        }
        more = rng.randrange(len(names)) * (number % 3) // 2
        links |= {tuple(rng.sample(names, 2)) for _ in range(more)}  # type: ignore[misc]
        made.append({(min(one), max(one)) for one in links})
    return made


def told(links: Links) -> Weak:
    """What the first daemon says when it has heard the adverts of all."""
    known = nx.Graph(links)
    table = Table(min(known))
    for node in known:
        reports = tuple(LinkReport(other, node < other, 0) for other in known[node])
        table.put(Advert(node, "h", 1, 1, 1, 1, reports))
    return finish(WeakPoints(table, itertools.count().__next__).find())


def test_a_daemon_says_what_the_report_and_networkx_say_of_200_random_meshes() -> None:
    for links in random_meshes(200):
        weak, known, g = told(links), nx.Graph(links), graph(sorted(links))
        names, found, advice = g.ids.to_pylist(), blocks(g), advise(g)
        assert (weak.reached, weak.links) == (set(names), g.m)
        assert weak.articulation == {
            names[node]: size
            for node, size in zip(found.articulation.tolist(), found.cut_off.tolist(), strict=True)
        }
        assert weak.bridges == {
            (names[g.tails[one]], names[g.heads[one]]): size
            for one, size in zip(found.bridges.tolist(), found.bridge_cut_off.tolist(), strict=True)
        }
        plan = advice.redundancy
        assert weak.added == [
            (names[one], names[other]) for one, other in zip(plan.tails, plan.heads, strict=True)
        ]
        assert len(weak.added) == plan.least
        assert set(weak.articulation) == set(nx.articulation_points(known))
        assert set(weak.bridges) == {(min(one), max(one)) for one in nx.bridges(known)}
        known.add_edges_from(weak.added)
        assert len(known) == 2 or nx.is_biconnected(known)
