"""The figures of one data set under one unit: the paper's modes, every calibrator, stability, and how well scores rank units.
Pure.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamer.calibration.registry import weighting_schemes
from streamer.clouds.compared_methods import (
    FULL,
    METHODS_COMPARED,
    MethodLabels,
    Run,
    Served,
    Traffic,
    by_scheme,
    served_above,
)
from streamer.clouds.halves import Halves, SplitOutcomes, outcomes
from streamer.clouds.measurement import Units
from streamer.clouds.offline import ScoredCloud, measured_units
from streamer.clouds.spreads import excess
from streamer.gates.declared import Unit
from streamer.report.charts import ScoreCounts, tradeoff
from streamer.research.evaluation.results import (
    CoverageRisk,
    FigureInterval,
    GateRow,
    RankingRow,
    ScorePicture,
    ScorerRow,
    StabilityRow,
)
from streamer.scoring.registry import GRAM

Floats = NDArray[np.float64]


RESAMPLES = 200
COVERAGES = tuple(round(0.02 * step, 2) for step in range(1, 51))
_AT_ONCE = 25
_THRESHOLDS = 200


def ranking(units: Units, *, unit: str, scorer: str, seed: int) -> RankingRow:
    """Measure a score's order of units.

    `units`: at least one; units that cannot ship come last. `seed`: of the resampling, a whole
    number >= 0.
    """
    scores = np.where(units.shippable, np.nan_to_num(units.scores, nan=-1.0), -1.0)
    table = _Ordered.of(scores, units.severities, units.batch)
    plain = table.measure(np.ones((1, table.questions)))
    drawn = [
        table.measure(weights) for weights in _resamples(table.questions, np.random.default_rng([seed, 17]))
    ]
    curves = np.concatenate([one.curve for one in drawn])
    ideal = _Ordered.of(-units.severities, units.severities, units.batch)
    return RankingRow(
        unit=unit,
        scorer=scorer,
        auroc=_interval(plain.auroc, np.concatenate([one.auroc for one in drawn])),
        area=_interval(plain.area, np.concatenate([one.area for one in drawn])),
        best_area=float(ideal.measure(np.ones((1, ideal.questions))).area[0]),
        no_skill=float(units.severities.mean()),
        levels=len(np.unique(scores)),
        curve=CoverageRisk(
            coverage=COVERAGES,
            risk=_numbers(plain.curve[0]),
            low=_numbers(np.quantile(curves, 0.025, axis=0)),
            high=_numbers(np.quantile(curves, 0.975, axis=0)),
        ),
        picture=score_picture(units) if scorer == GRAM else None,
    )


def score_picture(units: Units) -> ScorePicture:
    """Return what is drawn of a score's units."""
    curves = tradeoff(units)
    chosen = np.unique(np.linspace(0, len(curves[0]) - 1, _THRESHOLDS).round().astype(np.intp))
    starts, ship, exposure, selective = (curve[chosen] for curve in curves)
    return ScorePicture(
        **asdict(ScoreCounts.of(units)),
        thresholds=_numbers(starts),
        ship_rate=_numbers(ship),
        exposure=_numbers(exposure),
        selective=tuple(None if math.isnan(value) else value for value in selective.tolist()),
    )


def _resamples(questions: int, rng: np.random.Generator) -> list[Floats]:
    """Draw how often each question is in each resample: `RESAMPLES` rows in blocks that stay in the cache."""
    return [
        rng.multinomial(questions, np.full(questions, 1 / questions), size=_AT_ONCE).astype(np.float64)
        for _ in range(RESAMPLES // _AT_ONCE)
    ]


class _Measured(NamedTuple):
    """AUROC (NaN where it is not defined), area and curve of k weightings: shapes (k,), (k,) and (k, levels)."""

    auroc: Floats
    area: Floats
    curve: Floats


class _Ordered:
    """Units by falling score, with the ends of tie groups."""

    def __init__(self, severities: Floats, question: NDArray[np.intp], starts: NDArray[np.intp]) -> None:
        self._severities, self._question, self._starts = severities, question, starts
        self.questions = int(question.max()) + 1

    @classmethod
    def of(cls, scores: Floats, severities: Floats, batch: NDArray[np.intp]) -> "_Ordered":
        order = np.argsort(-scores, kind="stable")
        ranked = scores[order]
        starts = np.flatnonzero(np.append(True, ranked[1:] != ranked[:-1]))
        _, question = np.unique(batch, return_inverse=True)
        return cls(severities[order], question[order], starts)

    def measure(self, weights: Floats) -> _Measured:
        """Measure with every question counted `weights` times, shape (k, questions)."""
        each = weights[:, self._question]
        mass = np.add.reduceat(each, self._starts, axis=1)
        bad = np.add.reduceat(each * self._severities, self._starts, axis=1)
        return _Measured(_auroc(mass, bad), *_coverage_risk(mass, bad))


def _auroc(mass: Floats, bad: Floats) -> Floats:
    """The chance that a fine unit scores above a bad one, ties counting half; columns by falling score."""
    fine = mass - bad
    below = bad.sum(axis=1, keepdims=True) - np.cumsum(bad, axis=1) + bad / 2
    pairs = fine.sum(axis=1) * bad.sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(pairs > 0, (fine * below).sum(axis=1) / pairs, np.nan)


def _coverage_risk(mass: Floats, bad: Floats) -> tuple[Floats, Floats]:
    """Area and curve; within a tie group units come in a random order, so that loss grows in proportion to mass."""
    covered = np.cumsum(mass, axis=1)
    lost = np.cumsum(bad, axis=1)
    total = covered[:, -1:]
    before, lost_before = covered - mass, lost - bad
    with np.errstate(divide="ignore", invalid="ignore"):
        rate = np.where(mass > 0, bad / mass, 0.0)
        # the integral over a tie group of (lost_before + rate (x - before)) / x, from before to covered
        logs = np.where(before > 0, np.log(covered / before), 0.0)
        parts = np.where(mass > 0, rate * mass + (lost_before - rate * before) * logs, 0.0)
    area = parts.sum(axis=1) / total[:, 0]
    curve = np.empty((len(mass), len(COVERAGES)))
    for row in range(len(mass)):
        wanted = np.asarray(COVERAGES) * total[row, 0]
        curve[row] = np.interp(wanted, np.append(0.0, covered[row]), np.append(0.0, lost[row])) / wanted
    return area, curve


def _interval(plain: Floats, drawn: Floats) -> FigureInterval:
    value = float(plain[0]) if np.isfinite(plain[0]) else None
    known = value is not None and np.isfinite(drawn).all()
    low, high = np.quantile(drawn, (0.025, 0.975)).tolist() if known else (None, None)
    return FigureInterval(value=value, low=low, high=high)


def _numbers(values: Floats) -> tuple[float, ...]:
    return tuple(values.tolist())


JUDGE = "judge"
MODES = ("G-Eval-Naive", "G-Eval-CRC", "Gram-CRC")
"""The paper's: the judge's score and a fixed threshold, the judge's score and BB-CRC, Gram energy and RBWA-CRC."""

RUNS = {one.name: one.run for one in METHODS_COMPARED}
"""How each method serves, with its usual parameters."""

_SPLITS_REDRAWN, _REDRAWS = 5, 8


def fixed_threshold(alpha: float) -> float:
    """Return the fixed threshold that the paper sets beside a budget: .99 for .01, .95 for .05, ..., .80 for .20."""
    return round(1.0 - alpha, 12)


def _naive(_labels: MethodLabels, alpha: float, traffic: Traffic) -> Served:
    """Ship from the fixed threshold on; with equality, as the paper has it, because marks often equal it."""
    return served_above(float(np.nextafter(fixed_threshold(alpha), -math.inf)), traffic)


def mode_rows(halves: Mapping[str, Halves], unit: Unit, *, alphas: Sequence[float]) -> list[GateRow]:
    """Run the paper's modes on the halves of each score, those of the judge only where there are its scores."""
    runs: list[tuple[str, str, Run, str]] = [(GRAM, "rbwa", by_scheme("rbwa"), MODES[2])]
    if JUDGE in halves:
        runs = [(JUDGE, "fixed", _naive, MODES[0]), (JUDGE, "bb", by_scheme("bb"), MODES[1]), *runs]
    return [
        gate_row(outcomes(run, halves[scorer], alpha), unit, scorer, method, alpha, mode)
        for scorer, method, run, mode in runs
        for alpha in alphas
    ]


def calibrator_rows(
    halves: Halves, unit: Unit, *, alphas: Sequence[float], full: Halves | None = None
) -> list[GateRow]:
    """Run every calibrator of the product on the Gram energy, and `full` on the choice scores and signals of `full`, if given."""
    of_method = {FULL: full} if full is not None else {}
    return [
        gate_row(outcomes(method.run, read, alpha), unit, GRAM, method.name, alpha, None)
        for method in METHODS_COMPARED
        if (unit == "response" or not method.response_only)
        and (read := of_method.get(method.name, None if method.of_signals else halves)) is not None
        for alpha in alphas
    ]


_SPREADS = ("exposure", "ship_rate", "shipped_severity", "held_severity", "reduction", "level")


def gate_row(
    found: SplitOutcomes, unit: str, scorer: str, method: str, alpha: float, mode: str | None
) -> GateRow:
    """Sum up what a gate did over splits."""
    promised = found.spread(found.exposure if method == "pooled" else found.exposure_by_question)
    return GateRow(
        unit=unit,
        scorer=scorer,
        method=method,
        mode=mode,
        alpha=alpha,
        **{name: found.spread(getattr(found, name)) for name in _SPREADS},
        closed=float((found.ship_rate == 0).mean()),
        opened=float((found.level == -math.inf).mean()),
        promised=promised,
        excess=excess(promised, alpha),
    )


def stability_rows(halves: Halves, *, alphas: Sequence[float]) -> list[StabilityRow]:
    """Compare how the weighting schemes track the budget, and how much their thresholds vary."""
    rows = []
    for scheme in weighting_schemes():
        again = [
            [MethodLabels(labels.groups, labels.largest, -1 - draw) for draw in range(_REDRAWS)]
            for labels in halves.labels[:_SPLITS_REDRAWN]
        ]
        for alpha in alphas:
            found = outcomes(by_scheme(scheme), halves, alpha)
            rows.append(
                StabilityRow(
                    method=scheme,
                    alpha=alpha,
                    exposure=found.spread(found.exposure),
                    level=found.spread(found.level),
                    level_sd_of_weights=0.0 if scheme == "mean" else _within(again, scheme, alpha),
                )
            )
    return rows


def _within(again: Sequence[Sequence[MethodLabels]], scheme: str, alpha: float) -> float | None:
    """The pooled standard deviation of lambda between draws of the weights, over splits where it is a number."""
    variances = []
    for redrawn in again:
        levels = np.array([labels.level(scheme, alpha) for labels in redrawn])
        if np.isfinite(levels).all():
            variances.append(float(levels.var(ddof=1)))
    return math.sqrt(math.fsum(variances) / len(variances)) if variances else None


def ranking_rows(
    scored: Mapping[str, Sequence[ScoredCloud]], unit: Unit, *, seed: int, drop_unlabelled: bool = False
) -> list[RankingRow]:
    """Measure how well each score ranks the units of all questions. Under ``best`` each score picks its own answer."""
    return [
        ranking(
            measured_units(clouds, unit, drop_unlabelled=drop_unlabelled), unit=unit, scorer=name, seed=seed
        )
        for name, clouds in scored.items()
    ]


def scorer_rows(
    halves: Mapping[str, Halves],
    unit: Unit,
    *,
    alphas: Sequence[float],
    method: str = "mean",
    full: Halves | None = None,
) -> list[ScorerRow]:
    """Run a method on each score and pair what it ships with what the Gram energy ships.

    `full` : what method `full` reads, whose figures stand beside those of the scores.
    """
    run = RUNS[method]
    found = {(name, alpha): outcomes(run, one, alpha) for name, one in halves.items() for alpha in alphas}
    if full is not None:
        found |= {(FULL, alpha): outcomes(RUNS[FULL], full, alpha) for alpha in alphas}
    return [
        ScorerRow(
            unit=unit,
            scorer=name,
            alpha=alpha,
            ship_rate=one.spread(one.ship_rate),
            exposure=one.spread(one.exposure),
            shipped_severity=one.spread(one.shipped_severity),
            more=one.spread(one.ship_rate - found[GRAM, alpha].ship_rate),
        )
        for (name, alpha), one in found.items()
    ]
