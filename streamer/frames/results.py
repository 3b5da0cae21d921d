"""What a gate on a table answers with: decisions, and a report on what they do."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamer.calibration.guarantee import budget
from streamer.calibration.specification import Risk
from streamer.calibration.threshold import Threshold
from streamer.clouds.measurement import DecidedBatch
from streamer.clouds.sentence import UNIT_WORDS, percent, served_sentence
from streamer.clouds.spreads import Spread
from streamer.frames.tables import Tabular
from streamer.gates.declared import Unit
from streamer.wording.numbers import counted


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


def spread_text(one: Spread) -> str:
    """A share with its standard error: ``36 % ± 3.1``; ``-`` where it is not defined."""
    if one.mean is None:
        return "-"
    return percent(one.mean) + ("" if one.error is None else f" ± {100 * one.error:.1f}")


@dataclass(frozen=True, slots=True)
class AtBudget:
    """What a gate makes, at a budget `alpha`, of prompts that did not calibrate it: means over splits.

    Attributes
    ----------
    ship_rate : share of units that ship.
    exposure : average harm per prompt, held ones counting 0.
    selective : error rate among what ships.
    """

    alpha: float
    ship_rate: Spread
    exposure: Spread
    selective: Spread


@dataclass(frozen=True, slots=True)
class Through:
    """A wrong answer that ships in most of the splits in which it was decided, from a budget on (0: the gate's own, and no other)."""

    prompt_id: str
    prompt: str
    answer: str
    severity: float
    score: float
    budget: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Report(Tabular):
    """What a gate does with labelled answers that did not calibrate it.

    Attributes
    ----------
    risk : what the budget bounds: `exposure` or `selective`.
    threshold : calibrated on all labels.
    at : what ships at the gate's budget, and what gets through.
    budgets : the same at every budget from 1 to 50 %, where one calibration answers for all of them; empty elsewhere.
    everything : mean severity if everything shipped.
    prompts : that were decided; `labels` : that calibrated each time, out of them; `splits` : times, 0 where the gate decided
        answers of another table.
    samples : answers to a prompt, what most have.
    in_order : the older half calibrated, because the method looks at the order; else random halves did, `seed` the first.
    wrong : wrong answers that get through at some budget; none for the unit `response`.
    weights : what each signal weighs, the heaviest first; empty where one score decides.
    why_closed : why nothing ships whatever the answers, and what would help; empty otherwise.
    """

    unit: Unit
    risk: Risk
    threshold: Threshold
    at: AtBudget
    budgets: tuple[AtBudget, ...]
    everything: float
    prompts: int
    labels: int
    splits: int
    seed: int
    samples: int
    in_order: bool
    wrong: tuple[Through, ...]
    weights: Mapping[str, float]
    why_closed: str = ""
    _frame: Any = field(repr=False, default=None)
    _at: Callable[[float], AtBudget] | None = field(repr=False, default=None)

    def __str__(self) -> str:
        return self.sentence

    def __repr__(self) -> str:
        return f"Report({self.sentence})"

    @property
    def sentence(self) -> str:
        """What ships and what gets through, in words."""
        at = self.at
        return served_sentence(
            self.unit,
            at.alpha,
            at.ship_rate.mean or 0.0,
            at.selective.mean,
            at.exposure.mean or 0.0,
            self.everything,
        )

    def at_budget(self, alpha: float) -> Report | None:
        """The same at another budget in (0, 1), by the same calibrations; None where these answer for one budget alone."""
        return None if self._at is None else replace(self, at=self._at(alpha), why_closed="")

    @property
    def through(self) -> list[Through]:
        """The wrong answers that get through at the gate's budget."""
        return [one for one in self.wrong if one.budget <= self.at.alpha]

    @property
    def often(self) -> str:
        """Which of the wrong answers `through` has, in words."""
        return " in most splits" if self.splits else ""

    @property
    def worth(self) -> str:
        """Whether a gate is worth it at its budget, in words, and what it costs."""
        at, (one, many) = self.at, UNIT_WORDS[self.unit]
        said, wrong, error = budget(at.alpha), at.selective.mean, at.selective.error or 0.0
        if wrong is None:
            return f"Not worth it at {said}. {self.why_closed or 'Nothing ships of prompts that did not calibrate.'}"
        share = f"you answer {percent(at.ship_rate.mean or 0.0)} of {many} with {percent(wrong)} wrong"
        instead = f"instead of everything with {percent(self.everything)} wrong"
        cost = f"It costs {counted(self.samples, 'answer', 'answers')} a prompt and {counted(self.labels, 'label', 'labels')}"
        if self.unit == "response":
            cost += f" of every {one}"
        elif through := len(self.through):
            cost = f"{counted(through, 'wrong answer', 'wrong answers')} would have got through{self.often}. {cost}"
        if self.everything <= at.alpha:
            return f"No gate is needed at {said}: if everything ships, {percent(self.everything)} are wrong."
        if wrong + error >= self.everything:
            return f"Not worth it: at {said} {share}, hardly better than everything with {percent(self.everything)}. {cost}."
        return f"Worth it: at {said} {share}, {instead}. {cost}."

    @property
    def basis(self) -> str:
        """From how many prompts the figures come, in words."""
        if not self.splits:
            error = self.at.exposure.error
            known = (
                ""
                if error is None
                else f" Exposure is known to about {percent(error, 1)} (one standard error)."
            )
            return f"Measured on {self.prompts} prompts that the gate was not calibrated on.{known}"
        if self.in_order:
            return (
                f"Measured on the newer {self.prompts - self.labels} of {self.prompts} prompts, calibrated on the older {self.labels}: "
                f"method {self.threshold.method} looks at the order."
            )
        return (
            f"Measured on prompts that did not calibrate: {self.splits} times {self.labels} of the {self.prompts} prompts, drawn at "
            f"random, calibrated and the other {self.prompts - self.labels} were decided (seeds {self.seed} to "
            f"{self.seed + self.splits - 1})."
        )

    @property
    def caveat(self) -> str:
        """Why nothing ships, or else on what the figures rest."""
        return self.why_closed or self.basis

    def columns(self) -> dict[str, list[Any]]:
        """Return the figures as columns, one row a budget, the gate's own first; NaN where one is not defined."""
        rows = (self.at, *self.budgets)
        found: dict[str, list[Any]] = {"alpha": [one.alpha for one in rows]}
        for name in ("ship_rate", "exposure", "selective"):
            spreads: list[Spread] = [getattr(one, name) for one in rows]
            found[name] = [math.nan if one.mean is None else one.mean for one in spreads]
            found[f"{name}_error"] = [math.nan if one.error is None else one.error for one in spreads]
        return found

    def _repr_html_(self) -> str:
        from streamer.frames.notebook import report_html

        return report_html(self)
