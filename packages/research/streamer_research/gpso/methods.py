"""What the protocols need of a classifier, GPSO as one, and nearest class mean as another. Pure."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np

from streamer_research.gpso.classifier import DEFAULT_RANK_CAP, Classifier, fit_batches, fit_rows
from streamer_research.gpso.diagnostics import Diagnostics, diagnose
from streamer_research.gpso.projectors import spectrum
from streamer_research.gpso.prototypes import DEFAULT_REPLICATES
from streamer_research.gpso.scatter import PIPELINES, Floats, Pipeline, directions, scatter_factor

_ROUNDING = 1e-12


class Fitted(Protocol):
    """A classifier that has been fitted."""

    def score(self, prepared: Any) -> float:
        """Score a batch that its method has prepared: positive good, negative bad, 0 undecided."""

    def diagnose(self, prepared: Any, *, good: bool) -> Diagnostics | None:
        """Return the diagnostics of a batch whose class is known; None where a method has none."""


@dataclass(frozen=True)
class Scored:
    """Fitted by a function that gives a batch its score, not a number where it has none: without diagnostics."""

    of: Callable[[Any], float]

    def score(self, prepared: Any) -> float:
        """Return a score of ordinary size, and 0 where it is rounding alone: a tie is not decided by the last digit."""
        score = float(self.of(prepared))
        return score if abs(score) > _ROUNDING else 0.0

    def diagnose(self, prepared: Any, *, good: bool) -> None:
        """There are none."""


class Method(Protocol):
    """A way to tell good batches of responses from bad ones; a single response is a batch of one."""

    @property
    def name(self) -> str:
        """Short, and unlike every other's."""

    @property
    def judges_one(self) -> bool:
        """Whether a batch of one can be judged."""

    def prepare(self, rows: Floats) -> Any:
        """Make of a batch, shape (n, d), what `score` and `fit_across` take; a function of these rows alone."""
        return directions(rows)

    def fit_within(self, good: Floats, bad: Floats, seed: Sequence[int]) -> Fitted:
        """Fit on the training rows of one question."""
        return self.fit_across([self.prepare(good)], [self.prepare(bad)])

    def fit_across(self, good: Sequence[Any], bad: Sequence[Any]) -> Fitted:
        """Fit on the prepared batches of other questions."""


@dataclass(frozen=True)
class Gpso(Method):
    """GPSO under one pipeline."""

    pipeline: Pipeline
    replicates: int = DEFAULT_REPLICATES
    rank_cap: int = DEFAULT_RANK_CAP

    @property
    def name(self) -> str:
        """``GPSO A`` to ``GPSO D``."""
        return f"GPSO {self.pipeline.key}"

    @property
    def judges_one(self) -> bool:
        """Centred pipelines cannot: a response alone does not deviate from its own mean."""
        return not self.pipeline.centred

    def prepare(self, rows: Floats) -> Any:
        """Decompose the batch's scatter."""
        return spectrum(scatter_factor(rows, self.pipeline))

    def fit_within(self, good: Floats, bad: Floats, seed: Sequence[int]) -> Fitted:
        """Make bootstrap prototypes."""
        fit = partial(fit_rows, replicates=self.replicates, rank_cap=self.rank_cap, seed=seed)
        return _FittedGpso(fit(good, bad, self.pipeline))

    def fit_across(self, good: Sequence[Any], bad: Sequence[Any]) -> Fitted:
        """Make prototypes of other questions' projectors."""
        return _FittedGpso(fit_batches(good, bad, self.pipeline, rank_cap=self.rank_cap))


@dataclass(frozen=True, slots=True)
class _FittedGpso:
    classifier: Classifier

    def score(self, prepared: Any) -> float:
        return self.classifier.judge_spectrum(prepared).score

    def diagnose(self, prepared: Any, *, good: bool) -> Diagnostics | None:
        return diagnose(self.classifier, self.classifier.judge_spectrum(prepared), good=good)


@dataclass(frozen=True)
class Tightness(Method):
    """How far a batch's unit rows deviate from their mean, one number: what a projector leaves out of a scatter.

    A batch belongs to the class whose mean deviation is nearer, each batch of a class counting once; a batch of one has none,
    and is undecided.
    """

    name: str = "tightness alone"
    judges_one: bool = False

    def prepare(self, rows: Floats) -> Any:
        """Take the trace of the scatter of pipeline A by n / (n - 1), which batches of all sizes have alike; NaN for n = 1."""
        n = len(rows)
        return (
            float(np.square(scatter_factor(rows, PIPELINES["A"])).sum()) * n / (n - 1) if n > 1 else math.nan
        )

    def fit_across(self, good: Sequence[Any], bad: Sequence[Any]) -> Fitted:
        """Take |x - bad| - |x - good| without its flat ends, so that scores beyond both means still differ."""
        goods, bads = np.mean(good), np.mean(bad)
        return Scored(lambda x: (x - (goods + bads) / 2) * np.sign(goods - bads))


@dataclass(frozen=True)
class NearestMean(Method):
    """The class whose mean unit row, over all rows of all batches, is nearer to the batch's mean unit row."""

    name: str = "nearest mean"
    judges_one: bool = True

    def fit_across(self, good: Sequence[Any], bad: Sequence[Any]) -> Fitted:
        """Take the class means."""
        goods, bads = (np.vstack(some).mean(axis=0) for some in (good, bad))

        def nearer(prepared: Any) -> float:
            mean = prepared.mean(axis=0)
            return float(np.square(mean - bads).sum() - np.square(mean - goods).sum())

        return Scored(nearer)
