"""The budget for each prompt by all its signals: see `streamer.calibration.full_fit`."""

import math
from dataclasses import dataclass
from typing import ClassVar

from streamer.calibration.crc import calibrate_groups
from streamer.calibration.full_fit import LEAST_ALIKE, LEAST_GROUPS, MOST_GROUPS, NEVER_ALIKE, allowed
from streamer.calibration.groups import check_unique
from streamer.calibration.guarantee import besides, budget, counted
from streamer.calibration.specification import Calibrated, Calibrator, Sample, parameter
from streamer.calibration.threshold import Threshold


@dataclass(frozen=True, slots=True)
class Full(Calibrator):
    """Conformal p-values of a ridge regression on all signals, fitted with the new prompt supposed bad."""

    name: ClassVar[str] = "full"
    place: ClassVar[int] = 5
    summary: ClassVar[str] = (
        "all labels fit a score of all signals and calibrate it: the most ships (units best and batch)"
    )
    promise: ClassVar[str] = "E[exposure risk] <= alpha"
    diagnostic: ClassVar[bool] = False
    by_quantile: ClassVar[bool] = False
    by_rank: ClassVar[bool] = False
    by_segment: ClassVar[bool] = True
    label_floor: ClassVar[bool] = False
    of_signals: ClassVar[bool] = True
    against_mean: ClassVar[str] = "reads every signal of an answer, not one score alone."

    ship_above: float = parameter(
        0.0,
        "a choice score, fixed in advance: what scores at most this never ships, and an upstream's `then` gets it",
        metavar="Q",
        most=1.0,
    )
    least_alike: int = parameter(
        LEAST_ALIKE,
        "a batch that the encoder does not read ships only where so many labelled prompts were unread for the same reasons; "
        f"0: by its other signals whatever they were, {NEVER_ALIKE}: never",
        metavar="N",
        most=NEVER_ALIKE,
        whole=True,
    )

    def calibrate(self, sample: Sample) -> Calibrated:
        """Fit the newest `MOST_GROUPS` prompts; with fewer than `LEAST_GROUPS`, or where none could ship, cut the score.

        Raises `ValueError` where the groups have no signals.
        """
        check_unique(sample.groups)
        if sample.prompts is None and sample.groups:
            raise ValueError(
                f"method {self.name} reads the signals of each prompt, which are not here: a gate records them"
            )
        groups = min(len(sample.groups), MOST_GROUPS)
        k = allowed(sample.budget or sample.alpha, groups, attempts=sample.attempts)
        if sample.prompts is None or groups < LEAST_GROUPS or k < 1:
            cut = calibrate_groups(sample.groups, alpha=sample.alpha, seed=sample.seed)
            guarantee = besides(cut.guarantee, f"From {LEAST_GROUPS} prompts on all signals decide.")
            return Calibrated(
                Threshold.at(
                    max(cut.value, self.ship_above or -math.inf),
                    alpha=cut.alpha,
                    method=self.name,
                    groups=cut.groups,
                    guarantee=guarantee,
                )
            )
        prompts = sample.prompts.newest(MOST_GROUPS)
        threshold = Threshold(
            state="full",
            value=math.nan,
            alpha=sample.alpha,
            method=self.name,
            groups=groups,
            guarantee=_guarantee(sample.alpha, groups, int(prompts.bad.sum()), k),
        )
        return Calibrated(threshold, prompts=prompts)


def _guarantee(alpha: float, groups: int, bad: int, k: int) -> str:
    return (
        f"An answer ships if at most {k - 1} of the calibration prompts both were bad and look at least as good. On average, over "
        f"calibrations and future groups alike, exposure risk is at most {budget(alpha)}: severity where an item ships and 0 where it is held, each group "
        f"counting once. Basis: method full (a ridge regression on all signals, fitted with the new answer supposed bad) on "
        f"{counted(groups, 'calibration group')}, {bad} of them bad. Assumptions: future groups are exchangeable with the "
        "calibration groups; the signals, their scales, the method and the budget were fixed before any label was read; "
        "severities lie in [0, 1] and mean what the budget is about; a severity between 0 and 1 counted as bad with that "
        "chance, by a draw that its labeller did not know. Not promised: a bound with high probability for this one "
        "calibration, a bound for a single prompt or kind of prompt, or a bound on severity among the shipped alone."
    )
