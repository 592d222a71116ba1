"""A mesh of the same size as it could be: what the figures of the real one are held against."""

from __future__ import annotations

import numpy as np

from pubsubd.topology.kernel.graph import Graph, build


def twin_degree(daemons: int, links: int) -> int:
    """Return the even number that is nearest to the mean degree, the lower of two; 2 at least."""
    mean = 2 * links / max(daemons, 1)
    return max(2, 2 * int(np.ceil(mean / 2 - 0.5)))


def twin(daemons: int, links: int, seed: int) -> Graph:
    """Return the union of d / 2 random cycles through all daemons, d by :func:`twin_degree`.

    It is connected, its daemons all have d neighbours but for the few whose cycles share a link,
    and like almost all regular graphs it is nearly as hard to tear apart and as short of hops as
    such a number of links allows (Bollobás and Fernandez de la Vega 1982; Friedman 2008).

    Args:
        daemons: how many; as a rule, those of the largest component.
        links: as many as the mean degree is made of.
        seed: of the cycles.
    """
    random = np.random.default_rng([seed, 4])
    cycles = [random.permutation(daemons) for _ in range(twin_degree(daemons, links) // 2)]
    tails = np.concatenate(cycles)
    heads = np.concatenate([np.roll(cycle, -1) for cycle in cycles])
    return build(daemons, tails, heads)
