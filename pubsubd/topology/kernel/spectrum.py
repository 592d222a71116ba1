"""Connectivity of the largest component, by the eigenvalues of its Laplacians.

Of L = D - A (degrees less adjacency) and of the normalised one, D^-1/2 L D^-1/2, the smallest
eigenvalue is 0, and the second smallest is the smaller the easier the graph falls into halves.

Small components are solved densely. For others the Rayleigh quotient is minimised from a seeded
start by locally optimal preconditioned conjugate gradients (LOBPCG, Knyazev 2001), one vector of
them. What hangs on the rest by single links is eliminated exactly in the preconditioner, which
leaves the Jacobi one to what has cycles; where hardly anything has cycles, the whole Laplacian is
factorised, without fill.

Where that does not converge, as in a mesh that falls apart easily, and there are not too many
daemons, the matrix is factorised: shifted by the estimate, so that its inverse has the eigenvalues
that are sought far above all others, for Lanczos' method (Ericsson and Ruhe 1980). What converges
badly has small cuts, and these keep the factors small.

The quotient is never below the eigenvalue. Some eigenvalue is within the residual's norm of it,
which is given as the error; the distance to it is, as a rule, of the order of its square.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import linalg, sparse
from scipy.sparse import linalg as sparse_linalg

from pubsubd.topology.kernel.graph import Floats, Graph
from pubsubd.topology.kernel.hops import largest_component

DENSE = 64
"""Daemons up to which the matrix is solved densely. More is left to fewer threads of LAPACK."""

FINE = 10_000
"""Daemons up to which the residual is at most 1e-5 of the eigenvalue in the end, above 1e-3."""

SOLVED = 4_000
"""Daemons up to which the matrix is factorised where rounds do not do. Ordinary meshes take a tenth
of a second; 4,000 with links all over, which hardly ever need it, some seconds and 100 MB."""

ROUGH = 1e-2
"""The residual, as a share of the eigenvalue, up to which an estimate counts, out of rounds."""

ROUNDS = 300
"""The most steps; fewer where :data:`WORK` would be passed."""

WORK = 4e9
"""Ends of links and numbers to go through, some nanoseconds each: about 10 s an eigenvalue."""

_PEELS = 64  # layers of leaves that are eliminated
_CYCLES = 0.05  # links per daemon beyond a tree, up to which the Laplacian is factorised

Precondition = Callable[[Floats], Floats]


@dataclass(frozen=True)
class Eigenvalue:
    """An eigenvalue, or why there is none.

    Attributes:
        value: the number; None if it could not be computed.
        error: the norm of the residual; None: exact to rounding, or no value.
        reason: why there is no value; empty when there is.
    """

    value: float | None
    error: float | None = None
    reason: str = ""


@dataclass(frozen=True)
class Spectrum:
    """The second smallest eigenvalues of both Laplacians of the largest component.

    Attributes:
        gap: of the normalised one, the spectral gap, 0 to 2 (Chung 1997).
        connectivity: of L, the algebraic connectivity (Fiedler 1973), 0 to the number of daemons.
    """

    gap: Eigenvalue
    connectivity: Eigenvalue


def spectrum(graph: Graph, labels: npt.NDArray[np.integer], seed: int) -> Spectrum:
    """Return both eigenvalues.

    Args:
        graph: n daemons.
        labels: n numbers, 0 for the daemons of the largest component.
        seed: of the start.
    """
    return Spectrum(*_second_smallest(graph, labels, seed, [True, False]))


def spectral_gap(graph: Graph, labels: npt.NDArray[np.integer], seed: int) -> Eigenvalue:
    """Return the spectral gap of :func:`spectrum`, without the time of the other eigenvalue."""
    return _second_smallest(graph, labels, seed, [True])[0]


def _second_smallest(
    graph: Graph, labels: npt.NDArray[np.integer], seed: int, normalised: list[bool]
) -> list[Eigenvalue]:
    """Return the second smallest eigenvalue of L, or of the normalised one, for each entry."""
    inner = largest_component(graph, labels)
    n = inner.n
    if n < 2:
        return [Eigenvalue(None, None, "it takes two daemons that are linked") for _ in normalised]
    adjacency = inner.adjacency.astype(np.float64)
    degrees = inner.degrees.astype(np.float64)
    if n <= DENSE:
        plain = np.diag(degrees) - adjacency.toarray()
        scale = 1 / np.sqrt(degrees)
        return [_second(plain * np.outer(scale, scale) if one else plain) for one in normalised]
    precondition = _preconditioner(inner, adjacency)
    start = np.random.default_rng([seed, 5]).standard_normal(n)
    masses = [degrees if one else np.ones(n) for one in normalised]
    return [_lowest(adjacency, degrees, mass, precondition, start) for mass in masses]


def _second(matrix: Floats) -> Eigenvalue:
    values = linalg.eigh(matrix, eigvals_only=True, subset_by_index=(0, 1))
    return Eigenvalue(float(values[1]))


def _lowest(
    adjacency: sparse.csr_array,
    degrees: Floats,
    mass: Floats,
    precondition: Precondition,
    start: Floats,
) -> Eigenvalue:
    """Return the second smallest value for which L x = value * mass * x.

    It is the least that x L x / x mass x can be for an x with sum(mass * x) = 0.
    """

    def laplace(x: Floats) -> Floats:
        product: Floats = degrees * x - adjacency @ x
        return product

    def project(x: Floats) -> Floats:
        centred: Floats = x - _dot(mass, x) / whole
        return centred

    whole = mass.sum()
    n = len(mass)
    rounds = int(np.clip(WORK / (adjacency.nnz + 40 * n), 20, ROUNDS))
    tolerance = 1e-5 if n <= FINE else 1e-3
    value = residual = np.inf
    vectors = [project(precondition(project(start)))]
    images: list[Floats] = [laplace(vectors[0])]
    for turn in range(rounds):
        basis, turned = _orthonormal(vectors, images, mass)
        small = np.array([[_dot(a, b) for b in turned] for a in basis])
        values, combined = np.linalg.eigh((small + small.T) / 2)
        best = combined[:, 0]
        x = _combine(best, basis)
        # Rounding errors would add up in images that are only ever combined.
        image = laplace(x) if turn % 20 == 19 else _combine(best, turned)
        value = float(values[0])
        left = image - value * mass * x
        residual = float(np.sqrt(_dot(left, left / mass)))
        if residual <= (tolerance if turn < rounds - 1 else ROUGH) * value:
            return Eigenvalue(value, residual)
        best[0] = 0
        vectors = [x, project(precondition(left))]
        images = [image, laplace(vectors[1])]
        if len(basis) > 1:
            vectors.append(_combine(best, basis))
            images.append(_combine(best, turned))
    solved = _solve(adjacency, degrees, mass, start, value) if n <= SOLVED else None
    if solved is not None:
        return Eigenvalue(solved)
    return Eigenvalue(
        None,
        None,
        f"not computed: after {rounds} rounds it was {value:.3g}, with an error up to"
        f" {residual:.1g}",
    )


def _solve(
    adjacency: sparse.csr_array, degrees: Floats, mass: Floats, start: Floats, value: float
) -> float | None:
    """Return what :func:`_lowest` returns, by shift and invert; None if that does not converge."""
    scale = sparse.diags_array(1 / np.sqrt(mass))
    matrix = (scale @ (sparse.diags_array(degrees) - adjacency) @ scale).tocsc()
    try:
        found = sparse_linalg.eigsh(
            matrix, k=2, sigma=-value, v0=start, which="LM", return_eigenvectors=False
        )
    except sparse_linalg.ArpackError:
        return None
    # The last digits would tell how many threads BLAS had.
    return float(f"{max(found):.10g}")


def _orthonormal(
    vectors: list[Floats], images: list[Floats], mass: Floats
) -> tuple[list[Floats], list[Floats]]:
    """Orthonormalise vectors, and their images under L likewise; drop dependent ones."""
    basis: list[Floats] = []
    turned: list[Floats] = []
    for vector, image in zip(vectors, images, strict=True):
        before = np.sqrt(_dot(vector * mass, vector))
        if not before:
            continue
        v, w = vector / before, image / before
        for _ in range(2):  # once more, for what rounding left
            for b, t in zip(basis, turned, strict=True):
                part = _dot(b * mass, v)
                v, w = v - part * b, w - part * t
        after = np.sqrt(_dot(v * mass, v))
        if after > 1e-9:
            basis.append(v / after)
            turned.append(w / after)
    return basis, turned


def _dot(a: Floats, b: Floats) -> float:
    # Not BLAS: its sums depend on how many threads it has.
    return float(np.einsum("i,i->", a, b))


def _combine(factors: Floats, vectors: list[Floats]) -> Floats:
    total: Floats = factors[0] * vectors[0]
    for factor, vector in zip(factors[1:], vectors[1:], strict=True):
        total += factor * vector
    return total


def _preconditioner(graph: Graph, adjacency: sparse.csr_array) -> Precondition:
    """Return an approximate inverse of L."""
    n = graph.n
    degrees = graph.degrees.astype(np.float64)
    if graph.m - (n - 1) <= _CYCLES * n:
        # One daemon's place is fixed, or L would be singular.
        grounded = sparse.diags_array(degrees).tocsc() - adjacency.tocsc()
        solver = sparse_linalg.splu(
            grounded[1:, 1:].tocsc(), permc_spec="MMD_AT_PLUS_A", options={"SymmetricMode": True}
        )
        return lambda x: np.concatenate([[0.0], solver.solve(x[1:])])
    parents, left = _peel(graph)
    # Row a adds up what hangs on a: itself and the trees' daemons that are behind it.
    rows, columns = [np.arange(n)], [np.arange(n)]
    above = parents
    hanging = np.flatnonzero(above >= 0)
    while len(hanging):
        rows.append(above[hanging])
        columns.append(hanging)
        above = np.where(above >= 0, parents[above], -1)
        hanging = np.flatnonzero(above >= 0)
    places = np.concatenate(rows), np.concatenate(columns)
    gather = sparse.csr_array((np.ones(len(places[0])), places), (n, n))
    spread = gather.T.tocsr()

    def precondition(x: Floats) -> Floats:
        result: Floats = spread @ (gather @ x / left)
        return result

    return precondition


def _peel(graph: Graph) -> tuple[npt.NDArray[np.int64], Floats]:
    """Take leaves off, and what is a leaf then, in layers.

    Returns:
        For each daemon the one that it hung on, or -1; and the pivots of the elimination: 1 for a
        leaf, and for others the neighbours that are left.
    """
    parents = np.full(graph.n, -1, np.int64)
    left = graph.degrees.astype(np.int64)
    # With the sum of the neighbours that are left, a leaf knows its only one.
    rows = np.repeat(np.arange(graph.n), graph.degrees)
    sums = np.bincount(rows, graph.indices, graph.n).astype(np.int64)
    for _ in range(_PEELS):
        leaves = np.flatnonzero((left == 1) & (parents < 0))
        leaves = leaves[left[sums[leaves]] > 1]
        if not len(leaves):
            break
        ends = sums[leaves]
        parents[leaves] = ends
        np.subtract.at(left, ends, 1)
        np.subtract.at(sums, ends, leaves)
    return parents, left.astype(np.float64)
