"""The Gram-projector spectral-overlap rule for two classes, good and bad. Pure.

Equation so-rule and Algorithm "GPSO": a batch belongs to the class whose prototype its projector overlaps with most.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from streamer_research.gpso.projectors import Spectrum, eigengap_rank, overlap, spectrum
from streamer_research.gpso.prototypes import DEFAULT_REPLICATES, Prototype, bootstrap, make_prototype
from streamer_research.gpso.scatter import PIPELINES, Pipeline, scatter_factor

DEFAULT_RANK_CAP = 8
"""The largest rank that the eigengap may choose (the paper's r_max, which it does not give)."""

_TIE = 1e-12


@dataclass(frozen=True, slots=True, eq=False)
class Classification:
    """What the rule says of one batch.

    `overlap_good`, `overlap_bad`: the paper's s_k, each in [0, r]. `rank`: r of the classifier that
    judged. `test`: spectrum of the batch judged.
    """

    overlap_good: float
    overlap_bad: float
    rank: int
    test: Spectrum

    @property
    def score(self) -> float:
        """Overlap with good less overlap with bad, divided by r; in [-1, 1]. Exactly 0 when nothing is decided."""
        margin = self.overlap_good - self.overlap_bad
        return margin / self.rank if self.rank and abs(margin) > _TIE * self.rank else 0.0

    @property
    def good(self) -> bool | None:
        """The class: True good, False bad, None when the overlaps are equal.

        Deviation: the paper's argmax gives a tie to whichever class comes first; then its accuracy would depend on the
        order of classes. Batches without any deviation, centred, always tie.
        """
        return None if self.score == 0 else self.score > 0


@dataclass(frozen=True, slots=True, eq=False)
class Classifier:
    """Two prototypes of one rank; made by `fit_rows` or `fit_batches`."""

    pipeline: Pipeline
    rank: int
    good: Prototype
    bad: Prototype

    def judge(self, rows: ArrayLike) -> Classification:
        """Judge a batch of shape (n, d); its rank is lower than r when it has fewer directions.

        Raises `ValueError` for rows that `scatter_factor` refuses or of another dimension.
        """
        return self.judge_spectrum(spectrum(scatter_factor(rows, self.pipeline)))

    def judge_spectrum(self, test: Spectrum) -> Classification:
        """Judge a batch whose scatter is decomposed already, under this classifier's pipeline."""
        if test.factor.shape[1] != self.good.directions.shape[0]:
            raise ValueError(
                f"the batch has {test.factor.shape[1]} dimensions, the prototypes {self.good.directions.shape[0]}"
            )
        leading = test.directions[:, : self.rank]
        return Classification(
            overlap_good=overlap(leading, self.good.directions),
            overlap_bad=overlap(leading, self.bad.directions),
            rank=self.rank,
            test=test,
        )


def fit_rows(
    good: ArrayLike,
    bad: ArrayLike,
    pipeline: Pipeline | str = "B",
    *,
    replicates: int = DEFAULT_REPLICATES,
    rank_cap: int = DEFAULT_RANK_CAP,
    seed: int | Sequence[int] = 0,
) -> Classifier:
    """Calibrate within one question: bootstrap prototypes from its good and its bad rows, shapes
    (n_good, d) and (n_bad, d), each n >= 1.

    `replicates` is the paper's B, `rank_cap` >= 1 the largest rank. Both classes draw from the same
    `seed`, so that swapping them swaps the verdict and no more. Raises `ValueError` if a class has
    no rows, or rows that `scatter_factor` refuses.
    """
    pipeline = PIPELINES[pipeline] if isinstance(pipeline, str) else pipeline
    rows = [np.asarray(each, dtype=np.float64) for each in (good, bad)]
    means = [spectrum(scatter_factor(each, pipeline)) for each in rows]
    rank = _common_rank(means, rank_cap)
    prototypes = [
        make_prototype(
            mean,
            bootstrap(each, pipeline, rank=rank, replicates=replicates, rng=np.random.default_rng(seed)),
            rank,
        )
        for each, mean in zip(rows, means, strict=True)
    ]
    return Classifier(pipeline, rank, *prototypes)


def fit_batches(
    good: Sequence[Spectrum],
    bad: Sequence[Spectrum],
    pipeline: Pipeline | str = "B",
    *,
    rank_cap: int = DEFAULT_RANK_CAP,
) -> Classifier:
    """Calibrate across questions: prototypes from the spectra of other questions' batches, whose
    scatters count alike.

    `rank_cap` >= 1 is the largest rank. Raises `ValueError` if a class has no batch.
    """
    pipeline = PIPELINES[pipeline] if isinstance(pipeline, str) else pipeline
    if not good or not bad:
        raise ValueError("each class needs at least one calibration batch")
    means = [
        spectrum(np.vstack([batch.factor for batch in batches]) / np.sqrt(len(batches)), rank_cap + 1)
        for batches in (good, bad)
    ]
    rank = _common_rank(means, rank_cap)
    prototypes = [
        make_prototype(mean, batches, rank) for mean, batches in zip(means, (good, bad), strict=True)
    ]
    return Classifier(pipeline, rank, *prototypes)


def _common_rank(means: Sequence[Spectrum], cap: int) -> int:
    """Return min_k r_k; 0 when a class has no direction at all, so that nothing can be decided."""
    return min(eigengap_rank(mean.values, cap) for mean in means)
