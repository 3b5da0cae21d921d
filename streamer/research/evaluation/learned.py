"""The learned score in an evaluation: fitted within each first half, so that nothing is measured on what fitted it. Pure.

As in a gate, half of the labelled prompts fit the score and the other half calibrate it; and as there it is refused where
those that fit it do not show that it serves more than Gram energy. Then Gram energy decides, with all labels.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from streamer.clouds.offline import ScoredCloud
from streamer.gates.folds import fold_of
from streamer.research.experiments.halves import Halves, HalvesSplit
from streamer.scoring.agreement import FEATURES
from streamer.scoring.blank import is_blank
from streamer.scoring.fitting import Example, NothingToLearn, fit_and_measure, left_out_log_odds
from streamer.scoring.gram import DECIMALS, in_order_of
from streamer.scoring.learned import UnknownModel, chances, learned_scores

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamer.clouds.cloud import Cloud
    from streamer.gates.settings import Unit
    from streamer.scoring.learned import LearnedModel

Floats = NDArray[np.float64]

Features = tuple[Floats | None, ...]
"""How the answers of each cloud agree, shape (n, features); None for a cloud whose answers are all blank."""

_GRAM = FEATURES.index("gram")


@dataclass(frozen=True, slots=True, eq=False)
class LearnedHalves:
    """What a gate would do with a learned score on each split.

    Attributes
    ----------
    halves : by budget.
    refused : by budget, in how many splits Gram energy decides.
    """

    halves: dict[float, Halves]
    refused: dict[float, int]


def blank_marks(cloud: Cloud) -> list[bool]:
    """Which answers of a cloud are blank."""
    return [is_blank(text) for text in cloud.texts]


def example(cloud: Cloud, rows: Floats | None, unit: Unit) -> Example | None:
    """The labels of a cloud that a gate of this unit would have; None where there are none.

    Under `best` that is one label, of the answer that Gram energy puts first.
    """
    if rows is None:
        return None
    gram = rows[:, _GRAM].round(DECIMALS)
    places = [
        place
        for place, (severity, blank) in enumerate(zip(cloud.severities, blank_marks(cloud), strict=True))
        if severity is not None and not blank
    ]
    if unit == "best":
        written = np.flatnonzero(~np.array(blank_marks(cloud)))
        best = int(written[np.argmax(gram[written])])
        places = [best] if best in places else []
    if not places:
        return None
    severities = np.array([cloud.severities[place] for place in places], dtype=np.float64)
    models = cloud.models
    return Example(
        cloud.batch_id,
        rows[places],
        severities,
        0 if unit == "best" else None,
        tuple(models[place] for place in places if models),
        frozenset(models),
    )


def scored_by(model: LearnedModel, clouds: Sequence[Cloud], features: Features) -> list[ScoredCloud]:
    """Apply a model to every cloud; one with an answer of a language model that it does not know gets scores of 0, as it is held."""
    return [
        ScoredCloud(cloud, None if rows is None else _scores(model, cloud, rows))
        for cloud, rows in zip(clouds, features, strict=True)
    ]


def _scores(model: LearnedModel, cloud: Cloud, rows: Floats) -> tuple[float, ...]:
    try:
        return tuple(learned_scores(model, rows, blank_marks(cloud), cloud.models).tolist())
    except UnknownModel:
        return (0.0,) * len(rows)


def left_out_scores(clouds: Sequence[Cloud], features: Features) -> list[tuple[float, ...] | None]:
    """Score every answer by a model that its prompt's labels did not fit, each label of every prompt being used.

    Raises
    ------
    NothingToLearn
        When there are too few labels.
    """
    there = [
        (place, found, rows)
        for place, (cloud, rows) in enumerate(zip(clouds, features, strict=True))
        if rows is not None and (found := example(cloud, rows, "response")) is not None
    ]
    odds = left_out_log_odds(
        [found for _, found, _ in there],
        [rows for *_, rows in there],
        [clouds[place].models for place, *_ in there],
    )
    scores: list[tuple[float, ...] | None] = [
        None if rows is None else (0.5,) * len(rows)
        for rows in features  # nothing is known of the unlabelled
    ]
    for (place, _, _), one in zip(there, odds, strict=True):
        scores[place] = tuple(chances(one, blank_marks(clouds[place])).tolist())
    return scores


def in_gram_order(scored: Sequence[ScoredCloud], gram: Sequence[ScoredCloud]) -> list[ScoredCloud]:
    """Let Gram energy choose each cloud's first answer, as a gate of the unit `best` does."""
    return [
        one
        if one.scores is None or other.scores is None
        else replace(
            one,
            scores=tuple(
                in_order_of(np.array(other.scores), np.array(one.scores), blank_marks(other.cloud)).tolist()
            ),
        )
        for one, other in zip(scored, gram, strict=True)
    ]


def learned_halves(
    gram: Sequence[ScoredCloud],
    features: Features,
    unit: Unit,
    splits: Sequence[HalvesSplit],
    by_gram: Halves,
    alphas: Sequence[float],
    *,
    drop_unlabelled: bool = False,
) -> LearnedHalves:
    """Fit, measure and calibrate a learned score within the first half of each split.

    Parameters
    ----------
    gram : every cloud with its Gram energies.
    by_gram : the same splits, by Gram energy.
    """
    clouds = [item.cloud for item in gram]
    examples = [example(cloud, rows, unit) for cloud, rows in zip(clouds, features, strict=True)]
    parts: dict[float, list[tuple[Halves, int]]] = {alpha: [] for alpha in alphas}
    refused = dict.fromkeys(alphas, 0)
    for number, split in enumerate(splits):
        salt = f"evaluation {split.seed}".encode()
        fit = [p for p in split.first if fold_of(salt, "evaluation", clouds[p].batch_id) == "fit"]
        calibrate = [p for p in split.first if p not in set(fit)]
        teaching = [one for p in fit if (one := examples[p]) is not None]
        labelled = sum(examples[p] is not None for p in split.first)
        try:
            model, worths = fit_and_measure(
                teaching,
                order="gram" if unit == "best" else "own",
                alphas=alphas,
                calibrating=labelled - len(teaching),
                all_labelled=labelled,
            )
        except NothingToLearn:
            model, worths = None, []
        own: Halves | None = None
        for place, alpha in enumerate(alphas):
            if model is None or not worths[place].shown:
                refused[alpha] += 1
                parts[alpha].append((by_gram, number))
                continue
            if own is None:
                own = Halves.at(
                    scored_by(model, clouds, features),
                    unit,
                    [HalvesSplit(split.seed, tuple(calibrate), split.second)],
                    drop_unlabelled=drop_unlabelled,
                )
            parts[alpha].append((own, 0))
    return LearnedHalves(
        {
            alpha: Halves(
                by_gram.clouds,
                tuple(halves.labels[at] for halves, at in found),
                tuple(halves.traffic[at] for halves, at in found),
                tuple(halves.severities[at] for halves, at in found),
            )
            for alpha, found in parts.items()
        },
        refused,
    )
