"""One page of one gate: the record read at one moment, evaluated, and written in one transaction with all that follows.

The transaction succeeds only if the gate's row still stands where it was read, so that a process that is killed, or two that
watch at once, neither count a decision twice nor leave one out.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import NamedTuple

import structlog

from streamer.events.alerts import AlertsV1
from streamer.gates.policy import Policy
from streamer.risk.rounds.alarm_terms import (
    ACKNOWLEDGED,
    opened,
    severity_limit,
    warns,
)
from streamer.risk.rounds.alert_texts import (
    alert_of,
    closed_alert,
    closing_reason,
    holding_reason,
    reason_name,
)
from streamer.risk.rounds.audit_rates import next_rate
from streamer.risk.rounds.columns import LoggedDecisions
from streamer.risk.rounds.drift_alarms import DriftReader
from streamer.risk.rounds.horizon import Watermark, joined, marked, pruned, settled_number, time_of
from streamer.risk.rounds.label_alarms import LabelAlarmReader
from streamer.risk.rounds.reading import IntervalReader
from streamer.risk.rounds.report import Drawing
from streamer.risk.rounds.serving import serve
from streamer.risk.rounds.state import DRIFTS, LABEL_ALARMS, GateWatch, WatchedAlarm, WatchedSequence
from streamer.risk.rounds.store import CalibratedSample, Release, Standing, WatchStore, Written
from streamer.risk.rounds.verdict import LEAST_LAG
from streamer.risk.states.early import URGENT, cleared

log = structlog.get_logger(__name__)

_REFRESH = timedelta(seconds=30)
_LONGEST_SECONDS = 1e10
_MOST_RUNS = 1_000
"""Runs whose findings are remembered; they never change."""


class PageResult(NamedTuple):
    """What a page came to.

    `watch`: where the gate stands. `more`: whether there is more to read. `until`: up to where the
    record was settled; None: nowhere yet. `overdue_at`: when a decision that waits for its labels
    is overdue; None where none does. `drawing`: how often its decisions are drawn for labelling.
    """

    watch: GateWatch
    more: bool
    until: Watermark | None = None
    overdue_at: datetime | None = None
    drawing: Drawing | None = None


class PageKeeper:
    """Reads decisions and labels of a store by pages, and writes where watching stands."""

    def __init__(self, store: WatchStore) -> None:
        self._store = store
        self._refused: set[tuple[str, str, int]] = set()
        self._runs: dict[int, CalibratedSample | None] = {}

    def page(self, standing: Standing, marks: tuple[Watermark, ...], now: datetime, size: int) -> PageResult:
        """Read the next decisions of a gate, at most so many, and write what they come to.

        `marks`: how far the record reached, and when, as far as this process knows.
        """
        before, policy = standing.watch, standing.policy
        watch, acknowledged = reset(before, standing)
        ended: list[WatchedSequence | WatchedAlarm] = list(acknowledged)
        watch = replace(watch, marks=marked(joined(before.marks, marks), standing.probe, now))
        settled = settled_number(watch.marks, standing.probe)
        more, overdue_at = False, None
        if settled is not None:
            watch, past, more, overdue_at = self._read(watch, standing, settled, now, size)
            ended += past
        has_read = (watch.alarms, watch.sequence) != (before.alarms, before.sequence)
        rate = next_rate(
            standing.rate, standing.extra, watch=watch, policy=policy, has_read=has_read, now=now
        )
        watch, ended, raised = _with_alert_ids(watch, ended, now, policy)
        closing = closing_alarms(watch, policy)
        reason = closing_reason(watch, closing[0]) if closing else None
        holding = [] if closing else holding_alarms(watch, policy)
        release = self._release(watch, standing)

        def make_alerts(closed: int | None, refused: str | None) -> list[AlertsV1]:
            anyway = policy.version if policy.ships_nothing else closed
            events = [
                alert_of(
                    watch, alarm, at=now, policy_version=policy.version,
                    closed=closed if alarm in (*closing, *holding) else None,
                    refused=refused if alarm in (*closing, *holding) else None, closed_anyway=anyway,
                )
                for alarm in raised
            ]  # fmt: skip
            if reason is not None:
                if closed is not None and closed > policy.version:
                    events.append(closed_alert(watch.gate, closing[0], closed=closed, at=now))
                if refused is not None:
                    self._warn_once(watch.gate, closing[0], refused)
            return events

        present, extra = (standing.rate, standing.extra) if rate is None else (rate, rate.extra)
        drawn = Drawing.of(present, extra, policy.settings, now)
        if (
            reason is None
            and rate is None
            and not holding
            and release is None
            and not _worth_writing(before, watch, now)
        ):
            return PageResult(watch, more, settled, overdue_at, drawn)
        written = Written(
            watch=watch,
            ended=ended,
            close=reason,
            closing=frozenset(one.kind for one in (*closing, *holding)),
            hold=holding_reason(holding[0]) if holding else None,
            release=release,
            make_alerts=make_alerts,
            rate=rate,
        )
        if not self._store.write(before, written):
            log.info("watching.overtaken", gate=watch.gate)
            return PageResult(before, more=True)
        if rate is not None:
            log.info("watching.audit_rate", gate=watch.gate, boosted=rate.boosted, reason=rate.reason)
        for alarm in raised:
            log.warning("watching.alarm", gate=watch.gate, alarm=alarm.kind, number=alarm.number)
        return PageResult(watch, more, settled, overdue_at, drawn)

    def _read(
        self, watch: GateWatch, standing: Standing, settled: Watermark, now: datetime, size: int
    ) -> tuple[GateWatch, list[WatchedSequence | WatchedAlarm], bool, datetime | None]:
        gate, until = watch.gate, settled.decisions
        labels_before = watch.labels
        if settled.labels > watch.labels:
            late = self._store.late_labels(gate, after=watch.labels, until=settled.labels, read=watch.read)
            watch = replace(watch, late=watch.late + late, labels=settled.labels)
        pages: dict[int, LoggedDecisions] = {}
        for after in (watch.read, watch.seen, watch.bet):
            if after not in pages:
                pages[after] = self._store.decided(gate, after=after, until=until, limit=size)
        page, unseen, unbet = pages[watch.read], pages[watch.seen], pages[watch.bet]
        seconds = min(standing.policy.settings.monitor_deadline_seconds, _LONGEST_SECONDS)
        deadline = timedelta(seconds=seconds)

        drifting = DriftReader(watch, now=now, salt=standing.salt, reference=self._store.reference)
        drifting.read(unseen)
        watch, drifted = drifting.result()
        if len(unseen) < size:
            watch = replace(watch, seen=max(watch.seen, until))

        labelled = self._store.labelled(gate, page, until=watch.labels)
        lag = timedelta(seconds=seconds if watch.service is None else watch.service.lag(seconds))
        betting = LabelAlarmReader(
            watch, now=now, deadline=deadline, lag=max(lag, LEAST_LAG), calibrated=self._calibrated
        )
        waiting = betting.waiting(watch)
        if waiting and watch.labels > labels_before:
            betting.learn(self._store.relabelled(gate, waiting, after=labels_before, until=watch.labels))
        betting.read(labelled if unbet is page else self._store.labelled(gate, unbet, until=watch.labels))
        watch, past = betting.result()
        if len(unbet) < size:
            watch = replace(watch, bet=max(watch.bet, until))

        reading = IntervalReader(watch, now=now, deadline=deadline)
        reading.read(labelled)
        unserved = watch
        watch, sequences = reading.result()
        through = reading.blocked_at
        if through is None and len(page) < size:
            # What lies between its last decision and here are other gates' decisions.
            watch, through = replace(watch, read=max(watch.read, until)), settled.at
        elif through is None:
            through = time_of(page[-1].number, page[-1].decided_at, watch.marks)
        watch, behind = serve(
            unserved,
            watch,
            sequences,
            labelled,
            lambda after, to: self._again(gate, after, to, watch.labels, size),
        )
        more = (
            behind or size in (len(unseen), len(unbet)) or (reading.blocked_at is None and len(page) == size)
        )
        watch = replace(
            watch,
            read_through=min(now, max(through, watch.read_through or through)),
            marks=pruned(watch.marks, min(watch.read, watch.bet)),
        )
        overdue = [] if reading.blocked_at is None else [reading.blocked_at + deadline]
        if betting.overdue_at is not None:
            overdue.append(betting.overdue_at)
        return watch, [*drifted, *past, *sequences], more, min(overdue, default=None)

    def _again(self, gate: str, after: int, until: int, labels: int, size: int) -> LoggedDecisions:
        page = self._store.decided(gate, after=after, until=until, limit=size)
        return self._store.labelled(gate, page, until=labels)

    def _release(self, watch: GateWatch, standing: Standing) -> Release | None:
        """Say what lets a gate go that an early warning holds: people's labels, or who has acknowledged it; None: nothing yet."""
        policy, settings = standing.policy, standing.policy.settings
        held = [one for one in watch.alarms if one.closed_policy == policy.version]
        if not policy.held_early or not held:
            return None
        if held[0].alert_id in standing.acknowledged:
            return Release(policy.version, f"{reason_name(held[0])}: a person has acknowledged it", None)
        sample = None if held[0].run is None else self._calibrated(held[0].run)
        limit = severity_limit(settings, sample)
        found = self._store.urgent(watch.gate, settings.severity_kind, URGENT)
        if not cleared(found, limit):
            return None
        said = f"labels of the newest {len(found)} answers that shipped clear it: a mean severity of at most {limit:.3g}"
        # A drift alarm stands until it is acknowledged: begun anew it would see the same drift.
        answered = held[0].alert_id if held[0].kind == "early" else None
        return Release(policy.version, f"{reason_name(held[0])}: {said}", answered)

    def _calibrated(self, run: int) -> CalibratedSample | None:
        if run not in self._runs:
            if len(self._runs) >= _MOST_RUNS:
                self._runs.clear()
            self._runs[run] = self._store.calibrated(run)
        return self._runs[run]

    def _warn_once(self, gate: str, alarm: WatchedAlarm, refused: str) -> None:
        if (gate, alarm.kind, alarm.number) not in self._refused:
            self._refused.add((gate, alarm.kind, alarm.number))
            log.warning("watching.gate_not_closed", gate=gate, reason=refused)


def closing_alarms(watch: GateWatch, policy: Policy) -> list[WatchedAlarm]:
    """Return the raised alarms that are to close the gate and have not."""
    settings = policy.settings
    actions = {
        "risk": settings.on_alarm,
        "selective": settings.on_selective_alarm,
        "missing": settings.on_missing,
    }
    raised = {one.kind: one for one in watch.alarms if one.stands and one.closed_policy is None}
    return [raised[kind] for kind in LABEL_ALARMS if actions[kind] == "close" and kind in raised]


def holding_alarms(watch: GateWatch, policy: Policy) -> list[WatchedAlarm]:
    """Return the raised alarms that are to hold the gate early and have not."""
    settings = policy.settings
    if settings.early == "none":
        return []
    return [one for one in watch.alarms if one.stands and one.closed_policy is None and warns(settings, one)]


def _with_alert_ids(
    watch: GateWatch, ended: Sequence[WatchedSequence | WatchedAlarm], now: datetime, policy: Policy
) -> tuple[GateWatch, list[WatchedSequence | WatchedAlarm], list[WatchedAlarm]]:
    """Give alarms that were raised and have no alert yet the ids of their alerts. Returns these alarms too."""
    raised: list[WatchedAlarm] = []

    def with_id(alarm: WatchedAlarm) -> WatchedAlarm:
        if alarm.raised_by is None or alarm.alert_id is not None:
            return alarm
        alert = alert_of(watch, alarm, at=now, policy_version=policy.version)
        raised.append(replace(alarm, alert_id=alert.alert_id))
        return raised[-1]

    alarms = tuple(with_id(one) for one in watch.alarms)
    past = [with_id(one) if isinstance(one, WatchedAlarm) else one for one in ended]
    return replace(watch, alarms=alarms), past, raised


def _worth_writing(before: GateWatch, after: GateWatch, now: datetime) -> bool:
    """Whether more has changed than the time: an idle gate costs a transaction every half minute."""
    if not before.marks or before.marks[-1][:2] != after.marks[-1][:2]:
        return True
    if not timedelta(0) <= now - before.marks[-1].at < _REFRESH:  # also when our clock was set back
        return True
    return replace(after, marks=before.marks, read_through=before.read_through) != before


REOPENED = "the gate was opened again"


def reset(watch: GateWatch, standing: Standing) -> tuple[GateWatch, list[WatchedAlarm]]:
    """Open the next alarm where a person has acknowledged one, or has opened a gate again that it had closed.

    The next one reads what was decided afterwards: after the acknowledgement, or by later policies than the one that
    closed the gate. What went wrong before has been reported.

    Returns the watch with the new alarms, and the alarms that ended.
    """
    alarms, past = [], []
    for alarm in watch.alarms:
        if alarm.kind in DRIFTS and alarm.ended is None and alarm.alert_id in standing.acknowledged:
            # `drift_alarms` begins the next one with what it compares with.
            alarm = replace(alarm, ended=ACKNOWLEDGED)
        following = _next(alarm, standing)
        if following is None:
            alarms.append(alarm)
        else:
            alarms.append(following[0])
            past.append(replace(alarm, ended=following[1]))
    return replace(watch, alarms=tuple(alarms)), past


def _next(alarm: WatchedAlarm, standing: Standing) -> tuple[WatchedAlarm, str] | None:
    kind = alarm.kind
    if not alarm.stands or kind == "drift_scores" or kind == "drift_cloud":
        return None
    seen = None if alarm.alert_id is None else standing.acknowledged.get(alarm.alert_id)
    closed, settings = alarm.closed_policy, standing.policy.settings
    # An early warning that a person has acknowledged lets the gate go first: `page` sees to that.
    if seen is not None and kind != "early":
        following = opened(kind, settings, alarm, after=seen, after_policy=alarm.after_policy)
        return following, ACKNOWLEDGED
    # Also if it is closed again by now: what shipped in between must be read.
    if closed is not None and kind in standing.reopened:
        following = opened(kind, settings, alarm, after=alarm.after, after_policy=closed, run=alarm.run)
        return following, REOPENED
    return None
