"""The figures of one data set under one unit: the paper's modes, every calibrator, stability, other scores. Pure."""

import math
from collections.abc import Mapping, Sequence

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
from streamer.clouds.measurement import Units, units_of
from streamer.clouds.offline import ScoredCloud, decided_batch
from streamer.clouds.spreads import excess
from streamer.gates.declared import Unit
from streamer.research.evaluation.ranking import ranking
from streamer.research.evaluation.results import GateRow, RankingRow, ScorerRow, StabilityRow
from streamer.scoring.registry import GRAM

Floats = NDArray[np.float64]

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
        exposure=found.spread(found.exposure),
        ship_rate=found.spread(found.ship_rate),
        shipped_severity=found.spread(found.shipped_severity),
        held_severity=found.spread(found.held_severity),
        reduction=found.spread(found.reduction),
        level=found.spread(found.level),
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


def measured_units(clouds: Sequence[ScoredCloud], unit: Unit, *, drop_unlabelled: bool) -> Units:
    """Return the units of all questions, or those whose severity is known."""
    found = units_of(
        [decided_batch(item, unit=unit, state="closed", threshold=None) for item in clouds], unit
    )
    return found.labelled() if drop_unlabelled else found


def ranking_rows(
    scored: Mapping[str, Sequence[ScoredCloud]], unit: Unit, *, seed: int, drop_unlabelled: bool = False
) -> list[RankingRow]:
    """Measure how well each score ranks the units of all questions. Under ``best`` each score picks its own answer."""
    return [
        ranking(
            measured_units(clouds, unit, drop_unlabelled=drop_unlabelled),
            unit=unit,
            scorer=name,
            seed=seed,
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
