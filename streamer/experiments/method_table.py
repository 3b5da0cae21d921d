"""Every method on random halves of files of clouds: ``python -m streamer.experiments.method_table FILE...``.

The first half of a split calibrates, the second is decided and measured; the splits are those of
`streamer.experiments.clouds.split_clouds`, by question. Prints one Markdown table for each file, unit and budget.
"""

from __future__ import annotations

import argparse
import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray

from streamer.errors import StreamerError
from streamer.experiments.clouds import split_clouds
from streamer.experiments.compared_methods import METHODS_COMPARED, ComparedMethod, Labels, Traffic
from streamer.experiments.measurement import Units, units_of
from streamer.experiments.offline import ScoredCloud, calibration_groups, decided_batch
from streamer.experiments.score_cache import SCORES_FOLDER, scored_file

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamer.calibration import LabelledGroup
    from streamer.policy import Unit
    from streamer.scoring.encoder import CachedEncoder

Floats = NDArray[np.float64]

ALPHAS = (0.05, 0.1)
UNITS: tuple[Unit, ...] = ("best", "response")
HALVES = 50


@dataclass(frozen=True, slots=True, eq=False)
class Halves:
    """The seeded halves of one file under one unit: labelled groups on one side, measured units on the other."""

    clouds: int
    largest: int
    labelled: tuple[list[LabelledGroup], ...]
    traffic: tuple[Traffic, ...]
    severities: tuple[Floats, ...]

    @classmethod
    def of(cls, scored: Sequence[ScoredCloud], unit: Unit, seeds: Sequence[int]) -> Halves:
        """Split `scored` once for each seed."""
        batches = [decided_batch(item, unit=unit, state="closed", threshold=None) for item in scored]
        units = units_of(batches, unit)
        groups = {
            item.cloud.batch_id: group
            for item in scored
            for group in calibration_groups([item], unit)  # none for a batch that is held unscored
        }
        place = {item.cloud.batch_id: position for position, item in enumerate(scored)}
        labelled, traffic, severities = [], [], []
        for seed in seeds:
            first, second = split_clouds([item.cloud for item in scored], seed)
            labelled.append([groups[cloud.batch_id] for cloud in first if cloud.batch_id in groups])
            measured = np.zeros(len(scored), dtype=np.bool_)
            measured[[place[cloud.batch_id] for cloud in second]] = True
            chosen = measured[units.batch]
            traffic.append(_traffic(units, chosen))
            severities.append(units.severities[chosen])
        largest = 1 if unit == "best" else max(len(batch.texts) for batch in batches)
        return cls(len(scored), largest, tuple(labelled), tuple(traffic), tuple(severities))


def _traffic(units: Units, chosen: NDArray[np.bool_]) -> Traffic:
    return Traffic(units.scores[chosen], units.shippable[chosen], units.batch[chosen])


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodFigures:
    """One row: means over halves, and spreads between them. None: no half has the figure.

    Attributes
    ----------
    exposure_risk, exposure_sd : mean and standard deviation of the severity shipped per unit, held ones counting 0.
    ship_rate : mean share of units that ship.
    selective_risk : mean of the severity among what ships, over halves in which something does.
    level_sd : standard deviation of lambda over halves in which it is a number.
    closed : share of halves in which nothing ships.
    halves : their number.
    """

    name: str
    exposure_risk: float
    exposure_sd: float
    ship_rate: float
    selective_risk: float | None
    level_sd: float | None
    closed: float
    halves: int

    def excess(self, alpha: float) -> float | None:
        """Return by how many standard errors the mean exposure lies above `alpha`; None if it does not.

        The standard error is that of the mean over splits of this one file.
        """
        if self.exposure_risk <= alpha:
            return None
        if self.exposure_sd == 0:
            return math.inf
        return (self.exposure_risk - alpha) / (self.exposure_sd / math.sqrt(self.halves))


def method_figures(method: ComparedMethod, halves: Halves, alpha: float) -> MethodFigures:
    """Calibrate on the first of each pair of halves and measure on the second; the seed is the split's number."""
    exposures, shipped, selective, levels = [], [], [], []
    for seed, (groups, traffic, severities) in enumerate(
        zip(halves.labelled, halves.traffic, halves.severities, strict=True)
    ):
        served = method.run(Labels(groups, halves.largest, alpha, seed), traffic)
        total = float(served.chances.sum())
        lost = float(served.chances @ severities)
        exposures.append(lost / len(severities))
        shipped.append(total / len(severities))
        if total > 0:
            selective.append(lost / total)
        if served.level is not None and math.isfinite(served.level):
            levels.append(served.level)
    return MethodFigures(
        name=method.name,
        exposure_risk=float(np.mean(exposures)),
        exposure_sd=_spread(exposures) or 0.0,
        ship_rate=float(np.mean(shipped)),
        selective_risk=float(np.mean(selective)) if selective else None,
        level_sd=_spread(levels),
        closed=sum(share == 0 for share in shipped) / len(shipped),
        halves=len(shipped),
    )


def _spread(values: Sequence[float]) -> float | None:
    return float(np.std(values, ddof=1)) if len(values) > 1 else None


def markdown_table(rows: Sequence[MethodFigures], alpha: float) -> str:
    """Write rows as a Markdown table, equal ones as one; ``+x SE`` marks a mean exposure above the budget."""
    names: dict[tuple[str, ...], list[str]] = {}
    for row in rows:
        names.setdefault(_cells(row, alpha), []).append(f"`{row.name}`")
    lines = [
        "| method | exposure risk | its sd | ship rate | selective risk | sd of λ | ships nothing |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [f"| {' | '.join((', '.join(same), *cells))} |" for cells, same in names.items()]
    return "\n".join(lines)


def _cells(row: MethodFigures, alpha: float) -> tuple[str, ...]:
    excess = row.excess(alpha)
    return (
        f"{row.exposure_risk:.4f}" + ("" if excess is None else f" (+{excess:.1f} SE)"),
        f"{row.exposure_sd:.4f}",
        f"{row.ship_rate:.3f}",
        "–" if row.selective_risk is None else f"{row.selective_risk:.3f}",
        "–" if row.level_sd is None else f"{row.level_sd:.4f}",
        f"{row.closed:.2f}",
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m streamer.experiments.method_table",
        description="Run every method of calibration on seeded halves of files of response clouds.",
    )
    parser.add_argument(
        "files", nargs="+", type=Path, metavar="FILE", help="response clouds, .jsonl or .jsonl.gz"
    )
    parser.add_argument("--unit", choices=UNITS, nargs="+", default=list(UNITS))
    parser.add_argument("--alpha", type=_alpha, nargs="+", default=list(ALPHAS))
    parser.add_argument("--halves", type=_count, default=HALVES, help="number of splits, seeded 0, 1, ...")
    parser.add_argument("--scores", type=Path, default=SCORES_FOLDER, help="where scores are kept")
    options = parser.parse_args(arguments)
    try:
        for path in options.files:
            _print_tables(path, options)
    except StreamerError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0


def _print_tables(path: Path, options: argparse.Namespace) -> None:
    from streamer.scoring.registry import DEFAULT_ENCODER, encoder_identity

    scored = scored_file(
        path, encoder_id=encoder_identity(DEFAULT_ENCODER).id, load_encoder=_encoder, folder=options.scores
    )
    for unit in cast("list[Unit]", options.unit):
        halves = Halves.of(scored, unit, range(options.halves))
        for alpha in options.alpha:
            rows = [
                method_figures(method, halves, alpha)
                for method in METHODS_COMPARED
                if unit == "response" or not method.response_only
            ]
            title = (
                f"{path.name}: {halves.clouds} clouds, unit {unit}, alpha {alpha:g}, {options.halves} halves"
            )
            sys.stdout.write(f"### {title}\n\n{markdown_table(rows, alpha)}\n\n")
            sys.stdout.flush()


def _alpha(text: str) -> float:
    alpha = float(text)
    if not 0 < alpha < 1:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and 1")
    return alpha


def _count(text: str) -> int:
    count = int(text)
    if count < 2:
        raise argparse.ArgumentTypeError(f"{text} is less than 2, and a spread needs two")
    return count


def _encoder() -> CachedEncoder:
    from streamer.scoring.encoder import CachedEncoder
    from streamer.scoring.registry import load_encoder

    return CachedEncoder(load_encoder())


if __name__ == "__main__":
    sys.exit(main())
