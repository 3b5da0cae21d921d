"""What an evaluation found, as plain values: every figure with its spread, and nothing that refers to a file or a clock.

None stands for a figure that is not defined, and for a lambda that is no number.
"""

from dataclasses import dataclass
from typing import Any

from streamer.clouds.spreads import Spread
from streamer.clouds.unlabelled import check_unlabelled
from streamer.report.charts import ScoreCounts
from streamer.scoring.judged import WHOLE

JUDGE_FIELD = "judge_score"
"""The field of ``meta`` with the judge's score, by default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateRow:
    """One score, one way to find the threshold, one budget, one unit: what ships and what is lost.

    Attributes
    ----------
    scorer : of the scores, ``gram``, ``judge``, ...
    method : the calibrator, or ``fixed`` for a threshold that nobody calibrated.
    mode : the paper's name where it has one (``G-Eval-Naive``, ``G-Eval-CRC``, ``Gram-CRC``).
    alpha : the budget on exposure risk.
    exposure : severity shipped per unit, held ones counting 0.
    ship_rate : share of units that ship.
    shipped_severity : mean severity among what ships, the selective risk.
    held_severity : mean severity among what is held.
    reduction : 1 - shipped / held severity.
    level : lambda where it is a number.
    closed, opened : share of splits in which nothing ships, and in which lambda is -inf.
    promised : exposure in the sense in which the method bounds it: each question counts once, however many units it has
        (for `pooled` each unit). The same as `exposure` where all questions have equally many.
    excess : by how many standard errors (`promised.se`) its mean lies above alpha; None where it does not, and where
        it does by the same in every split (`over` says which).
    """

    unit: str
    scorer: str
    method: str
    mode: str | None
    alpha: float
    exposure: Spread
    ship_rate: Spread
    shipped_severity: Spread
    held_severity: Spread
    reduction: Spread
    level: Spread
    closed: float
    opened: float
    promised: Spread
    excess: float | None

    @property
    def over(self) -> bool:
        """Whether the mean exposure lies above the budget."""
        return self.promised.mean is not None and self.promised.mean > self.alpha


@dataclass(frozen=True, slots=True, kw_only=True)
class StabilityRow:
    """How a weighting scheme tracks the budget and how much its threshold varies, unit ``response``.

    `exposure`: realised on the second halves. `level`: lambda over splits where it is a number.
    `level_sd_of_weights`: standard deviation of lambda when only the random weights are drawn again
    and the calibration answers stay; 0 for the method ``mean``, None where lambda is no number.
    """

    method: str
    alpha: float
    exposure: Spread
    level: Spread
    level_sd_of_weights: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureInterval:
    """A figure with a 95 % interval from resampling questions; None where it is not defined."""

    value: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CoverageRisk:
    """Selective risk against coverage: the units with the highest scores ship first, ties in a random order.

    `coverage`: rising, in (0, 1]. `risk`: mean severity among the shipped. `low`, `high`: a
    pointwise 95 % interval from resampling questions.
    """

    coverage: tuple[float, ...]
    risk: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScorePicture(ScoreCounts):
    """A score's units of all questions, as they are drawn: how scores are spread, and what each threshold would do.

    `thresholds`: rising from 0; of many, some two hundred. `ship_rate`, `exposure`: at each
    threshold. `selective`: severity among what ships; None where nothing does.
    """

    thresholds: tuple[float, ...]
    ship_rate: tuple[float, ...]
    exposure: tuple[float, ...]
    selective: tuple[float | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RankingRow:
    """How well a score ranks units, whatever the threshold.

    `auroc`: chance that a fine unit scores above a bad one, to whatever prompts; 0.5 is chance.
    `area`: mean selective risk over all coverages, lower is better; between `best_area`, of an
    order by severity itself, and `no_skill`, the mean severity. `levels`: number of distinct
    scores. `picture`: of the Gram energy, which the gates of the report decide by; None of the
    others.
    """

    unit: str
    scorer: str
    auroc: FigureInterval
    area: FigureInterval
    best_area: float
    no_skill: float
    levels: int
    curve: CoverageRisk
    picture: ScorePicture | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScorerRow:
    """What a score ships at a budget, by the method of the options, and how much `more` than the
    Gram energy on the same splits, split by split.
    """

    unit: str
    scorer: str
    alpha: float
    ship_rate: Spread
    exposure: Spread
    shipped_severity: Spread
    more: Spread


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSetResult:
    """Everything about one data set; `digest`: SHA-256 of its content, hexadecimal.

    `source`: the file, or the gate of a record. `fewest`, `most`: responses of a question.
    `calibrating`: questions in the half that calibrates. `unlabelled`: responses without a
    severity: counted as 1, or left out, as the options say; `blank`: those that are nothing but
    white space, which never ship. `mean_severity`: by unit, of a gate that ships all. `notes`: what
    a reader has to know about this data set, in sentences.
    """

    name: str
    source: str
    judged: str
    digest: str
    questions: int
    responses: int
    fewest: int
    most: int
    calibrating: int
    severity_kind: str
    unlabelled: int
    blank: int
    mean_severity: dict[str, float]
    encoder: str | None
    judge: str | None
    scorers: tuple[str, ...]
    notes: tuple[str, ...]
    gates: tuple[GateRow, ...]
    stability: tuple[StabilityRow, ...]
    ranking: tuple[RankingRow, ...]
    compared: tuple[ScorerRow, ...]

    def modes(self, unit: str) -> list[GateRow]:
        """Return the rows of the paper's modes under one unit, in the paper's order."""
        return [row for row in self.gates if row.unit == unit and row.mode is not None]

    def calibrators(self, unit: str, alpha: float) -> list[GateRow]:
        """Return the rows of every calibrator of the product on the Gram energy."""
        return [row for row in self.gates if row.unit == unit and row.alpha == alpha and row.mode is None]

    def default_row(self, unit: str, alpha: float) -> GateRow:
        """Return the figures of the product's default: method ``full``, or ``mean`` where that has no figures."""
        rows = {row.method: row for row in self.calibrators(unit, alpha)}
        return rows.get("full") or rows["mean"]

    def cut_row(self, unit: str, alpha: float) -> GateRow:
        """Return the figures of method ``mean``, which cuts Gram energy."""
        (row,) = [row for row in self.calibrators(unit, alpha) if row.method == "mean"]
        return row


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What was asked. All of it is part of the key under which results are kept.

    Attributes
    ----------
    alphas : budgets, rising.
    units : ``best``, ``response``, ``batch``.
    splits : number of seeded halves.
    seed : of the first split; the next ones count on.
    scorers : names of the label-free scores that are compared; the Gram energy is always there.
    external : fields of ``meta`` that hold scores of the file's own.
    judge_field : field of ``meta`` that holds the judge's score.
    unlabelled : what becomes of answers without a severity: `worst` counts them as 1, `drop` leaves them out, `fail` refuses
        the file.
    method : by which the scores that are compared gate.
    signals : numbers of the file's own that method `full` reads: name, least and largest value.
    models : names of models that it tells apart.
    judged : what of the answers is judged, each in turn; `all`: every part that at least half of the questions have.
    """

    alphas: tuple[float, ...] = (0.01, 0.05, 0.10, 0.15, 0.20)
    units: tuple[str, ...] = ("best", "response")
    splits: int = 50
    seed: int = 0
    scorers: tuple[str, ...] = ("gram",)
    external: tuple[str, ...] = ()
    judge_field: str = JUDGE_FIELD
    unlabelled: str = "worst"
    method: str = "mean"
    signals: tuple[tuple[str, float, float], ...] = ()
    models: tuple[str, ...] = ()
    judged: tuple[str, ...] = (WHOLE.text,)

    def reading(self) -> dict[str, Any]:
        """How files are read; see `streamer.research.evaluation.read_data_set`."""
        return {
            "judge_field": self.judge_field,
            "external": self.external,
            "unlabelled": check_unlabelled(self.unlabelled),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """All that was found by this version of the program; `key`, SHA-256 of inputs, options and the
    code that evaluated: equal keys, equal results.
    """

    key: str
    version: str
    options: Options
    data_sets: tuple[DataSetResult, ...]

    @property
    def units_shown(self) -> list[str]:
        """The units that some data set has figures of."""
        return [
            unit
            for unit in self.options.units
            if any(unit in result.mean_severity for result in self.data_sets)
        ]
