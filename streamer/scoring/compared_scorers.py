"""Every label-free scorer behind one protocol, so that all can be run on the same answers. Pure.

What a scorer needs beyond the answers is fixed where it is defined, before any file is looked at.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from streamer.scoring.answer_clusters import COSINE, cluster_share
from streamer.scoring.brevity import brevity
from streamer.scoring.cluster_entropy import cluster_entropy
from streamer.scoring.exact_match import exact_match
from streamer.scoring.gram import score_batch
from streamer.scoring.mean_cosine import mean_cosine

if TYPE_CHECKING:
    from collections.abc import Callable

    from streamer.scoring.scorer import AnswerBatch, Scorer

Floats = NDArray[np.float64]

GRAM = "gram"


@dataclass(frozen=True, slots=True)
class NamedScorer:
    """A scorer made of a function; see `streamer.scoring.scorer.Scorer`."""

    name: str
    title: str
    says: str
    function: Callable[[AnswerBatch], Floats]

    def score(self, batch: AnswerBatch) -> Floats:
        """Return shape (n,), in [0, 1], rounded to 1e-6; 0 for blank answers."""
        return self.function(batch)


SCORERS: tuple[Scorer, ...] = (
    NamedScorer(
        GRAM,
        "Gram energy",
        "the embeddings of the other answers point where this one's does (root-mean-square cosine)",
        lambda batch: score_batch(batch.embeddings, batch.blank)[0],
    ),
    NamedScorer(
        "mean-cosine",
        "average pairwise cosine",
        "the embeddings of the other answers are near this one's on average",
        lambda batch: mean_cosine(batch.embeddings, batch.blank),
    ),
    NamedScorer(
        "exact-match",
        "self-consistency, exact match",
        "many other answers have the same head, word for word after normalisation",
        lambda batch: exact_match(batch.forms, batch.blank),
    ),
    NamedScorer(
        "clusters",
        "self-consistency, embedding clusters",
        f"many other answers are in the same cluster of embeddings (linked from a cosine of {COSINE:g})",
        lambda batch: cluster_share(batch.embeddings, batch.blank),
    ),
    NamedScorer(
        "cluster-entropy",
        "cluster entropy (semantic-entropy-like)",
        "the answers to this prompt fall into few clusters; all of them score alike",
        lambda batch: cluster_entropy(batch.embeddings, batch.blank),
    ),
    NamedScorer(
        "brevity",
        "response length, short = safe",
        "the answer is short",
        lambda batch: brevity(batch.texts, batch.blank),
    ),
)
"""All of them, the one that gates use first."""

SCORER_NAMES = tuple(scorer.name for scorer in SCORERS)
