"""What a gate on a table answers with: decisions, and a report on what they do."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamer.calibration.groups import LabelledGroup
from streamer.calibration.guarantee import budget
from streamer.calibration.specification import Risk
from streamer.calibration.threshold import Threshold
from streamer.clouds.measurement import DecidedBatch, OfflineRisk, units_of
from streamer.clouds.sentence import UNIT_WORDS, percent, sentence
from streamer.frames.tables import Tabular
from streamer.gates.declared import Unit


@dataclass(frozen=True, slots=True, eq=False)
class Decisions(Tabular):
    """What ships, one entry for each answer: in the order of the table's rows, or prompt by prompt where a row is a prompt.

    Attributes
    ----------
    prompt_ids, answer_ids : length N.
    scores : shape (N,), in [0, 1], what was decided by; NaN for what could not be scored, which is held.
    thresholds : shape (N,): a score ships above it, strictly. -inf: all do; +inf: none does. For the unit `batch` it is
        compared with the mean score, for `best` with the highest one. NaN where all signals decide.
    budgets : shape (N,), the smallest budget with which what could ship would have shipped, as in a worker's action
        (`budget_needed`); NaN for every other answer, and where the method says none.
    ship : shape (N,), bool.
    batches : the same by prompt.
    """

    unit: Unit
    prompt_ids: tuple[str, ...]
    answer_ids: tuple[str, ...]
    scores: NDArray[np.float64]
    thresholds: NDArray[np.float64]
    budgets: NDArray[np.float64]
    ship: NDArray[np.bool_]
    batches: tuple[DecidedBatch, ...]
    _frame: Any = field(repr=False, default=None)
    _rows: tuple[int, ...] | None = field(repr=False, default=None)

    def __len__(self) -> int:
        return len(self.ship)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.ship, dtype=dtype)

    def __repr__(self) -> str:
        return f"Decisions({self.sentence})"

    @property
    def sentence(self) -> str:
        """How much ships, in words."""
        prompts = sum(any(batch.shipped) for batch in self.batches)
        one = f"{int(self.ship.sum())} of {len(self)} answers ship"
        return f"{one}, for {prompts} of {len(self.batches)} prompts"

    @property
    def selected(self) -> dict[str, str | None]:
        """For the unit `best`: the answer that may be shown for each prompt; None where none may. Raises `ValueError` else."""
        if self.unit != "best":
            raise ValueError(f"one answer is selected by the unit best, not {self.unit}: read ship")
        found: dict[str, str | None] = dict.fromkeys(self.prompt_ids)
        entries = zip(self.prompt_ids, self.answer_ids, self.ship, strict=True)
        found.update({prompt: answer for prompt, answer, ships in entries if ships})
        return found

    def columns(self) -> dict[str, list[Any]]:
        """Return the decisions as columns of plain values; None where there is no threshold, or no budget is said."""
        return {
            "prompt_id": list(self.prompt_ids),
            "answer_id": list(self.answer_ids),
            "score": self.scores.tolist(),
            "threshold": _known(self.thresholds),
            "budget_needed": _known(self.budgets),
            "ship": self.ship.tolist(),
        }

    def _repr_html_(self) -> str:
        from streamer.frames.notebook import decisions_html

        return decisions_html(self)


def _known(values: NDArray[np.float64]) -> list[float | None]:
    return [None if math.isnan(one) else one for one in values.tolist()]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Report(Tabular):
    """What a gate does with labelled answers.

    Attributes
    ----------
    risk : what the budget bounds: `exposure` or `selective`.
    in_sample : these are the answers that the gate was calibrated on.
    figures : exposure risk, ship rate and the rest.
    decided : the decisions, prompt by prompt.
    groups : that the gate was calibrated on.
    drop_unlabelled : answers without a severity are not in the figures; else they count as 1.
    why_closed : why nothing ships whatever the answers, and what would help; empty otherwise.
    """

    unit: Unit
    risk: Risk
    threshold: Threshold
    in_sample: bool
    figures: OfflineRisk
    decided: Sequence[DecidedBatch]
    groups: Sequence[LabelledGroup]
    drop_unlabelled: bool
    why_closed: str = ""
    _frame: Any = field(repr=False, default=None)

    def __str__(self) -> str:
        return self.sentence

    def __repr__(self) -> str:
        return f"Report({self.sentence})"

    @property
    def sentence(self) -> str:
        """What ships and what gets through, in words."""
        figures, alpha = self.figures, self.threshold.alpha
        if self.risk == "exposure" or not figures.shipped:
            return sentence(figures, alpha)
        many = UNIT_WORDS[self.unit][1]
        return (
            f"served {percent(figures.ship_rate)} of {many}, error rate among shipped {percent(figures.selective_risk, 1)} "
            f"against a budget of {budget(alpha)}"
        )

    @property
    def caveat(self) -> str:
        """What to think of where it was measured, in words."""
        if self.why_closed:
            return self.why_closed
        if self.in_sample:
            return (
                "Measured on the answers that the gate was calibrated on: others will do a little worse. report(table) "
                "measures on answers that it has not seen."
            )
        error = self.figures.exposure_risk_se
        give = (
            "" if error is None else f" Exposure is known to about {percent(error, 1)} (one standard error)."
        )
        return f"Measured on answers that the gate was not calibrated on.{give}"

    def columns(self) -> dict[str, list[Any]]:
        """Return the figures as columns: name and value, NaN where one is not defined."""
        figures = {
            "alpha": self.threshold.alpha,
            "threshold": self.threshold.value,
            "calibration_groups": self.threshold.groups,
            **{name: value for name, value in asdict(self.figures).items() if name != "unit"},
        }
        values = [math.nan if value is None else float(value) for value in figures.values()]
        return {"figure": list(figures), "value": values}

    def _repr_html_(self) -> str:
        from streamer.frames.notebook import report_html

        units = units_of(self.decided, self.unit)
        return report_html(self, units.labelled() if self.drop_unlabelled else units)
