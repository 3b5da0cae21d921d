"""Figures of many seeded splits of one file, as a table: ``python -m streamer.research.experiments.offline_figures FILE``."""

from __future__ import annotations

import argparse
import math
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from streamer.calibration.guarantee import budget
from streamer.calibration.registry import weighting_schemes
from streamer.clouds.cloud_files import read_clouds
from streamer.clouds.offline import ScoredCloud, run_scored, score_clouds
from streamer.errors import StreamerError
from streamer.gates.settings import UNITS
from streamer.research.experiments.command_arguments import alpha_argument, count_argument, default_encoder

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from streamer.clouds.measurement import OfflineRisk
    from streamer.gates.settings import Unit

ALPHAS = (0.01, 0.05, 0.10, 0.15, 0.20)


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


def figures_table(rows: Sequence[SplitFigures]) -> str:
    """Write the figures as a plain text table."""
    heads = ("alpha", "ship rate", "exposure", "SE", "selective", "reduction", "lambda", "closed")
    lines = ["  ".join(f"{head:>9}" for head in heads)]
    for row in rows:
        cells = [
            budget(row.alpha),
            *(
                "-" if value is None else f"{value:.{digits}f}"
                for value, digits in (
                    (row.ship_rate, 3),
                    (row.exposure_risk, 4),
                    (row.exposure_risk_se, 4),
                    (row.selective_risk, 3),
                    (row.severity_reduction, 3),
                    (row.threshold, 4),
                    (row.closed, 2),
                )
            ),
        ]
        lines.append("  ".join(f"{cell:>9}" for cell in cells))
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m streamer.research.experiments.offline_figures",
        description="Calibrate on one half of a file of response clouds, measure on the other, over seeded splits.",
    )
    parser.add_argument("file", help="response clouds, .jsonl or .jsonl.gz, - for standard input")
    parser.add_argument("--unit", choices=UNITS, default="best")
    parser.add_argument("--method", choices=weighting_schemes(), default="mean")
    parser.add_argument("--alpha", type=alpha_argument, nargs="+", default=list(ALPHAS))
    parser.add_argument(
        "--seeds", type=count_argument(1), default=20, help="number of splits, seeded 0, 1, ..."
    )
    options = parser.parse_args(arguments)
    try:
        clouds = list(read_clouds(options.file, needs_answers=True))
        scored = score_clouds(clouds, default_encoder())
        rows = [
            split_figures(
                scored, unit=options.unit, alpha=alpha, method=options.method, seeds=range(options.seeds)
            )
            for alpha in options.alpha
        ]
    except StreamerError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    heading = f"{len(clouds)} clouds, unit {options.unit}, method {options.method}, means over {options.seeds} splits"
    sys.stdout.write(f"{heading}\n{figures_table(rows)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
