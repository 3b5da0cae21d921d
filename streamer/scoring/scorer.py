"""What a label-free scorer is: one batch of answers in, one score for each answer out. Pure.

Scores lie in [0, 1], higher is safer, and are rounded to 1e-6, so that what differs by less is a tie. A blank answer
agrees with no other and scores 0. The order of the answers does not matter: permuting them permutes the scores.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from streamer.calibration.specification import Parametrised
from streamer.scoring.gram import DECIMALS, unit_rows
from streamer.scoring.unread_answers import Rule

Floats = NDArray[np.float64]

Given = tuple[tuple[float, ...], tuple[float | None, ...] | None]
"""n scores, and the n numbers that they were made of where these are kept."""


class Judges(Protocol):
    """What of an answer is judged: `streamer.scoring.judged.Form` is."""

    @property
    def agrees(self) -> object:
        """None: no more is known of it than of any text."""

    @property
    def structured(self) -> bool:
        """Whether it is JSON."""

    def agreement(self, parts: Sequence[str]) -> Floats:
        """Return how far each agrees with the others, shape (n,)."""


@dataclass(frozen=True, eq=False)
class AnswerBatch:
    """The n >= 2 answers to one prompt, as scorers see them; n >= 1 without embeddings.

    Attributes
    ----------
    texts : the judged part of each answer.
    forms : what of each answer is compared word by word, in a normal form; empty for a blank one.
    embeddings : shape (n, d), rows of any positive length; those of blank answers are not looked at.
        d = 0: there are none.
    blank : n marks of answers that are nothing but white space.
    models : the model that gave each answer, empty for one that is not named; nothing at all where none is.
    not_read : why the encoder did not read each answer, None for one that it did; nothing at all where it read all. Otherwise its
        embeddings say nothing, and no scorer of embeddings is asked.
    form : what is judged; None: the answers without their reasoning.
    wholes : the answers without their reasoning, where other parts of them are judged.
    """

    texts: Sequence[str]
    forms: Sequence[str]
    embeddings: Floats
    blank: Sequence[bool]
    models: Sequence[str] = ()
    not_read: tuple[Rule | None, ...] = ()
    form: Judges | None = None
    wholes: Sequence[str] = ()

    def __post_init__(self) -> None:
        lengths = {len(self.texts), len(self.forms), len(self.embeddings), len(self.blank)}
        if len(lengths) != 1:
            raise ValueError(
                f"texts, forms, embeddings and blank marks must be of one number, not {sorted(lengths)}"
            )
        if self.models and len(self.models) != len(self.texts):
            raise ValueError(f"there are {len(self.texts)} answers and {len(self.models)} models")
        if len(self.texts) < 2 and self.embeddings.size:
            raise ValueError(f"agreement needs at least 2 responses, not {len(self.texts)}")

    @property
    def embedded(self) -> bool:
        """Whether it has embeddings that say something: the encoder has read the answers."""
        return bool(self.embeddings.size) and not self.not_read

    @cached_property
    def unit_rows(self) -> Floats:
        """The embeddings at length 1, those of blank answers 0; raises `ValueError` as `streamer.scoring.gram.unit_rows`."""
        return unit_rows(self.embeddings, self.blank)


class Scorer(Parametrised):
    """A way to score answers without labels: one file in `streamer.scoring.scorers`, and everything else follows from it."""

    __slots__ = ()

    title: ClassVar[str]
    """For tables, in a few words."""
    says: ClassVar[str]
    """What a high score means, in one sentence."""
    of_event: ClassVar[str | None] = None
    """The field of an event's responses that the scores are made of; None: they are not the event's."""
    in_place: ClassVar[str | None] = None
    """What a gate has in the place of an encoder, for a scorer that reads no embeddings, or how that begins (``judge:``);
    None: it reads them."""
    of_claims: ClassVar[bool] = False
    """Whether it scores claims, for gates of the unit `claim`, and no whole answers."""
    asks: ClassVar[bool] = False
    """Whether a language model is asked for what the scores are made of."""
    missing: ClassVar[str] = "scorer_failed"
    """The reason of a hold, where that which the scores are made of is not there."""

    def score(self, batch: AnswerBatch) -> Floats:
        """Return shape (n,), in [0, 1], rounded to 1e-6; 0 for blank answers. Raises `ValueError` for what has no score."""
        raise ValueError(f"the scores of {self.name} are not computed from answers")

    def support(self, claims: Sequence[str], witnesses: Sequence[str]) -> Floats:
        """Return how far others support each of K claims, shape (K,), with claims and witnesses as in
        `streamer.scoring.claims.support.features`: in [0, 1], rounded to 1e-6, 0 for an unread one.
        """
        raise ValueError(f"the scorer {self.name} scores whole answers, and no claims")

    def holds(self, batch: AnswerBatch) -> bool:
        """Whether it has nothing to say of a batch, since the encoder did not read it."""
        return bool(batch.not_read)

    def with_raw(self, batch: AnswerBatch) -> tuple[Floats, Floats | None]:
        """Return the scores, and the quantity that they are made of where it is kept with a decision; not a number: there is none."""
        return self.score(batch), None

    def of_number(self, number: float) -> float:
        """Return the score in [0, 1] of the number that came with an answer; of scorers that read no embeddings alone."""
        raise NotImplementedError(f"the scorer {self.name} computes its scores")

    def of_given(self, given: Sequence[float | None], blank: Sequence[bool]) -> Given | None:
        """Return the scores of one number an answer, and those that were asked for; None where one is missing.

        A blank answer scores 0 and needs none.
        """
        numbers = [None if empty else one for one, empty in zip(given, blank, strict=True)]
        if numbers.count(None) > sum(blank):
            return None
        made = [0.0 if one is None else self.of_number(one) for one in numbers]
        scores = tuple([round(one, DECIMALS) + 0.0 for one in made])  # no -0.0
        if not self.asks:
            return scores, None
        return scores, tuple([None if one is None else one + 0.0 for one in numbers])


def finished(values: Floats, blank: Sequence[bool]) -> Floats:
    """Return values as scores: clipped to [0, 1], rounded once, 0 where the answer is blank."""
    scores: Floats = values.clip(0.0, 1.0).round(DECIMALS)
    scores[np.asarray(blank, dtype=np.bool_)] = 0.0
    return scores
