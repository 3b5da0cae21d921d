"""Reading decisions with their labels: strictly in order, each once, when it is resolved.

A decision is *resolved* when nothing more can be learned of it in time: it was not drawn, or nothing of what was drawn
shipped, or every severity that is needed is there, or it is older than the label deadline (then it is overdue). In a
sequence with a judge, what the judge says must be there too, up to the same deadline. The first decision that is not
resolved holds up all behind it.

Why waiting does no harm: the order is fixed, and the bounds hold at all times at once. When something is read may
depend on anything; only *whether* and *in which place* may not depend on draws and labels, and neither does.
"""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from streamer.risk.rounds.horizon import time_of
from streamer.risk.rounds.logged import Terms
from streamer.risk.rounds.state import WatchedAlarm, WatchedSequence
from streamer.risk.states import AuditedDecisions, ExposurePlan, ExposureSequence, RiskAlarm

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from streamer.gates.settings import GateSettings
    from streamer.risk.rounds.logged import LoggedDecision
    from streamer.risk.rounds.state import GateWatch
    from streamer.risk.states import AuditedDecision

JUDGE_CAP = 0.5
"""Predictions are cut here: half the scale keeps most of what a good judge gives, and halves the lower bound's price."""

NO_SAMPLE = "no audit sample is drawn any more"
TERMS_CHANGED = "the gate was changed in what the interval is about"
PERIOD_OVER = "its budget period was over"
LESS_SAMPLED = "the audit probability was lowered"
JUDGE_MISSING = "the judge had not labelled a decision at its deadline"


def chance_of(delta: float, number: int) -> float:
    """Return what the n-th alarm of a gate may spend: delta 6/(pi^2 n^2), so that all of them together spend delta."""
    return delta * 6 / (math.pi * number) ** 2


class Reading:
    """One page being read. The result does not depend on how decisions are cut into pages.

    Parameters
    ----------
    watch : where the gate stands.
    now : the present moment of our clock.
    deadline : the age at which a decision without its labels is overdue.
    """

    def __init__(self, watch: GateWatch, *, now: datetime, deadline: timedelta) -> None:
        self._watch = watch
        self._now = now
        self._deadline = deadline
        self._sequence = watch.sequence
        self._sequence_rows: list[AuditedDecision] = []
        self._alarm = watch.alarm("risk")
        self._alarm_rows: list[AuditedDecision] = []
        self._alarm_numbers: list[int] = []
        self._unwatched = watch.unwatched
        self._read = watch.read
        self._ended: list[WatchedSequence] = []
        self._past: list[WatchedAlarm] = []
        self.blocked_at: datetime | None = None

    def read(self, decisions: Sequence[LoggedDecision]) -> None:
        """Read these decisions, the next in order, up to the first that is not resolved."""
        for decision in decisions:
            moment = time_of(decision.number, decision.decided_at, self._watch.marks)
            due = self._now - moment >= self._deadline
            if not decision.watched:
                self._end_sequence(NO_SAMPLE)
                self._unwatched += 1
            elif decision.contradictory:
                self._unwatched += 1
            else:
                if decision.overdue and not due:
                    self.blocked_at = moment
                    break
                if self._take(decision, moment, due=due):
                    self.blocked_at = moment
                    break
                self._alarm_on(decision)
            self._read = decision.number
        self._flush_sequence()
        self._flush_alarm()

    def result(self) -> tuple[GateWatch, list[WatchedSequence], list[WatchedAlarm]]:
        """Return where the gate stands now, and sequences and alarms that ended on the way."""
        others = tuple(one for one in self._watch.alarms if one.kind != "risk")
        watch = replace(
            self._watch,
            read=self._read,
            unwatched=self._unwatched,
            sequence=self._sequence,
            alarms=(*(() if self._alarm is None else (self._alarm,)), *others),
        )
        return watch, self._ended, self._past

    # -- the interval ---------------------------------------------------------------------------------------

    def _take(self, decision: LoggedDecision, moment: datetime, *, due: bool) -> bool:
        """Give a decision to its sequence. Returns True when it has to wait for the judge, and nothing was done."""
        terms = Terms.of(decision.settings)
        current = self._sequence
        if current is not None and current.terms != terms and decision.policy_version < current.since_policy:
            self._unwatched += 1  # an older policy's, by a worker that had not heard of the newer one yet
            return False
        why = (
            None if current is None or current.ended is not None else _over(current, terms, decision, moment)
        )
        fresh = current is None or current.ended is not None or why is not None
        judged = terms.judge_kind is not None
        if judged and not fresh and current is not None:
            judged = current.state.plan.judge_cap is not None
        elif judged and current is not None and current.terms == terms and current.ended == JUDGE_MISSING:
            judged = moment >= _next_period(current, moment)
        incomplete = judged and decision.shipped > 0 and decision.predicted is None
        if incomplete and not due:
            return True
        if fresh:
            if why is not None:
                self._end_sequence(why)
            self._open_sequence(decision, moment, terms, judged=judged, after=why)
        if incomplete:
            # Whether the judge was in time may depend on the draw: this one is read by no sequence, and the next
            # begins without a judge.
            self._end_sequence(JUDGE_MISSING)
            self._unwatched += 1
            return False
        self._sequence_rows.append(decision.audited())
        assert self._sequence is not None
        self._sequence = replace(self._sequence, last=decision.number, read_at=moment)
        return False

    def _open_sequence(
        self, decision: LoggedDecision, moment: datetime, terms: Terms, *, judged: bool, after: str | None
    ) -> None:
        before = self._sequence
        began = moment
        if before is not None and after == PERIOD_OVER:
            began = _next_period(before, moment)
        plan = ExposurePlan(
            delta=terms.delta,
            least_probability=min(decision.settings.audit_probability, _least_probability(decision)),
            prior_mean=terms.budget,
            judge_cap=JUDGE_CAP if judged else None,
        )
        self._sequence = WatchedSequence(
            number=1 if before is None else before.number + 1,
            terms=terms,
            since_policy=decision.policy_version,
            first=decision.number,
            last=decision.number,
            began_at=began,
            read_at=moment,
            state=ExposureSequence(plan=plan),
        )

    def _end_sequence(self, why: str) -> None:
        self._flush_sequence()
        if self._sequence is not None and self._sequence.ended is None:
            self._sequence = replace(self._sequence, ended=why)
            self._ended.append(self._sequence)

    def _flush_sequence(self) -> None:
        if self._sequence is not None and self._sequence_rows:
            state = self._sequence.state.observe(AuditedDecisions.of_rows(self._sequence_rows))
            self._sequence = replace(self._sequence, state=state)
            self._sequence_rows = []

    # -- the alarm ------------------------------------------------------------------------------------------

    def _alarm_on(self, decision: LoggedDecision) -> None:
        alarm = self._alarm
        if alarm is not None and (
            decision.number <= alarm.after or decision.policy_version <= alarm.after_policy
        ):
            return
        if alarm is None or not _same_alarm(alarm, decision.settings):
            self._flush_alarm()
            self._open_alarm(decision)
        elif alarm.raised_by is not None:
            return
        self._alarm_rows.append(decision.audited())
        self._alarm_numbers.append(decision.number)

    def _open_alarm(self, decision: LoggedDecision) -> None:
        before = self._alarm
        if before is not None:
            self._past.append(replace(before, ended=before.ended or TERMS_CHANGED))
        self._alarm = risk_alarm(
            decision.settings,
            number=1 if before is None else before.number + 1,
            after=decision.number - 1,
            after_policy=decision.policy_version - 1,
        )

    def _flush_alarm(self) -> None:
        if self._alarm is None or not self._alarm_rows:
            return
        before = self._alarm.state
        assert isinstance(before, RiskAlarm)
        state = before.observe(AuditedDecisions.of_rows(self._alarm_rows))
        self._alarm = replace(self._alarm, state=state)
        if state.raised_at is not None:
            number = self._alarm_numbers[state.raised_at - before.bets.seen - 1]
            self._alarm = replace(self._alarm, raised_by=number, raised_at=self._now)
        self._alarm_rows, self._alarm_numbers = [], []


def risk_alarm(settings: GateSettings, *, number: int, after: int, after_policy: int) -> WatchedAlarm:
    """Open the n-th risk alarm of a gate, on decisions after `after` of policies after `after_policy`."""
    budget = settings.alpha / settings.max_attempts
    return WatchedAlarm(
        kind="risk",
        number=number,
        about=_about(settings),
        after=after,
        after_policy=after_policy,
        state=RiskAlarm.open(
            alpha=budget, delta=chance_of(settings.alarm_delta, number), tolerance=_tolerance(settings)
        ),
    )


def _tolerance(settings: GateSettings) -> float:
    budget = settings.alpha / settings.max_attempts
    return min(settings.alarm_tolerance * budget, (1 - budget) / 2)


def _about(settings: GateSettings) -> str:
    return f"{settings.unit}, {settings.scorer}, {settings.severity_kind}"


def _same_alarm(alarm: WatchedAlarm, settings: GateSettings) -> bool:
    state = alarm.state
    return (
        isinstance(state, RiskAlarm)
        and alarm.about == _about(settings)
        and state.alpha == settings.alpha / settings.max_attempts
        and state.tolerance == _tolerance(settings)
        and state.bets.delta == chance_of(settings.alarm_delta, alarm.number)
    )


def _over(current: WatchedSequence, terms: Terms, decision: LoggedDecision, moment: datetime) -> str | None:
    if current.terms != terms:
        return TERMS_CHANGED
    if moment >= _next_period(current, current.began_at):
        return PERIOD_OVER
    # What was held without scores is read at the gate's own probability, and may be the first to tell of a lower one.
    if _least_probability(decision) < current.state.plan.least_probability:
        return LESS_SAMPLED
    return None


def _least_probability(decision: LoggedDecision) -> float:
    """Return the probability at which a sequence reads a decision."""
    return decision.probability if decision.scored else decision.settings.audit_probability


def _next_period(sequence: WatchedSequence, moment: datetime) -> datetime:
    """Return the begin of the period that `moment` lies in; at least one period after the sequence's own begin."""
    period = timedelta(days=sequence.terms.period_days)
    return sequence.began_at + max(1, (moment - sequence.began_at) // period) * period
