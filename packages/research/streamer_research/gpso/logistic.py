"""Logistic regression on embeddings: the usual first choice with labels, to compare GPSO with."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamer_research.gpso.methods import Fitted, Method, Scored

PENALTY = 1.0
"""scikit-learn's C, at its default: nothing is tuned, for GPSO is not either."""


@dataclass(frozen=True)
class LogisticRegression(Method):
    """scikit-learn's, on unit rows, ridge penalty C = 1, classes weighted to count alike; nothing here is random.

    A batch's score is the mean of its rows' log odds.
    """

    name: str = "logistic regression"
    judges_one: bool = True

    def fit_across(self, good: Sequence[Any], bad: Sequence[Any]) -> Fitted:
        """Fit on all rows of all batches."""
        from sklearn.linear_model import LogisticRegression as Estimator

        rows = np.vstack([*good, *bad])
        classes = np.repeat([1, 0], [sum(map(len, good)), sum(map(len, bad))])
        fitted = Estimator(C=PENALTY, class_weight="balanced", max_iter=1000)  # type: ignore[no-untyped-call]
        fitted.fit(rows, classes)
        return Scored(lambda prepared: prepared.mean(axis=0) @ fitted.coef_[0] + fitted.intercept_[0])
