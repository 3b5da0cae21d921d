"""Where the watching of each gate stands: read at one moment, written in one transaction or not at all."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from streamer.errors import UsageError
from streamer.monitoring import DrawAlarm, DriftAlarm, ExposureSequence, RiskAlarm
from streamer.policy import MONITOR
from streamer.rules import INDICATOR
from streamer.store import monitored_decisions
from streamer.store.alerts import raise_alert
from streamer.store.policy_rows import newest_keys, read_versions
from streamer.store.schema import (
    alert_acknowledgements,
    alerts,
    monitor_alarms,
    monitor_gates,
    monitor_sequences,
)
from streamer.watching.horizon import Mark
from streamer.watching.logged import Terms
from streamer.watching.state import GateWatch, WatchedAlarm, WatchedSequence
from streamer.watching.store import Standing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from streamer.store.alerts import AlertMessage
    from streamer.store.engine import Database
    from streamer.store.minting import Mint
    from streamer.store.schema.types import Row
    from streamer.watching.logged import LoggedDecision
    from streamer.watching.state import AlarmState
    from streamer.watching.store import Written

_MOST_EVIDENCE = 1e300
_STATES: dict[str, Callable[[str], AlarmState]] = {
    "risk": RiskAlarm.from_json,
    "draws": DrawAlarm.from_json,
    "drift_scores": DriftAlarm.from_json,
    "drift_cloud": DriftAlarm.from_json,
}
_TERMS = tuple(Terms.__dataclass_fields__)


class Monitoring:
    """Implements `streamer.watching.store.WatchStore`."""

    def __init__(
        self,
        database: Database,
        *,
        clock: Callable[[], datetime],
        mint: Mint,
        alert_message: AlertMessage,
    ) -> None:
        self._database = database
        self._clock = clock
        self._mint = mint
        self._message = alert_message

    def standing(self, gate: str) -> Standing | None:
        """How a gate stands; None when its newest policy cannot be read."""
        with self._database.reading(snapshot=True) as connection:
            found = read_versions(connection, newest_keys(connection, [gate]))
            if not found or found[0].active is None:
                return None
            watch = _watch(connection, gate)
            told = [one.alert_id for one in watch.alarms if one.alert_id is not None]
            seen = connection.execute(
                sa.select(alerts.c.alert_id, alert_acknowledgements.c.last_batch)
                .join(alert_acknowledgements, alert_acknowledgements.c.alert == alerts.c.id)
                .where(alerts.c.alert_id.in_(told))
            )
            return Standing(
                watch=watch,
                policy=found[0].active.policy,
                salt=found[0].active.audit_salt,
                acknowledged={row.alert_id: row.last_batch for row in seen},
                probe=monitored_decisions.probe(connection),
            )

    def watch(self, gate: str) -> GateWatch:
        """Where the watching of a gate stands; a new one where it was never watched."""
        with self._database.reading(snapshot=True) as connection:
            return _watch(connection, gate)

    def sequences(self, gate: str) -> list[WatchedSequence]:
        """Every sequence of a gate, the newest first."""
        query = sa.select(monitor_sequences).where(monitor_sequences.c.gate == gate)
        with self._database.reading() as connection:
            rows = connection.execute(query.order_by(monitor_sequences.c.number.desc())).mappings()
            return [_sequence(row) for row in rows]

    def decided(self, gate: str, *, after: int, until: int, limit: int) -> list[LoggedDecision]:
        """The next first attempts, in order, without severities."""
        with self._database.reading(snapshot=True) as connection:
            return monitored_decisions.decided(connection, gate, after=after, until=until, limit=limit)

    def labelled(self, gate: str, decisions: Sequence[LoggedDecision], *, until: int) -> list[LoggedDecision]:
        """The same decisions with what labels up to a number say."""
        with self._database.reading(snapshot=True) as connection:
            return monitored_decisions.labelled(connection, gate, decisions, until=until)

    def reference(self, run: int) -> list[LoggedDecision]:
        """The decisions that a calibration run read, in order."""
        with self._database.reading(snapshot=True) as connection:
            return monitored_decisions.reference(connection, run)

    def late_labels(self, gate: str, *, after: int, until: int, read: int) -> int:
        """How many labels came after the decision that needed them had been read."""
        with self._database.reading() as connection:
            return monitored_decisions.late_labels(connection, gate, after=after, until=until, read=read)

    def write(self, before: GateWatch, written: Written) -> bool:
        """Write a round in one transaction; False, and nothing is written, when another was faster."""
        now = self._clock()

        def work(connection: sa.Connection) -> bool:
            if not _take_step(connection, before, written.watch, now):
                return False
            closed = refused = None
            if written.close is not None:
                try:
                    closed = self._close(connection, before.gate, written.close, now)
                except UsageError as error:
                    refused = str(error)
            watch = written.watch
            if closed is not None:
                watch = replace(watch, alarms=tuple(_closing(one, closed) for one in watch.alarms))
            _write_sequences(connection, before, watch, written.ended)
            _write_alarms(connection, before, watch, written.ended)
            for event in written.tell(closed, refused):
                raise_alert(connection, event, message=self._message)
            return True

        return self._database.writing(work)

    def _close(self, connection: sa.Connection, gate: str, reason: str, now: datetime) -> int:
        """Close a gate, unless an alarm has closed it already; returns the policy that it is closed by."""
        present = self._mint.lock_to_close(connection, gate)
        if present.state == "closed" and present.created_by == MONITOR:
            return present.version
        closed = replace(
            present, state="closed", threshold=None, rule=INDICATOR, calibration_run=None, guarantee=""
        )
        return self._mint.next(connection, closed, by=MONITOR, reason=reason, now=now).version


def _closing(alarm: WatchedAlarm, closed: int) -> WatchedAlarm:
    if alarm.kind == "risk" and alarm.raised_by is not None and alarm.closed_policy is None:
        return replace(alarm, closed_policy=closed)
    return alarm


def _take_step(connection: sa.Connection, before: GateWatch, after: GateWatch, now: datetime) -> bool:
    """Move a gate's own row on, if it still stands where it was read; others wait for this transaction to end."""
    row = {
        "step": before.step + 1,
        "read_batch": after.read,
        "seen_batch": after.seen,
        "seen_label": after.labels,
        "read_through": after.read_through,
        "unwatched": after.unwatched,
        "late": after.late,
        "marks": json.dumps([[*mark[:3], mark.at.isoformat()] for mark in after.marks]),
        "drift_run": after.drift_run,
        "drift_policy": after.drift_policy,
        "updated_at": now,
    }
    if before.step:
        changed = connection.execute(
            sa.update(monitor_gates)
            .where(monitor_gates.c.gate == before.gate, monitor_gates.c.step == before.step)
            .values(row)
        )
        return changed.rowcount == 1
    try:
        with connection.begin_nested():
            connection.execute(sa.insert(monitor_gates).values(gate=before.gate, **row))
    except sa.exc.IntegrityError:
        return False
    return True


def _write_sequences(
    connection: sa.Connection,
    before: GateWatch,
    after: GateWatch,
    ended: Iterable[WatchedSequence | WatchedAlarm],
) -> None:
    known = before.sequence
    new = [one for one in ended if isinstance(one, WatchedSequence)]
    if after.sequence is not None and after.sequence not in new:
        new.append(after.sequence)
    for one in new:
        if known is not None and one.number == known.number:
            if one != known:
                connection.execute(
                    sa.update(monitor_sequences)
                    .where(monitor_sequences.c.gate == before.gate, monitor_sequences.c.number == one.number)
                    .values(_sequence_moves(one))
                )
        else:
            connection.execute(
                sa.insert(monitor_sequences).values(
                    gate=before.gate,
                    number=one.number,
                    since_policy=one.since_policy,
                    first_batch=one.first,
                    began_at=one.began_at,
                    **{name: getattr(one.terms, name) for name in _TERMS},
                    **_sequence_moves(one),
                )
            )


def _sequence_moves(one: WatchedSequence) -> dict[str, Any]:
    exposure, selective = one.state.exposure(), one.state.selective()
    return {
        "last_batch": one.last,
        "read_at": one.read_at,
        "decisions": exposure.decisions,
        "labelled": exposure.labels,
        "overdue": exposure.overdue,
        "exposure": exposure.estimate,
        "exposure_lower": exposure.lower,
        "exposure_upper": exposure.upper,
        "selective": selective.estimate,
        "selective_lower": selective.lower,
        "selective_upper": selective.upper,
        "state": one.state.to_json(),
        "ended": one.ended,
    }


def _write_alarms(
    connection: sa.Connection,
    before: GateWatch,
    after: GateWatch,
    ended: Iterable[WatchedSequence | WatchedAlarm],
) -> None:
    known = {_place(one): one for one in before.alarms}
    past = [one for one in ended if isinstance(one, WatchedAlarm)]
    for one in (*past, *after.alarms):
        if _place(one) not in known:
            connection.execute(
                sa.insert(monitor_alarms).values(
                    gate=before.gate,
                    kind=one.kind,
                    statistic=one.statistic,
                    number=one.number,
                    about=one.about,
                    delta=one.state.bets.delta,
                    after_batch=one.after,
                    after_policy=one.after_policy,
                    run=one.run,
                    **_alarm_moves(one),
                )
            )
        elif known[_place(one)] != one:
            kind, statistic, number = _place(one)
            connection.execute(
                sa.update(monitor_alarms)
                .where(
                    monitor_alarms.c.gate == before.gate,
                    monitor_alarms.c.kind == kind,
                    monitor_alarms.c.statistic == statistic,
                    monitor_alarms.c.number == number,
                )
                .values(_alarm_moves(one))
            )


def _alarm_moves(one: WatchedAlarm) -> dict[str, Any]:
    return {
        "evidence_ratio": min(_MOST_EVIDENCE, one.state.evidence * one.state.bets.delta),
        "state": one.state.to_json(),
        "raised_by": one.raised_by,
        "raised_at": one.raised_at,
        "alert_id": one.alert_id,
        "closed_policy": one.closed_policy,
        "ended": one.ended,
    }


def _place(one: WatchedAlarm) -> tuple[str, str, int]:
    return one.kind, one.statistic, one.number


def _watch(connection: sa.Connection, gate: str) -> GateWatch:
    row = (
        connection.execute(sa.select(monitor_gates).where(monitor_gates.c.gate == gate))
        .mappings()
        .one_or_none()
    )
    if row is None:
        return GateWatch(gate=gate)
    sequence = (
        connection.execute(
            sa.select(monitor_sequences)
            .where(monitor_sequences.c.gate == gate)
            .order_by(monitor_sequences.c.number.desc())
            .limit(1)
        )
        .mappings()
        .one_or_none()
    )
    newest = (
        sa.select(
            monitor_alarms.c.kind,
            monitor_alarms.c.statistic,
            sa.func.max(monitor_alarms.c.number).label("number"),
        )
        .where(monitor_alarms.c.gate == gate)
        .group_by(monitor_alarms.c.kind, monitor_alarms.c.statistic)
        .subquery()
    )
    rows = connection.execute(
        sa.select(monitor_alarms)
        .join(
            newest,
            (newest.c.kind == monitor_alarms.c.kind)
            & (newest.c.statistic == monitor_alarms.c.statistic)
            & (newest.c.number == monitor_alarms.c.number),
        )
        .where(monitor_alarms.c.gate == gate)
        .order_by(monitor_alarms.c.kind, monitor_alarms.c.statistic)
    ).mappings()
    return GateWatch(
        gate=gate,
        step=row["step"],
        read=row["read_batch"],
        seen=row["seen_batch"],
        labels=row["seen_label"],
        read_through=row["read_through"],
        unwatched=row["unwatched"],
        late=row["late"],
        marks=tuple(
            Mark(decisions, labels, transactions, datetime.fromisoformat(at))
            for decisions, labels, transactions, at in json.loads(row["marks"])
        ),
        drift_run=row["drift_run"],
        drift_policy=row["drift_policy"],
        sequence=None if sequence is None else _sequence(sequence),
        alarms=tuple(_alarm(one) for one in rows),
    )


def _sequence(row: Row) -> WatchedSequence:
    return WatchedSequence(
        number=row["number"],
        terms=Terms(**{name: row[name] for name in _TERMS}),
        since_policy=row["since_policy"],
        first=row["first_batch"],
        last=row["last_batch"],
        began_at=row["began_at"],
        read_at=row["read_at"],
        state=ExposureSequence.from_json(row["state"]),
        ended=row["ended"],
    )


def _alarm(row: Row) -> WatchedAlarm:
    return WatchedAlarm(
        kind=row["kind"],
        number=row["number"],
        state=_STATES[row["kind"]](row["state"]),
        statistic=row["statistic"],
        about=row["about"],
        after=row["after_batch"],
        after_policy=row["after_policy"],
        run=row["run"],
        raised_by=row["raised_by"],
        raised_at=row["raised_at"],
        alert_id=row["alert_id"],
        closed_policy=row["closed_policy"],
        ended=row["ended"],
    )
