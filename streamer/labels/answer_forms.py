"""Answers as scorers see them. Pure."""

from collections.abc import Sequence
from functools import cached_property
from typing import overload

import numpy as np
from numpy.typing import ArrayLike

from streamer.labels.lexical import normal_form
from streamer.scoring.answer_head import answer_head, whole
from streamer.scoring.judged import WHOLE, Form
from streamer.scoring.scorer import AnswerBatch
from streamer.scoring.unread_answers import not_read


class _Forms(Sequence[str]):
    """The normal forms, made when a scorer first looks: few do, and to make them takes longer than most scores."""

    def __init__(self, texts: Sequence[str], blank: Sequence[bool]) -> None:
        self._texts, self._blank = texts, blank

    @cached_property
    def _made(self) -> list[str]:
        return [
            "" if empty else normal_form(answer_head(text))
            for text, empty in zip(self._texts, self._blank, strict=True)
        ]

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> list[str]: ...
    def __getitem__(self, place: int | slice) -> str | list[str]:
        return self._made[place]

    def __len__(self) -> int:
        return len(self._texts)


def answer_batch(
    texts: Sequence[str],
    embeddings: ArrayLike,
    blank: Sequence[bool],
    models: Sequence[str] = (),
    *,
    encoded: bool = False,
    form: Form = WHOLE,
) -> AnswerBatch:
    """Put together what a scorer is given: the judged parts, the normal forms of what they claim,
    and their embeddings.

    `embeddings`, shape (n, d), are of `form.parts`; `blank` marks answers without anything to see
    in their judged part, as `form.blank` makes them; `models` are as in
    `streamer.scoring.scorer.AnswerBatch`. `encoded` : an encoder made the embeddings of these
    parts; they did not come with them.
    """
    parts = form.parts(texts)
    rules = not_read(parts, blank, embeddings) if encoded else ()
    rows = np.asarray(embeddings, dtype=np.float64)
    wholes = list(map(whole, texts)) if form.agrees else ()
    return AnswerBatch(parts, _Forms(parts, blank), rows, blank, models, rules, form, wholes)
