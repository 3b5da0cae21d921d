"""The plan of a budget: what so many labels buy, how to spend them, and how many responses to sample.

Everything is simulated on prompts made from a guess. The same arguments give the same plan, to the last bit.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypedDict

import numpy as np

from streamer.calibration.arguments import check_alpha, whole_number
from streamer.calibration.calibrators.mean import Mean
from streamer.calibration.history import level_above
from streamer.calibration.plan import (
    MOST_LABELS,
    Split,
    label_ladder,
    label_splits,
    least_groups,
    least_held_share,
    least_held_share_selective,
    smallest_alpha,
)
from streamer.calibration.prediction import Population, Prediction, best_ship_rate, predict
from streamer.calibration.specification import Calibrator
from streamer.errors import UsageError
from streamer.gates.declared import Unit
from streamer.planning.prompts import Prompts
from streamer.planning.score_quality import area_under_curve, intraclass_correlation

ENOUGH = 0.8
"""So much of what unlimited labels would ship must the lower bound of the ship rate be, where no labels are named."""

ABOVE = (0.8, 0.7, 0.6, 0.5, 0.4, 0.3)
"""Shares of items, those with the highest scores, that a plan tries to label alone."""

_CALIBRATIONS = 3
_MEAN = Mean()


class _How(TypedDict):
    """The arguments that all simulations of a plan share; see `streamer.calibration.prediction.predict`."""

    alpha: float
    calibrator: Calibrator
    repetitions: int
    level: float
    rng: np.random.Generator
    progress: Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Budget:
    """What may go wrong, and what may be spent.

    Parameters
    ----------
    alpha : budget on exposure risk, in (0, 1).
    labels : that can be afforded, 1..`MOST_LABELS`; None: see `Plan.labels`.
    attempts : R >= 1; each attempt is calibrated at alpha / R, and figures are those of first attempts.
    calibrator : bounds exposure risk.

    Raises
    ------
    UsageError
        If so many labels can never meet the budget; the message says what they can.
    """

    alpha: float
    labels: int | None = None
    attempts: int = 1
    calibrator: Calibrator = _MEAN

    def __post_init__(self) -> None:
        try:
            alpha = check_alpha(self.alpha)
            attempts = whole_number("attempts", self.attempts, least=1)
            labels = None if self.labels is None else whole_number("labels", self.labels, least=1)
        except ValueError as error:
            raise UsageError(str(error)) from None
        if self.calibrator.of_signals:
            raise UsageError(
                f"method {self.calibrator.name} reads all signals of an answer, which streamer.planning.past plans with; this plan "
                "is of one score"
            )
        if attempts > 1 and not self.calibrator.attempts:
            raise UsageError(
                f"attempts must be 1 with method {self.calibrator.name}: attempts change what ships"
            )
        least = self.least_groups
        each = f" for each of {attempts} attempts ({alpha:g} / {attempts})" if attempts > 1 else ""
        if least > MOST_LABELS or (labels or 0) > MOST_LABELS:
            raise UsageError(
                f"a plan looks at {MOST_LABELS} labels at most"
                + (f", and a budget of {alpha:g} needs {least}" if least > MOST_LABELS else "")
            )
        if labels is not None and labels < least:
            possible = self.smallest_alpha(labels)
            can = f"support a budget of {possible:.3g} or more" if possible < 1 else "support no budget"
            raise UsageError(
                f"a budget of {alpha / attempts:g}{each} needs at least {least} labelled prompts; {labels} can {can}"
            )

    @property
    def alpha_per_attempt(self) -> float:
        """Alpha / R."""
        return self.alpha / self.attempts

    @property
    def least_groups(self) -> int:
        """The fewest labelled prompts on which it can be met at all."""
        return least_groups(self.alpha, self.attempts, self.calibrator)

    def smallest_alpha(self, groups: int) -> float:
        """Return the smallest budget that so many labelled prompts can meet; 1 or more where they meet none."""
        return smallest_alpha(groups, self.attempts, self.calibrator)


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """How calibrations are simulated.

    Attributes
    ----------
    repetitions, level : see `streamer.calibration.prediction.predict`.
    seed : a whole number >= 0.
    """

    repetitions: int = 1000
    level: float = 0.9
    seed: int = 0


_SIMULATION = Simulation()


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleSize:
    """What n samples a prompt give.

    Attributes
    ----------
    responses : n.
    auc : chance that a fine answer scores above a bad one; None where all are alike.
    mean_severity : exposure if everything shipped.
    oracle_ship_rate : the ship rate of unlimited labels.
    prediction : with the plan's labels, one a prompt.
    """

    responses: int
    auc: float | None
    mean_severity: float
    oracle_ship_rate: float
    prediction: Prediction


@dataclass(frozen=True, slots=True, kw_only=True)
class FloorPlan:
    """What labelling the highest scores alone gives, on the prompts that the plan draws.

    Attributes
    ----------
    above : the share of items that is labelled, at least, in (0, 1]; more where many score alike.
    labels : what that costs on average, rounded up.
    prediction : with the threshold no less than the floor.
    """

    above: float
    labels: int
    prediction: Prediction


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a budget needs, and what it would give.

    Attributes
    ----------
    alpha : the budget on exposure risk; each of `attempts` is calibrated at `alpha_per_attempt`.
    labels : those that are planned with. `labels_named` is False where they were chosen: the fewest of `ladder` whose
        lower bound of the ship rate is at least `ENOUGH` of `oracle_ship_rate`; the most there if none has, or if that is 0.
    labels_enough : whether `labels` have such a lower bound.
    prompts : how many it was simulated on.
    responses : samples n a prompt.
    least_groups : fewest labelled prompts on which this budget can be met at all.
    smallest_alpha : smallest budget that `labels` can meet, one a prompt.
    response_severity, correlation, auc : of single responses: the mean severity, how alike those of one prompt are, and
        the chance that a fine one scores above a bad one; None where all are alike.
    mean_severity : exposure if everything shipped.
    least_held, least_held_selective : share of units that any gate holds, however good its score, for a budget alpha on
        exposure risk, and for the same on selective risk.
    oracle_ship_rate : the ship rate of unlimited labels.
    ladder : what numbers of labels give, one a prompt.
    splits : ways to spend `labels`; `best` is the one of the highest mean ship rate.
    floors : what label floors save on the prompts of `labels`, one label a prompt; none for the unit `batch`, which has none.
    fewest : the one of these with the fewest labels that is as steady as `labels_enough` says; None if there is none.
    sizes : what other numbers of samples a prompt give.
    audit_probability : chance that a batch is drawn for labelling.
    prompts_to_collect : prompts that pass, on average, until those of `best` are drawn; None without an audit.
    labels_per_served : labels for each served answer while the audit continues; None where nothing is served.
    level : share of calibrations within the bounds of every interval.
    """

    alpha: float
    attempts: int
    alpha_per_attempt: float
    unit: Unit
    method: str
    labels: int
    labels_named: bool
    labels_enough: bool
    prompts: int
    responses: int
    least_groups: int
    smallest_alpha: float
    response_severity: float
    correlation: float | None
    auc: float | None
    mean_severity: float
    least_held: float
    least_held_selective: float
    oracle_ship_rate: float
    ladder: tuple[Prediction, ...]
    splits: tuple[Prediction, ...]
    best: Prediction
    floors: tuple[FloorPlan, ...]
    fewest: FloorPlan | None
    sizes: tuple[SampleSize, ...]
    audit_probability: float
    prompts_to_collect: int | None
    labels_per_served: float | None
    level: float
    repetitions: int
    seed: int


def make_plan(
    prompts: Prompts,
    budget: Budget,
    *,
    unit: Unit = "best",
    audit_probability: float = 0.05,
    simulation: Simulation = _SIMULATION,
    progress: Callable[[int, int], None] = lambda _done, _of: None,
) -> Plan:
    """Simulate what a budget needs and gives.

    Parameters
    ----------
    prompts : what to simulate on.
    unit : what ships.
    audit_probability : in [0, 1].
    progress : called with the number of simulated calibration rounds done, and of all.

    Raises
    ------
    ValueError
        If an argument is not as described.
    """
    if not 0 <= audit_probability <= 1:
        raise ValueError(f"audit_probability must lie in [0, 1], not {audit_probability!r}")
    each, labels, repetitions = budget.alpha_per_attempt, budget.labels, simulation.repetitions
    of_all = rounds(prompts, budget, unit, simulation)
    done = 0

    def how() -> _How:
        nonlocal done
        before = done
        done += repetitions
        return {
            "alpha": each,
            "calibrator": budget.calibrator,
            "repetitions": repetitions,
            "level": simulation.level,
            # the same each time, so that numbers of samples and floors are compared on the same prompts
            "rng": np.random.default_rng([simulation.seed, _CALIBRATIONS]),
            "progress": lambda repetition: progress(before + repetition, of_all),
        }

    def sample_size(size: int) -> SampleSize:
        sampled = prompts.by_size[size]
        of_size = sampled.population(unit)
        return SampleSize(
            responses=size,
            auc=area_under_curve(sampled.scores, sampled.severities),
            mean_severity=of_size.mean_severity,
            oracle_ship_rate=best_ship_rate(of_size, each),
            prediction=predict(of_size, (Split(chosen, 1),), **how())[0],
        )

    batches = prompts.by_size[prompts.responses]
    population = batches.population(unit)
    oracle = best_ship_rate(population, each)
    ladder = predict(
        population,
        tuple(Split(n, 1) for n in label_ladder(budget.least_groups, labels)),
        **how(),
    )
    enough = [one.split.labels for one in ladder if _steady(one, oracle)]
    chosen = labels if labels is not None else enough[0] if enough else ladder[-1].split.labels
    splits = predict(population, label_splits(chosen, population.items), **how())
    floors = _with_floors(population, chosen, how()) if _has_floor(unit, budget) else ()
    steady = [one for one in floors if _steady(one.prediction, oracle)]
    best = max(splits, key=lambda one: one.ship_rate.mean)
    served = best.ship_rate.mean * population.items
    return Plan(
        alpha=budget.alpha,
        attempts=budget.attempts,
        alpha_per_attempt=each,
        unit=unit,
        method=budget.calibrator.name,
        labels=chosen,
        labels_named=labels is not None,
        labels_enough=chosen in enough,
        prompts=len(batches.scores),
        responses=prompts.responses,
        least_groups=budget.least_groups,
        smallest_alpha=budget.smallest_alpha(chosen),
        response_severity=float(batches.severities.mean()),
        correlation=intraclass_correlation(batches.severities),
        auc=area_under_curve(batches.scores, batches.severities),
        mean_severity=population.mean_severity,
        least_held=least_held_share(population.mean_severity, each),
        least_held_selective=least_held_share_selective(population.mean_severity, each),
        oracle_ship_rate=oracle,
        ladder=ladder,
        splits=splits,
        best=best,
        floors=floors,
        fewest=min(steady, key=lambda one: one.labels, default=None),
        sizes=tuple(sample_size(size) for size in sorted(prompts.by_size)),
        audit_probability=audit_probability,
        prompts_to_collect=math.ceil(best.split.groups / audit_probability) if audit_probability else None,
        labels_per_served=audit_probability * best.split.per_group / served if served else None,
        level=simulation.level,
        repetitions=repetitions,
        seed=simulation.seed,
    )


def _steady(one: Prediction, oracle: float) -> bool:
    """Whether calibrations reliably serve `ENOUGH` of what unlimited labels would; never where these would serve nothing."""
    return oracle > 0 and one.ship_rate.low >= ENOUGH * oracle


def rounds(prompts: Prompts, budget: Budget, unit: Unit, simulation: Simulation = _SIMULATION) -> int:
    """Return how many calibration rounds a plan simulates."""
    return simulation.repetitions * (2 + _has_floor(unit, budget) + len(prompts.by_size))


def _has_floor(unit: Unit, budget: Budget) -> bool:
    return unit != "batch" and not budget.calibrator.refuses_floor()


def _with_floors(population: Population, labels: int, how: _How) -> tuple[FloorPlan, ...]:
    """Predict what each of `ABOVE` costs and serves, on as many prompts as there are labels without a floor."""
    scores = population.scores.ravel()
    levels = [level_above(scores, above) for above in ABOVE]
    found = predict(population, (Split(labels, 1),), floors=levels, **how)
    return tuple(
        FloorPlan(above=above, labels=math.ceil(labels * float((scores > level).mean())), prediction=one)
        for above, level, one in zip(ABOVE, levels, found, strict=True)
    )
