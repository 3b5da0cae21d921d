"""The tables of an evaluation, once for Markdown and once for the page: headings, cells as texts, and a caption."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from streamer.calibration import registry
from streamer.calibration.guarantee import budget
from streamer.calibration.specification import Calibrator
from streamer.clouds.sentence import UNIT_WORDS
from streamer.clouds.spreads import chance_bound
from streamer.gates.declared import Unit
from streamer.research.evaluation.measures import MODES
from streamer.research.evaluation.results import DataSetResult, Evaluation, GateRow, StabilityRow
from streamer.research.evaluation.words import (
    UNIT_TITLES,
    budget_label,
    interval,
    number,
    percentage,
    ratio,
    scorer_title,
)

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultTable:
    """One table.

    `caption`: what the cells are, in a sentence or two. `columns`: headings. `rows`: cells, as many
    as headings each. `left`: number of columns at the left that are names and not figures.
    """

    title: str
    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left: int = 1

    @classmethod
    def of(
        cls,
        items: Iterable[Item],
        cells: Mapping[str, Callable[[Item], str]],
        *,
        title: str,
        caption: str,
        left: int = 1,
    ) -> "ResultTable":
        """Make a row of each item; `cells` says by heading what stands there."""
        rows = tuple(tuple(cell(item) for cell in cells.values()) for item in items)
        return cls(title=title, caption=caption, columns=tuple(cells), rows=rows, left=left)


def data_table(evaluation: Evaluation) -> ResultTable:
    """Say what the data sets are."""

    def mean_severity(unit: str) -> Callable[[DataSetResult], str]:
        return lambda result: number(result.mean_severity.get(unit), 3)

    return ResultTable.of(
        evaluation.data_sets,
        {
            "data set": lambda result: result.name,
            "questions × responses": lambda result: f"{result.questions} × {_sizes(result)}",
            "severity": lambda result: result.severity_kind,
            **{f"mean severity, {unit}": mean_severity(unit) for unit in evaluation.options.units},
            "calibrate / measured": lambda one: f"{one.calibrating} / {one.questions - one.calibrating}",
        },
        title="The data",
        caption="Severity is in [0, 1], 0 = fine; its mean is the risk of a gate that ships everything.",
        left=3,
    )


def _sizes(result: DataSetResult) -> str:
    return str(result.most) if result.fewest == result.most else f"{result.fewest} to {result.most}"


def reduction_table(evaluation: Evaluation, unit: str) -> ResultTable:
    """The paper's table of three modes: the reduction of severity at each budget."""
    rows = []
    for result in evaluation.data_sets:
        for mode in MODES:
            of_mode = [row for row in result.modes(unit) if row.mode == mode]
            if of_mode:
                rows.append((result.name, mode, *(percentage(row.reduction) for row in of_mode)))
    return ResultTable(
        title=f"Reduction of severity, %, unit {unit}",
        caption=(
            f"Unit {unit}: {UNIT_TITLES[unit]}. 100 (1 − severity shipped / severity held), mean ± error over the splits in "
            "which something ships and something is held; a dash where none has both."
        ),
        columns=("data set", "mode", *(f"α = {budget_label(alpha)}" for alpha in evaluation.options.alphas)),
        rows=tuple(rows),
        left=2,
    )


_OF_LEVEL: dict[str, Callable[[GateRow | StabilityRow], str]] = {
    "threshold": lambda row: number(row.level.mean),
    "its sd": lambda row: number(row.level.sd),
    "its SE": lambda row: number(row.level.se, 5),
}


def gate_table(rows: Sequence[GateRow], *, title: str, caption: str, name: str = "method") -> ResultTable:
    """Everything about some gates; `name` says what distinguishes the rows."""
    return ResultTable.of(
        rows,
        {
            name: lambda row: row.mode if name == "mode" and row.mode else row.method,
            "α": lambda row: budget_label(row.alpha),
            "exposure risk": lambda row: (
                ratio(row.exposure, 4) + (f" (above by {_excess(row, 1, ' SE')})" if row.over else "")
            ),
            "ship rate": lambda row: ratio(row.ship_rate),
            "severity shipped": lambda row: ratio(row.shipped_severity),
            "severity held": lambda row: ratio(row.held_severity),
            "reduction, %": lambda row: percentage(row.reduction),
            **_OF_LEVEL,
            "ships nothing": lambda row: f"{row.closed:.2f}",
        },
        title=title,
        caption=caption,
    )


def method_table(result: DataSetResult, unit: Unit, alpha: float) -> ResultTable:
    """What each way of finding the threshold would do at one budget, in few columns."""
    kinds = registry.every()
    return ResultTable.of(
        result.calibrators(unit, alpha),
        {
            "method": lambda row: row.method,
            "promises": lambda row: _promise(kinds.get(row.method)),
            f"{UNIT_WORDS[unit][1]} served, %": lambda row: percentage(row.ship_rate),
            "error rate among shipped": lambda row: percentage(row.shipped_severity),
            "exposure": lambda row: percentage(row.exposure),
            "threshold": lambda row: number(row.level.mean, 3),
        },
        title=f"Ways to find the threshold, budget {budget(alpha)}",
        caption="full is the default from 40 labels on, and mean below. Means over splits ± error; severity and exposure in per cent. What a promise says in full: docs/guarantees.md.",
        left=2,
    )


def _promise(kind: type[Calibrator] | None) -> str:
    if kind is None:
        return "exposure, on average"  # a shape of gate (smooth, ramp, ...), calibrated by `mean`
    if kind.family == "no promise":
        return "nothing"
    what = "error rate among shipped" if kind.risk == "selective" else "exposure"
    return f"{what}, {'on average' if kind.family == 'on average' else 'in 9 calibrations of 10'}"


def _excess(row: GateRow, digits: int, unit: str = "") -> str:
    return "the same in every split" if row.excess is None else f"{row.excess:.{digits}f}{unit}"


def mode_table(result: DataSetResult, unit: str) -> ResultTable:
    """The paper's modes in full."""
    return gate_table(
        result.modes(unit),
        title=f"{result.name}: the modes in full, unit {unit}",
        caption="Means over splits ± error. “above by x SE” marks a mean exposure above α. Thresholds where they are numbers.",
        name="mode",
    )


def calibrator_table(result: DataSetResult, unit: str, alphas: Sequence[float]) -> ResultTable:
    """Every calibrator of the product on the Gram energy."""
    return gate_table(
        [row for alpha in alphas for row in result.calibrators(unit, alpha)],
        title=f"{result.name}: every calibrator, unit {unit}",
        caption=(
            "Gram energy; full reads all signals, of the answer that Gram energy and chrF choose. hb, betting and bernstein promise exposure ≤ α in nine calibrations out of ten, selective the same of the "
            "error rate among the shipped, selective-mean that on average, clt nothing; all others exposure ≤ α on average."
        ),
    )


def stability_table(result: DataSetResult) -> ResultTable:
    """The paper's calibration summary."""
    return ResultTable.of(
        result.stability,
        {
            "method": lambda row: row.method,
            "α": lambda row: budget_label(row.alpha),
            "empirical risk": lambda row: ratio(row.exposure, 4),
            "risk SE": lambda row: number(row.exposure.se),
            **_OF_LEVEL,
            "its sd, weights alone": lambda row: number(row.level_sd_of_weights),
        },
        title=f"{result.name}: calibration, unit response",
        caption=(
            "Empirical risk: severity shipped per response on the measured halves, mean ± error. SE of the threshold is sd / √splits, as "
            "the paper's stability. The last column redraws only the random weights and keeps the calibration answers."
        ),
    )


def ranking_table(evaluation: Evaluation) -> ResultTable:
    """AUROC and the area under the coverage-risk curve, for each score."""
    return ResultTable.of(
        [(result.name, row) for result in evaluation.data_sets for row in result.ranking],
        {
            "data set": lambda one: one[0],
            "unit": lambda one: one[1].unit,
            "score": lambda one: scorer_title(one[1].scorer),
            "AUROC": lambda one: interval(one[1].auroc),
            "area": lambda one: interval(one[1].area),
            "perfect": lambda one: number(one[1].best_area, 3),
            "no skill": lambda one: number(one[1].no_skill, 3),
            "levels": lambda one: str(one[1].levels),
        },
        title="How well each score ranks",
        caption=(
            "AUROC: chance that a fine unit scores above a bad one, .5 is chance. Area: mean severity among the shipped over "
            "all coverages, lower is better, between that of a perfect order and that of no skill. In brackets 95 % by "
            "resampling questions. Under unit best each score picks its own answer, so that its no-skill value is its own. "
            "Levels: distinct scores; where there are few, whole groups ship or hold together."
        ),
        left=3,
    )


def scorer_table(evaluation: Evaluation, unit: str) -> ResultTable:
    """Which score ships most at the same risk."""
    alphas = evaluation.options.alphas
    rows = []
    for result in evaluation.data_sets:
        for name in dict.fromkeys(row.scorer for row in result.compared):
            found = {row.alpha: row for row in result.compared if row.unit == unit and row.scorer == name}
            if not found:
                continue
            cells = []
            for alpha in alphas:
                row = found[alpha]
                more = "" if name == "gram" else f" ({_signed(row.more.mean, row.more.error)})"
                cells.append(f"{percentage(row.ship_rate)}{more}")
            rows.append((result.name, scorer_title(name), *cells))
    return ResultTable(
        title=f"What each score ships at the same budget, %, unit {unit}",
        caption=(
            f"Scores by method {evaluation.options.method}, all signals by full. In brackets what it ships more than the Gram energy, in points, paired split by split: its error is "
            "that of the difference, and a difference within two errors is no finding."
        ),
        columns=("data set", "score", *(f"α = {budget_label(alpha)}" for alpha in alphas)),
        rows=tuple(rows),
        left=2,
    )


def _signed(mean: float | None, error: float | None) -> str:
    if mean is None:
        return "–"
    return f"{100 * mean:+.1f}" + ("" if error is None else f" ± {100 * error:.1f}")


def over_budget_table(evaluation: Evaluation) -> ResultTable:
    """Every cell whose mean exposure lies above its budget, the furthest first."""
    cells = promised_rows(evaluation)
    bound = chance_bound(len(cells))
    alike: dict[tuple[str, str, float, str, str], list[str]] = {}
    for name, row in sorted(
        ((name, row) for name, row in cells if row.over),
        key=lambda found: -(math.inf if found[1].excess is None else found[1].excess),
    ):
        figures = (name, row.unit, row.alpha, number(row.promised.mean), _excess(row, 2))
        alike.setdefault(figures, []).append(row.mode or row.method)
    return ResultTable(
        title="Did the budgets hold?",
        caption=(
            f"Of {len(cells)} gates whose method promises an exposure of at most α on average, those whose mean over splits "
            f"lies above it, the ten furthest; methods that decided alike share a line. Each question counts once, however many answers it has (method pooled: each answer), as the guarantee is defined. Chance alone reaches {bound:.1f} standard errors somewhere among so many once in a "
            "hundred evaluations."
        ),
        columns=("data set", "unit", "method", "α", "exposure risk", "standard errors above"),
        rows=tuple(
            (name, unit, ", ".join(methods), budget_label(alpha), exposure, excess)
            for (name, unit, alpha, exposure, excess), methods in list(alike.items())[:10]
        ),
        left=3,
    )


def promised_rows(evaluation: Evaluation) -> list[tuple[str, GateRow]]:
    """Every gate whose method promises exposure of at most alpha on average, with its data set's name.

    `hb` and `betting` are not among them: they promise it of one calibration, but for a chance of delta. Nor are those that
    bound the error rate among what ships.
    """
    others = {
        name
        for name, kind in registry.every().items()
        if kind.family != "on average" or kind.risk != "exposure"
    }
    return [
        (result.name, row)
        for result in evaluation.data_sets
        for row in result.gates
        if row.method != "fixed" and row.method not in others
    ]


def all_tables(evaluation: Evaluation) -> dict[str, list[ResultTable]]:
    """Every table by its kind, in the order of the report."""
    results, units = evaluation.data_sets, evaluation.units_shown
    places = [(result, unit) for result in results for unit in units if unit in result.mean_severity]
    return {
        "data": [data_table(evaluation)],
        "reduction": [reduction_table(evaluation, unit) for unit in units],
        "mode": [mode_table(result, unit) for result, unit in places],
        "over": [over_budget_table(evaluation)],
        "stability": [stability_table(result) for result in results if result.stability],
        "ranking": [ranking_table(evaluation)],
        "scorer": [scorer_table(evaluation, unit) for unit in units],
        "calibrator": [calibrator_table(result, unit, evaluation.options.alphas) for result, unit in places],
    }


def markdown(evaluation: Evaluation) -> str:
    """Write every table as Markdown."""
    return "\n".join(_markdown(table) for tables in all_tables(evaluation).values() for table in tables)


def _markdown(table: ResultTable) -> str:
    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"

    rule = ["---"] * table.left + ["---:"] * (len(table.columns) - table.left)
    rows = [line(row) for row in table.rows] or [line(["none", *[""] * (len(table.columns) - 1)])]
    return "\n".join((f"## {table.title}", "", table.caption, "", line(table.columns), line(rule), *rows, ""))
