"""One run of the demo, and what there is to say about it, whether on a page or in a terminal."""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

from streamer.calibration import LabelledGroup, groups_needed
from streamer.calibration.guarantee import budget
from streamer.calibration.registry import every
from streamer.calibration.threshold import ThresholdState
from streamer.clouds.measurement import DecidedBatch, OfflineRisk, units_of
from streamer.clouds.sentence import UNIT_WORDS, percent
from streamer.gates.declared import Unit
from streamer.gates.rule import Cut
from streamer.report.charts import threshold_words

CASES_SHOWN = 3

_LONGEST_EXCERPT = 240


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DemoRun:
    """Everything that the report shows of one run: the labelled groups of the first half calibrate,
    the second half is decided.

    `threshold` : lambda; None unless `state` is `cut`. `report` : `measure(decided, unit)`.
    `origin` : where the clouds came from, one sentence; `simulated` : a program made them up.
    `severity_kind`, `encoder` : as gates name them. `database` : where the record of every decision
    is. `seconds`, `batches_per_second` : of the streaming; None without a stream. `next_steps` :
    commands to try, each with what it does.
    """

    unit: Unit
    alpha: float
    method: str
    state: ThresholdState
    threshold: float | None
    guarantee: str
    calibration: Sequence[LabelledGroup]
    decided: Sequence[DecidedBatch]
    report: OfflineRisk
    origin: str
    simulated: bool
    severity_kind: str
    encoder: str
    database: str
    seconds: float | None = None
    batches_per_second: float | None = None
    next_steps: Sequence[tuple[str, str]] = ()

    @property
    def bar(self) -> float:
        """The threshold as a number: -inf when open, +inf when closed, NaN where all signals decide."""
        return Cut(self.state, self.threshold).value


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One decided unit to look at; `score` is None when it was held unscored."""

    prompt: str
    answer: str
    score: float | None
    severity: float | None
    shipped: bool


def bounded(method: str) -> bool:
    """Whether a method's guarantee holds with high probability for one calibration."""
    return every()[method].family == "with high probability"


def cases(run: DemoRun, *, shipped: bool, wrong: bool, limit: int = CASES_SHOWN) -> list[Case]:
    """Pick decisions of one kind: not by hand, but by the order of a hash of the batch's id.

    `wrong` asks for severities of .5 or more. At most one unit of a batch is shown; units without a severity are not.
    """
    units = units_of(run.decided, run.unit)
    order = sorted(
        range(len(units)),
        key=lambda i: hashlib.sha256(run.decided[int(units.batch[i])].batch_id.encode()).digest(),
    )
    found: dict[int, Case] = {}
    for i in order:
        place = int(units.batch[i])
        if units.unlabelled[i] or bool(units.shipped[i]) != shipped or (units.severities[i] >= 0.5) != wrong:
            continue
        batch = run.decided[place]
        score = float(units.scores[i])
        found.setdefault(
            place,
            Case(
                prompt=batch.prompt,
                answer=batch.texts[int(units.response[i])],
                score=None if math.isnan(score) else score,
                severity=float(units.severities[i]),
                shipped=shipped,
            ),
        )
        if len(found) == limit:
            break
    return list(found.values())


def verdict(run: DemoRun) -> str:
    """Compare the measured exposure with the budget, as far as one run can show."""
    report = run.report
    if run.state == "closed":
        groups, least = len(run.calibration), groups_needed(run.alpha)
        why = (
            f"a budget of {budget(run.alpha)} needs at least {least} calibration groups, and there were {groups}"
            if groups < least
            else f"by the method {run.method}, {groups} calibration groups support no threshold at a budget of "
            f"{budget(run.alpha)}"
        )
        return f"The gate stayed closed: {why}. Ask for a larger budget, or label more."
    if report.exposure_risk is None:
        return "The second half held no batch to decide."
    within = "inside the budget" if report.exposure_risk <= run.alpha else "above the budget"
    if report.exposure_risk_se is None:
        return f"Measured exposure is {within}; one batch is too little to say how exactly it is known."
    error = percent(report.exposure_risk_se, 1)
    words = f"Measured exposure is {within}, give or take {error} (one standard error)."
    if report.exposure_risk > run.alpha + 2 * report.exposure_risk_se:
        return (
            f"{words} That is more than two standard errors: rare under the guarantee, or a sign that "
            "the two halves are not alike."
        )
    if report.exposure_risk > run.alpha:
        if bounded(run.method):
            return f"{words} The guarantee may fail for a calibration, and what is measured on one half varies besides."
        return f"{words} The guarantee bounds the average over many such runs, so single runs may land a little above."
    return words


def figure_rows(run: DemoRun) -> list[tuple[str, str, str]]:
    """Return the figures of a run for people: name, value, meaning."""
    report = run.report
    one, many = UNIT_WORDS[run.unit]
    error = "" if report.exposure_risk_se is None else f" ± {percent(report.exposure_risk_se, 1)}"
    rows = [
        ("Ship rate", percent(report.ship_rate, 1), f"{report.shipped} of {report.units} {many} were served"),
        (
            "Exposure risk",
            f"{percent(report.exposure_risk, 1)}{error}",
            f"average harm per {one}, held ones counting 0, with its standard error; this is what the "
            "budget bounds",
        ),
        (
            "Budget alpha",
            budget(run.alpha),
            "the most that exposure may be"
            + (", but for the chance that the guarantee names" if bounded(run.method) else " on average"),
        ),
        (
            "Selective risk",
            percent(report.selective_risk, 1),
            "mean severity among what was served, as readers of answers experience it; no guarantee bounds it",
        ),
        (
            "Severity reduction",
            percent(report.severity_reduction, 1),
            "how much lower the mean severity of the served is than that of the held",
        ),
        ("Without a gate", percent(report.mean_severity, 1), f"exposure if every {one} were served"),
        (
            "Threshold",
            "all signals" if run.state == "full" else threshold_words(run.bar),
            (
                "the strictest that a batch can get (each has its own);  "
                if every()[run.method].per_batch
                else ""
            )
            + f"calibrated by the method {run.method} for the unit {run.unit}",
        ),
        ("Calibration groups", str(len(run.calibration)), "labelled prompts of the first half"),
        ("Batches decided", str(report.batches), f"with {report.responses} responses"),
    ]
    if report.unlabelled:
        rows.append(
            ("Without a label", str(report.unlabelled), f"{many} whose severity is unknown, counted as 1")
        )
    if run.seconds is not None:
        speed = "" if run.batches_per_second is None else f", {run.batches_per_second:.0f} batches a second"
        rows.append(("Time", f"{run.seconds:.1f} s", f"streaming both halves{speed}"))
    return rows


def excerpt(text: str, longest: int = _LONGEST_EXCERPT) -> str:
    """Return `text` on one line without control characters, cut to `longest` characters with an ellipsis."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text[: 8 * longest]).split())
    return line if len(line) <= longest else f"{line[: longest - 1].rstrip()}…"
