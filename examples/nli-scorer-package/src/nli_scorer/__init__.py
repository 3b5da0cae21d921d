"""NLI: how little the other answers contradict an answer, by a cross-encoder in this package's folder `model`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from streamer.scoring.scorer import Scorer, finished

if TYPE_CHECKING:
    from streamer.scoring.scorer import AnswerBatch, Floats

MODEL = Path(__file__).parent / "model"
"""A model for sequence classification as transformers saves it, one of whose labels begins with "contra"."""


@lru_cache(maxsize=1)
def cross_encoder() -> tuple[Any, int]:
    """Load the model, and return with it which of its labels means a contradiction. Takes seconds."""
    from sentence_transformers import CrossEncoder

    labels = json.loads((MODEL / "config.json").read_text("utf-8"))["id2label"]
    found = [int(place) for place, label in labels.items() if label.lower().startswith("contra")]
    if len(found) != 1:
        raise ValueError(f"the model in {MODEL} must have one label for a contradiction, and has {labels}")
    # On a processor, whose sums are the same the next time.
    return CrossEncoder(str(MODEL), device="cpu", local_files_only=True), found[0]


@dataclass(frozen=True, slots=True)
class Nli(Scorer):
    """One minus the mean chance of a contradiction between an answer and each other one, both ways."""

    name: ClassVar[str] = "nli"
    title: ClassVar[str] = "no contradiction (NLI)"
    says: ClassVar[str] = "the other answers do not contradict this one, as an NLI model reads them"

    def score(self, batch: AnswerBatch) -> Floats:
        """Score a batch; n answers are n (n - 1) pairs. A blank answer contradicts every other one."""
        n = len(batch.texts)
        read = [place for place in range(n) if not batch.blank[place]]
        pairs = {(batch.texts[i], batch.texts[j]) for i in read for j in read if i != j}
        against = dict(zip(pairs, _contradictions(list(pairs)), strict=True))
        contradicts = np.ones((n, n))
        for i in read:
            for j in read:
                if i != j:
                    contradicts[i, j] = against[batch.texts[i], batch.texts[j]]
        np.fill_diagonal(contradicts, 0.0)
        both = (contradicts + contradicts.T) / 2
        return finished(1.0 - both.sum(axis=1) / (n - 1), batch.blank)


def _contradictions(pairs: list[tuple[str, str]]) -> list[float]:
    if not pairs:
        return []
    model, place = cross_encoder()
    # One pair at a time: in a batch the longest pads the others, and a chance would depend on its neighbours in the last digits.
    found = model.predict(pairs, batch_size=1, activation_fn=_as_it_is(), show_progress_bar=False)
    logits = np.asarray(found, dtype=np.float64)
    chances = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares: list[float] = (chances[:, place] / chances.sum(axis=1)).tolist()
    return shares


def _as_it_is() -> Any:
    from torch import nn

    return nn.Identity()
