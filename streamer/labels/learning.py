"""What a gate's labelled audit sample teaches: a learned score from its fold `fit`, and its scores for what was decided before."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from streamer.errors import UsageError
from streamer.gates.folds import cannot_learn, fold_of
from streamer.gates.setting_changes import calibrated_for_another
from streamer.labels.answer_forms import answer_batch
from streamer.scoring.agreement import FEATURES, agreement
from streamer.scoring.blank import is_blank
from streamer.scoring.fitting import LEAST_PROMPTS, Example, Worth, fit_and_measure, missing_prompts
from streamer.scoring.gram import DECIMALS
from streamer.scoring.learned import UnknownModel, learned_scores
from streamer.scoring.registry import GRAM

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import datetime

    from streamer.gates.policy import GateRevision
    from streamer.gates.settings import GateSettings
    from streamer.scoring.learned import LearnedModel

    Embed = Callable[[Sequence[Sequence[str]]], Sequence[NDArray[np.float32]]]

Floats = NDArray[np.float64]

_BATCHES_A_CALL = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnAnswer:
    """One answer of a batch of the audit sample.

    Attributes
    ----------
    text : None where it was erased, or never kept.
    drawn : whether the draw asks for its severity.
    severity : the present one, for answers that were drawn; None while there is none.
    model : the language model that gave it; empty where the event named none.
    """

    id: str
    text: str | None
    drawn: bool
    severity: float | None
    model: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnBatch:
    """A first attempt of the audit sample, with all its answers, at least two.

    Attributes
    ----------
    row : what the store calls it.
    encoded : a worker's encoder made the embeddings, so that they can be made again.
    """

    row: int
    batch_id: str
    encoded: bool
    answers: tuple[DrawnAnswer, ...]

    @property
    def readable(self) -> bool:
        """Whether it can be scored again."""
        return self.encoded and all(one.text is not None for one in self.answers)

    @property
    def models(self) -> tuple[str, ...]:
        """The language model of each answer; nothing at all where none is named."""
        named = tuple(one.model for one in self.answers)
        return named if any(named) else ()

    @property
    def labelled(self) -> bool:
        """Whether an answer that was drawn has a severity."""
        return any(one.drawn and one.severity is not None for one in self.answers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lesson:
    """A model, and what it is worth.

    Attributes
    ----------
    fit, calibrate : labelled prompts in each fold.
    """

    model: LearnedModel
    worth: Worth
    fit: int
    calibrate: int


Outcome = Literal["proposed", "refused", "rejected"]

GROWTH = 1.5
"""The labelled prompts must have grown by this factor before the service fits again. Each fit is another chance for a useless
score to look useful; so there are few of them, and when they come does not depend on what labels say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreFit:
    """A fit by the service that is on record, or that somebody does not want what it proposed.

    Attributes
    ----------
    settings : of the gate, as the fit saw them.
    model : None where none could be fitted.
    labelled : labelled prompts that there were, in both folds.
    before, after, error : shares of all prompts that Gram energy and the score would serve, and the standard error of the
        difference; None without a model.
    reason : of a refusal or rejection; the figures in words of a proposal.
    """

    gate: str
    outcome: Outcome
    settings: GateSettings
    model: LearnedModel | None
    labelled: int
    before: float | None
    after: float | None
    error: float | None
    reason: str
    by: str
    at: datetime
    id: int

    def about(self, settings: GateSettings) -> bool:
        """Whether a gate of these settings has what the fit was for: the score that it would replace, and the same labels."""
        return not calibrated_for_another(self.settings, settings)

    def waits(self, settings: GateSettings) -> bool:
        """Whether it is proposed to a gate of these settings."""
        return self.outcome == "proposed" and self.model is not None and self.about(settings)


def wanted_labels(settings: GateSettings, last: ScoreFit | None) -> int | None:
    """How many labelled prompts there must be before the service fits; None: it does not fit for these settings.

    Parameters
    ----------
    last : the newest fit of the gate on record.
    """
    if settings.learn_score == "off" or settings.scorer != GRAM or settings.recalibrate == "manual":
        return None
    if last is None or not last.about(settings):
        return LEAST_PROMPTS
    return max(LEAST_PROMPTS, math.ceil(GROWTH * last.labelled))


def learn(gate: GateRevision, batches: Sequence[DrawnBatch], embed: Embed) -> Lesson:
    """Fit a score on the labels of the fold `fit`, and measure on them what it is worth.

    The labels of the fold `calibrate` are counted, and not looked at.

    Parameters
    ----------
    batches : the audit sample that Gram energy or a learned score has decided, under the gate's unit and encoder.
    embed : vectors of batches of texts, by the gate's encoder.

    Raises
    ------
    UsageError
        When the gate cannot have a learned score, or there are too few labels; the message says how many are missing.
    """
    settings = gate.settings
    if (why := cannot_learn(settings)) is not None:
        raise UsageError(f"gate {gate.gate}: {why}")
    known = [one for one in batches if one.labelled and one.readable]
    lost = sum(one.labelled and not one.readable for one in batches)
    if (missing := missing_prompts(len(known))) is not None:
        more = f"; {lost} more have labels, and their texts are not stored" if lost else ""
        raise UsageError(f"gate {gate.gate}: {missing}{more}")
    fit = [one for one in known if fold_of(gate.audit_salt, gate.gate, one.batch_id) == "fit"]
    examples = [
        found
        for batch, features in _with_features(fit, embed)
        if (found := _example(batch, features, settings)) is not None
    ]
    calibrate = len(known) - len(fit)
    model, (worth,) = fit_and_measure(
        examples,
        order="gram" if settings.unit == "best" else "own",
        alphas=[settings.alpha / settings.max_attempts],
        calibrating=calibrate,
        all_labelled=len(known),
    )
    return Lesson(model=model, worth=worth, fit=len(fit), calibrate=calibrate)


def score_again(
    model: LearnedModel, batches: Sequence[DrawnBatch], embed: Embed
) -> Iterator[dict[int, dict[str, float]]]:
    """Score batches that were decided by another score, some at a time.

    What cannot be scored again, as its texts are gone, gets the score 1: whatever it loses counts at every threshold, which can only
    make a threshold on exposure risk stricter. A batch with an answer of a language model that the model does not know gets 0: in
    service it is held.
    """
    unread = [one for one in batches if not one.readable]
    for first in range(0, len(unread), _BATCHES_A_CALL):
        yield {
            one.row: dict.fromkeys((answer.id for answer in one.answers), 1.0)
            for one in unread[first : first + _BATCHES_A_CALL]
        }
    found: dict[int, dict[str, float]] = {}
    for batch, features in _with_features([one for one in batches if one.readable], embed):
        blank = [is_blank(one.text or "") for one in batch.answers]
        try:
            scores = learned_scores(model, features, blank, batch.models).tolist()
        except UnknownModel:
            scores = [0.0] * len(blank)
        found[batch.row] = {answer.id: score for answer, score in zip(batch.answers, scores, strict=True)}
        if len(found) == _BATCHES_A_CALL:
            yield found
            found = {}
    if found:
        yield found


def no_safe_side(gate: str, method: str, lost: int) -> str:
    """Say why a method that bounds selective risk cannot calibrate a learned score on batches whose texts were gone."""
    return (
        f"gate {gate}: {lost} batches of its audit sample cannot be scored again (their texts are not stored), "
        f"and the promise of method {method} has no safe side on which to count them"
    )


def _with_features(batches: Sequence[DrawnBatch], embed: Embed) -> Iterator[tuple[DrawnBatch, Floats]]:
    for first in range(0, len(batches), _BATCHES_A_CALL):
        some = batches[first : first + _BATCHES_A_CALL]
        texts = [[answer.text or "" for answer in one.answers] for one in some]
        for batch, words, vectors in zip(some, texts, embed(texts), strict=True):
            blank = [is_blank(text) for text in words]
            yield batch, agreement(answer_batch(words, vectors, blank, batch.models))


def _example(batch: DrawnBatch, features: Floats, settings: GateSettings) -> Example | None:
    """The labelled answers of a batch; blank ones teach nothing, for they never ship."""
    places = [
        place
        for place, one in enumerate(batch.answers)
        if one.drawn and one.severity is not None and not is_blank(one.text or "")
    ]
    if not places:
        return None
    severities = np.array([batch.answers[place].severity for place in places], dtype=np.float64)
    ships = None
    if settings.unit == "best":
        gram = features[:, FEATURES.index("gram")].round(DECIMALS)
        ships = int(np.argmax(gram[places]))
    return Example(
        batch.batch_id,
        features[places],
        severities,
        ships,
        tuple(batch.models[place] for place in places if batch.models),
        frozenset(batch.models),
    )
