"""Alerts: told once a cause, in the transaction of whatever caused them, and acknowledged by a person."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from streamer.errors import UsageError
from streamer.events.alerts import SCHEMA, AlertsV1
from streamer.journal import OutboxMessage
from streamer.store.audit import control
from streamer.store.db.engine import Database, upsert
from streamer.store.db.schema import alert_acknowledgements, alerts, batches
from streamer.store.db.schema.types import Row
from streamer.store.log.outbox import enqueue

if TYPE_CHECKING:
    AlertMessage = Callable[[AlertsV1], OutboxMessage]

_FACTS = ("alert_id", "gate", "kind", "level", "message", "details", "policy_version", "raised_at")


@dataclass(frozen=True, slots=True, kw_only=True)
class RaisedAlert:
    """An alert on record, and who has looked at it, when and what they found; None while nobody has."""

    alert: AlertsV1
    acknowledged_by: str | None = None
    acknowledged_at: datetime | None = None
    acknowledged_reason: str | None = None


class Alerts:
    """The alerts of all gates."""

    def __init__(
        self, database: Database, *, clock: Callable[[], datetime], alert_message: AlertMessage
    ) -> None:
        self._database = database
        self._clock = clock
        self._message = alert_message

    def raise_(self, event: AlertsV1) -> bool:
        """Record an alert and enqueue its message; returns False when the same alert is on record already."""
        return self._database.writing(
            lambda connection: raise_alert(connection, event, message=self._message, now=self._clock())
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
        with self._database.reading() as connection:
            return [_raised(row) for row in connection.execute(query).mappings()]

    def counts(self) -> dict[tuple[str, str], int]:
        """How many alerts were ever raised, by gate and kind."""
        query = sa.select(alerts.c.gate, alerts.c.kind, sa.func.count()).group_by(
            alerts.c.gate, alerts.c.kind
        )
        with self._database.reading() as connection:
            return {(gate, kind): count for gate, kind, count in connection.execute(query)}

    def acknowledge(self, alert_id: str, *, by: str, reason: str, now: datetime | None = None) -> RaisedAlert:
        """Record that somebody has looked at an alert. Where an alarm raised it, the gate's next alarm opens.

        Parameters
        ----------
        alert_id : the whole id, or so much of its beginning that one alert alone has it.

        Raises
        ------
        UsageError
            When no alert or more than one has this id, or it was acknowledged before.
        """
        moment = now or self._clock()

        def work(connection: sa.Connection) -> RaisedAlert:
            return acknowledge(connection, alert_id, by=by, reason=reason, now=moment)

        return self._database.writing(work)


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
        .values({name: getattr(event, name) for name in _FACTS})
        .on_conflict_do_nothing(index_elements=[alerts.c.alert_id])
        .returning(alerts.c.id)
    ).first()
    if new is not None:
        control.append(connection, alerts, [(new.id,)], now=now)
        enqueue(connection, message(event), event.raised_at)
    return new is not None


def _select() -> sa.Select[Any]:
    done = alert_acknowledgements
    return sa.select(alerts, done.c.by, done.c.reason, done.c.at).join_from(
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
        alert=AlertsV1(schema=SCHEMA, **{name: row[name] for name in _FACTS}),
        acknowledged_by=row["by"],
        acknowledged_at=row["at"],
        acknowledged_reason=row["reason"],
    )
