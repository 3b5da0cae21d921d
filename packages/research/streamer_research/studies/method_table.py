"""Every method on random halves of files of clouds: ``python -m streamer_research.studies.method_table FILE...``.

The first half of a split calibrates, the second is decided and measured; the splits are those of
`streamer.clouds.cloud.split_clouds`, by question. Prints one Markdown table for each file, unit and budget.
"""

import argparse
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray

from streamer.clouds.compared_methods import METHODS_COMPARED, ComparedMethod
from streamer.clouds.halves import Halves, outcomes
from streamer.gates.declared import Unit
from streamer.research.experiments.score_cache import scored_file
from streamer_research.studies.command_arguments import (
    count_argument,
    default_encoder,
    print_tables,
    table_parser,
)

Floats = NDArray[np.float64]

ALPHAS = (0.05, 0.1)
UNITS: tuple[Unit, ...] = ("best", "response")
HALVES = 50


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
    found = outcomes(method.run, halves, alpha)
    finite = found.level[np.isfinite(found.level)]
    selective = found.shipped_severity[~np.isnan(found.shipped_severity)]
    return MethodFigures(
        name=method.name,
        exposure_risk=float(found.exposure.mean()),
        exposure_sd=_spread(found.exposure) or 0.0,
        ship_rate=float(found.ship_rate.mean()),
        selective_risk=float(selective.mean()) if len(selective) else None,
        level_sd=_spread(finite),
        closed=float((found.ship_rate == 0).mean()),
        halves=len(found.exposure),
    )


def _spread(values: Floats) -> float | None:
    return float(np.std(values, ddof=1)) if len(values) > 1 else None


def markdown_table(rows: Sequence[MethodFigures], alpha: float) -> str:
    """Write rows as a Markdown table, equal ones as one; ``+x SE`` marks a mean exposure above the budget."""
    names: dict[tuple[str, ...], list[str]] = {}
    for row in rows:
        names.setdefault(_cells(row, alpha), []).append(f"`{row.name}`")
    lines = [
        "| method | exposure risk | its sd | ship rate | selective risk | sd of threshold | ships nothing |",
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
    parser = table_parser(
        "method_table",
        "Run every method of calibration on seeded halves of files of response clouds.",
        alphas=ALPHAS,
        kept="scores",
    )
    parser.add_argument("--unit", choices=UNITS, nargs="+", default=list(UNITS))
    parser.add_argument(
        "--halves", type=count_argument(2), default=HALVES, help="number of splits, seeded 0, 1, ..."
    )
    return print_tables(parser.parse_args(arguments), _tables)


def _tables(path: Path, options: argparse.Namespace) -> Iterator[tuple[str, str]]:
    from streamer.scoring.encoders.registry import DEFAULT_ENCODER, encoder_identity

    scored = scored_file(
        path,
        encoder_id=encoder_identity(DEFAULT_ENCODER).id,
        load_encoder=default_encoder,
        folder=options.scores,
    )
    for unit in cast("list[Unit]", options.unit):
        halves = Halves.of(scored, unit, range(options.halves))
        for alpha in options.alpha:
            rows = [
                method_figures(method, halves, alpha)
                for method in METHODS_COMPARED
                if not method.of_signals and (unit == "response" or not method.response_only)
            ]
            yield (
                f"{path.name}: {halves.clouds} clouds, unit {unit}, alpha {alpha:g}, {options.halves} halves",
                markdown_table(rows, alpha),
            )


if __name__ == "__main__":
    sys.exit(main())
