"""Weighting schemes: how the labelled items of a group share its weight of 1, each with mean 1/I for every item.

Conformal risk control with any of them keeps the budget on average; see `streamer.calibration.crc`.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from streamer.calibration.arguments import whole_number
from streamer.calibration.groups import LabelledGroup, check_unique, laid_out
from streamer.calibration.guarantee import budget, counted, groups_needed, what_ships
from streamer.calibration.keyed_weights import KeyedWeights
from streamer.calibration.loss_curve import budget_limit, smallest_admissible
from streamer.calibration.specification import Calibrated, Calibrator, Sample
from streamer.calibration.threshold import Threshold, ThresholdState, state_at

Floats = NDArray[np.float64]


def guarantee_text(*, state: ThresholdState, alpha: float, scheme: WeightingScheme, groups: int) -> str:
    """Say what a calibrated threshold promises, on which basis, and under which assumptions."""
    basis = f"method {scheme.name} ({scheme.words}) on {counted(groups, 'calibration group')}"
    floor = f"1/{groups + 1} = {100 / (groups + 1):.3g} %"
    if state == "closed":
        return (
            f"Nothing ships, so exposure risk is 0. Basis: {basis}. So few groups cannot support a budget below "
            f"{floor}; the budget asked for is {budget(alpha)}, which needs at least {groups_needed(alpha)} groups."
        )
    fixed = (
        "the score, the method and the budget"
        if not scheme.random
        else "the score, the method, the budget and the seed"
    )
    return (
        f"{what_ships(state)} On average, over calibrations and future groups alike, exposure risk is at most "
        f"{budget(alpha)}: severity where an item ships and 0 where it is held, each group counting once and its items equally. Basis: {basis}; "
        f"no budget below {floor} can be met with that many. Assumptions: future groups are exchangeable with the "
        f"calibration groups; the labelled items of a group are all of its items, or were drawn at random before any "
        f"label was seen; {fixed} were fixed before any label was read; severities lie in [0, 1] and mean what the "
        f"budget is about. Not promised: a bound with high probability for this one calibration, a bound for a single "
        f"prompt or kind of prompt, or a bound on severity among the shipped alone."
    )


class WeightingScheme(Calibrator):
    """A calibrator that differs from the others of its kind by its weights alone."""

    __slots__ = ()

    promise = "E[exposure risk] <= alpha, over calibrations and future prompts alike"
    against_mean: ClassVar[str] = (
        "draws its weights at random, so that its own curve and threshold differ a little."
    )
    by_chance: ClassVar[bool] = True
    by_segment: ClassVar[bool] = True
    random: ClassVar[bool] = True
    """Whether the weights are drawn; the seed is then part of what is fixed beforehand."""

    @property
    @abstractmethod
    def words(self) -> str:
        """The scheme in words, for guarantees."""

    @abstractmethod
    def drawn(self, sizes: NDArray[np.int64], rng: np.random.Generator) -> Floats:
        """Return weights of shape (sum(sizes),) of groups that stand one after the other; `sizes` has shape (G,)."""

    @abstractmethod
    def keyed(self, group: str, items: Sequence[str], keys: KeyedWeights) -> Floats:
        """Return the weights of one named group of two or more items, in their order, derived from seed and names."""

    def calibrate(self, sample: Sample) -> Calibrated:
        """Find the smallest threshold whose corrected mean loss is within the budget."""
        return Calibrated(
            calibrate_by_scheme(sample.groups, alpha=sample.alpha, scheme=self, seed=sample.seed)
        )


def starts(sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return where each of some groups begins that stand one after the other, shape (G,)."""
    found: NDArray[np.int64] = np.cumsum(sizes) - sizes
    return found


def calibrate_by_scheme(
    groups: Sequence[LabelledGroup], *, alpha: float, scheme: WeightingScheme, seed: int
) -> Threshold:
    """Calibrate on named groups; see `calibrate_groups`."""
    scores, losses = keyed_losses(groups, scheme=scheme, seed=seed)
    return _threshold(scores, losses, groups=len(groups), alpha=alpha, scheme=scheme)


def keyed_losses(
    groups: Sequence[LabelledGroup], *, scheme: WeightingScheme, seed: int
) -> tuple[Floats, Floats]:
    """Return the scores and the losses, weight times severity, of all items of named groups: both of shape (N,).

    Raises `ValueError` if a group id repeats or the seed is not a whole number.
    """
    keyed = KeyedWeights(whole_number("seed", seed))
    check_unique(groups)
    scores, severities, sizes, divisors = laid_out(groups)
    if not scheme.random:
        return scores, severities / np.repeat(divisors, sizes)
    # Every scheme gives the one item of a group the whole weight.
    losses: Floats = severities.copy()
    for group, start, size in zip(groups, starts(sizes).tolist(), sizes.tolist(), strict=True):
        if size > 1:
            losses[start : start + size] *= scheme.keyed(group.id, group.item_ids, keyed)
    return scores, losses


def _threshold(
    scores: Floats, losses: Floats, *, groups: int, alpha: float, scheme: WeightingScheme
) -> Threshold:
    limit = budget_limit(alpha, groups)
    value = math.inf if limit < 0 else smallest_admissible(scores, losses, limit)
    guarantee = guarantee_text(state=state_at(value), alpha=alpha, scheme=scheme, groups=groups)
    return Threshold.at(value, alpha=alpha, method=scheme.name, groups=groups, guarantee=guarantee)
