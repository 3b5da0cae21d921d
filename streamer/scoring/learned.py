"""The learned score: a logistic regression on how answers agree, frozen as plain numbers. Pure.

Where at most one answer of a batch ships, Gram energy goes on choosing it, and the model says how sure the gate may be of
it. So a label that was given to a batch's best answer is a label of its best answer under every model, and a gate can
change to a learned score with the labels that it has.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from streamer.scoring.agreement import COLUMNS, FEATURES, agreement
from streamer.scoring.gram import DECIMALS, in_order_of
from streamer.scoring.scorer import Scorer, finished

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamer.scoring.scorer import AnswerBatch

Floats = NDArray[np.float64]

FORMAT = "streamer.learned.v1"

OF_MODEL = "model="
"""Begins the name of a feature that is 1 for the answers of one model, and 0 for all others; the rest is the model's name."""

PREFIX = "learned@"
"""Begins the name of every learned score: ``learned@`` and the first 16 hexadecimal digits of its model's SHA-256."""

LONGEST_MODEL = 20_000
"""Characters that a model may have as JSON."""

NAME = re.compile(r"learned@[0-9a-f]{16}")

Order = Literal["gram", "own"]
ORDERS: tuple[Order, ...] = get_args(Order)
"""Which answer of a batch scores highest: the one that Gram energy puts first, or the one of which the model is surest."""

_LARGEST_ODDS = 700.0
_MODELS = "models"
_KEYS = frozenset({"format", "features", "means", "scales", "coefficients", "intercept", "order", "prompts"})


class UnknownModel(ValueError):
    """An answer is of a language model that the score was not fitted on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedModel:
    """Log odds that an answer is fine: intercept + sum_f coefficient_f (x_f - mean_f) / scale_f.

    Where the answers that it was fitted on named their language models it scores answers of these alone.

    Attributes
    ----------
    features : names of `columns_with` its models, each once.
    means, scales, coefficients : one for each of them, finite; scales positive.
    intercept : finite.
    order : which answer of a batch scores highest; see `ORDERS`.
    prompts : labelled prompts that it was fitted on, >= 1.
    models : names of the language models that gave the answers of these prompts, sorted, the empty one among them where some answers
        named none; none at all where no answer did: then names are not looked at.

    Raises
    ------
    ValueError
        When a part is missing, not a number, or of another length.
    """

    features: tuple[str, ...]
    means: tuple[float, ...]
    scales: tuple[float, ...]
    coefficients: tuple[float, ...]
    intercept: float
    order: Order
    prompts: int
    models: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not all(isinstance(one, str) for one in self.models) or list(self.models) != sorted(
            set(self.models)
        ):
            raise ValueError("models must be names in sorted order, each once")
        if self.models and not any(self.models):
            raise ValueError("models must name one, or be left out")
        unknown = sorted(set(self.features) - set(columns_with(self.models)))
        if unknown:
            raise ValueError(f"this version measures no {', '.join(unknown)}")
        if not self.features or len(set(self.features)) != len(self.features):
            raise ValueError("features must be named, each once")
        for name in ("means", "scales", "coefficients"):
            values = getattr(self, name)
            if len(values) != len(self.features):
                raise ValueError(f"{name} must be {len(self.features)} numbers, not {len(values)}")
            if not all(_is_number(one) for one in values):
                raise ValueError(f"{name} must be finite numbers")
        if not all(one > 0 for one in self.scales):
            raise ValueError("scales must be positive")
        if not _is_number(self.intercept):
            raise ValueError("intercept must be a finite number")
        if self.order not in ORDERS:
            raise ValueError(f"order must be one of {', '.join(ORDERS)}, not {self.order!r}")
        if isinstance(self.prompts, bool) or not isinstance(self.prompts, int) or self.prompts < 1:
            raise ValueError("prompts must be a whole number, at least 1")

    @classmethod
    def of_text(cls, text: str) -> LearnedModel:
        """Read a model from its JSON. Raises `ValueError` for anything that `text` would not write."""
        if len(text) > LONGEST_MODEL:
            raise ValueError(f"a model has at most {LONGEST_MODEL} characters, not {len(text)}")
        try:
            values = json.loads(text, parse_constant=_refuse)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"a model must be JSON: {error}") from None
        if (
            not isinstance(values, dict)
            or values.get("format") != FORMAT
            or values.keys() - {_MODELS} != _KEYS
        ):
            raise ValueError(f"a model must be an object {FORMAT} with {', '.join(sorted(_KEYS))}")
        try:
            made = cls(
                features=tuple(values["features"]),
                means=tuple(map(_number, values["means"])),
                scales=tuple(map(_number, values["scales"])),
                coefficients=tuple(map(_number, values["coefficients"])),
                intercept=_number(values["intercept"]),
                order=values["order"],
                prompts=values["prompts"],
                models=tuple(values.get(_MODELS, ())),
            )
        except (TypeError, OverflowError) as error:
            raise ValueError(f"a model has parts of another type: {error}") from None
        if made.text != text:
            raise ValueError("a model must be written as this program writes it: sorted keys, no spaces")
        return made

    @property
    def text(self) -> str:
        """The model as JSON, the same characters for the same numbers; its name is a hash of them."""
        values: dict[str, Any] = {
            "format": FORMAT,
            "features": list(self.features),
            "means": list(self.means),
            "scales": list(self.scales),
            "coefficients": list(self.coefficients),
            "intercept": self.intercept,
            "order": self.order,
            "prompts": self.prompts,
        }
        if self.models:
            values[_MODELS] = list(self.models)
        return json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False)

    @property
    def name(self) -> str:
        """What a gate, its decisions and its topics call this score."""
        return f"{PREFIX}{hashlib.sha256(self.text.encode()).hexdigest()[:16]}"

    @property
    def steepness(self) -> float:
        """How far a score may move for a step of one in all its measured features together, at least 1."""
        slopes = (
            abs(c) / s
            for name, c, s in zip(self.features, self.coefficients, self.scales, strict=True)
            if not name.startswith(OF_MODEL)
        )
        return max(1.0, math.fsum(slopes) / 4)

    def log_odds(self, features: Floats, models: Sequence[str] = ()) -> Floats:
        """Apply the model to rows of `streamer.scoring.agreement.agreement`, shape (n, len(COLUMNS)); returns shape (n,).

        Parameters
        ----------
        models : the language model of each answer, empty for one that names none; nothing at all where none does.

        Raises
        ------
        UnknownModel
            When the model was fitted on answers with models, and one of these was not among them.
        """
        if self.models:
            named = models or [""] * len(features)
            if strange := sorted(set(named) - set(self.models)):
                raise UnknownModel(
                    f"the score was fitted on no answers of {strange[0] or 'an unnamed model'}, but on those of "
                    + ", ".join(one or "an unnamed one" for one in self.models)
                )
            features = with_models(features, named, self.models)
        columns = columns_with(self.models)
        places = [columns.index(name) for name in self.features]
        rows = (features[:, places] - np.array(self.means)) / np.array(self.scales)
        found: Floats = self.intercept + np.einsum("ij,j->i", rows, np.array(self.coefficients))
        return found


@dataclass(frozen=True, slots=True)
class Learned(Scorer):
    """The chance that an answer is fine, as a model sees it that was fitted on labels which calibrate nothing."""

    name: ClassVar[str] = "learned"
    title: ClassVar[str] = "learned score"
    says: ClassVar[str] = (
        "answers that agree as this one does were fine among the labels that it was fitted on"
    )

    model: LearnedModel

    def __post_init__(self) -> None:
        """Take the model as it is: it has no parameters of the command line."""

    def score(self, batch: AnswerBatch) -> Floats:
        """Score a batch."""
        return learned_scores(self.model, agreement(batch), batch.blank, batch.models)


def columns_with(models: Sequence[str]) -> tuple[str, ...]:
    """Return what columns are called: those of all answers, and where there are models also `with_models`'s."""
    return (*COLUMNS, *(f"{OF_MODEL}{one}" for one in models)) if models else FEATURES


def with_models(features: Floats, models: Sequence[str], names: Sequence[str]) -> Floats:
    """Return features with a column more for each name, 1 where an answer is of that model: shape (n, columns + len(names))."""
    of_model = np.array([[float(one == name) for name in names] for one in models])
    return np.hstack([features, of_model.reshape(len(features), len(names))])


def learned_scores(
    model: LearnedModel, features: Floats, blank: Sequence[bool], models: Sequence[str] = ()
) -> Floats:
    """Score n answers by their chance of being fine.

    In the order `gram` those that Gram energy scores highest come first: among several of these each gets the largest score of
    theirs, and any other one at most 1e-6 less than that.

    Parameters
    ----------
    features : shape (n, len(COLUMNS)), from `streamer.scoring.agreement.agreement`.
    blank : n marks.
    models : as in `LearnedModel.log_odds`, which says what is raised.

    Returns
    -------
    ndarray of float64, shape (n,)
        In [0, 1], rounded to 1e-6; 0 for blank answers.
    """
    scores = chances(model.log_odds(features, models), blank)
    if model.order == "own":
        return scores
    return in_order_of(features[:, FEATURES.index("gram")].round(DECIMALS), scores, blank)


def chances(log_odds: Floats, blank: Sequence[bool]) -> Floats:
    """Return log odds as scores in [0, 1], rounded to 1e-6; 0 for blank answers."""
    return finished(1.0 / (1.0 + np.exp(-log_odds.clip(-_LARGEST_ODDS, _LARGEST_ODDS))), blank)


@lru_cache(maxsize=64)
def learned_scorer(text: str) -> Learned:
    """Return the scorer of a model's JSON. Raises `ValueError` as `LearnedModel.of_text`."""
    return Learned(LearnedModel.of_text(text))


def _is_number(value: object) -> bool:
    return isinstance(value, float) and math.isfinite(value)


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"a number was expected, not {value!r}")
    return float(value)


def _refuse(name: str) -> float:
    raise ValueError(f"{name} is no number")
