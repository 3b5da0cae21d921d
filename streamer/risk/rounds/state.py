"""What is kept of a gate between two rounds: where reading stands, the sequence and the alarms. Values, no behaviour."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import ClassVar, Literal, get_args

from streamer.events.alerts import AlarmKind
from streamer.gates.audit_rate import label_lag
from streamer.risk.rounds.horizon import Watermark
from streamer.risk.rounds.logged import Terms
from streamer.risk.rounds.tally import Tally
from streamer.risk.states import (
    DrawAlarm,
    DriftAlarm,
    EarlyWarning,
    ExposureSequence,
    OpenTime,
    RiskAlarm,
    SelectiveAlarm,
    json_form,
)

LabelAlarmKind = Literal["risk", "selective", "missing"]
AlarmState = RiskAlarm | SelectiveAlarm | EarlyWarning | DrawAlarm | DriftAlarm

LABEL_ALARMS: tuple[LabelAlarmKind, ...] = get_args(LabelAlarmKind)
"""Alarms on audit labels; each may close the gate, if its setting says so."""

DRIFTS: tuple[AlarmKind, ...] = ("drift_scores", "drift_cloud")
BETTING: tuple[AlarmKind, ...] = (*LABEL_ALARMS, "early")
"""Alarms that read decisions with what labels and judges say of them."""


MOST_DELAYS = 200
"""The newest draws whose label delays are kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Decisions made while the gate was open, over some time.

    `first_policy`, `last_policy`: the oldest and the newest policy among them. `since`, `until`:
    when the first and the newest of them were made. `open`: what they come to.
    """

    first_policy: int
    last_policy: int
    since: datetime
    until: datetime
    open: OpenTime


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceState(json_form.State):
    """What is kept between two rounds: every decision up to the number `read` has been read here.

    `sequence`: number of the sequence whose period `period` is, every stretch of it in which the
    gate was open; 0 before the first. `policy`: the newest under which a decision was made while
    the gate was open; 0 before the first; `present`: under that policy; `before`: what the period
    had come to when that policy came into force. `delays`: of the newest draws that shipped
    something, in their order: whole seconds until their last label was there; None where it had not
    come at the deadline. `past`: periods that ended in this round, by the numbers of their
    sequences; not kept.
    """

    json_kind: ClassVar[str] = "streamer.monitoring.service.v1"

    read: int
    sequence: int = 0
    policy: int = 0
    period: Stretch | None = None
    present: Stretch | None = None
    before: Stretch | None = None
    delays: tuple[int | None, ...] = ()
    past: tuple[tuple[int, Stretch], ...] = field(default=(), compare=False)

    def lag(self, deadline: float) -> float:
        """Return the label lag in seconds: the deadline while too few labels have been seen to say more."""
        lag = label_lag(self.delays, deadline=deadline)
        return deadline if lag is None else lag

    def to_json(self) -> str:
        """Write it as one JSON object; `from_json` gives it back to the last bit."""
        return json_form.State.to_json(replace(self, past=()))


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedSequence:
    """One sequence of decisions whose exposure is bounded; `number`: from 1 within the gate.

    `since_policy`: the policy of its first decision; what an older one decided late is not read.
    `first`, `last`: numbers of the first and the newest decision read. `began_at`: when its period
    began: that of another with the same terms, a whole number of periods after it, or the time of
    its first decision. `read_at`: the time of its newest decision. `ended`: why it reads no more;
    None while it does.
    """

    number: int
    terms: Terms
    since_policy: int
    first: int
    last: int
    began_at: datetime
    read_at: datetime
    state: ExposureSequence
    ended: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedAlarm:
    """One alarm, and which decisions it may read: those with a number above `after`, of policies
    after `after_policy`.

    `number`: from 1 within gate, kind and statistic; `statistic`: which number of a batch a drift
    alarm watches. `about`: what the loss of an alarm on labels is: unit, scorer and kind of
    severity. `run`: the calibration run that a drift alarm compares with. `raised_by`: number of
    the decision that raised it. `closed_policy`: the policy by which it closed the gate. `ended`:
    why it reads no more; None while it does, or while it stands raised.
    """

    kind: AlarmKind
    number: int
    state: AlarmState
    statistic: str = ""
    about: str = ""
    after: int = 0
    after_policy: int = 0
    run: int | None = None
    raised_by: int | None = None
    raised_at: datetime | None = None
    alert_id: str | None = None
    closed_policy: int | None = None
    ended: str | None = None

    @property
    def stands(self) -> bool:
        """Whether it was raised and has not ended."""
        return self.raised_by is not None and self.ended is None


@dataclass(frozen=True, slots=True, kw_only=True)
class GateWatch:
    """Where the watching of one gate stands.

    Attributes
    ----------
    step : how often it was written: a write names the step that it read, and fails if another one came first.
    read : every decision up to this number has been read with its labels.
    seen : every decision up to this number has been read without labels, for draws and drift.
    bet : every decision up to this number has been given to the alarms on labels, whether its labels have come or not.
    labels : every label up to this number was looked at.
    read_through : every decision before this moment has been read; None before the first round.
    unwatched : decisions that no audit sample could have taken.
    late : labels of needed responses that came after their decision was read.
    marks : how far the record reached, and when; see `horizon`.
    drift_run, drift_policy : the calibration run that drift is looked for against, and the policy that it came into
        force with; 0 before the first.
    sequence : the newest one, open or ended; None before the first decision.
    alarms : the newest of each kind and statistic.
    service : what was decided while the gate was open; None before it was first read.
    tally : the bets that its verdict rests on, as far as `bet`; None before the first decision.
    """

    gate: str
    step: int = 0
    read: int = 0
    seen: int = 0
    bet: int = 0
    labels: int = 0
    read_through: datetime | None = None
    unwatched: int = 0
    late: int = 0
    marks: tuple[Watermark, ...] = ()
    drift_run: int | None = None
    drift_policy: int = 0
    sequence: WatchedSequence | None = None
    alarms: tuple[WatchedAlarm, ...] = ()
    service: ServiceState | None = None
    tally: Tally | None = None

    @property
    def covered(self) -> tuple[WatchedSequence, OpenTime] | None:
        """What has been read in order of the period that the tally is about, all and while open; None while nothing is."""
        sequence, service, tally = self.sequence, self.service, self.tally
        if sequence is None or service is None or service.period is None or tally is None:
            return None
        same = sequence.terms == tally.terms and sequence.first >= tally.first
        return (sequence, service.period.open) if same and service.sequence == sequence.number else None

    def alarm(self, kind: AlarmKind, statistic: str = "") -> WatchedAlarm | None:
        """Return the newest alarm of this kind; None where there is none."""
        return next((one for one in self.alarms if (one.kind, one.statistic) == (kind, statistic)), None)
