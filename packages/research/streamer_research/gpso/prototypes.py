"""A class's prototype: the average of projectors, brought back to a projector. Pure.

Algorithm "GPSO", the step "Prototype(s)": projectors of replicates are averaged and the average is projected back to
rank r. Replicates are bootstrap resamples of one batch (within a question), or the batches of other questions.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from streamer_research.gpso.projectors import Spectrum, distance, gaps, spectrum
from streamer_research.gpso.scatter import Floats, Pipeline, directions, scatter_factor

DEFAULT_REPLICATES = 8
"""The paper's B."""
_REDRAWS = 64


@dataclass(frozen=True, slots=True, eq=False)
class Prototype:
    """What is kept of a class.

    `directions`: shape (d, r), of the re-projected average of the replicates' projectors. `mean`:
    spectrum of the class's mean scatter, with its leading eigenvalues. `eigengap`: the paper's
    gamma_k, eigenvalue r less eigenvalue r + 1 of the mean scatter; 0 when r is 0. `dispersion`:
    the paper's delta_proto, the median Frobenius distance of the replicates' projectors from the
    prototype. It says how much the prototype would change with other rows. The theorem's prototype
    error is the distance from the *population's* projector, which nobody knows: this is a
    diagnostic in its place, no bound on it.
    """

    directions: Floats
    mean: Spectrum
    eigengap: float
    dispersion: float


def make_prototype(mean: Spectrum, replicates: Sequence[Spectrum], rank: int) -> Prototype:
    """Average the replicates' projectors of rank `rank` and project the average back.

    `mean`: of the class's mean scatter, with at least rank + 1 eigenvalues if it has them.
    `replicates`: at least 1; one with fewer than `rank` directions contributes those that it has.
    `rank`: >= 0; with 0 there is nothing to compare with, and the prototype has no directions.
    """
    bases = [replicate.directions[:, :rank] for replicate in replicates]
    stacked = np.hstack(bases).T / np.sqrt(len(bases))
    found = spectrum(stacked, rank).directions if rank and stacked.size else stacked.T[:, :0]
    return Prototype(
        directions=found,
        mean=mean,
        eigengap=float(gaps(mean.values)[rank - 1]) if rank else 0.0,
        dispersion=float(np.median([distance(basis, found) for basis in bases])),
    )


def bootstrap(
    rows: Floats, pipeline: Pipeline, *, rank: int, replicates: int, rng: np.random.Generator
) -> list[Spectrum]:
    """Resample the rows of a batch with replacement, `replicates` times.

    `rows`: shape (n, d), whose own scatter has at least `rank` directions. `rank`: directions that
    a replicate must have. Few rows drawn with replacement are often copies of one, which have no
    deviations: such a draw is repeated, and after 64 draws the rows themselves stand in (the paper
    does not say what it does). `replicates`: the paper's B >= 1. `rng`: randomness.
    """
    if replicates < 1:
        raise ValueError(f"a prototype needs at least 1 replicate, not {replicates}")
    if pipeline.unit_rows:  # once for all draws
        rows, pipeline = directions(rows), replace(pipeline, unit_rows=False)
    return [_replicate(rows, pipeline, rank, rng) for _ in range(replicates)]


def _replicate(rows: Floats, pipeline: Pipeline, rank: int, rng: np.random.Generator) -> Spectrum:
    for _ in range(_REDRAWS):
        # A third of the rows are not drawn, and the others stand for their copies: fewer rows to decompose.
        times = np.bincount(rng.integers(len(rows), size=len(rows)), minlength=len(rows))
        drawn = spectrum(scatter_factor(rows[times > 0], pipeline, times[times > 0]))
        if len(drawn.values) >= rank:
            return drawn
    return spectrum(scatter_factor(rows, pipeline))
