"""What the paper logs beside each decision, and the condition of its theorem. Pure.

Theorem "Semantic sufficiency of Gram projectors" (equations concentration and margin-cond): where

    c sqrt(r) / gamma * epsilon + delta_proto < Delta_P / 4,

the overlap rule finds the right class with a margin of at least Delta_P**2 / 4.

Deviation: c is 2 sqrt(2), not the paper's 2. The variant of the Davis-Kahan theorem with the gap of *one* of the two
matrices, which is what gamma is, bounds the sines of the angles by 2 sqrt(r) epsilon / gamma, and the distance of
projectors is sqrt(2) times that; the paper's 2 comes from a gap between the two matrices, which is not what it divides by.

Where the condition passes, it is no certificate: epsilon, gamma and delta_proto are computed from samples in place of
the population's, and delta_proto is a dispersion, not an error (see `Prototype.dispersion`).
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy.linalg import eigvalsh
from scipy.sparse.linalg import LinearOperator, eigsh

from streamer_research.gpso.classifier import Classification, Classifier
from streamer_research.gpso.projectors import Spectrum, distance
from streamer_research.gpso.scatter import Floats

DAVIS_KAHAN = 2 * math.sqrt(2)
"""The constant c of the margin condition."""
PAPER_CONSTANT = 2.0
"""The paper's c, for comparison."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnostics:
    """The paper's diagnostics of one judged batch whose class is known.

    `separation`: Delta_P, the Frobenius distance of the two prototypes; at most sqrt(2 r), `rank`
    being r. `concentration`: epsilon, the spectral norm of the batch's scatter less the mean
    scatter of its own class. `eigengap`: gamma at r, `dispersion`: delta_proto, of its own class.
    `margin`: m / r, the overlap with its own class less that with the other, divided by r; in [-1,
    1]. `left`, `right`: both sides of the condition, with c = 2 sqrt(2); left is infinite where
    gamma is 0; `holds_paper`: whether left is less with the paper's c = 2.
    """

    separation: float
    concentration: float
    eigengap: float
    dispersion: float
    rank: int
    margin: float
    left: float
    right: float
    holds: bool
    holds_paper: bool


def separation(classifier: Classifier) -> float:
    """Return Delta_P = ||Q_good - Q_bad||_F, in [0, sqrt(2 r)]."""
    return distance(classifier.good.directions, classifier.bad.directions)


def diagnose(classifier: Classifier, verdict: Classification, *, good: bool) -> Diagnostics:
    """Say of a judged batch, whose class is `good` or not, whether it meets the theorem's condition."""
    own = classifier.good if good else classifier.bad
    between = separation(classifier)
    epsilon = scatter_difference(verdict.test, own.mean)
    left, left_paper = (
        condition_left(
            constant,
            rank=classifier.rank,
            eigengap=own.eigengap,
            concentration=epsilon,
            dispersion=own.dispersion,
        )
        for constant in (DAVIS_KAHAN, PAPER_CONSTANT)
    )
    return Diagnostics(
        separation=between,
        concentration=epsilon,
        eigengap=own.eigengap,
        dispersion=own.dispersion,
        rank=classifier.rank,
        margin=verdict.score if good else -verdict.score,
        left=left,
        right=between / 4,
        holds=left < between / 4,
        holds_paper=left_paper < between / 4,
    )


def condition_left(
    constant: float, *, rank: int, eigengap: float, concentration: float, dispersion: float
) -> float:
    """Return ``c sqrt(r) / gamma * epsilon + delta_proto``, all >= 0; infinite when the eigengap is 0."""
    if eigengap <= 0:
        return math.inf
    return constant * math.sqrt(rank) / eigengap * concentration + dispersion


def scatter_difference(one: Spectrum, other: Spectrum) -> float:
    """Return the spectral norm of the difference of two scatters of one dimension."""
    n, m, d = len(one.factor), len(other.factor), one.factor.shape[1]
    if n + m <= d:
        # In the span of all rows, which has at most n + m dimensions.
        corner = np.asarray(np.linalg.qr(np.vstack([one.factor, other.factor]).T, mode="r"))
        signs = np.r_[np.ones(n), -np.ones(m)]
        return float(np.abs(np.linalg.eigvalsh((corner * signs) @ corner.T)).max())
    if d <= 64:
        return float(np.abs(eigvalsh(one.factor.T @ one.factor - other.factor.T @ other.factor)).max())
    difference = LinearOperator(
        (d, d), matvec=lambda v: _times(one, v) - _times(other, v), dtype=np.dtype(np.float64)
    )
    # A fixed start, so that the same rows give the same figure.
    largest = eigsh(difference, k=1, which="LM", v0=np.cos(np.arange(d)), return_eigenvectors=False)
    return float(np.abs(largest[0]))


def _times(scatter: Spectrum, vector: Floats) -> Floats:
    if scatter.scatter is not None:
        product: Floats = scatter.scatter @ vector
        return product
    return scatter.factor.T @ (scatter.factor @ vector)
