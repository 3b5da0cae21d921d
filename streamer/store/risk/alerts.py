"""Alerts: told once a cause, in the transaction of whatever caused them, and acknowledged by a person."""

import builtins
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
import sqlalchemy as sa

from streamer.errors import UsageError
from streamer.events.alerts import LEVELS, OTHER_CAUSES, SCHEMA, AlertsV1
from streamer.gates.policy import MONITOR
from streamer.store.audit import control
from streamer.store.db.engine import upsert
from streamer.store.db.schema import (
    alert_acknowledgements,
    alert_assignments,
    alert_deliveries,
    alerts,
    batches,
    decisions,
    gate_revisions,
    monitor_alarms,
    policies,
    responses,
)
from streamer.store.db.schema.joins import ANSWERED, REVISION_OF_POLICY
from streamer.store.db.schema.types import Row, of_row, row_of
from streamer.store.labels.revisions import severities_given
from streamer.store.log.outbox import enqueue
from streamer.store.part import AlertMessage, Part

_MOST_NAME = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class RaisedAlert:
    """An alert on record: its place there, who looks after it (None: nobody was named), and who
    has acknowledged it, when, and what they found; None while nobody has."""

    alert: AlertsV1
    number: int
    assignee: str | None = None
    acknowledged_by: str | None = None
    acknowledged_at: datetime | None = None
    acknowledged_reason: str | None = None


@dataclass(frozen=True, slots=True)
class Incident:
    """Alerts of one gate and cause, at least one, the worst first, then the oldest: each was
    raised before all earlier ones had been acknowledged."""

    alerts: tuple[RaisedAlert, ...]

    @property
    def gate(self) -> str:
        """Whose alerts they are."""
        return self.alerts[0].alert.gate

    @property
    def first(self) -> RaisedAlert:
        """The oldest: its id is the incident's."""
        return min(self.alerts, key=lambda one: one.number)

    @property
    def open(self) -> builtins.list[RaisedAlert]:
        """Those that nobody has acknowledged."""
        return [one for one in self.alerts if one.acknowledged_by is None]

    @property
    def assignee(self) -> str | None:
        """Who was last named to look after it."""
        named = [one.assignee for one in sorted(self.alerts, key=lambda one: one.number) if one.assignee]
        return named[-1] if named else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShippedDraw:
    """A drawn decision that shipped something, and the highest severity that its labels give."""

    batch_id: str
    decided_at: datetime
    severity: float


class Alerts(Part):
    """The alerts of all gates."""

    def raise_(self, event: AlertsV1) -> bool:
        """Record an alert and enqueue its message; returns False when the same alert is on record already."""
        return self._database.writing(
            raise_alert, event, message=self._shared.alert_message, now=self._clock()
        )

    def list(
        self, gate: str | None = None, *, limit: int = 100, unacknowledged: bool = False
    ) -> builtins.list[RaisedAlert]:
        """The newest alerts first, of one gate or of all; or those that nobody has acknowledged, what pages before the rest."""
        worst = [sa.case((alerts.c.level == "page", 0), else_=1)] if unacknowledged else []
        query = _select().order_by(*worst, alerts.c.id.desc()).limit(limit)
        if gate is not None:
            query = query.where(alerts.c.gate == gate)
        if unacknowledged:
            query = query.where(alert_acknowledgements.c.alert.is_(None))
        return [_raised(row) for row in self._database.mappings(query)]

    def incidents(self, gate: str | None = None, *, limit: int = 200) -> builtins.list[Incident]:
        """The newest alerts, and all open ones up to the limit, as incidents: open ones first, the worst before the rest."""
        found = {
            one.number: one
            for unacknowledged in (False, True)
            for one in self.list(gate, limit=limit, unacknowledged=unacknowledged)
        }
        return incidents_of(list(found.values()))

    def doubt(self, gate: str) -> str:
        """Say what puts figures of a gate's past in doubt: an open incident about its answers; empty where there is none."""
        since = [
            one.first.alert.raised_at
            for one in self.incidents(gate)
            if one.open and one.first.alert.kind not in OTHER_CAUSES
        ]
        if not since:
            return ""
        return (
            f"An alarm stands since {min(since):%Y-%m-%d %H:%M:%SZ}, and nobody has acknowledged it: figures of the past mix answers from "
            f"before and after a change, and say nothing of what comes now. `streamer alert show {gate}` says what to do."
        )

    def incident(self, named: str) -> Incident:
        """The incident that an alert belongs to; of a gate its worst open one, else its newest. Raises `UsageError`."""
        with self._database.reading() as connection:
            gate = connection.scalar(sa.select(alerts.c.gate).where(alerts.c.gate == named).limit(1))
            row = None if gate is not None else _one(connection, named)
        every = self.incidents(gate or row["gate"])  # type: ignore[index]
        found = [one for one in every if row is None or any(each.number == row["id"] for each in one.alerts)]
        if not found:
            raise UsageError(f"alert {named} is older than the newest alerts of its gate")
        return found[0] if found[0].open else max(found, key=lambda one: one.first.number)

    def assign(self, incident: Incident, assignee: str, *, by: str) -> None:
        """Name who looks after an open incident. Raises `UsageError` for no name, or an incident that is over."""
        if not incident.open:
            raise UsageError(f"gate {incident.gate} has no alert that nobody has acknowledged")
        if not 0 < len(assignee.strip()) <= _MOST_NAME:
            raise UsageError(f"name who looks after it, in 1 to {_MOST_NAME} characters")
        row = {
            "alert": incident.first.number,
            "assignee": assignee.strip(),
            "by": by,
            "at": self._clock(),
        }
        self._database.writing(sa.Connection.execute, alert_assignments.insert(), row)

    def draws(self, gate: str, *, kind: str, until: datetime, limit: int = 400) -> builtins.list[ShippedDraw]:
        """The newest labelled draws of a gate decided before a moment that shipped something, the oldest first."""
        with self._database.reading() as connection:
            given = severities_given(self._read.table(connection, gate), gate, kind)
            query = (
                sa.select(batches.c.batch_id, decisions.c.decided_at, sa.func.max(given.c.severity))
                .select_from(ANSWERED)
                .join(
                    given,
                    (given.c.batch_id == batches.c.batch_id)
                    & (given.c.response_id == responses.c.response_id),
                )
                .where(
                    decisions.c.gate == gate,
                    decisions.c.sampled,
                    responses.c.action == "ship",
                    decisions.c.decided_at < until,
                    batches.c.attempt == 1,
                )
                .group_by(decisions.c.batch, batches.c.batch_id, decisions.c.decided_at)
                .order_by(decisions.c.batch.desc())
                .limit(limit)
            )
            return [
                ShippedDraw(batch_id=batch, decided_at=at, severity=severity)
                for batch, at, severity in connection.execute(query).all()[::-1]
            ]

    def undelivered(self, channel: str, *, since: datetime, limit: int = 50) -> builtins.list[RaisedAlert]:
        """Alerts raised since a moment that were neither delivered on a channel nor given up, the oldest first."""
        done = sa.exists().where(
            alert_deliveries.c.alert == alerts.c.id, alert_deliveries.c.channel == channel
        )
        query = _select().where(alerts.c.raised_at >= since, ~done).order_by(alerts.c.id).limit(limit)
        return [_raised(row) for row in self._database.mappings(query)]

    def delivered(self, raised: RaisedAlert, channel: str, *, error: str | None = None) -> None:
        """Record that a channel took an alert, or, with the last error, that it was given up. Twice is as good as once."""
        row = {"alert": raised.number, "channel": channel, "at": self._clock(), "error": error}
        self._database.writing(
            lambda connection: connection.execute(
                upsert(connection, alert_deliveries).values(row).on_conflict_do_nothing()
            )
        )

    def counts(self) -> dict[tuple[str, str], int]:
        """How many alerts were ever raised, by gate and kind."""
        return self._database.counts(*alerts.c["gate", "kind"])

    def acknowledge(self, alert_id: str, *, by: str, reason: str, now: datetime | None = None) -> RaisedAlert:
        """Record that somebody has looked at an alert. Where an alarm raised it, the gate's next
        alarm opens.

        It is named by its id, or by so much of its beginning that one alert alone has it. Raises
        `UsageError` when no alert or more than one has this id, or it was acknowledged before.
        """
        return self._database.writing(acknowledge, alert_id, by=by, reason=reason, now=now or self._clock())


def acknowledge(
    connection: sa.Connection, alert_id: str, *, by: str, reason: str, now: datetime
) -> RaisedAlert:
    """Record that an alert was answered, and seal that; see `Alerts.acknowledge`."""
    found = _one(connection, alert_id)
    if found["by"] is not None:
        raise UsageError(f"alert {found['alert_id']} was acknowledged by {found['by']} before")
    last = connection.execute(sa.select(sa.func.max(batches.c.id))).scalar()
    row = {"alert": found["id"], "by": by, "reason": reason, "at": now, "last_batch": last or 0}
    control.insert(connection, alert_acknowledgements, row, now=now)
    return _raised(_one(connection, found["alert_id"]))


def raise_alert(connection: sa.Connection, event: AlertsV1, *, message: AlertMessage, now: datetime) -> bool:
    """Record an alert, seal it and enqueue its message, as the last part of the caller's transaction: what else locks a gate
    comes before.

    Returns False, and changes nothing, when the same alert is on record already.
    """
    new = connection.execute(
        upsert(connection, alerts)
        .values(row_of(alerts, event))
        .on_conflict_do_nothing(index_elements=[alerts.c.alert_id])
        .returning(alerts.c.id)
    ).first()
    if new is not None:
        control.append(connection, alerts, [(new.id,)], now=now)
        enqueue(connection, message(event), event.raised_at)
    return new is not None


def incidents_of(raised: Sequence[RaisedAlert]) -> list[Incident]:
    """Group alerts, in any order, into incidents: open ones first, those that page before the rest, the newest first."""
    groups: list[list[RaisedAlert]] = []
    present: dict[tuple[str, str], list[RaisedAlert]] = {}
    for one in sorted(raised, key=lambda one: one.number):
        cause = one.alert.gate, OTHER_CAUSES.get(one.alert.kind, "answers")
        group = present.get(cause)
        if group is None or all(
            before.acknowledged_at is not None and before.acknowledged_at <= one.alert.raised_at
            for before in group
        ):
            group = present[cause] = []
            groups.append(group)
        group.append(one)
    found = [Incident(tuple(sorted(group, key=lambda one: (_worst(one), one.number)))) for group in groups]
    return sorted(
        found,
        key=lambda one: (not one.open, one.alerts[0].alert.level != "page", -one.first.number),
    )


def _worst(one: RaisedAlert) -> tuple[bool, int]:
    return one.alert.level != "page", list(LEVELS).index(one.alert.kind)


def change_began(severities: Sequence[float]) -> int | None:
    """Say from which draw on severities are higher: where a split in two means explains most; None where no split rises.

    The two parts are as far apart as their sizes allow to say: the split maximizes (mean after - mean before)
    sqrt(k (n - k)), k draws being before it, 0 < k < n.
    """
    values = np.asarray(severities, dtype=np.float64)
    if len(values) < 2:
        return None
    before = np.arange(1, len(values))
    after = len(values) - before
    sums = values.cumsum()[:-1]
    rise = ((values.sum() - sums) / after - sums / before) * np.sqrt(before * after)
    return int(before[rise.argmax()]) if rise.max() > 0 else None


def _select() -> sa.Select[Any]:
    done, newest = alert_acknowledgements, alert_assignments.alias("newest")
    assignee = (
        sa.select(newest.c.assignee)
        .where(newest.c.alert == alerts.c.id)
        .order_by(newest.c.id.desc())
        .limit(1)
        .scalar_subquery()
    )
    return sa.select(alerts, done.c.by, done.c.reason, done.c.at, assignee.label("assignee")).join_from(
        alerts, done, done.c.alert == alerts.c.id, isouter=True
    )


def _one(connection: sa.Connection, alert_id: str) -> Row:
    named = alerts.c.alert_id.startswith(alert_id, autoescape=True)
    found = connection.execute(_select().where(named).limit(2)).mappings().all()
    if not found or not alert_id:
        raise UsageError(f"there is no alert {alert_id!r}; `streamer alert list` shows those there are")
    if len(found) > 1:
        raise UsageError(f"more than one alert has an id that begins with {alert_id!r}; give more of it")
    return found[0]


def _raised(row: Row) -> RaisedAlert:
    return RaisedAlert(
        alert=of_row(AlertsV1, row, schema=SCHEMA),
        number=row["id"],
        assignee=row["assignee"],
        acknowledged_by=row["by"],
        acknowledged_at=row["at"],
        acknowledged_reason=row["reason"],
    )


def closures(gate: str | None = None) -> sa.CompoundSelect[Any]:
    """Select ``gate``, ``version``, ``moment`` and ``closed`` of every closing by an alarm, of one gate or of all.

    An alarm that was to close its gate and could not (no key to sign with, no policy that is trusted) counts as well: from
    the policy after the one that it was to close, which is the one in force when it was raised, or the first one after it
    by whose settings an alarm closes, if nobody had acknowledged the alarm before. What the alarm says of the sample does
    not depend on keys.
    """
    did = sa.select(
        *policies.c["gate", "version"],
        policies.c.valid_from.label("moment"),
        sa.literal(1).label("closed"),
    ).where(policies.c.created_by == MONITOR, policies.c.state == "closed")
    should_have = (
        sa.select(
            monitor_alarms.c.gate,
            (sa.func.min(policies.c.version) + 1).label("version"),
            monitor_alarms.c.raised_at.label("moment"),
            sa.literal(0).label("closed"),
        )
        .join(alerts, alerts.c.alert_id == monitor_alarms.c.alert_id)
        .join(
            policies,
            (policies.c.gate == alerts.c.gate) & (policies.c.version >= alerts.c.policy_version),
        )
        .join(gate_revisions, REVISION_OF_POLICY)
        .outerjoin(alert_acknowledgements, alert_acknowledgements.c.alert == alerts.c.id)
        .where(
            monitor_alarms.c.raised_at.is_not(None),
            monitor_alarms.c.closed_policy.is_(None),
            ((monitor_alarms.c.kind == "risk") & (gate_revisions.c.on_alarm == "close"))
            | ((monitor_alarms.c.kind == "selective") & (gate_revisions.c.on_selective_alarm == "close"))
            | ((monitor_alarms.c.kind == "missing") & (gate_revisions.c.on_missing == "close")),
            (policies.c.version == alerts.c.policy_version)
            | alert_acknowledgements.c.at.is_(None)
            | (policies.c.valid_from < alert_acknowledgements.c.at),
        )
        .group_by(
            monitor_alarms.c.gate,
            monitor_alarms.c.kind,
            monitor_alarms.c.number,
            monitor_alarms.c.raised_at,
        )
    )
    if gate is not None:
        did, should_have = (
            did.where(policies.c.gate == gate),
            should_have.where(monitor_alarms.c.gate == gate),
        )
    return sa.union_all(did, should_have)
