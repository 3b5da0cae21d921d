"""Where the watching of each gate stands: read at one moment, written in one transaction or not at all."""

from collections.abc import Collection
from dataclasses import replace
from datetime import datetime, timedelta
from math import inf
from statistics import fmean

import sqlalchemy as sa
import structlog

from streamer.calibration.claims import claim_loss
from streamer.errors import UsageError
from streamer.events.alerts import ALARMS, AlarmKind
from streamer.gates.audit_rate import AuditRate
from streamer.gates.policy import MONITOR, WARNING
from streamer.gates.rule import INDICATOR, Cut
from streamer.recalibration.comparison import Reading, claim_losses, ship_rate
from streamer.recalibration.sampled import SampledGroup, SampledItem
from streamer.risk.rounds.horizon import Watermark
from streamer.risk.rounds.report import Drawing, OpenAlert, RiskReport, report_of
from streamer.risk.rounds.state import BETTING, GateWatch, WatchedSequence
from streamer.risk.rounds.store import CalibratedSample, News, Release, Standing, Written
from streamer.risk.rounds.verdict import with_verdict
from streamer.store.audit import control
from streamer.store.calibration.run_rows import inputs_of, with_prompts
from streamer.store.db import bulk_insert
from streamer.store.db.schema import (
    alert_acknowledgements,
    alerts,
    calibration_candidates,
    calibration_runs,
    decisions,
    gate_revisions,
    label_revisions,
    monitor_sequences,
    policies,
)
from streamer.store.db.schema.joins import CANDIDATE_OF_RUN, REVISION_OF_RUN
from streamer.store.policies.policy_rows import newest_keys, read_versions
from streamer.store.risk import audit_rates
from streamer.store.risk.alerts import acknowledge, raise_alert
from streamer.store.risk.decided import decided
from streamer.store.risk.monitored_decisions import MonitoredDecisions, backlog, gates_with, probe
from streamer.store.risk.monitoring_rows import (
    read_watch,
    sequence_of,
    take_step,
    write_alarms,
    write_sequences,
)

log = structlog.get_logger(__name__)

_MOST_ALERTS = 20


class Monitoring(MonitoredDecisions):
    """Implements `streamer.risk.rounds.store.WatchStore`."""

    def news(self, *, after: Watermark, until: Watermark, alert_ids: Collection[str]) -> News:
        with self._database.reading(snapshot=True) as connection:
            return News(
                decided=gates_with(connection, decisions.c.batch, after.decisions, until.decisions),
                labelled=gates_with(connection, label_revisions.c.id, after.labels, until.labels),
                policies=dict(newest_keys(connection, None)),
                acknowledged=frozenset(_acknowledged(connection, alert_ids)),
            )

    def standing(self, gate: str) -> Standing | None:
        with self._database.reading(snapshot=True) as connection:
            found = read_versions(connection, newest_keys(connection, [gate]))
            if not found or found[0].active is None:
                return None
            watch = read_watch(connection, gate)
            alert_ids = [one.alert_id for one in watch.alarms if one.alert_id is not None]
            rate, extra = _rate(connection, gate)
            return Standing(
                watch=watch,
                policy=found[0].active.policy,
                salt=found[0].active.audit_salt,
                acknowledged=_acknowledged(connection, alert_ids),
                probe=probe(connection),
                alerts=_open_alerts(connection, gate),
                reopened=_reopened(connection, watch),
                rate=rate,
                extra=extra,
            )

    def rate(self, gate: str) -> tuple[AuditRate | None, int]:
        """The newest audit rate of a gate, and how many labels raised rates asked for on its day."""
        return self._database.read_at_once(_rate, gate)

    def watch(self, gate: str) -> GateWatch:
        """Where the watching of a gate stands; a new one where it was never watched."""
        return self._database.read_at_once(read_watch, gate)

    def judged(self, gate: str, *, now: datetime) -> RiskReport | None:
        """What is known of a gate's risk, with its verdict as of now; None when its newest policy cannot be read."""
        with self._labels_of(gate) as (connection, labels):
            found = read_versions(connection, newest_keys(connection, [gate]))
            if not found or found[0].active is None:
                return None
            policy, watch = found[0].active.policy, read_watch(connection, gate)
            kind, period = policy.settings.severity_kind, timedelta(days=policy.settings.budget_period_days)
            waits = backlog(connection, labels, gate, policy.settings, after=watch.read, bet=watch.bet)
            alerts = _open_alerts(connection, gate)
            counts = decided(connection, labels, gate, kind=kind, now=now, period=period)
            rate, extra = _rate(connection, gate)
            cost = 0 if rate is None else audit_rates.extra_labels(connection, gate, now - period)
        drawing = replace(Drawing.of(rate, extra, policy.settings, now), extra=cost)
        report = report_of(watch, policy.settings, drawing, alerts)
        report = replace(report, decided=counts)
        return with_verdict(report, watch, policy, now=now, backlog=waits)

    def sequences(self, gate: str) -> list[WatchedSequence]:
        """Every sequence of a gate, the newest first."""
        query = sa.select(monitor_sequences).where(monitor_sequences.c.gate == gate)
        rows = self._database.mappings(query.order_by(monitor_sequences.c.number.desc()))
        return [sequence_of(row) for row in rows]

    def calibrated(self, run: int) -> CalibratedSample | None:
        return self._database.read_at_once(calibrated, run)

    def write(self, before: GateWatch, written: Written) -> bool:
        now = self._clock()

        def work(connection: sa.Connection) -> bool:
            if not take_step(connection, before, written.watch, now):
                return False
            closed = refused = None
            try:
                if written.close is not None:
                    closed = self._close(connection, before.gate, written.close, now)
                elif written.hold is not None:
                    closed = self._hold(connection, before.gate, written.hold, now)
                elif written.release is not None:
                    self._let_go(connection, before.gate, written.release, now)
            except UsageError as error:
                if written.close is None and written.hold is None:
                    log.warning("watching.gate_not_released", gate=before.gate, reason=str(error))
                else:
                    refused = str(error)
            watch = written.watch
            if closed is not None:
                watch = replace(
                    watch,
                    alarms=tuple(
                        replace(one, closed_policy=closed)
                        if one.kind in written.closing and one.raised_by is not None
                        else one
                        for one in watch.alarms
                    ),
                )
            write_sequences(connection, before, watch, written.ended)
            write_alarms(connection, before, watch, written.ended)
            for event in written.make_alerts(closed, refused):
                raise_alert(connection, event, message=self._shared.alert_message, now=now)
            if written.rate is not None:
                audit_rates.append(connection, before.gate, written.rate, now)
            return True

        done = self._database.writing(work)
        if written.close is not None or written.hold is not None:
            control.chain_closings(self._database)
        return done

    def _close(self, connection: sa.Connection, gate: str, reason: str, now: datetime) -> int:
        """Close a gate, unless an alarm has closed it already; returns the policy that it is closed by."""
        present = self._writer.lock_to_close(connection, gate)
        if present.state == "closed" and present.created_by == MONITOR:
            return present.version
        return self._writer.next(connection, present.as_closed(), by=MONITOR, reason=reason, now=now).version

    def _hold(self, connection: sa.Connection, gate: str, reason: str, now: datetime) -> int:
        """Hold a gate for an early warning, unless it ships nothing already; returns the policy that it is held by."""
        present = self._writer.lock_to_close(connection, gate)
        if present.ships_nothing:
            return present.version
        return self._writer.next(connection, present.as_closed(), by=WARNING, reason=reason, now=now).version

    def _let_go(self, connection: sa.Connection, gate: str, release: Release, now: datetime) -> None:
        """Put in force again what was before an early hold, if nobody has changed the gate since, and answer the alert."""
        present = self._writer.lock_newest(connection, gate)
        if present.version != release.held:
            return
        opened = self._writer.restored(connection, present, release.held - 1)
        self._writer.next(connection, opened, by=WARNING, reason=release.reason, now=now)
        if release.alert_id is not None:
            acknowledge(connection, release.alert_id, by=WARNING, reason=release.reason, now=now)


def _rate(connection: sa.Connection, gate: str) -> tuple[AuditRate | None, int]:
    rate = audit_rates.newest_rates(connection, [gate]).get(gate)
    return rate, 0 if rate is None else audit_rates.extra_labels(connection, gate, rate.since)


def _acknowledged(connection: sa.Connection, alert_ids: Collection[str]) -> dict[str, int]:
    """Which of these alerts are acknowledged, and the newest batch by then."""
    query = sa.select(alerts.c.alert_id, alert_acknowledgements.c.last_batch).join(
        alert_acknowledgements, alert_acknowledgements.c.alert == alerts.c.id
    )
    found = bulk_insert.look_up(connection, query, [alerts.c.alert_id], [(one,) for one in alert_ids])
    return {row["alert_id"]: row["last_batch"] for row in found}


def _open_alerts(connection: sa.Connection, gate: str) -> tuple[OpenAlert, ...]:
    """The newest alerts of alarms that nobody has acknowledged."""
    done = alert_acknowledgements.c.alert
    query = (
        sa.select(*alerts.c["kind", "raised_at", "alert_id", "details"])
        .join_from(alerts, alert_acknowledgements, done == alerts.c.id, isouter=True)
        .where(alerts.c.gate == gate, done.is_(None), alerts.c.kind.in_(ALARMS))
        .order_by(alerts.c.id.desc())
        .limit(_MOST_ALERTS)
    )
    return tuple(
        OpenAlert(kind, at, alert_id, (details or {}).get("closed_by_policy"), (details or {}).get("delta"))
        for kind, at, alert_id, details in connection.execute(query)
    )


def _reopened(connection: sa.Connection, watch: GateWatch) -> frozenset[AlarmKind]:
    """The alarms that closed the gate with a policy after which another one ships something."""
    closed_by = {
        kind: alarm.closed_policy
        for kind in BETTING
        if (alarm := watch.alarm(kind)) is not None
        and alarm.ended is None
        and alarm.closed_policy is not None
    }
    if not closed_by:
        return frozenset()
    later = sa.select(policies.c.version).where(
        policies.c.gate == watch.gate, policies.c.version > min(closed_by.values())
    )
    keys = [(watch.gate, version) for version in connection.execute(later).scalars()]
    shipping = [
        one.version
        for one in read_versions(connection, keys)
        if one.active is not None and not one.active.policy.ships_nothing
    ]
    return frozenset(kind for kind, closed in closed_by.items() if any(one > closed for one in shipping))


def calibrated(connection: sa.Connection, run: int) -> CalibratedSample | None:
    """Read the share that the threshold of a run ships of its sample, and how severe the sample is, shipped or not.

    Each group counts once, as far as it was labelled. None where there is no such run or no label.
    Of claims what a prompt loses if all of them ship: alarms read losses of prompts.
    """
    found = connection.execute(
        sa.select(
            *calibration_candidates.c["state", "threshold", "rule"],
            *gate_revisions.c["unit", "loss", "least_kept"],
            calibration_runs.c.older_than,
        )
        .join_from(calibration_runs, calibration_candidates, CANDIDATE_OF_RUN)
        .join(gate_revisions, REVISION_OF_RUN)
        .where(calibration_runs.c.id == run)
    ).one_or_none()
    if found is None:
        return None
    groups = inputs_of(connection, run)
    known = [[item.severity for item in group.items if item.severity is not None] for group in groups]
    means = [fmean(severities) for severities in known if severities]
    if not means:
        return None
    reading = Reading(
        Cut(found.state, found.threshold), with_prompts(connection, found.rule, run, found.older_than)
    )
    if found.unit == "claim":
        loss = claim_loss(found.loss)
        some = [replace(one, items=items) for one in groups if (items := _labelled(one))]
        everything, _ = claim_losses(Reading(Cut.at(-inf), INDICATOR), loss, some)
        _, served = claim_losses(reading, loss, groups, least_kept=found.least_kept)
        return CalibratedSample(float(served.mean()), float(everything.mean()))
    return CalibratedSample(ship_share=ship_rate(reading, found.unit, groups), mean_severity=fmean(means))


def _labelled(group: SampledGroup) -> tuple[SampledItem, ...]:
    return tuple(one for one in group.items if one.severity is not None)
