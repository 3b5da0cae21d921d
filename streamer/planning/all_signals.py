"""What labels buy a gate that reads all signals, the method `full`: by calibrations on past prompts, each measured on the others. Pure.

Each repetition draws which prompts are labelled, without replacement: a fit that had seen a prompt's own label would look
better than it is. So no more labels can be looked at than the past has, less those that measure.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streamer.calibration.arguments import check_alpha, whole_number
from streamer.calibration.calibrators.full import (
    LEAST_GROUPS,
    allowed,
    chance_above,
)
from streamer.calibration.calibrators.mean import Mean
from streamer.calibration.plan import least_groups, least_held_share
from streamer.calibration.prediction import Interval, interval
from streamer.clouds.compared_methods import full_counts
from streamer.planning.plan import Simulation

Floats = NDArray[np.float64]

LABELS = (40, 60, 100, 250, 1000)
LEAST_MEASURED = 20
"""Prompts without a label that a calibration is measured on, at least."""

_SPLITS = 4
_MEAN = Mean()


@dataclass(frozen=True, slots=True, eq=False)
class PastPrompts:
    """P past prompts: what a gate of method `full` would have read of each, and how bad what it could have shipped was.

    Attributes
    ----------
    rows : shape (P, d), float32.
    scores, severities : shape (P,), in [0, 1]; the score is what is cut while labels are few.
    held : further prompts that are held unscored.
    """

    rows: NDArray[np.float32]
    scores: Floats
    severities: Floats
    held: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class WithLabels:
    """What calibrations on so many labelled prompts give.

    Attributes
    ----------
    allowed : the largest count that ships, k; 0: nothing does.
    above : share of calibrations that expose more than half as much again as the budget; see `chance_above`.
    served, exposure : share of prompts that ships, and severity of what ships per prompt; None: there are not enough past prompts.
    by_one_score : mean share that a cut of the score serves on the same labels.
    measured : prompts that each calibration was measured on.
    """

    labels: int
    allowed: int
    above: float
    served: Interval | None = None
    exposure: Interval | None = None
    by_one_score: float | None = None
    measured: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalsPlan:
    """What a budget needs with all signals, and what it would give.

    Attributes
    ----------
    least : fewest labelled prompts with which anything can ship.
    prompts : past ones; 0: there are none, and only what needs none is said.
    mean_severity, least_held : exposure if everything shipped, and the share that any gate holds; None without past prompts.
    """

    alpha: float
    attempts: int
    least: int
    prompts: int
    mean_severity: float | None
    least_held: float | None
    ladder: tuple[WithLabels, ...]
    level: float
    repetitions: int
    seed: int


def plan_all_signals(
    past: PastPrompts | None,
    *,
    alpha: float,
    attempts: int = 1,
    labels: int | None = None,
    simulation: Simulation,
    progress: Callable[[int], None] = lambda _done: None,
) -> SignalsPlan:
    """Calibrate again and again on some of the past prompts, and measure on the others.

    Parameters
    ----------
    past : None: only what needs no past prompts is said.
    labels : a number of labels to look at besides `LABELS`.
    progress : called with the number of repetitions done.

    Raises
    ------
    ValueError
        If an argument is not as described.
    """
    alpha = check_alpha(alpha)
    if labels is not None:
        labels = whole_number("labels", labels, least=1)
    sizes = sorted({*LABELS, *([] if labels is None else [labels])})
    prompts = 0 if past is None else len(past.rows) + past.held
    found: dict[int, list[tuple[float, float, float]]] = {
        size: [] for size in sizes if past is not None and size + LEAST_MEASURED <= len(past.rows)
    }
    rng = np.random.default_rng([simulation.seed, _SPLITS])
    for repetition in range(simulation.repetitions if past is not None and found else 0):
        assert past is not None
        order = rng.permutation(len(past.rows))
        bad = rng.random(len(order)) < past.severities
        for size, outcomes in found.items():
            outcomes.append(_outcome(past, bad, order[:size], order[size:], alpha, attempts, rng))
        progress(repetition + 1)
    share = len(past.rows) / prompts if past is not None else 0.0
    severity = float(past.severities.mean()) * share if past is not None else None
    return SignalsPlan(
        alpha=alpha,
        attempts=attempts,
        least=least_groups(alpha, attempts, _MEAN),
        prompts=prompts,
        mean_severity=severity,
        least_held=None if severity is None else least_held_share(severity, alpha / attempts),
        ladder=tuple(
            _rung(size, np.array(found.get(size, ())) * share, alpha, attempts, prompts, simulation.level)
            for size in sizes
        ),
        level=simulation.level,
        repetitions=simulation.repetitions,
        seed=simulation.seed,
    )


def _outcome(
    past: PastPrompts,
    bad: NDArray[np.bool_],
    labelled: NDArray[np.intp],
    others: NDArray[np.intp],
    alpha: float,
    attempts: int,
    rng: np.random.Generator,
) -> tuple[float, float, float]:
    """What ships of the others, how bad that is, and what a cut of the score would ship."""
    level = _MEAN.simulated(
        past.scores[labelled, np.newaxis],
        past.severities[labelled, np.newaxis],
        largest=1,
        alpha=alpha / attempts,
        rng=rng,
    )
    cut = past.scores[others] > level
    k = allowed(alpha, len(labelled), attempts=attempts)
    ships = cut
    if len(labelled) >= LEAST_GROUPS and k:
        ships = full_counts(past.rows[labelled], bad[labelled], past.rows[others]) <= k
    return float(ships.mean()), float((ships * past.severities[others]).mean()), float(cut.mean())


def _rung(labels: int, found: Floats, alpha: float, attempts: int, prompts: int, level: float) -> WithLabels:
    known = len(found) > 0
    return WithLabels(
        labels=labels,
        allowed=allowed(alpha, labels, attempts=attempts),
        above=chance_above(min(1.5 * alpha / attempts, 1.0), alpha=alpha, groups=labels, attempts=attempts),
        served=interval(found[:, 0], level) if known else None,
        exposure=interval(found[:, 1], level) if known else None,
        by_one_score=float(found[:, 2].mean()) if known else None,
        measured=prompts - labels if known else 0,
    )
