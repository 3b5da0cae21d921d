"""Fits a learned score on labelled answers, and says whether it is worth having. Pure; needs the extra `learned`.

What fits never calibrates: see `streamer.gates.folds`. Everything here reads the labels of the fold `fit` alone.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from streamer.errors import UsageError
from streamer.extras import needed_by
from streamer.scoring.agreement import FEATURES
from streamer.scoring.gram import DECIMALS
from streamer.scoring.learned import LONGEST_MODEL, LearnedModel, Order, columns_with, with_models

if TYPE_CHECKING:
    from collections.abc import Sequence

Floats = NDArray[np.float64]

LEAST_PROMPTS = 250
"""Labelled prompts, in both folds together, below which nothing is fitted."""

MARGIN = 0.01
"""Share of all prompts by which a learned score must serve more than Gram energy, as far as the fold `fit` can tell."""

CONFIDENCE = 1.6449
"""Standard errors that the gain must lie above 0: one-sided, 95 %."""

BUDGETS = (0.5, 0.75, 1.0, 1.5, 2.0)
"""Times the gate's budget: the gain is the mean over these, because one budget alone is read off a handful of prompts."""

_PENALTIES = (0.001, 0.01, 0.1, 1.0)
"""scikit-learn's C; the one with the least log loss on prompts left out."""

_PARTS, _REPEATS, _RESAMPLES = 5, 5, 200
_DEALS = 10
_LEAST_SCALE = 0.01
_CONSTANT = 1e-9
_GRAM = FEATURES.index("gram")


class NothingToLearn(UsageError):
    """No model can be fitted on these labels."""


@dataclass(frozen=True, slots=True, eq=False)
class Example:
    """The labelled answers of one prompt.

    Attributes
    ----------
    prompt : identity of the batch; unique.
    features : shape (k, len(COLUMNS)), k >= 1, of `streamer.scoring.agreement.agreement`.
    severities : shape (k,), in [0, 1].
    ships : position among these of the only answer that may ship, the one that Gram energy puts first; None: each may.
    models : the language model of each, empty for one that names none; nothing at all where no answer of the prompt does.
    seen : those of all answers to the prompt, labelled or not.
    """

    prompt: str
    features: Floats
    severities: Floats
    ships: int | None = None
    models: tuple[str, ...] = ()
    seen: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Worth:
    """What a learned score serves beyond Gram energy, measured on prompts that did not fit it.

    Attributes
    ----------
    gram, learned : share of all prompts that each would serve, the mean over `BUDGETS`, each calibrated with the labels that
        would be its own: Gram energy with those of both folds, the learned score with those of `calibrate`.
    error : standard error of the difference.
    """

    gram: float
    learned: float
    error: float

    @property
    def gain(self) -> float:
        """How much more the learned score serves."""
        return self.learned - self.gram

    @property
    def shown(self) -> bool:
        """Whether it serves more by `MARGIN`, and not by chance."""
        return self.gain >= MARGIN and self.gain - CONFIDENCE * self.error > 0

    @property
    def said(self) -> str:
        """The figures in words."""
        return (
            f"on prompts that did not fit it, it serves {100 * self.learned:.1f} % where Gram energy serves "
            f"{100 * self.gram:.1f} % ({100 * self.gain:+.1f} points, standard error {100 * self.error:.1f})"
        )


def missing_prompts(labelled: int) -> str | None:
    """Say how many labelled prompts are missing before a score can be learned; None when there are enough."""
    if labelled >= LEAST_PROMPTS:
        return None
    return (
        f"a learned score needs at least {LEAST_PROMPTS} labelled prompts, half of which fit it, and there are {labelled}: "
        f"label {LEAST_PROMPTS - labelled} more"
    )


def fit_model(examples: Sequence[Example], *, order: Order) -> LearnedModel:
    """Fit a logistic regression of "this answer is fine" on how it agrees with the others.

    Each prompt counts the same, however many of its answers are labelled; an answer of severity m counts m times as bad and
    1 - m times as fine. The order of the examples does not matter.

    Raises
    ------
    NothingToLearn
        When there are too few prompts, or all labels say the same.
    """
    rows, penalty = _prepared(_in_order(examples))
    return _model(rows, penalty, order, len(examples))


def fit_and_measure(
    examples: Sequence[Example],
    *,
    order: Order,
    alphas: Sequence[float],
    calibrating: int,
    all_labelled: int,
) -> tuple[LearnedModel, list[Worth]]:
    """Fit a model as `fit_model` does, and measure at each budget what it would serve beyond Gram energy.

    For that every prompt is scored, in each of 5 repetitions, by a model that was fitted on four fifths of the others. A cut is
    then allowed the loss that conformal calibration would allow it with so many labels: alpha - (1 - alpha) / labels. The
    error is that of resampled prompts. Everything is seeded by the examples themselves.

    Parameters
    ----------
    alphas : budgets of one attempt.
    calibrating : labelled prompts that would calibrate the learned score.
    all_labelled : those that calibrate Gram energy.

    Raises
    ------
    NothingToLearn
        As `fit_model`, or when a part of the labels says the same throughout.
    """
    examples = _in_order(examples)
    rows, penalty = _prepared(examples)
    model = _model(rows, penalty, order, len(examples))
    rng = np.random.default_rng(_seed(examples))
    found = []
    for _ in range(_REPEATS):
        # Copies stay together: a few of them, dealt to one part, would leave the others labels of one kind.
        deals = (_left_out(rows, _parts(examples, rng), penalty) for _ in range(_DEALS))
        scores = next((one for one in deals if one is not None), None)
        if scores is None:
            raise NothingToLearn(
                "nearly all labels say the same, or those that say otherwise are of copies: there is too little to learn from"
            )
        found.append(scores)
    count = len(examples)
    weights = np.vstack([np.ones(count), rng.multinomial(count, np.full(count, 1 / count), size=_RESAMPLES)])
    gram_scores = rows.features[:, _GRAM].round(DECIMALS)
    worths = []
    for alpha in alphas:
        budgets = [min(alpha * times, 0.99) for times in BUDGETS]
        gram = _served(rows, gram_scores, weights, [_allowed(one, all_labelled) for one in budgets])
        allowed = [_allowed(one, calibrating) for one in budgets]
        learned = np.mean([_served(rows, scores, weights, allowed) for scores in found], axis=0)
        error = float((learned - gram)[1:].std(ddof=1))
        worths.append(Worth(gram=float(gram[0]), learned=float(learned[0]), error=error))
    return model, worths


def left_out_log_odds(
    examples: Sequence[Example], rows_of: Sequence[Floats], models_of: Sequence[Sequence[str]] = ()
) -> list[Floats]:
    """Score every answer of each prompt by a model that its labels did not fit.

    Parameters
    ----------
    rows_of : for each example the features of all its answers.
    models_of : for each example the language models of all its answers, as in `Example.models`; none: no answer names one.

    Returns
    -------
    list of ndarray
        The log odds of each example's answers; those of Gram energy's order where nothing can be fitted.
    """
    rows, penalty = _prepared(examples)
    part = _parts(examples, np.random.default_rng(_seed(examples)))
    found: list[Floats] = [np.empty(0)] * len(examples)
    for one in range(_PARTS):
        fitted = _fit(rows.of_prompts(part != one), penalty)
        for place in np.flatnonzero(part == one).tolist():
            all_rows = rows.columns_of(rows_of[place], models_of[place] if models_of else ())
            found[place] = all_rows[:, _GRAM] if fitted is None else fitted.log_odds(all_rows)
    return found


@dataclass(frozen=True, slots=True, eq=False)
class _TrainingRows:
    """Labelled answers of many prompts, one a row."""

    features: Floats
    severities: Floats
    weights: Floats
    prompt: NDArray[np.intp]
    ships: Floats
    """By how much each row counts among what ships: a prompt's rows add up to 1."""
    models: tuple[str, ...]
    """The names of language models that answers may have; none: no answer names one, and there is no column of models."""

    @classmethod
    def of(cls, examples: Sequence[Example]) -> _TrainingRows:
        if len(examples) < 2 * _PARTS:
            raise NothingToLearn(f"{len(examples)} labelled prompts are too few to fit a score on")
        sizes = [len(one.severities) for one in examples]
        ships = []
        for one, size in zip(examples, sizes, strict=True):
            share = np.full(size, 1 / size)
            if one.ships is not None:
                share = np.zeros(size)
                share[one.ships] = 1.0
            ships.append(share)
        names = {name for one in examples for name in (one.seen or {""})}
        models = tuple(sorted(names)) if any(names) else ()
        return cls(
            np.vstack([_columns(one.features, one.models, models) for one in examples]),
            np.concatenate([one.severities for one in examples]),
            np.concatenate([np.full(size, 1 / size) for size in sizes]),
            np.repeat(np.arange(len(examples)), sizes),
            np.concatenate(ships),
            models,
        )

    def columns_of(self, features: Floats, models: Sequence[str]) -> Floats:
        """Return features, and what is made of models, as these rows have them."""
        return _columns(features, models, self.models)

    @property
    def names(self) -> tuple[str, ...]:
        """What each column is called."""
        return columns_with(self.models)

    def of_prompts(self, chosen: NDArray[np.bool_]) -> _TrainingRows:
        taken = chosen[self.prompt]
        return _TrainingRows(
            self.features[taken],
            self.severities[taken],
            self.weights[taken],
            self.prompt[taken],
            self.ships[taken],
            self.models,
        )


def _columns(features: Floats, models: Sequence[str], names: Sequence[str]) -> Floats:
    if names:
        return with_models(features, models or [""] * len(features), names)
    return features[:, : len(FEATURES)]


@dataclass(frozen=True, slots=True, eq=False)
class _Fitted:
    places: tuple[int, ...]
    means: Floats
    scales: Floats
    coefficients: Floats
    intercept: float

    def log_odds(self, features: Floats) -> Floats:
        found: Floats = (features[:, self.places] - self.means) / self.scales @ self.coefficients
        return found + self.intercept


def _fit(rows: _TrainingRows, penalty: float) -> _Fitted | None:
    """Fit one model; None where the labels are all of one kind."""
    with needed_by("a learned score", "learned"):
        from sklearn.linear_model import LogisticRegression

    share = rows.weights / rows.weights.sum()
    means = share @ rows.features
    spread = np.sqrt(share @ (rows.features - means) ** 2)
    places = tuple(np.flatnonzero(spread > _CONSTANT).tolist())
    fine, bad = rows.weights * (1 - rows.severities), rows.weights * rows.severities
    if not places or fine.sum() <= 0 or bad.sum() <= 0:
        return None
    means = means[list(places)]
    scales = np.maximum(spread[list(places)], _LEAST_SCALE)
    standard = (rows.features[:, places] - means) / scales
    good_rows, bad_rows = fine > 0, bad > 0
    model: Any = LogisticRegression(C=penalty, solver="newton-cholesky", max_iter=1000)  # type: ignore[no-untyped-call]
    model.fit(
        np.vstack([standard[good_rows], standard[bad_rows]]),
        np.repeat([1, 0], [int(good_rows.sum()), int(bad_rows.sum())]),
        sample_weight=np.concatenate([fine[good_rows], bad[bad_rows]]),
    )
    return _Fitted(places, means, scales, model.coef_[0].astype(np.float64), float(model.intercept_[0]))


def _prepared(examples: Sequence[Example]) -> tuple[_TrainingRows, float]:
    rows = _TrainingRows.of(examples)
    return rows, _best_penalty(examples, rows)


def _model(rows: _TrainingRows, penalty: float, order: Order, prompts: int) -> LearnedModel:
    fitted = _fit(rows, penalty)
    if fitted is None:
        raise NothingToLearn(
            "all labels say the same: there is nothing that a score could learn to tell apart"
        )
    made = LearnedModel(
        features=tuple(rows.names[place] for place in fitted.places),
        means=_short(fitted.means),
        scales=_short(fitted.scales),
        coefficients=_short(fitted.coefficients),
        intercept=_short(np.array([fitted.intercept]))[0],
        order=order,
        prompts=prompts,
        models=rows.models,
    )
    if len(made.text) > LONGEST_MODEL:
        raise NothingToLearn(
            f"the answers are of {len(rows.models)} models, whose names make the score longer than {LONGEST_MODEL} characters: "
            "name them by family, without versions"
        )
    return made


def _best_penalty(examples: Sequence[Example], rows: _TrainingRows) -> float:
    """The penalty with the least log loss on prompts left out; the strictest of equals."""
    part = _parts(examples, np.random.default_rng(_seed(examples)))
    losses = []
    for penalty in _PENALTIES:
        scores = _left_out(rows, part, penalty)
        if scores is None:
            return _PENALTIES[0]
        loss = rows.severities * np.logaddexp(0, scores) + (1 - rows.severities) * np.logaddexp(0, -scores)
        losses.append(float(rows.weights @ loss))
    return _PENALTIES[int(np.argmin(losses))]


def _left_out(rows: _TrainingRows, part: NDArray[np.intp], penalty: float) -> Floats | None:
    """The log odds of every row by a model that the rows of its part did not fit; None where one cannot be fitted."""
    scores = np.empty(len(rows.severities))
    for one in range(_PARTS):
        fitted = _fit(rows.of_prompts(part != one), penalty)
        if fitted is None:
            return None
        there = part[rows.prompt] == one
        scores[there] = fitted.log_odds(rows.features[there])
    return scores


def _parts(examples: Sequence[Example], rng: np.random.Generator) -> NDArray[np.intp]:
    """Deal the examples out to parts; those that agree in every number are copies, and stay together."""
    same: dict[bytes, int] = {}
    copies = [
        same.setdefault(one.features.tobytes() + repr(one.models).encode(), len(same)) for one in examples
    ]
    dealt: NDArray[np.intp] = (rng.permutation(len(same)) % _PARTS)[copies]
    return dealt


def _allowed(alpha: float, labels: int) -> float:
    """The mean loss on the calibration prompts that conformal risk control allows."""
    return alpha - (1 - alpha) / labels if labels else -1.0


def _served(rows: _TrainingRows, scores: Floats, weights: Floats, allowed: Sequence[float]) -> Floats:
    """The largest share that a cut serves with a mean loss within what is allowed, the mean over budgets.

    `weights` : shape (w, prompts), how often each prompt counts; returns shape (w,).
    """
    order = np.argsort(-scores, kind="stable")
    ranked = scores[order]
    ends = np.flatnonzero(np.append(ranked[1:] != ranked[:-1], True))
    each = weights[:, rows.prompt[order]] * rows.ships[order]
    total = weights.sum(axis=1)[:, np.newaxis]
    served = np.cumsum(each, axis=1)[:, ends] / total
    lost = np.cumsum(each * rows.severities[order], axis=1)[:, ends] / total
    found = np.zeros(len(weights))
    for budget in allowed:
        fits = lost <= budget + 1e-12
        found += np.where(fits, served, 0.0).max(axis=1) / len(allowed)
    return found


def _in_order(examples: Sequence[Example]) -> list[Example]:
    """Examples in an order that nothing but their names decides, and that says nothing of them."""
    return sorted(examples, key=lambda one: hashlib.sha256(one.prompt.encode()).digest())


def _seed(examples: Sequence[Example]) -> int:
    digest = hashlib.sha256()
    for one in examples:
        digest.update(hashlib.sha256(one.prompt.encode()).digest())
    return int.from_bytes(digest.digest()[:8], "big")


def _short(values: Floats) -> tuple[float, ...]:
    """Six significant digits: more would say nothing."""
    found = tuple(float(f"{value:.6g}") for value in values.tolist())
    if not all(map(math.isfinite, found)):
        raise NothingToLearn("the fit did not converge to numbers")
    return found
