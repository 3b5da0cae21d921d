"""How the items of a group share its weight of 1: four schemes, each with mean 1/I for every item.

The schemes see only group sizes, so weights cannot depend on scores or labels. Items stand group by group; `sizes` has
shape (G,), each >= 1, and the weights have shape (sum(sizes),).
"""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Sizes = NDArray[np.int64]


def mean_weights(sizes: Sizes) -> Floats:
    """Give each of a group's I items 1/I."""
    return np.repeat(1.0 / sizes, sizes)


def crc_weights(sizes: Sizes, rng: np.random.Generator) -> Floats:
    """Give one item of each group, drawn at random, the whole weight."""
    weights = np.zeros(int(sizes.sum()))
    weights[_starts(sizes) + rng.integers(sizes)] = 1.0
    return weights


def bb_weights(sizes: Sizes, draws: int, rng: np.random.Generator) -> Floats:
    """Give each item the share of `draws` draws with replacement that fell on it (batched bootstrap)."""
    starts = _starts(sizes)
    counts = np.zeros(int(sizes.sum()), dtype=np.int64)
    for size in np.unique(sizes).tolist():
        of_this_size = np.flatnonzero(sizes == size)
        items = starts[of_this_size, np.newaxis] + np.arange(size)
        counts[items] = rng.multinomial(draws, np.full(size, 1 / size), size=len(of_this_size))
    return counts / draws


def rbwa_weights(sizes: Sizes, eta: float, rng: np.random.Generator) -> Floats:
    """Draw each group's weights from the symmetric Dirichlet distribution of concentration `eta` > 0."""
    items = int(sizes.sum())
    return normalised_gammas(rng.standard_gamma(eta + 1.0, items), 1.0 - rng.random(items), eta, sizes)


def normalised_gammas(gammas: Floats, uniforms: Floats, eta: float, sizes: Sizes) -> Floats:
    """Turn Gamma(eta + 1) and uniform variates in (0, 1], both of shape (N,), into Dirichlet(eta)
    weights of each group, eta > 0.

    Gamma(eta) is distributed as Gamma(eta + 1) U**(1/eta). In logarithms, less each group's
    largest, it cannot underflow to a group of zeros, however small `eta` is.
    """
    starts = _starts(sizes)
    scale = min(eta, 1.0)  # logarithms times this neither overflow for a small eta nor for a large one
    logs = np.log(uniforms) * (scale / eta) + scale * np.log(gammas)
    logs -= np.repeat(np.maximum.reduceat(logs, starts), sizes)
    with np.errstate(over="ignore", under="ignore"):
        parts: Floats = np.exp(logs / scale)
    parts /= np.repeat(np.add.reduceat(parts, starts), sizes)
    return parts


def _starts(sizes: Sizes) -> Sizes:
    starts: Sizes = np.cumsum(sizes) - sizes
    return starts
