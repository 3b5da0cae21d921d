"""What may be asked about the past, and what comes of it: values."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from streamer.calibration.specification import Risk
from streamer.gates.policy import GateRevision
from streamer.gates.rule import Cut
from streamer.gates.settings import GateSettings
from streamer.recalibration.age_cut import AgeCut
from streamer.recalibration.comparison import Reading
from streamer.risk.states import RiskInterval
from streamer.whatif.figures import Figures
from streamer.whatif.replay import Difference


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What is asked about, one of these: a threshold on the score, which serves every segment alike
    (`Cut.at(0.7)`, `Cut("open", None)`, `Cut("closed", None)`); the version of an earlier policy;
    the threshold that waits for a person; the gate's candidate policy, by the scores that it gave
    the same prompts when they were decided.
    """

    cut: Cut | None = None
    policy: int | None = None
    proposal: bool = False
    candidate: bool = False

    def __post_init__(self) -> None:
        named = (self.cut is not None) + (self.policy is not None) + self.proposal + self.candidate
        if named != 1:
            raise ValueError("ask about a threshold, a policy, the proposal or the candidate, one at a time")


@dataclass(frozen=True, slots=True, kw_only=True)
class Basis:
    """Where the threshold comes from, and whether the labels that chose it also judge it.

    `source` : `calibrated` now, `given` by whoever asks, or that of a `policy`, `proposal` or
    `candidate`. `before` : labels of prompts decided from here on had no part in it; None: no
    labels had. `prompts`, `labelled` : of the calibration that was made now, or 0; `drawn`,
    `missing` : responses of these, and those that counted as severity 1 for want of a label.
    `moved` : the period begins later than was asked for, so that it is not. `guarantee` : what is
    promised; empty for a given threshold.
    """

    source: Literal["calibrated", "given", "policy", "proposal", "candidate"]
    before: datetime | None = None
    prompts: int = 0
    labelled: int = 0
    drawn: int = 0
    missing: int = 0
    moved: bool = False
    guarantee: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedAnswer:
    """An answer that one of the two ships and the other holds.

    `score` : by the scorer that was asked about, in [0, 1]; None where that has none. `severity` :
    by its label, in [0, 1]; None where it has none. `drawn` : by the audit; other labels enter no
    figure.
    """

    batch_id: str
    response_id: str
    decided_at: datetime
    score: float | None
    severity: float | None
    drawn: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """The answers, of so many prompts, that would have got through, or been held instead, in the
    order of decisions; `selective` : the error rate among them, by the audit draw.
    """

    answers: tuple[ChangedAnswer, ...]
    prompts: int
    selective: RiskInterval


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIfAnswer:
    """What would have come of it.

    `since`, `until` : when the first and the last of the prompts was decided. `judged` : of
    `prompts` those old enough, by `age`, for their labels: figures, intervals and listed answers
    are of these. `younger` : what the labels of the others say already, in a sentence; empty where
    there are none. Of the judged, `unscored` were held without scores, in the record and here;
    `closed` decided while the gate shipped nothing; `shadow` in shadow mode; of `unaudited` no
    interval is because the audit could not draw them. `left_out` : prompts of the period that are
    not counted, by reason. `versions` : the oldest and the newest policy that decided.

    `recorded`, `asked` : the figures of the record, and of what was asked about. `more`, `less` :
    what would have got through, and what would have been held instead. `differences` : decisions of
    the record that their own policies do not come to again, and with a candidate what it decided
    and does not come to again; there should be none. `delta` : chance that an interval is wrong,
    for one question; the two intervals of a column fail together.
    """

    gate: GateRevision
    settings: GateSettings
    reading: Reading
    basis: Basis
    since: datetime
    until: datetime
    prompts: int
    judged: int
    age: AgeCut | None
    younger: str
    unscored: int
    closed: int
    shadow: int
    unaudited: int
    left_out: Mapping[str, int]
    versions: tuple[int, int]
    recorded: Figures
    asked: Figures
    more: Changed
    less: Changed
    differences: tuple[Difference, ...]
    delta: float

    @property
    def budget(self) -> float:
        """The budget of one attempt under what was asked about."""
        return budget_of(self.settings)

    @property
    def promised(self) -> Risk:
        """What that budget is on: `exposure` or `selective` risk."""
        return self.settings.calibrator.risk


def budget_of(settings: GateSettings) -> float:
    """The budget of one attempt, in (0, 1)."""
    return round(settings.alpha / settings.max_attempts, 15)
