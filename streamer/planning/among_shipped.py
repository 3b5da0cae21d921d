"""What a budget on the error rate among shipped answers needs, and what so many labels would ship. Pure.

Calibrations are drawn as counts: how many of G prompts score between two cuts, and how many of those are wrong. The cuts
are those that would ship 1/60, 2/60, ..., all of the population, and a walk's are among them; the rules are those of the
calibrators.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamer.calibration.arguments import check_alpha, check_delta, whole_number
from streamer.calibration.calibrators.selective import Selective, shipped_needed
from streamer.calibration.history import TENTHS
from streamer.calibration.p_values import binomial
from streamer.calibration.plan import MOST_LABELS, least_held_share_selective
from streamer.calibration.prediction import Population
from streamer.calibration.specification import Calibrator
from streamer.errors import UsageError

POWER = 0.8
"""The chance with which so many labels are to be enough."""

LABELS = (50, 100, 150, 250, 400, 600, 1_000, 1_500, 2_500, 4_000, 6_000, 10_000)

_SELECTIVE = Selective()
_CUTS = 60
_MOST_SHIPPED = 200_000


@dataclass(frozen=True, slots=True, kw_only=True)
class AtCut:
    """One cut of the walk.

    Attributes
    ----------
    share : of prompts that it ships, in (0, 1].
    risk : share of those that are wrong.
    shipped : labelled prompts above it that show the budget with a chance of `POWER`; None: none do, the risk is too high.
    labels : labelled prompts in all that have so many above it.
    """

    share: float
    risk: float
    shipped: int | None
    labels: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WithLabels:
    """What calibrations with so many labelled prompts give.

    Attributes
    ----------
    opens : share of calibrations after which something ships.
    served : share of prompts that ships, on average over all of them, closed ones as well.
    low, high : its bounds in nine calibrations out of ten.
    exceeds : share of calibrations whose error rate among what ships exceeds the budget.
    """

    labels: int
    opens: float
    served: float
    low: float
    high: float
    exceeds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AmongShippedPlan:
    """What the promise needs, and what it would give.

    Attributes
    ----------
    mean_severity : of what would ship if everything did; what scores 0 counts, which no cut ships.
    least : labelled prompts that must ship, without an error, before anything can.
    least_held : share of prompts that any gate holds, however good its score.
    oracle : share that the best cut ships which knows every severity.
    needed : the fewest of the `ladder` with which `POWER` of calibrations open; None: none there.
    """

    method: str
    alpha: float
    delta: float
    prompts: int
    mean_severity: float
    least: int
    least_held: float
    oracle: float
    cuts: tuple[AtCut, ...]
    ladder: tuple[WithLabels, ...]
    needed: int | None


def shipped_for_power(alpha: float, risk: float, *, delta: float = 0.1) -> int | None:
    """Return how many labelled shipped answers show the budget with a chance of `POWER`; about 4.5 alpha (1 - alpha)/(alpha - r)^2.

    Parameters
    ----------
    alpha : budget, in (0, 1).
    risk : r, the error rate that is hoped for, in [0, 1].
    delta : chance that the bound may fail, in (0, 1).

    Returns
    -------
    int or None
        The fewest from which on every number does; None where r >= alpha, or more than 200,000 are needed.
    """
    from scipy.stats import binom  # slow to import

    alpha, delta = check_alpha(alpha), check_delta(delta)
    if risk >= alpha:
        return None

    def enough(shipped: NDArray[np.int64]) -> NDArray[np.bool_]:
        most = np.asarray(binom.ppf(delta, shipped, alpha))
        most = np.where(binomial(most, shipped, alpha) <= delta, most, most - 1)
        return np.asarray(binom.cdf(most, shipped, risk)) >= POWER

    # The bound comes in steps, so that a few more may be too few again: the last that is too few counts.
    about = 4.6 * alpha * (1 - alpha) / (alpha - risk) ** 2
    last = math.ceil(3 * about) + 3 * shipped_needed(alpha, delta)
    if last > _MOST_SHIPPED:
        return None
    few = np.flatnonzero(~enough(np.arange(1, last + 1)))
    return int(few[-1]) + 2 if len(few) else 1


def plan_among_shipped(
    population: Population,
    *,
    alpha: float,
    calibrator: Calibrator = _SELECTIVE,
    labels: Sequence[int] = LABELS,
    repetitions: int = 1000,
    seed: int = 0,
) -> AmongShippedPlan:
    """Simulate calibrations on a population whose severities are known.

    Parameters
    ----------
    population : one item of each prompt counts; its severity is the chance of being wrong.
    alpha : budget, in (0, 1).
    calibrator : bounds selective risk.
    labels : numbers of labelled prompts to compare, each in 1..`MOST_LABELS`.
    repetitions : simulated calibrations, >= 20.

    Raises
    ------
    UsageError
        If an argument is not as described.
    """
    try:
        alpha = check_alpha(alpha)
        repetitions = whole_number("repetitions", repetitions, least=20)
        labels = [whole_number("labels", one, least=1) for one in labels]
    except ValueError as error:
        raise UsageError(str(error)) from None
    if max(labels, default=0) > MOST_LABELS:
        raise UsageError(f"a plan looks at {MOST_LABELS} labels at most")
    delta = float(calibrator.parameters().get("delta", 0.1))
    levels = _levels(population)
    rng = np.random.default_rng([seed, 5])
    ladder = tuple(_with_labels(count, levels, calibrator, alpha, repetitions, rng) for count in labels)
    shipped, selective = levels.shipped, levels.selective
    mean = float(population.severities[population.shippable].mean())
    within = np.flatnonzero(selective <= alpha)
    return AmongShippedPlan(
        method=calibrator.name,
        alpha=alpha,
        delta=delta,
        prompts=len(population.scores),
        mean_severity=mean,
        least=calibrator.groups_needed(alpha),
        least_held=least_held_share_selective(mean, alpha),
        oracle=float(shipped[within[-1]]) if len(within) else 0.0,
        cuts=tuple(
            _at_cut(float(shipped[place]), float(selective[place]), alpha, delta) for place in levels.walked
        ),
        ladder=ladder,
        needed=next((one.labels for one in ladder if one.opens >= POWER), None),
    )


class _Levels(NamedTuple):
    """Cuts, the strictest first: shares of prompts between them, the error rates there, and which cuts a walk has."""

    shares: NDArray[np.float64]
    risks: NDArray[np.float64]
    walked: NDArray[np.intp]

    @property
    def shipped(self) -> NDArray[np.float64]:
        """The share of prompts that each cut ships."""
        return np.cumsum(self.shares)

    @property
    def selective(self) -> NDArray[np.float64]:
        """The error rate among those."""
        risks: NDArray[np.float64] = np.cumsum(self.shares * self.risks) / self.shipped
        return risks


def _levels(population: Population) -> _Levels:
    count = population.scores.size
    order = np.argsort(-population.scores, axis=None, kind="stable")
    scores = population.scores.ravel()[order]
    severities = population.severities.ravel()[order]
    shippable = population.shippable.ravel()[order] & (scores > 0)
    ends = np.flatnonzero(np.append(scores[1:] < scores[:-1], True)) + 1  # a tie ships as one
    wanted = np.ceil(np.arange(1, _CUTS + 1) / _CUTS * count)
    last = np.unique(ends[np.searchsorted(ends, wanted)])
    ships = np.concatenate(([0], np.cumsum(shippable)))
    lost = np.concatenate(([0.0], np.cumsum(severities * shippable)))
    there = np.diff(ships[np.concatenate(([0], last))])
    wrong = np.diff(lost[np.concatenate(([0], last))])
    keep = there > 0
    if not keep.any():
        raise UsageError("no prompt has a score above 0: nothing could ship")
    last = last[keep]
    walked = np.unique(
        [min(int(np.searchsorted(last, math.ceil(tenths * count / 10))), len(last) - 1) for tenths in TENTHS]
    )
    share = there[keep] / count * len(population.scores) / population.prompts
    return _Levels(share, wrong[keep] / there[keep], walked)


def _at_cut(share: float, risk: float, alpha: float, delta: float) -> AtCut:
    shipped = shipped_for_power(alpha, risk, delta=delta)
    return AtCut(
        share=share,
        risk=risk,
        shipped=shipped,
        labels=None if shipped is None else math.ceil(shipped / share),
    )


def _with_labels(
    labels: int,
    levels: _Levels,
    calibrator: Calibrator,
    alpha: float,
    repetitions: int,
    rng: np.random.Generator,
) -> WithLabels:
    held = max(0.0, 1.0 - float(levels.shares.sum()))
    chances = np.append(levels.shares, held)
    counts = rng.multinomial(labels, chances, repetitions)[:, :-1]
    errors = rng.binomial(counts, np.clip(levels.risks, 0.0, 1.0)).cumsum(axis=1)
    ends = calibrator.lowest_cuts(counts.cumsum(axis=1), errors, levels.walked, alpha=alpha, rng=rng)
    served = np.where(ends < 0, 0.0, levels.shipped[ends])
    low, high = np.quantile(served, [0.05, 0.95])
    return WithLabels(
        labels=labels,
        opens=float((ends >= 0).mean()),
        served=float(served.mean()),
        low=float(low),
        high=float(high),
        exceeds=float(((ends >= 0) & (levels.selective[ends] > alpha)).mean()),
    )
