"""Figures of many seeded splits of scored clouds, by the offline path: what other implementations are compared with."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from streamer.clouds.offline import ScoredCloud, run_scored

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from streamer.clouds.measurement import OfflineRisk
    from streamer.gates.settings import Unit


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitFigures:
    """Means over splits; None where no split has the figure.

    Attributes
    ----------
    alpha : the budget.
    splits : number of seeded splits.
    exposure_risk_se : standard error of the mean exposure, from its spread between splits. Splits share the file's
        clouds, so it tells how exactly the mean over splits is known, not how another file would do.
    closed : share of splits whose calibration closed the gate.
    """

    alpha: float
    splits: int
    threshold: float | None
    ship_rate: float | None
    exposure_risk: float | None
    exposure_risk_se: float | None
    selective_risk: float | None
    severity_reduction: float | None
    closed: float


def split_figures(
    scored: Sequence[ScoredCloud], *, unit: Unit, alpha: float, method: str = "mean", seeds: Sequence[int]
) -> SplitFigures:
    """Run every seed's split of `scored` and average the figures."""
    runs = [run_scored(scored, unit=unit, alpha=alpha, method=method, seed=seed) for seed in seeds]

    def mean(figure: Callable[[OfflineRisk], float | None]) -> float | None:
        known = [value for value in (figure(run.report) for run in runs) if value is not None]
        return math.fsum(known) / len(known) if known else None

    cuts = [run.threshold.value for run in runs if run.threshold.state == "cut"]
    exposures = [run.report.exposure_risk for run in runs if run.report.exposure_risk is not None]
    return SplitFigures(
        alpha=alpha,
        splits=len(runs),
        threshold=math.fsum(cuts) / len(cuts) if cuts else None,
        ship_rate=mean(lambda report: report.ship_rate),
        exposure_risk=mean(lambda report: report.exposure_risk),
        exposure_risk_se=float(np.std(exposures, ddof=1)) / math.sqrt(len(exposures))
        if len(exposures) > 1
        else None,
        selective_risk=mean(lambda report: report.selective_risk),
        severity_reduction=mean(lambda report: report.severity_reduction),
        closed=sum(run.threshold.state == "closed" for run in runs) / len(runs),
    )
