"""Transductive calibration: a threshold for each batch, from its own scores, that ships more.

Plain Conformal Risk Control charges the fresh group with a loss of 1. The batch's scores are known, so that
its loss at threshold l is at most c(l), a number that follows from them. With S(l) = sum_g L_g(l) over G
calibration groups,

    lambda_T = min{ l : S(l) + c(l) <= alpha (G + 1) }.

Why it holds: lambda* = min{ l : S(l) + L_{G+1}(l) <= alpha (G + 1) } treats all G + 1 groups alike, so that
E[L_{G+1}(lambda*)] <= alpha; L_{G+1} <= c gives lambda_T >= lambda*; and losses fall in l. The loss L_{G+1}
is that of the calibration's own weighting scheme. c must bound it for every draw of the weights:

- scheme mean, all responses labelled: c(l) = (1/I) sum_i u_i 1{Q_i > l};
- scheme mean, k responses of each group labelled, drawn without replacement: the k largest of the u_i 1{Q_i >
  l}, over k;
- `crc`, `bb`, `rbwa`: the largest of the u_i 1{Q_i > l}, because one response may get the whole weight.

Here u_i in [m_i, 1] are caps on severity, 1 where nothing better is known. With the first c under the last
schemes the budget is broken. For c <= 1 a level with S(l) <= B = alpha (G + 1) - 1 always suffices and one with
S(l) > alpha (G + 1) never does, so that only the window between them is kept.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from streamer.calibration.arguments import check_alpha, whole_number
from streamer.calibration.batch_rule import TransductiveRule
from streamer.calibration.crc import calibrate_groups
from streamer.calibration.groups import LabelledGroup
from streamer.calibration.guarantee import besides, budget, counted
from streamer.calibration.loss_curve import LossCurve, budget_limit
from streamer.calibration.registry import weighting_scheme
from streamer.calibration.specification import Calibrated, Calibrator, Sample
from streamer.calibration.threshold import Threshold
from streamer.calibration.weighting import WeightingScheme, keyed_losses


def prepare_transductive(
    groups: Sequence[LabelledGroup],
    *,
    alpha: float,
    labelled: int | None = None,
    method: str = "mean",
    eta: float = 1.0,
    draws: int = 20,
    seed: int,
) -> TransductiveRule:
    """Sum up the calibration groups once, for thresholds of many batches.

    `labelled` None: the items of each group are all that its unit could have shipped; k >= 1: they
    are k of them, or all of fewer than k, drawn without replacement before labels were seen. The
    rest is as for `streamer.calibration.calibrate_groups`. No groups at all give a rule that ships
    what the caps of a batch allow by themselves. Only method `mean` gains much: under the others
    one response may get the whole weight, and the threshold is that of plain Conformal Risk Control
    unless caps say more; so it is for one item a group (the unit `best`). Raises `ValueError` if a
    group id repeats, a group has more than `labelled` items, or an argument is not valid.
    """
    alpha = check_alpha(alpha)

    scheme = weighting_scheme(method, {"eta": eta, "draws": draws})
    if labelled is not None:
        labelled = whole_number("labelled", labelled, least=1)
        for group in groups:
            if len(group.item_ids) > labelled:
                raise ValueError(f"group {group.id!r} has {len(group.item_ids)} items, more than {labelled}")
    curve = LossCurve.of(*keyed_losses(groups, scheme=scheme, seed=seed))
    levels, totals = _window(curve, budget_limit(alpha, len(groups)))
    return TransductiveRule(
        alpha=alpha,
        method=method,
        groups=len(groups),
        labelled=labelled,
        levels=levels,
        totals=totals,
        guarantee=_guarantee(alpha, scheme, len(groups), labelled),
    )


def _window(curve: LossCurve, budget: float) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return rising levels and S from each on: the first with S <= budget + 1 to the first with S <= budget."""
    levels = [-math.inf, *curve.levels[::-1].tolist()]
    totals = [*curve.totals[::-1].tolist(), 0.0]
    first = next(position for position, total in enumerate(totals) if total <= budget + 1)
    last = next((position for position, total in enumerate(totals) if total <= budget), len(totals) - 1)
    return tuple(levels[first : last + 1]), tuple(totals[first : last + 1])


def _guarantee(alpha: float, scheme: WeightingScheme, groups: int, labelled: int | None) -> str:
    sample = (
        "all items of each labelled"
        if labelled is None
        else f"up to {labelled} of each, drawn without replacement before any label was seen, labelled"
    )
    fixed = "the method, the budget and the seed" if scheme.random else "the method and the budget"
    return (
        "Each batch has a threshold of its own, and what scores above it ships. On average, over "
        f"calibrations and future groups alike, exposure risk is at most {budget(alpha)}: severity where an "
        "item ships and 0 where it is held, each group counting once and its items equally. Basis: transductive "
        f"calibration with the weights of method {scheme.name} on {counted(groups, 'calibration group')}, "
        f"{sample}. Assumptions: future groups are exchangeable with the calibration groups; a threshold "
        f"serves the batch that it was found for and no other; the score, {fixed} were fixed before any "
        "label was read; caps on severity, where given, hold and did not depend on labels of the batch; "
        "severities lie in [0, 1] and mean what the budget is about. Not promised: a bound with high "
        "probability for this one calibration, a bound for a single prompt or kind of prompt, or a bound on "
        "severity among the shipped alone."
    )


CURVE_POINTS = 2048
"""Levels that a gate's window is compressed to."""


@dataclass(frozen=True, slots=True)
class Transductive(Calibrator):
    """A threshold for each batch, from its own scores: more ships from few groups under the unit `response`."""

    name: ClassVar[str] = "transductive"
    place: ClassVar[int] = 10
    summary: ClassVar[str] = "a threshold for each batch: more ships from few groups (unit response)"
    promise: ClassVar[str] = "E[exposure risk] <= alpha, with a threshold for each batch"
    per_batch: ClassVar[bool] = True
    against_mean: ClassVar[str] = (
        "counts the unseen prompt at what its batch could cost, which gives every batch a threshold of its own, no higher "
        "than the one shown."
    )
    by_quantile: ClassVar[bool] = False
    by_rank: ClassVar[bool] = False

    def calibrate(self, sample: Sample) -> Calibrated:
        """Keep the window of the loss from which each batch gets a threshold, and the strictest that one can get."""
        window = prepare_transductive(
            sample.groups, alpha=sample.alpha, labelled=max(sample.largest, sample.drawn), seed=sample.seed
        )
        # The charge is that of the fewest draws, which is the largest; the window is compressed under it.
        window = replace(window, labelled=sample.drawn).compressed(CURVE_POINTS)
        strictest = calibrate_groups(sample.groups, alpha=sample.alpha, seed=sample.seed)
        value = strictest.value
        guarantee = window.guarantee
        if sample.drawn == 1:
            if value == math.inf:
                guarantee = strictest.guarantee
            guarantee = besides(
                guarantee, "With one charge of 1 for a batch, this ships what method mean ships."
            )
        else:
            value = min(value, 1.0)  # where mean holds all, a batch with little to ship may still pass
            highest = strictest.value if sample.floor is None else max(strictest.value, sample.floor)
            guarantee = besides(
                guarantee, f"No batch gets a threshold above that of method mean, {_in_words(highest)}."
            )
        threshold = Threshold.at(
            value, alpha=sample.alpha, method=self.name, groups=len(sample.groups), guarantee=guarantee
        )
        return Calibrated(threshold, window)


def _in_words(value: float) -> str:
    if value == math.inf:
        return "which holds everything"
    return "which ships everything" if value == -math.inf else f"{value:.6g}"
