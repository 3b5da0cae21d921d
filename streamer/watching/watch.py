"""Watching the risk of every gate: round after round, a bounded piece of the record into the states, and alerts out of them.

A round of a gate reads the record at one moment, computes, and writes everything in one transaction: places, states,
alerts, and the policy that closes the gate where an alarm does. The transaction succeeds only if the gate's row still
stands where it was read, so that a process that is killed, or two that watch at once, neither count a decision twice nor
leave one out.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Protocol

import structlog

from streamer.errors import Unavailable
from streamer.watching.drifting import Drifting
from streamer.watching.horizon import marked, pruned, settled_number, time_of
from streamer.watching.reading import Reading
from streamer.watching.report import RiskReport, report_of
from streamer.watching.resetting import reset
from streamer.watching.store import Written
from streamer.watching.words import alert_of, closed_alert, closing_reason

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from streamer.events.alerts import AlertsV1
    from streamer.policy import GateRevision, Policy
    from streamer.watching.horizon import Mark
    from streamer.watching.state import GateWatch, WatchedAlarm, WatchedSequence
    from streamer.watching.store import Standing, WatchStore

log = structlog.get_logger(__name__)

PAGE = 500
"""Decisions that one transaction reads at most."""

PAGES = 10
"""Transactions of one gate in one round at most: others wait."""

_REFRESH = timedelta(seconds=30)
_LONGEST_SECONDS = 1e10


class RiskObserver(Protocol):
    """What is told of the risk; see `streamer.telemetry.risk_metrics`."""

    def show_risk(self, report: RiskReport) -> None: ...
    def show_alerts(self, counts: Mapping[tuple[str, str], int]) -> None: ...
    def forget_risk(self, gates: Sequence[str] | None = None) -> None: ...


class Alerts(Protocol):
    """The alerts on record."""

    def counts(self) -> dict[tuple[str, str], int]:
        """How many were ever raised, by gate and kind."""
        ...


class RiskWatch:
    """Watches the risk of gates. Implements the recalibrator's `Watch`.

    Parameters
    ----------
    store : decisions, labels, and where watching stands.
    alerts : the alerts on record.
    observer : is told what the risk is.
    stopping : whether we were told to stop; no transaction is begun then any more.
    page, pages : decisions in a transaction, transactions of a gate in a round.
    """

    def __init__(
        self,
        store: WatchStore,
        *,
        alerts: Alerts,
        observer: RiskObserver,
        stopping: Callable[[], bool] = lambda: False,
        page: int = PAGE,
        pages: int = PAGES,
    ) -> None:
        self._store = store
        self._alerts = alerts
        self._observer = observer
        self._stopping = stopping
        self._size = page
        self._pages = pages
        self._shown: frozenset[str] = frozenset()
        self._refused: set[tuple[str, int]] = set()

    def round(self, gates: Sequence[GateRevision], *, now: datetime) -> None:
        """Watch every gate once. Raises `Unavailable` while the database is away; one gate's trouble is no other's."""
        names = frozenset(gate.gate for gate in gates)
        self._observer.forget_risk(sorted(self._shown - names))
        self._shown = names
        for name in sorted(names):
            # Many gates, or a long backlog, take longer than a service may take to end.
            if self._stopping():
                return
            try:
                self.watch(name, now=now)
            except Unavailable:
                raise
            except Exception:
                log.exception("watching.gate_failed", gate=name)
        self._observer.show_alerts(self._alerts.counts())

    def stand_by(self) -> None:
        """This process does not lead (any more): show nothing of a gate."""
        self._shown = frozenset()
        self._observer.forget_risk()

    def watch(self, gate: str, *, now: datetime) -> RiskReport | None:
        """Read what is due of one gate and return what is known of its risk; None when its policy cannot be read."""
        standing = self._store.standing(gate)
        if standing is None:
            return None
        watch, more = self._page(standing, now)
        for _ in range(1, self._pages):
            if not more or self._stopping() or (standing := self._store.standing(gate)) is None:
                break
            watch, more = self._page(standing, now)
        if standing is None:
            return None
        report = report_of(watch, standing.policy.settings)
        self._observer.show_risk(report)
        return report

    def _page(self, standing: Standing, now: datetime) -> tuple[GateWatch, bool]:
        """Read one page and write it; returns where the gate stands now, and whether there is more to read."""
        before, probe, policy = standing.watch, standing.probe, standing.policy
        watch, acknowledged = reset(before, standing)
        ended: list[WatchedSequence | WatchedAlarm] = list(acknowledged)
        watch = replace(watch, marks=marked(before.marks, probe, now))
        settled = settled_number(watch.marks, probe)
        more = False
        if settled is not None:
            watch, past, more = self._read(watch, standing, settled, now)
            ended += past
        raised = [one for one in watch.alarms if one.raised_by is not None and one.alert_id is None]
        closing = _closing(watch, policy)
        exposure = None if watch.sequence is None else watch.sequence.state.exposure()
        reason = None if closing is None else closing_reason(closing, exposure)

        def tell(closed: int | None, refused: str | None) -> list[AlertsV1]:
            events = []
            for alarm in raised:
                mine = (closed, refused) if alarm.kind == "risk" else (None, None)
                events.append(
                    alert_of(
                        watch, alarm, at=now, policy_version=policy.version, closed=mine[0], refused=mine[1]
                    )
                )
            if closing is not None and reason is not None:
                if closed is not None and closed > policy.version:
                    events.append(closed_alert(watch.gate, closing, closed=closed, at=now, reason=reason))
                if refused is not None and (watch.gate, closing.number) not in self._refused:
                    self._refused.add((watch.gate, closing.number))
                    log.warning("watching.gate_not_closed", gate=watch.gate, reason=refused)
            return events

        ids = {
            id(one): alert_of(watch, one, at=now, policy_version=policy.version).alert_id for one in raised
        }
        watch = replace(
            watch, alarms=tuple(replace(one, alert_id=ids.get(id(one), one.alert_id)) for one in watch.alarms)
        )
        if reason is None and not _worth_writing(before, watch, now):
            return watch, False
        written = Written(watch=watch, ended=ended, close=reason, tell=tell)
        if not self._store.write(before, written):
            log.info("watching.overtaken", gate=watch.gate)
            return before, True
        for alarm in raised:
            log.warning("watching.alarm", gate=watch.gate, alarm=alarm.kind, number=alarm.number)
        return watch, more

    def _read(
        self, watch: GateWatch, standing: Standing, settled: Mark, now: datetime
    ) -> tuple[GateWatch, list[WatchedSequence | WatchedAlarm], bool]:
        gate, until = watch.gate, settled.decisions
        if settled.labels > watch.labels:
            late = self._store.late_labels(gate, after=watch.labels, until=settled.labels, read=watch.read)
            watch = replace(watch, late=watch.late + late, labels=settled.labels)
        page = self._store.decided(gate, after=watch.read, until=until, limit=self._size)
        unseen = page
        if watch.seen != watch.read:
            unseen = self._store.decided(gate, after=watch.seen, until=until, limit=self._size)

        drifting = Drifting(watch, now=now, salt=standing.salt, reference=self._store.reference)
        drifting.read(unseen)
        watch, drifted = drifting.result()
        if len(unseen) < self._size:
            watch = replace(watch, seen=max(watch.seen, until))

        seconds = min(standing.policy.settings.monitor_deadline_seconds, _LONGEST_SECONDS)
        reading = Reading(watch, now=now, deadline=timedelta(seconds=seconds))
        reading.read(self._store.labelled(gate, page, until=watch.labels))
        watch, sequences, alarms = reading.result()
        through = reading.blocked_at
        if through is None and len(page) < self._size:
            watch, through = replace(watch, read=max(watch.read, until)), settled.at
        elif through is None:
            through = time_of(page[-1].number, page[-1].decided_at, watch.marks)
        more = len(unseen) == self._size or (reading.blocked_at is None and len(page) == self._size)
        watch = replace(
            watch,
            read_through=min(now, max(through, watch.read_through or through)),
            marks=pruned(watch.marks, watch.read),
        )
        return watch, [*drifted, *sequences, *alarms], more


def _closing(watch: GateWatch, policy: Policy) -> WatchedAlarm | None:
    """Return the risk alarm that closes the gate; None where there is none, it has, or it is not to."""
    alarm = watch.alarm("risk")
    if alarm is None or alarm.raised_by is None or alarm.ended is not None or alarm.closed_policy is not None:
        return None
    return alarm if policy.settings.on_alarm == "close" else None


def _worth_writing(before: GateWatch, after: GateWatch, now: datetime) -> bool:
    """Tell whether more has changed than the time: an idle gate costs a transaction every half minute."""
    if not before.marks or before.marks[-1][:2] != after.marks[-1][:2]:
        return True
    if not timedelta(0) <= now - before.marks[-1].at < _REFRESH:  # also when our clock was set back
        return True
    return replace(after, marks=before.marks, read_through=before.read_through) != before
