"""Logistic regression on embeddings: the usual first choice with labels, to compare GPSO with."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamer_research.gpso.diagnostics import Diagnostics
from streamer_research.gpso.methods import Fitted, settled
from streamer_research.gpso.scatter import Floats, directions

PENALTY = 1.0
"""scikit-learn's C, at its default: nothing is tuned, for GPSO is not either."""


@dataclass(frozen=True, slots=True)
class LogisticRegression:
    """scikit-learn's, on unit rows, ridge penalty C = 1, classes weighted to count alike.

    A batch's score is the mean of its rows' log odds; see `streamer_research.gpso.methods.Method`.
    """

    name: str = "logistic regression"
    judges_one: bool = True

    def prepare(self, rows: Floats) -> Any:
        """Take the rows at unit length."""
        return directions(rows)

    def fit_within(self, good: Floats, bad: Floats, seed: Sequence[int]) -> Fitted:
        """Fit on the training rows of one question; nothing here is random."""
        return self.fit_across([directions(good)], [directions(bad)])

    def fit_across(self, good: Sequence[Any], bad: Sequence[Any]) -> Fitted:
        """Fit on all rows of all batches."""
        from sklearn.linear_model import LogisticRegression as Estimator

        rows = np.vstack([*good, *bad])
        classes = np.repeat([1, 0], [sum(map(len, good)), sum(map(len, bad))])
        fitted = Estimator(C=PENALTY, class_weight="balanced", max_iter=1000)  # type: ignore[no-untyped-call]
        fitted.fit(rows, classes)
        return _FittedPlane(fitted.coef_[0], float(fitted.intercept_[0]))


@dataclass(frozen=True, slots=True, eq=False)
class _FittedPlane:
    weights: Floats
    intercept: float

    def score(self, prepared: Any) -> float:
        return settled(float(prepared.mean(axis=0) @ self.weights) + self.intercept)

    def diagnose(self, prepared: Any, *, good: bool) -> Diagnostics | None:
        return None
