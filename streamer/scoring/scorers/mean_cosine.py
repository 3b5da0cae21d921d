"""Average pairwise cosine: how near, on average, the other answers are. Pure.

What most people try first. The Gram energy is the root mean square of the same cosines: it counts near answers more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from streamer.scoring.gram import unit_rows
from streamer.scoring.scorer import Scorer, finished

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike

    from streamer.scoring.scorer import AnswerBatch

Floats = NDArray[np.float64]


def mean_cosine(embeddings: ArrayLike, blank: Sequence[bool] | None = None) -> Floats:
    """Score each of n answers by (1 + c) / 2, c the mean cosine to the other n - 1 answers.

    Parameters
    ----------
    embeddings : shape (n, d), n >= 2.
    blank : marks of blank answers, whose cosine to any other counts 0; None: none is.

    Returns
    -------
    ndarray of float64, shape (n,)
        In [0, 1]: 1 where all point the same way, 1/2 where they have nothing in common; 0 for a blank answer.
    """
    rows = unit_rows(embeddings, blank)
    cosines = rows @ rows.T
    np.fill_diagonal(cosines, 0.0)
    marks = [False] * len(rows) if blank is None else blank
    return finished((1.0 + cosines.sum(axis=1) / (len(rows) - 1)) / 2.0, marks)


@dataclass(frozen=True, slots=True)
class MeanCosine(Scorer):
    """The embeddings of the other answers are near this one's on average."""

    name: ClassVar[str] = "mean-cosine"
    place: ClassVar[int] = 1
    title: ClassVar[str] = "average pairwise cosine"
    says: ClassVar[str] = "the embeddings of the other answers are near this one's on average"

    def score(self, batch: AnswerBatch) -> Floats:
        """Score a batch."""
        return mean_cosine(batch.embeddings, batch.blank)
