"""What a gate on a table answers with: decisions, and a report on what they do."""

from __future__ import annotations

import json
import math
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamer.calibration.guarantee import budget
from streamer.calibration.specification import Risk
from streamer.calibration.threshold import Threshold
from streamer.clouds.evaluated_claims import COLUMNS, ClaimResult, claims_sentence
from streamer.clouds.measurement import DecidedBatch, units_of
from streamer.clouds.sentence import UNIT_WORDS, percent, served_sentence
from streamer.clouds.spreads import Spread
from streamer.frames.answers import Tabular
from streamer.gates.declared import Unit
from streamer.report.charts import budget_chart, decision_chart
from streamer.report.demo_run import excerpt
from streamer.report.page import BUDGET_KEY, DECISION_KEY, picture, shares_bar
from streamer.report.style import STYLE, scoped_style
from streamer.wording.numbers import counted, unbroken
from streamer.wording.policies import MOST_WEIGHTS


@dataclass(frozen=True, slots=True, eq=False)
class Decisions(Tabular):
    """What ships, one entry for each answer: in the order of the table's rows, or prompt by prompt
    where a row is a prompt.

    `scores`, shape (N,), in [0, 1], are what was decided by; NaN for what could not be scored,
    which is held. A score ships strictly above its threshold (-inf: all do; +inf: none does; NaN
    where all signals decide); for the unit `batch` that is compared with the mean score, for `best`
    with the highest one. `budgets`, shape (N,), are the smallest ones with which what could ship
    would have shipped, as in a worker's action (`budget_needed`); NaN for every other answer, and
    where the method says none. `reasons`: as of an action: `scored`, `closed`, `too_few_responses`,
    ...; `no_answer` for a row with an error in its place. `batches`: the same by prompt.
    """

    unit: Unit
    prompt_ids: tuple[str, ...]
    answer_ids: tuple[str, ...]
    scores: NDArray[np.float64]
    thresholds: NDArray[np.float64]
    budgets: NDArray[np.float64]
    ship: NDArray[np.bool_]
    reasons: tuple[str, ...]
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
            "reason": list(self.reasons),
        }

    def _repr_html_(self) -> str:
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

    `ship_rate`: share of units that ship. `exposure`: average harm per prompt, held ones counting
    0. `selective`: error rate among what ships.
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
    graded : how figures are to be read where severities lie between 0 and 1; empty where none does.
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
    graded: str = ""
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
        severity = "a mean severity of {}" if self.graded else "{} wrong"
        share = (
            f"you answer {percent(at.ship_rate.mean or 0.0)} of {many} with {severity.format(percent(wrong))}"
        )
        instead = f"instead of everything with {severity.format(percent(self.everything))}"
        cost = f"It costs {counted(self.samples, 'answer', 'answers')} a prompt and {counted(self.labels, 'label', 'labels')}"
        if self.unit == "response":
            cost += f" of every {one}"
        elif through := len(self.through):
            bad = ("answer", "answers") if self.graded else ("wrong answer", "wrong answers")
            bar = " with severity 0.5 or more" if self.graded else ""
            cost = f"{counted(through, *bad)}{bar} would have got through{self.often}. {cost}"
        if self.everything <= at.alpha:
            have = "the mean severity is {}" if self.graded else "{} are wrong"
            return (
                f"No gate is needed at {said}: if everything ships, {have.format(percent(self.everything))}."
            )
        if wrong + error >= self.everything:
            return f"Not worth it: at {said} {share}, hardly better than everything with {percent(self.everything)}. {cost}."
        return f"Worth it: at {said} {share}, {instead}. {cost}."

    @property
    def basis(self) -> str:
        """From how many prompts the figures come, and what they are of, in words."""
        return f"{self._measured} {self.graded}".rstrip()

    @property
    def _measured(self) -> str:
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
        return _shown(self.sentence, self.caveat, report_parts(self) + _through(self))


CLASS = "streamer-report"
"""Of the element that holds what a notebook shows."""


_SHOWN = 10
"""Decisions in the table."""


def decisions_html(decisions: Decisions) -> str:
    """Show the first decisions, and where all of them lie; where all signals decide, the budget that each needed."""
    by_signals = bool(np.isnan(decisions.thresholds).any())
    rows = [
        (
            escape(row["prompt_id"][:80]),
            escape(row["answer_id"][:80]),
            _number(row["score"]),
            _number(row["budget_needed" if by_signals else "threshold"] or math.nan),
            "ship" if row["ship"] else "hold",
        )
        for row in decisions.rows()[:_SHOWN]
    ]
    more = f"<p>and {len(decisions) - _SHOWN} more</p>" if len(decisions) > _SHOWN else ""
    units, cuts = units_of(decisions.batches, decisions.unit), np.unique(decisions.thresholds)
    many = UNIT_WORDS[decisions.unit][1]
    chart = (
        ""
        if by_signals
        else picture(
            f"What becomes of {len(units)} {many}",
            decision_chart(units, decisions.unit, threshold=float(cuts[0]) if len(cuts) == 1 else None),
            "What scores above the threshold ships."
            if len(cuts) == 1
            else "Thresholds differ from prompt to prompt.",
            DECISION_KEY,
        )
    )
    what = "budget needed" if by_signals else "threshold"
    table = _table(("prompt_id", "answer_id", "score", what, ""), rows, numbers=(2, 3))
    return _shown(decisions.sentence, "", f"{table}{more}{chart}")


def report_parts(report: Report) -> str:
    """Return the charts and tables of a report."""
    at, many = report.at, UNIT_WORDS[report.unit][1]
    ship, exposure = at.ship_rate.mean or 0.0, at.exposure.mean or 0.0
    parts = shares_bar(f"What becomes of 100 {many} at {budget(at.alpha)}", ship, exposure, report.everything)
    if report.budgets:
        columns = report.columns()
        names = {"ship": "ship_rate", "selective": "selective", "exposure": "exposure"}
        parts += picture(
            "What another budget would serve",
            budget_chart(
                columns["alpha"][1:],
                {css: columns[name][1:] for css, name in names.items()},
                report.unit,
                alpha=at.alpha,
                chosen={css: columns[name][0] for css, name in names.items()},
            ),
            "Each point is measured on prompts that did not calibrate. A budget that is chosen on this curve has no promise on these labels.",
            BUDGET_KEY,
        )
    if report.weights:
        rows = [
            (escape(name.replace("_", " ")), f"{weight:+.2f}")
            for name, weight in list(report.weights.items())[:MOST_WEIGHTS]
        ]
        parts += _table(("what each signal weighs", "+ speaks for an answer"), rows, numbers=(1,))
    return parts + _promise(report.threshold.guarantee)


def _through(report: Report, most: int = _SHOWN) -> str:
    """The wrong answers that get through at the report's budget, or, with more of them, at every other too."""
    found = report.through if most == _SHOWN else list(report.wrong)
    rows = [
        (escape(excerpt(one.prompt) or one.prompt_id), escape(excerpt(one.answer)), percent(one.budget, 1))
        for one in found[:most]
    ]
    if not rows:
        return ""
    more = f"<p>and {len(found) - most} more</p>" if len(found) > most else ""
    table = _table(("prompt", "answer", "gets through from"), rows, numbers=(2,))
    return f'<h3 style="margin-top:1.1rem">Wrong answers that would have got through{report.often}: <span id="count">{len(report.through)}</span></h3>{table}{more}'


_SLIDER = """
const said = JSON.parse(document.getElementById("said").textContent), at = document.getElementById("at");
at.oninput = () => {
  document.getElementById("now").textContent = said[at.value - 1];
  let shown = 0;
  for (const row of document.querySelectorAll("#wrong tbody tr")) {
    row.hidden = parseFloat(row.lastElementChild.textContent) > +at.value;
    shown += !row.hidden;
  }
  const count = document.getElementById("count");
  if (count) count.textContent = shown;
};
at.oninput();
"""


PAGE_POLICY = (
    "sandbox allow-scripts; default-src 'none'; style-src 'unsafe-inline'; "
    f"script-src 'sha256-{b64encode(sha256(_SLIDER.encode()).digest()).decode()}'"
)
"""The content security policy of `report_page`, which has its style and script in it and reads nothing else."""


def report_page(report: Report, name: str, notes: Sequence[str] = (), *, back: str = "") -> str:
    """Return a report as a page of its own, with a slider over all budgets where one calibration
    answers for them.

    `notes` say how the file was read; at `back` another file is tried, empty for none.
    """
    slider = ""
    if report.budgets:
        said = [replace(report, at=one, why_closed="").sentence for one in report.budgets]
        listed = json.dumps([f"{unbroken(one[:1].upper() + one[1:])}." for one in said]).replace(
            "<", "\\u003c"
        )
        slider = (
            f'<div class="card"><label for="at">Another budget</label><input type="range" id="at" min="1" max="{len(said)}" '
            f'value="{max(1, round(100 * report.at.alpha))}" style="width:100%"><p id="now"></p></div>'
            f'<script type="application/json" id="said">{listed}</script>'
        )
    body = f'{slider}<div id="wrong">{_through(report, 200)}</div>{report_parts(report)}'
    script = f"<script>{_SLIDER}</script>" if slider else ""
    return _page(name, report.worth, (report.caveat, *notes), body, back, script)


def claims_page(
    result: ClaimResult, alpha: float, name: str, notes: Sequence[str] = (), *, back: str = ""
) -> str:
    """Say as such a page what of the claims of a file would ship, first at one of its budgets."""
    said = claims_sentence([row for row in result.rows if row.alpha == alpha])
    rows = [[cell(row) or "–" for cell in COLUMNS.values()] for row in result.rows]
    table = _table(tuple(COLUMNS), rows, numbers=range(1, len(COLUMNS)))
    notes = (f"{result.counted}.", *result.notes, *notes)
    return _page(name, f"{said[:1].upper()}{said[1:]}.", notes, table, back)


def _page(name: str, worth: str, notes: Sequence[str], body: str, back: str, script: str = "") -> str:
    crumb = f'<p><a href="{escape(back)}">Try another file</a></p>' if back else ""
    about = "".join(f'<p class="verdict">{escape(unbroken(one))}</p>' for one in notes)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" '
        f'content="width=device-width, initial-scale=1"><title>{escape(worth)}</title>'
        f"<style>{STYLE}</style></head><body><main><header>{crumb}<h1>{escape(name)}</h1>"
        f'<p class="result">{escape(unbroken(worth))}</p>{about}</header>{body}</main>{script}</body></html>'
    )


def _promise(guarantee: str) -> str:
    return (
        '<details class="card" style="margin-top:1.1rem"><summary>What is promised</summary>'
        f"<p>{escape(unbroken(guarantee))}</p></details>"
    )


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: Sequence[int] = ()) -> str:
    """Write a table; its cells are HTML."""
    names = "".join(f"<th>{name}</th>" for name in head)
    cells = "".join(
        "<tr>"
        + "".join(
            f'<td class="n">{cell}</td>' if place in numbers else f"<td>{cell}</td>"
            for place, cell in enumerate(row)
        )
        + "</tr>"
        for row in rows
    )
    return (
        f'<div class="card scroll"><table><thead><tr>{names}</tr></thead><tbody>{cells}</tbody></table></div>'
    )


def _shown(sentence: str, caveat: str, parts: str) -> str:
    said = f'<p class="verdict">{escape(unbroken(caveat))}</p>' if caveat else ""
    return (
        f'<div class="{CLASS}"><style>{scoped_style(CLASS)}</style>'
        f'<p class="result">{escape(unbroken(sentence[:1].upper() + sentence[1:]))}.</p>{said}{parts}</div>'
    )


def _number(value: float) -> str:
    return f"{value:.4f}" if math.isfinite(value) else "none" if math.isnan(value) else f"{value:g}"
