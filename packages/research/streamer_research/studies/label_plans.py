"""Whom to ask about: labels needed if draws depend on the score, ``python -m streamer_research.studies.label_plans FILE...``.

A prompt of score q is labelled with a probability p(q) that was fixed before. Its loss counts 1/p(q) times where it was
labelled, and the bound on the unseen prompt's loss is 1/(the least p above the floor) in place of 1: the weighted losses have
the same mean, so that conformal risk control on them keeps the budget. Where p is 0 nothing ships, so nothing is asked (a
label floor). A plan with *known shares* takes the mean of each stratum in place of weights, and how many prompts are in each stratum
from the scores of all: see `threshold_by_strata`. Each repetition draws prompts from a file with replacement; unit `best`. Prints one Markdown table for each file.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from streamer.calibration.history import level_above
from streamer.calibration.loss_curve import LossCurve, budget_limit
from streamer_research.studies.command_arguments import (
    budget_table,
    count_argument,
    print_tables,
    table_parser,
)
from streamer_research.studies.serving_more import ALPHAS, read_prompts

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from streamer_research.studies.serving_more import BestAnswers, Floats

ENOUGH = 0.8
"""So much of what unlimited labels would serve ..."""

SURE = 0.95
"""... must so many calibrations serve."""

MOST = 6_000
"""Prompts drawn, at most."""

REPETITIONS = 1_000
_GROWTH = 1.05


@dataclass(frozen=True, slots=True)
class LabelPlan:
    """How likely a label is by score.

    Attributes
    ----------
    name : in the table.
    above : the share of prompts, those with the highest scores, that may be labelled.
    top, thinned : of the share `top` with the highest scores only this part is labelled.
    known_shares : whether strata are weighed by their shares, in place of labels by the inverse of their probability.
    """

    name: str
    above: float = 1.0
    top: float = 0.0
    thinned: float = 1.0
    known_shares: bool = False

    def levels(self, scores: Floats) -> tuple[float, float]:
        """Return the floor and where thinning begins, fixed from scores alone."""
        floor = -math.inf if self.above >= 1 else level_above(scores, self.above)
        return floor, level_above(scores, self.top) if self.top else math.inf


PLANS = (
    LabelPlan("all alike"),
    LabelPlan("above 0.7", above=0.7),
    LabelPlan("above 0.6", above=0.6),
    LabelPlan("above 0.5", above=0.5),
    LabelPlan("above 0.7, half of the top 0.3", above=0.7, top=0.3, thinned=0.5),
    LabelPlan("above 0.5, half of the top 0.2", above=0.5, top=0.2, thinned=0.5),
    LabelPlan("above 0.5, a third of the top 0.2", above=0.5, top=0.2, thinned=1 / 3),
    LabelPlan(
        "above 0.7, half of the top 0.3, shares known", above=0.7, top=0.3, thinned=0.5, known_shares=True
    ),
    LabelPlan(
        "above 0.5, a third of the top 0.2, shares known",
        above=0.5,
        top=0.2,
        thinned=1 / 3,
        known_shares=True,
    ),
)


@dataclass(frozen=True, slots=True)
class Needed:
    """What a plan needs: drawn prompts, labels on average, the mean served, and the mean exposure."""

    prompts: int
    labels: float
    served: float
    exposure: float


def threshold(scores: Floats, losses: Floats, probability: Floats, bound: float, alpha: float) -> float:
    """Return the lowest cut whose weighted losses are within the budget of G prompts.

    Parameters
    ----------
    scores : shape (G,).
    losses : shape (G,), the severity of those that were labelled, else 0.
    probability : shape (G,), in (0, 1], that each is labelled with.
    bound : on the weighted loss of the unseen prompt, >= 1.
    """
    limit = budget_limit(alpha, len(scores)) + 1 - bound
    return LossCurve.of(scores, losses / probability).first_over(limit) if limit >= 0 else math.inf


def threshold_by_strata(
    scores: Floats, losses: Floats, strata: NDArray[np.intp], shares: Floats, alpha: float
) -> float:
    """Return the lowest cut with sum_s share_s (losses of s above it + 1) / (labels of s + 1) at most alpha.

    Valid where the labels of each stratum are independent draws of its prompts, however many they are: with one more prompt in each
    stratum the sum of the mean losses is symmetric in the prompts of each, and the cut that it gives is no higher than this one.
    A share is the chance that a prompt is in the stratum; prompts that never ship need none.

    Parameters
    ----------
    scores, losses, strata : shape (n,), of the labelled prompts alone; strata are numbers from 0.
    shares : shape (S,), in [0, 1].
    """
    weights = shares / (np.bincount(strata, minlength=len(shares)) + 1)
    limit = alpha - float(weights.sum())
    return LossCurve.of(scores, losses * weights[strata]).first_over(limit) if limit >= 0 else math.inf


def calibrations(prompts: BestAnswers, plan: LabelPlan, drawn: int, alpha: float, repetitions: int) -> Floats:
    """Simulate: shape (repetitions, 3), the labels of each calibration, what it serves, and what it exposes."""
    floor, top = plan.levels(prompts.scores)
    found = np.empty((repetitions, 3))
    for repetition in range(repetitions):
        rng = np.random.default_rng([20261123, repetition])
        order = rng.integers(len(prompts.scores), size=MOST)[:drawn]
        kept = rng.random(MOST)[:drawn]
        scores = prompts.scores[order]
        probability = np.where(scores > top, plan.thinned, 1.0)
        asked = (scores > floor) & (kept < probability)
        if plan.known_shares:
            of, share = (scores[asked] > top).astype(np.intp), prompts.outcome(top)[0]
            shares = np.array([prompts.outcome(floor)[0] - share, share])
            cut = threshold_by_strata(scores[asked], prompts.severities[order][asked], of, shares, alpha)
        else:
            losses = np.where(asked, prompts.severities[order], 0.0)
            cut = threshold(scores, losses, probability, 1 / plan.thinned if plan.top else 1.0, alpha)
        cut = max(cut, floor)
        found[repetition] = asked.sum(), *prompts.outcome(cut)
    return found


def needed(prompts: BestAnswers, plan: LabelPlan, alpha: float, repetitions: int) -> Needed | None:
    """Return the fewest prompts with which enough calibrations serve enough; None where `MOST` do not suffice."""
    everything, _ = prompts.outcome(
        LossCurve.of(prompts.scores, prompts.severities).first_over(alpha * len(prompts.scores))
    )
    drawn = math.ceil(1 / alpha)
    while drawn <= MOST:
        found = calibrations(prompts, plan, drawn, alpha, repetitions)
        if float(np.quantile(found[:, 1], 1 - SURE, method="lower")) >= ENOUGH * everything:
            labels, served, exposure = found.mean(axis=0).tolist()
            return Needed(drawn, labels, served, exposure)
        drawn = math.ceil(drawn * _GROWTH)
    return None


def markdown_table(prompts: BestAnswers, alphas: Sequence[float], repetitions: int) -> str:
    """Write a file's table: for each budget the labels that each plan needs, and what it then serves and exposes."""
    return budget_table(
        "labelled",
        ("prompts drawn", "labels", "served", "exposure"),
        alphas,
        (
            (plan.name, [_cells(needed(prompts, plan, alpha, repetitions)) for alpha in alphas])
            for plan in PLANS
        ),
    )


def _cells(found: Needed | None) -> str:
    if found is None:
        return "– | – | – | –"
    return f"{found.prompts} | {found.labels:.0f} | {found.served:.3f} | {found.exposure:.4f}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    parser = table_parser(
        "label_plans",
        "Count the labels that draws by score need, on files of response clouds.",
        alphas=ALPHAS,
        kept="scores",
    )
    parser.add_argument(
        "--repetitions", type=count_argument(20), default=REPETITIONS, help="calibrations, seeded 0, 1, ..."
    )
    return print_tables(parser.parse_args(arguments), _tables)


def _tables(path: Path, options: argparse.Namespace) -> Iterator[tuple[str, str]]:
    prompts = read_prompts(path, options.scores)
    yield (
        f"{path.name}: {len(prompts.scores)} prompts",
        markdown_table(prompts, options.alpha, options.repetitions),
    )


if __name__ == "__main__":
    sys.exit(main())
