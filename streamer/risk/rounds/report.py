"""What is known of a gate's risk in service, from the state alone: for the command line, the metrics and people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Literal, NamedTuple

from streamer.calibration.specification import Risk
from streamer.events.alerts import ALARMS, AlarmKind
from streamer.gates.audit_rate import AuditRate, day_of
from streamer.gates.declared import Unit
from streamer.gates.settings import GateSettings
from streamer.risk.rounds.logged import Terms
from streamer.risk.rounds.state import GateWatch, WatchedAlarm
from streamer.risk.rounds.tally import Tally
from streamer.risk.states import (
    BudgetBurn,
    EarlyWarning,
    LabelAlarm,
    RiskAlarm,
    RiskInterval,
    budget_burn,
    with_unread,
)

Verdict = Literal["kept", "broken", "not known yet"]


Reason = Literal[
    "",
    "nothing was decided",
    "nothing shipped",
    "no labels",
    "too few labels",
    "reading stands still",
    "draws are in doubt",
    "what comes has drifted",
    "the risk has risen",
]
"""Why a verdict is not known yet; empty where it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """What has not been read of a gate.

    `unread`: decisions that the bets have not read, at most `MOST_COUNTED`. `labels`: drawn answers
    among them that shipped and have no label. `oldest`: when the oldest of these was decided; None
    where there is none.
    """

    unread: int
    labels: int
    oldest: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenFigures:
    """One stretch of decisions made while the gate was open, between the policies and moments of
    its first and newest.

    `share_served`: share of its decided prompts of which something shipped: counted of all, so
    exact. `labelled`: shipped answers with a label; `overdue`: drawn decisions that shipped
    something and whose label had not come at the deadline. `selective`: the error rate among
    shipped answers; `verdict`: what the bounds of the promised risk say, whatever reading and the
    alarms do; `promised`: what the budget of the gate's method is on.
    """

    first_policy: int
    last_policy: int
    since: datetime
    until: datetime
    decisions: int
    share_served: float
    labelled: int
    overdue: int
    selective: RiskInterval
    exposure: RiskInterval
    verdict: Verdict
    promised: Risk = "exposure"

    @property
    def judged(self) -> RiskInterval:
        """The interval of the promised risk."""
        return self.selective if self.promised == "selective" else self.exposure


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceReport:
    """What the verdict rests on.

    `policy` is the newest one, and `closed` that it ships nothing; `reason`, why the verdict is not
    known yet. `label_lag_seconds`: how long labels take, as 95 % quantile, or the gate's monitor
    deadline while too few are known. `backlog`: what has not been read; None where that was not
    asked. `present`: under the policy in force; None while nothing was decided under it, and where
    it ships nothing. `period`, `before`: in the budget period, and in it under earlier policies.
    """

    policy: int
    closed: bool
    reason: Reason
    label_lag_seconds: float
    backlog: Backlog | None
    present: OpenFigures | None
    period: OpenFigures | None
    before: OpenFigures | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AlarmReport:
    """One alarm: the present bet over what raises it, `evidence_ratio`, is 1 or more when it is
    raised.

    `delta`: chance that it is ever false; of an alarm on labels, beside what `false_every` adds:
    draws for which one false alarm more is accepted (None: none is). `chance`: the most that this
    may be within what it has `read`: draws of an alarm on labels, decisions of any other.
    `pending`: of these the draws whose labels have not come, the oldest decided at `pending_since`.
    `known_evidence_ratio`: the present bet on what is known; None for alarms without labels.
    `limit`: what the newest bet was against: theta of the risk alarm, the mean severity of what
    ships for the other.
    """

    kind: AlarmKind
    statistic: str
    number: int
    delta: float
    evidence_ratio: float
    chance: float
    read: int
    raised_at: datetime | None
    alert_id: str | None
    closed_policy: int | None
    false_every: int | None = None
    pending: int = 0
    pending_since: datetime | None = None
    known_evidence_ratio: float | None = None
    limit: float | None = None


class OpenAlert(NamedTuple):
    """An alert of an alarm that nobody has acknowledged."""

    kind: AlarmKind
    raised_at: datetime
    alert_id: str
    closed_policy: int | None
    chance: float | None = None


@dataclass(frozen=True, slots=True)
class DecidedHour:
    """What was decided in the hour that began at `at`, and of how much of it something shipped."""

    at: datetime
    decided: int
    shipped: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """What is on record of a gate's decisions in the last budget period: known at once, without a label.

    `since`: when the first that is counted was made; of many decisions the newest are. `shipped`:
    of the `decided` those of which something shipped. `labelled`: of these those with a label on
    what shipped, whoever asked for it. `held`: the others, by the reason on record. `hours`: the
    last 24 hours in which anything was decided, in order.
    """

    since: datetime
    decided: int
    shipped: int
    labelled: int
    held: Mapping[str, int]
    hours: tuple[DecidedHour, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeskReport:
    """What people made of what a gate held since a moment, and what became of that: no part of what
    the gate promises.

    `released`: of which `edited` with another text; what `expired` nobody decided. `labelled`:
    answers that were released as they were, or claims that were put back, with a label; nobody drew
    them, so that they stand for themselves. `severity`: mean of those; None without any.
    """

    since: datetime
    released: int
    edited: int
    rejected: int
    expired: int
    labelled: int
    severity: float | None
    unit: Unit = "best"

    @property
    def total(self) -> int:
        """All that was decided."""
        return self.released + self.rejected + self.expired


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """How often a gate's decisions are drawn for labelling at present: the `probability` of a first
    attempt, beside the gate's own, `base`.

    `raised_until`: until when it is above that, unless it is renewed; None: it is not. `reason`:
    why it is as it is; empty where it was never raised. `extra_today`: labels that raised rates
    have asked for today (UTC), of `most`; `extra`: the same in the last budget period, None where
    that was not asked.
    """

    probability: float
    base: float
    raised_until: datetime | None
    reason: str
    extra_today: int
    most: int
    extra: int | None = None

    def at(self, now: datetime) -> Drawing:
        """Return what holds at a later moment if nothing came: a raised rate ends."""
        if self.raised_until is None or now < self.raised_until:
            return self
        return replace(self, probability=self.base, raised_until=None)

    @classmethod
    def of(cls, rate: AuditRate | None, extra: int, settings: GateSettings, now: datetime) -> Drawing:
        """Say it of the newest rate, and of the labels that rates of its day asked for."""
        raised = rate is not None and rate.raises(now)
        return cls(
            probability=settings.boosted_probability if raised else settings.audit_probability,
            base=settings.audit_probability,
            raised_until=rate.until if raised and rate is not None else None,
            reason="" if rate is None else rate.reason,
            extra_today=extra if rate is not None and day_of(rate.since) == day_of(now) else 0,
            most=settings.audit_boost_most,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RiskReport:
    """A gate's risk in service; it is `watched` where it draws an audit sample, without which
    nothing can be known.

    Every decision before `read_through` has been read. `terms`: what the interval is about; None,
    like what follows, before the first decision. `ended`: why it reads no more, for example because
    no sample is drawn any more. `exposure`, `selective`: the intervals of everything decided in the
    period, also while the gate was closed. `verdict`: whether the budget is kept while the gate is
    open (see `verdict`), and `service` what it rests on. `burn`: use of the period's budget; None
    while no time has passed in it. `late`: labels that came after their decision was read,
    `unwatched`: decisions that no sequence read, because no sample could have taken them, ever.
    `drawing`, `decided`: None where that was not asked. `unacknowledged`: alerts of alarms that
    nobody has acknowledged, also of alarms that have ended since.
    """

    gate: str
    watched: bool
    read_through: datetime | None
    late: int
    unwatched: int
    alarms: tuple[AlarmReport, ...]
    terms: Terms | None = None
    sequence: int | None = None
    began_at: datetime | None = None
    ended: str | None = None
    exposure: RiskInterval | None = None
    selective: RiskInterval | None = None
    verdict: Verdict = "not known yet"
    service: ServiceReport | None = None
    burn: BudgetBurn | None = None
    drawing: Drawing | None = None
    decided: Decided | None = None
    unacknowledged: tuple[OpenAlert, ...] = ()

    @property
    def standing(self) -> list[AlarmReport | OpenAlert]:
        """What nobody has acknowledged of the alarms that were raised, what may page first, then the oldest."""
        raised = [one for one in self.alarms if one.raised_at is not None]
        known = {one.alert_id for one in raised}
        found: list[AlarmReport | OpenAlert] = [
            *raised,
            *(one for one in self.unacknowledged if one.alert_id not in known),
        ]
        return sorted(found, key=lambda one: (ALARMS.index(one.kind), one.raised_at, one.alert_id))

    def alarm(self, kind: AlarmKind) -> AlarmReport | None:
        """Return the alarm of a kind that is nearest to being raised, or was raised first; None where there is none."""
        mine = [one for one in self.alarms if one.kind == kind]
        raised = [one for one in mine if one.raised_at is not None]
        if raised:
            return min(raised, key=lambda one: (one.raised_at is None, one.raised_at))
        return max(mine, key=lambda one: one.evidence_ratio, default=None)


def report_of(
    watch: GateWatch,
    settings: GateSettings,
    drawing: Drawing | None = None,
    unacknowledged: Sequence[OpenAlert] = (),
) -> RiskReport:
    """Say what is known of a gate's risk; `settings` are those in force."""
    sequence = watch.sequence
    common = RiskReport(
        gate=watch.gate,
        watched=settings.audit_probability > 0,
        read_through=watch.read_through,
        late=watch.late,
        unwatched=watch.unwatched,
        alarms=tuple(_alarm(one) for one in watch.alarms if one.ended is None),
        drawing=drawing,
        unacknowledged=tuple(unacknowledged),
        burn=None if watch.tally is None else _burn(watch, watch.tally),
    )
    if sequence is None:
        return common
    return replace(
        common,
        terms=sequence.terms,
        sequence=sequence.number,
        began_at=sequence.began_at,
        ended=sequence.ended,
        exposure=sequence.state.exposure(),
        selective=sequence.state.selective(),
    )


def _burn(watch: GateWatch, tally: Tally) -> BudgetBurn | None:
    """Bound what is used by what has been read in order, and by what shipped since; estimate it by the labels that are there."""
    bets, began, newest = tally.bets, tally.began_at, tally.newest
    decisions, unread, waiting, read, size = bets.decisions, bets.shipped, bets.served, bets.nothing_read, 0
    if watch.covered is not None:
        sequence, opened = watch.covered
        began, newest = sequence.began_at, max(newest, sequence.read_at)
        read, size = sequence.state.exposure(), sequence.state.decisions
        decisions += size - opened.decisions
        unread = max(0.0, unread - sequence.state.shipped)
        waiting -= opened.served.decisions
    elapsed = (newest - began).total_seconds() / 86_400
    if elapsed <= 0 or not decisions:
        return None
    whole = with_unread(read, size, unread=unread, whole=decisions)
    error = bets.selective_risk if bets.shipped else 0.0
    if error is not None:
        error = min(whole.upper, max(whole.lower, error * bets.shipped / decisions))
    period = tally.terms.period_days
    return budget_burn(
        replace(whole, decisions=decisions, estimate=error),
        alpha=tally.terms.budget,
        elapsed_days=min(elapsed, period),
        period_days=period,
        unread=max(0, waiting),
    )


def _alarm(one: WatchedAlarm) -> AlarmReport:
    state = one.state
    delta = state.bets.delta
    report = AlarmReport(
        kind=one.kind,
        statistic=one.statistic,
        number=one.number,
        delta=delta,
        evidence_ratio=state.evidence * delta,
        chance=delta,
        read=state.bets.seen,
        raised_at=one.raised_at,
        alert_id=one.alert_id,
        closed_policy=one.closed_policy,
    )
    if isinstance(state, EarlyWarning):
        return replace(report, chance=state.bets.chance(state.bets.seen))
    if not isinstance(state, LabelAlarm):
        return report
    pending = state.bets.pending
    newest = state.bets.tail[-1].limit if state.bets.tail else None
    return replace(
        report,
        chance=state.bets.chance(state.bets.seen),
        false_every=state.bets.false_every,
        pending=len(pending),
        pending_since=datetime.fromtimestamp(min(one.moment for one in pending), UTC) if pending else None,
        known_evidence_ratio=state.known_evidence * delta,
        limit=state.theta if isinstance(state, RiskAlarm) else newest,
    )
