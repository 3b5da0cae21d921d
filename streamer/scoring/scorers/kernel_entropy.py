"""Kernel language entropy: one minus the normalised von Neumann entropy of a batch's embeddings. Pure.

After Nikitin et al. 2024 ("Kernel language entropy"), with cosines of embeddings as the kernel in the place of a graph of
entailments, so that it needs no second model. A negative cosine counts as 0: answers that point in opposite directions do not
say the same. Unlike `cluster-entropy` it has no threshold at which two answers begin to mean
the same. It speaks of the prompt, and Gram energy says which of its answers to show.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from streamer.scoring.gram import in_order_of, score_rows
from streamer.scoring.scorer import Scorer, finished

if TYPE_CHECKING:
    from streamer.scoring.scorer import AnswerBatch

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class KernelEntropy(Scorer):
    """1 - S / ln n, S = -sum of l ln l over the positive eigenvalues l of the cosines above 0, which are made to sum to 1.

    Without its negative cosines a matrix may have negative eigenvalues; what is left without those is the nearest one that has
    none.
    """

    name: ClassVar[str] = "kernel-entropy"
    place: ClassVar[int] = 8
    title: ClassVar[str] = "kernel language entropy"
    says: ClassVar[str] = (
        "the embeddings of the answers to this prompt span few directions; Gram energy says which of them comes first"
    )

    def score(self, batch: AnswerBatch) -> Floats:
        """Score a batch; a blank answer is a direction of its own."""
        return _scores(batch, (batch.unit_rows @ batch.unit_rows.T).clip(min=0.0))

    def score_before(self, batch: AnswerBatch) -> Floats:
        """Score by the cosines as they are, whose squares opposite answers share with equal ones."""
        return _scores(batch, batch.unit_rows @ batch.unit_rows.T)


def _scores(batch: AnswerBatch, kernel: Floats) -> Floats:
    n = len(kernel)
    np.fill_diagonal(kernel, 1.0)
    found = [value for value in np.linalg.eigvalsh(kernel).tolist() if value > 0.0]
    total = math.fsum(found)
    entropy = -math.fsum(value / total * math.log(value / total) for value in found)
    alike = finished(np.full(n, 1.0 - entropy / math.log(n)), batch.blank)
    return in_order_of(score_rows(batch.unit_rows, batch.blank)[0], alike, batch.blank)
