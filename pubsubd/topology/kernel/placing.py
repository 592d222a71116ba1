"""Places of nodes in a picture, at distances like the lengths of the paths between them.

Stress majorization (Gansner, Koren and North 2005) on all pairs, from classical scaling as the
start, for each component; the components are then put side by side.
"""

from __future__ import annotations

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

from pubsubd.topology.kernel.graph import Floats, Ints
from pubsubd.topology.kernel.structure import order_labels

_ROUNDS = 60
_MARGIN = 1.0  # around a component; two linked nodes of size 0 are 1 apart
_JITTER = 0x91AC  # sets these random numbers apart from others of the same seed


def place(radii: Floats, tails: Ints, heads: Ints, seed: int) -> Floats:
    """Return a place in 0..1 x 0..1 for each of n nodes, n x 2, rounded to 4 digits.

    Args:
        radii: of the n nodes; two that are linked are drawn 1 and their radii apart. The work is
            that of n x n matrices, so n is some hundreds at most.
        tails: one end of each link.
        heads: the other end.
        seed: of what tells apart nodes with the same neighbours.
    """
    n = len(radii)
    if not n:
        return np.zeros((0, 2))
    lengths = 1.0 + radii[tails] + radii[heads]
    ends = (np.append(tails, heads), np.append(heads, tails))
    matrix = sparse.csr_array((np.append(lengths, lengths), ends), (n, n))
    found = csgraph.connected_components(matrix, directed=False)[1]
    labels, sizes = order_labels(found.astype(np.int64))
    jitter = np.random.default_rng([seed, _JITTER]).normal(0.0, 0.1, (n, 2))
    places = np.zeros((n, 2))
    boxes = np.zeros((len(sizes), 2))
    for label in range(len(sizes)):
        nodes = np.flatnonzero(labels == label)
        if len(nodes) > 1:
            ways = csgraph.dijkstra(matrix[nodes][:, nodes], directed=False)
            places[nodes] = _turn(_majorize(ways, _scale(ways) + jitter[nodes]))
        rim = radii[nodes, None] + _MARGIN / 2
        lowest = (places[nodes] - rim).min(axis=0)
        boxes[label] = (places[nodes] + rim).max(axis=0) - lowest
        places[nodes] -= lowest
    places += _pack(boxes)[labels]
    extent = places.max(axis=0) + _MARGIN / 2
    rim = (1.0 - extent / extent.max()) / 2
    placed: Floats = np.round(np.clip(places / extent.max() + rim, 0.0, 1.0), 4)
    return placed


def _scale(ways: Floats) -> Floats:
    """Return places by classical scaling (Torgerson 1952)."""
    squares = ways**2
    mean = squares.mean(axis=0)
    values, vectors = np.linalg.eigh((mean[:, None] + mean - mean.mean() - squares) / 2)
    return _face(vectors[:, -1:-3:-1] * np.sqrt(np.maximum(values[-1:-3:-1], 0.0)))


def _majorize(ways: Floats, places: Floats) -> Floats:
    """Return places with less stress: the sum of (distance - way)^2 / way^2 of all pairs."""
    np.fill_diagonal(ways, 1.0)
    weights = ways**-2
    np.fill_diagonal(weights, 0.0)
    n = len(ways)
    laplacian = np.diag(weights.sum(axis=0)) - weights
    # Without its null space it can be inverted, and nothing is moved as a whole.
    inverse = np.linalg.inv(laplacian + 1.0 / n) - 1.0 / n
    wanted = weights * ways
    for _ in range(_ROUNDS):
        gaps = places.T[:, :, None] - places.T[:, None, :]
        pulls = wanted / np.maximum(np.sqrt((gaps**2).sum(axis=0)), 1e-9)
        # Not a matrix product: for these shapes its threads are in each other's way.
        places = np.einsum("ij,kj->ik", inverse, (pulls * gaps).sum(axis=2))
    return places


def _turn(places: Floats) -> Floats:
    """Return the places turned so that they are wider than high."""
    centred = places - places.mean(axis=0)
    return _face(centred @ np.linalg.eigh(centred.T @ centred)[1][:, ::-1])


def _face(places: Floats) -> Floats:
    """Return the places mirrored so that the farthest one on each axis is on its positive side.

    Which side it is on is left open by what eigenvectors are.
    """
    far = np.abs(np.round(places, 6)).argmax(axis=0)
    return places * np.where(places[far, [0, 1]] < 0, -1.0, 1.0)


def _pack(boxes: Floats) -> Floats:
    """Return the lower corners of boxes in rows about as long as there are high."""
    length = max(float(boxes[:, 0].max()), 1.2 * float(np.sqrt(boxes.prod(axis=1).sum())))
    corners = np.zeros(boxes.shape)
    x = y = height = 0.0
    for corner, (wide, high) in zip(corners, boxes.tolist(), strict=True):
        if x and x + wide > length:
            x, y, height = 0.0, y + height, 0.0
        corner[:] = x, y
        x, height = x + wide, max(height, high)
    return corners
