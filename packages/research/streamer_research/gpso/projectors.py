"""Spectra of scatters and the projectors on their leading directions, in feature space. Pure.

A projector ``P = WW'`` of rank r (the paper's ``proj_r``) is kept as its orthonormal directions ``W``, shape (d, r).
Signs and rotations of ``W`` within its span do not change ``P``, and nothing here depends on them.

Deviation: the paper states its theory with n x n projectors of the batch (item space). Those of two batches cannot be
compared: item i of one batch has nothing to do with item i of another. Projectors in feature space can, and the paper
computes with them too.
"""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import eigh

from streamer_research.gpso.scatter import Floats

_FEW_ROWS = 64
"""Up to so many rows the singular values of the factor are cheaper than the eigenvalues of the scatter."""


@dataclass(frozen=True, slots=True, eq=False)
class Spectrum:
    """The part of a scatter's spectrum that is there.

    `factor`: shape (n, d); the scatter is ``factor' factor``. `values`: shape (m,), its eigenvalues
    that differ from 0, largest first; m <= min(n, d), or as many as were asked for. `directions`:
    shape (d, m), orthonormal columns, their eigenvectors. `scatter`: shape (d, d), kept where the
    factor has many rows and every use of it would cost as many products.
    """

    factor: Floats
    values: Floats
    directions: Floats
    scatter: Floats | None = None


def spectrum(factor: Floats, most: int | None = None) -> Spectrum:
    """Decompose a scatter that is given as a finite factor of shape (n, d); `most`: so many of the
    largest eigenvalues, None for all that differ from 0.
    """
    n, d = factor.shape
    wanted = min(n, d) if most is None else min(n, d, most)
    scatter = None
    if n == 1:
        length = np.linalg.norm(factor)
        values, directions = np.array([length**2]), factor.T / (length or 1.0)
    elif n <= min(d, _FEW_ROWS):
        _, lengths, across = np.linalg.svd(factor, full_matrices=False)
        values, directions = lengths[:wanted] ** 2, across[:wanted].T
    else:
        scatter = factor.T @ factor
        found = eigh(scatter, subset_by_index=[d - wanted, d - 1], driver="evr")
        values, directions = found[0][::-1], found[1][:, ::-1]
    # What is below this is rounding: directions that a batch does not have.
    there = values > max(n, d) * np.finfo(np.float64).eps * max(float(values[0]), 0.0)
    return Spectrum(factor, values[there], directions[:, there], scatter)


def overlap(one: Floats, other: Floats) -> float:
    """Return ``<P, Q>_F`` (equation so-rule) of two projectors given by directions (d, r) and (d, s); in [0, min(r, s)]."""
    return float(np.square(one.T @ other).sum())


def distance(one: Floats, other: Floats) -> float:
    """Return ``||P - Q||_F`` of two projectors given by directions (d, r) and (d, s); at most sqrt(r + s)."""
    return float(np.sqrt(max(one.shape[1] + other.shape[1] - 2 * overlap(one, other), 0.0)))


def eigengap_rank(values: Floats, cap: int) -> int:
    """Choose a rank by the largest gap between successive eigenvalues ("Rank r selection by
    eigengap").

    `values` differ from 0, largest first; what follows the last counts as 0. `cap` is the paper's
    r_max >= 1, which it does not name. Returns the j in 1..cap with the largest ``values[j-1] -
    values[j]``, the smallest such j; 0 when there are no eigenvalues.
    """
    if cap < 1:
        raise ValueError(f"the largest rank must be at least 1, not {cap}")
    if not len(values):
        return 0
    return int(np.argmax(gaps(values)[:cap])) + 1


def gaps(values: Floats) -> Floats:
    """Return ``values[j] - values[j+1]`` for every j, with 0 after the last."""
    found: Floats = values - np.append(values[1:], 0.0)
    return found
