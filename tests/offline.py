"""The offline twin of the stream's path: score, calibrate on one half, decide and measure on the other.

It does with arrays in one process what publisher, worker and recalibrator do with events, and is what they, and other
implementations, are compared with.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from streamer.calibration import LabelledGroup, Threshold, calibrate_groups
from streamer.clouds.cloud import Cloud, split_clouds
from streamer.clouds.measurement import DecidedBatch, OfflineRisk, measure
from streamer.clouds.offline import ScoredCloud, calibration_groups, summary
from streamer.frames.answers import Read, scored
from streamer.gates.declared import Unit
from streamer.gates.gate import gate_batch
from streamer.scoring.blank import is_blank
from streamer.scoring.encoders.encoder import CachedEncoder
from streamer.scoring.registry import GRAM


def score_clouds(clouds: Sequence[Cloud], encoder: CachedEncoder) -> list[ScoredCloud]:
    """Score each cloud by the Gram energy of its responses' embeddings."""
    table = Read(tuple(clouds), None, len(clouds), "")
    return scored(table, GRAM, lambda texts: encoder.embed([texts])[0])[0]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OfflineResult:
    """What `run_scored` found: the threshold from the first half, the decisions and the figures of the second."""

    unit: Unit
    threshold: Threshold
    calibration: tuple[LabelledGroup, ...]
    decided: tuple[DecidedBatch, ...]
    report: OfflineRisk

    def summary(self) -> dict[str, Any]:
        """Return the figures under the names of ``streamer demo --json``."""
        cut = self.threshold.value if self.threshold.state == "cut" else None
        return summary(
            self.report, alpha=self.threshold.alpha, method=self.threshold.method,
            state=self.threshold.state, threshold=cut, calibration_groups=self.threshold.groups,
        )  # fmt: skip


def run_scored(
    scored: Sequence[ScoredCloud], *, unit: Unit, alpha: float, method: str = "mean", seed: int = 0
) -> OfflineResult:
    """Split, calibrate, decide and measure; see `split_clouds`.

    Parameters
    ----------
    scored : at least 2 clouds.
    unit : what ships.
    alpha : the budget, in (0, 1).
    method : the calibrator, as in `streamer.calibrate`.
    seed : of the split and of the calibration's random weights.
    """
    by_id = {item.cloud.batch_id: item for item in scored}
    halves = split_clouds([item.cloud for item in scored], seed)
    first, second = ([by_id[cloud.batch_id] for cloud in half] for half in halves)
    groups = calibration_groups(first, unit)
    threshold = calibrate_groups(groups, alpha=alpha, method=method, seed=seed)
    cut = threshold.value if threshold.state == "cut" else None
    gate = partial(gate_batch, unit=unit, state=threshold.state, threshold=cut)
    decided = tuple(
        one.decided(one.scores and gate(one.scores, blank=list(map(is_blank, one.cloud.texts))).shipped)
        for one in second
    )
    return OfflineResult(
        unit=unit, threshold=threshold, calibration=tuple(groups), decided=decided,
        report=measure(decided, unit),
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitFigures:
    """Means over splits; None where no split has the figure.

    Attributes
    ----------
    exposure_risk_se : standard error of the mean exposure, from its spread between splits. Splits share the file's
        clouds, so it tells how exactly the mean over splits is known, not how another file would do.
    """

    ship_rate: float | None
    exposure_risk: float
    exposure_risk_se: float
    selective_risk: float | None
    severity_reduction: float | None


def split_figures(
    scored: Sequence[ScoredCloud], *, unit: Unit, alpha: float, method: str = "mean", seeds: Sequence[int]
) -> SplitFigures:
    """Run every seed's split of `scored`, two at least, and average the figures."""
    reports = [run_scored(scored, unit=unit, alpha=alpha, method=method, seed=seed).report for seed in seeds]

    def mean(name: str) -> float | None:
        known = [value for value in (getattr(report, name) for report in reports) if value is not None]
        return math.fsum(known) / len(known) if known else None

    exposures = [report.exposure_risk for report in reports if report.exposure_risk is not None]
    return SplitFigures(
        ship_rate=mean("ship_rate"),
        exposure_risk=math.fsum(exposures) / len(exposures),
        exposure_risk_se=float(np.std(exposures, ddof=1)) / math.sqrt(len(exposures)),
        selective_risk=mean("selective_risk"),
        severity_reduction=mean("severity_reduction"),
    )
