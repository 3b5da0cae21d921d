"""Answers as scorers see them. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from streamer.labels.answer_head import answer_head
from streamer.labels.lexical import normal_form
from streamer.scoring.scorer import AnswerBatch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike


def answer_batch(texts: Sequence[str], embeddings: ArrayLike, blank: Sequence[bool]) -> AnswerBatch:
    """Put together what a scorer is given: the answers, the normal forms of what they claim, and their embeddings.

    Parameters
    ----------
    embeddings : shape (n, d).
    blank : marks of answers without anything to see.
    """
    forms = [
        "" if empty else normal_form(answer_head(text)) for text, empty in zip(texts, blank, strict=True)
    ]
    return AnswerBatch(texts, forms, np.asarray(embeddings, dtype=np.float64), blank)
