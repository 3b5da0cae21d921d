"""What gates ship of prompts that did not calibrate them: at their budget, and at every other one that a decision names."""

import math
from collections.abc import Callable, Sequence

import numpy as np

from streamer.clouds.compared_methods import MethodLabels, Served, Traffic
from streamer.clouds.halves import SPLITS, Floats, Halves, HalvesSplit, outcomes, seeded_splits
from streamer.clouds.measurement import DecidedBatch, units_of
from streamer.clouds.offline import ScoredCloud
from streamer.errors import UsageError
from streamer.frames.results import AtBudget, Through
from streamer.gates.declared import Unit

BUDGETS = tuple(round(step / 100, 2) for step in range(1, 51))
MOST = max(BUDGETS)

Decide = Callable[[int], tuple[DecidedBatch, float]]
"""Decides the prompt at a place; with the budget that it needed, 0 where its gate names none."""


def splits_of(found: Sequence[ScoredCloud], seed: int, *, in_order: bool) -> list[HalvesSplit]:
    """Halve prompts as `streamer evaluate` does from this seed on, or once in their order. Raises `UsageError` for one alone."""
    if len(found) < 2:
        raise UsageError(
            "there is one prompt, and one half calibrates while the other is judged: give at least two, and about a hundred for "
            "a budget of 1 %"
        )
    return seeded_splits([item.cloud for item in found], range(seed, seed + SPLITS), in_order=in_order)


def tried(
    found: Sequence[ScoredCloud],
    unit: Unit,
    splits: Sequence[HalvesSplit],
    gate_of: Callable[[HalvesSplit], Decide],
    *,
    drop_unlabelled: bool,
    progress: Callable[[int], None],
) -> tuple[Callable[[float], AtBudget], tuple[Through, ...]]:
    """Decide the second half of each split by a gate that has seen the first.

    Returns what ships at a budget, which is what needed no larger one, and what gets through.
    `progress` is called with how many splits are done.
    """
    halves = Halves.at(found, unit, splits, drop_unlabelled=drop_unlabelled)
    needed: dict[int, Floats] = {}
    of_prompts: list[list[float]] = [[] for _ in found]
    for done, split in enumerate(splits, start=1):
        decide = gate_of(split)
        batches, shares = [], []
        for place in np.sort(split.second).tolist():
            batch, share = decide(place)
            batches.append(batch)
            shares.append(share)
            of_prompts[place].append(share if any(batch.shipped) else math.inf)
        units = units_of(batches, unit)
        units = units.labelled() if drop_unlabelled else units
        needed[split.seed] = np.where(units.shipped, np.array(shares)[units.batch], np.inf)
        progress(done)

    def run(labels: MethodLabels, alpha: float, _traffic: Traffic) -> Served:
        return Served(None, (needed[labels.seed] <= alpha).astype(np.float64))

    def at(alpha: float) -> AtBudget:
        one = outcomes(run, halves, alpha)
        return AtBudget(
            alpha,
            one.spread(one.ship_rate),
            one.spread(one.exposure_by_question),
            one.spread(one.shipped_severity),
        )

    return at, () if unit == "response" else tuple(_through(found, of_prompts))


def _through(found: Sequence[ScoredCloud], of_prompts: Sequence[Sequence[float]]) -> list[Through]:
    """The wrong answers that ship in most of the splits in which they were decided, the smallest budget first."""
    wrong = []
    for item, shares in zip(found, of_prompts, strict=True):
        share = float(np.median(shares)) if shares else math.inf
        if item.scores is None or not math.isfinite(share):
            continue
        best = item.scores.index(max(item.scores))
        severity = item.cloud.severities[best]
        if severity is not None and severity >= 0.5:
            wrong.append(
                Through(
                    item.cloud.question_id,
                    item.cloud.question,
                    item.cloud.texts[best],
                    severity,
                    item.scores[best],
                    share,
                )
            )
    return sorted(wrong, key=lambda one: (one.budget, one.prompt_id))
