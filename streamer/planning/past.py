"""What labels buy: calibrations on fewer and more prompts, past or guessed, each measured on the halves of `streamer try`. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from streamer.calibration.arguments import whole_number
from streamer.calibration.calibrators.full import Full
from streamer.calibration.calibrators.mean import Mean
from streamer.calibration.full_fit import allowed, chance_above
from streamer.calibration.plan import least_groups, least_held_share, least_held_share_selective
from streamer.calibration.specification import Calibrator
from streamer.clouds.compared_methods import METHODS_COMPARED
from streamer.clouds.halves import SPLITS, Halves, SplitOutcomes, outcomes, seeded_splits
from streamer.clouds.offline import ScoredCloud, held_as, measured_units
from streamer.clouds.spreads import Spread, spread
from streamer.errors import UsageError
from streamer.gates.declared import Unit

LABELS = (40, 60, 100, 250, 1000)
ENOUGH = 0.8
"""So much of what the most labels serve must be served, one standard deviation below the mean, by labels that are enough."""

_RUNS = {one.name: one.run for one in METHODS_COMPARED}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """What calibrations on so many labelled prompts, or with so many answers to each, give on
    prompts that did not calibrate.

    `served`, `exposure`, `selective` as in `streamer try`; None: there are not enough past prompts.
    Of method `full`, `by_one_score` is the mean share that a cut of one score serves on the same
    labels, `allowed` the largest count that ships, and `above` the share of calibrations that
    expose more than half as much again as the budget.
    """

    labels: int
    answers: int
    served: Spread | None = None
    exposure: Spread | None = None
    selective: Spread | None = None
    by_one_score: float | None = None
    allowed: int | None = None
    above: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PastPlan:
    """What a budget needs on answers like the past ones, and what it would give.

    `least` : fewest labelled prompts with which anything can ship. `prompts` : past ones; 0: only
    what needs none is said. `mean_severity` and `least_held`, the share that any gate holds, are
    None then. `unread` : past ones of which a method that cuts one score ships nothing, since the
    encoder does not read an answer. `enough` : the fewest labels of the ladder that steadily serve `ENOUGH` of what the
    most do; None: none does. `sizes` : numbers of answers, with half of the past as labels.
    """

    alpha: float
    attempts: int
    unit: Unit
    method: str
    least: int
    prompts: int
    unread: int
    mean_severity: float | None
    least_held: float | None
    ladder: tuple[Tried, ...]
    enough: int | None
    sizes: tuple[Tried, ...]
    guessed: bool
    seed: int


def plan_past(
    by_size: Mapping[int, Sequence[ScoredCloud]],
    method: Calibrator,
    unit: Unit,
    *,
    answers: int | None = None,
    guessed: bool = False,
    alpha: float,
    attempts: int = 1,
    labels: int | None = None,
    drop_unlabelled: bool = False,
    seed: int = 0,
) -> PastPlan:
    """Calibrate on some prompts of the first halves and measure on the second ones, which no
    calibration has seen.

    `by_size` has the past prompts with so many answers to each; empty: there are none. `answers` is
    the plan's number; None: the most. `labels` is looked at besides `LABELS` and half of the past.
    Raises `UsageError` if a number is out of its range, or there is one past prompt alone.
    """
    if labels is not None:
        try:
            labels = whole_number("labels", labels, least=1)
        except ValueError as error:
            raise UsageError(str(error)) from None
    answers = answers or max(by_size, default=0)
    past = by_size.get(answers, ())
    half = len(past) // 2
    if past and not half:
        raise UsageError("there is one past prompt, and one half calibrates while the other is measured")
    each = alpha / attempts
    splits = seeded_splits([one.cloud for one in past], range(seed, seed + SPLITS)) if past else []

    def tried(count: int, size: int) -> Tried:
        signals = method.name == Full.name
        made = Tried(
            labels=count,
            answers=size,
            allowed=allowed(alpha, count, attempts=attempts) if signals else None,
            above=chance_above(min(1.5 * each, 1.0), alpha=alpha, groups=count, attempts=attempts)
            if signals
            else None,
        )
        if count > half:
            return made
        few = [replace(one, first=one.first[:count]) for one in splits]

        def shipped(run: str, past: Sequence[ScoredCloud]) -> SplitOutcomes:
            return outcomes(_RUNS[run], Halves.at(past, unit, few, drop_unlabelled=drop_unlabelled), each)

        found = shipped(method.name, by_size[size])
        alone = [one.cut_alone for one in by_size[size]] if signals else []
        return replace(
            made,
            served=_over(found, found.ship_rate, count),
            exposure=_over(found, found.exposure_by_question, count),
            selective=_over(found, found.shipped_severity, count),
            by_one_score=float(shipped(Mean.name, alone).ship_rate.mean()) if signals else None,
        )

    wanted = {*LABELS, *([half] if half else []), *([] if labels is None else [labels])}
    ladder = tuple(tried(count, answers) for count in sorted(wanted))
    most = max((one.served.mean or 0.0 for one in ladder if one.served is not None), default=0.0)
    units = measured_units(past, unit, drop_unlabelled=drop_unlabelled)
    severity = float(units.severities.mean()) if past else None
    held = least_held_share_selective if method.risk == "selective" else least_held_share
    return PastPlan(
        alpha=alpha,
        attempts=attempts,
        unit=unit,
        method=method.name,
        least=least_groups(alpha, attempts, method),
        prompts=len(past),
        unread=sum(held_as(one.cut_alone, unit, likely=False) == "not_read" for one in past),
        mean_severity=severity,
        least_held=None if severity is None else held(severity, each),
        ladder=ladder,
        enough=next(
            (
                one.labels
                for one in ladder
                if most and one.served and (one.served.mean or 0.0) - (one.served.sd or 0.0) >= ENOUGH * most
            ),
            None,
        ),
        sizes=tuple(tried(half, size) for size in sorted(by_size)) if len(by_size) > 1 else (),
        guessed=guessed,
        seed=seed,
    )


def _over(found: SplitOutcomes, values: NDArray[np.float64], labels: int) -> Spread:
    return spread(values, test=found.clouds - found.clouds // 2, calibration=labels)
