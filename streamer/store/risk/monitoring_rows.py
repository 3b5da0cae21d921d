"""The state of watching as rows: exact, as JSON, with the figures that people look for beside it."""

import json
from collections.abc import Callable, Iterable
from datetime import datetime
from operator import attrgetter
from typing import Any

import sqlalchemy as sa

from streamer.risk.rounds.horizon import Watermark
from streamer.risk.rounds.logged import Terms
from streamer.risk.rounds.state import (
    AlarmState,
    GateWatch,
    ServiceState,
    Stretch,
    WatchedAlarm,
    WatchedSequence,
)
from streamer.risk.rounds.tally import Tally
from streamer.risk.states import (
    DrawAlarm,
    DriftAlarm,
    EarlyWarning,
    ExposureSequence,
    OpenTime,
    RiskAlarm,
    SelectiveAlarm,
)
from streamer.store.db.schema import batches, decisions, monitor_alarms, monitor_gates, monitor_sequences
from streamer.store.db.schema.joins import same
from streamer.store.db.schema.types import Row, of_row, row_of

_MOST_EVIDENCE = 1e300
_STATES: dict[str, Callable[[str], AlarmState]] = {
    "risk": RiskAlarm.from_json,
    "selective": SelectiveAlarm.from_json,
    "missing": RiskAlarm.from_json,
    "early": EarlyWarning.from_json,
    "draws": DrawAlarm.from_json,
    "drift_scores": DriftAlarm.from_json,
    "drift_cloud": DriftAlarm.from_json,
}
_TERMS = tuple(Terms.__dataclass_fields__)


def take_step(connection: sa.Connection, before: GateWatch, after: GateWatch, now: datetime) -> bool:
    """Move a gate's own row on, if it still stands where it was read; others wait for this transaction to end."""
    row = row_of(
        monitor_gates,
        after,
        gate=before.gate,
        step=before.step + 1,
        read_batch=after.read,
        seen_batch=after.seen,
        bet_batch=after.bet,
        seen_label=after.labels,
        marks=json.dumps([[*mark[:3], mark.at.isoformat()] for mark in after.marks]),
        service=None if after.service is None else after.service.to_json(),
        tally=None if after.tally is None else after.tally.to_json(),
        updated_at=now,
    )
    if before.step:
        changed = connection.execute(
            sa.update(monitor_gates)
            .where(monitor_gates.c.gate == before.gate, monitor_gates.c.step == before.step)
            .values(row)
        )
        return changed.rowcount == 1
    try:
        with connection.begin_nested():
            connection.execute(sa.insert(monitor_gates).values(row))
    except sa.exc.IntegrityError:
        return False
    return True


def write_sequences(
    connection: sa.Connection,
    before: GateWatch,
    after: GateWatch,
    ended: Iterable[WatchedSequence | WatchedAlarm],
) -> None:
    """Write the sequences that are new or have moved. Their figures are of open time; what they rest on is in `state`."""
    known = before.sequence
    service = after.service
    found = {} if service is None else dict(service.past)
    if service is not None and service.period is not None:
        found[service.sequence] = service.period
    moved = after.service != before.service
    new = [one for one in ended if isinstance(one, WatchedSequence)]
    if after.sequence is not None and after.sequence not in new:
        new.append(after.sequence)
    for one in new:
        there = known is not None and one.number == known.number
        if there and one == known and not moved:
            continue
        first = {
            "since_policy": one.since_policy,
            "first_batch": one.first,
            "began_at": one.began_at,
            **{name: getattr(one.terms, name) for name in _TERMS},
        }
        key = {"gate": before.gate, "number": one.number}
        moves = _sequence_moves(one, found.get(one.number))
        _write(connection, monitor_sequences, key, moves, None if there else first)


def _write(connection: sa.Connection, table: sa.Table, key: Row, moves: Row, first: Row | None) -> None:
    """Move a row on; or insert it, where what it has from the first is given."""
    if first is not None:
        connection.execute(sa.insert(table).values(**key, **first, **moves))
        return
    own = (table.c[name] == value for name, value in key.items())
    connection.execute(sa.update(table).where(*own).values(moves))


def _sequence_moves(one: WatchedSequence, period: Stretch | None) -> dict[str, Any]:
    opened = OpenTime.begin(one.state.plan) if period is None else period.open
    exposure, selective = opened.exposure(), opened.selective()
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


def write_alarms(
    connection: sa.Connection,
    before: GateWatch,
    after: GateWatch,
    ended: Iterable[WatchedSequence | WatchedAlarm],
) -> None:
    """Write the alarms that are new or have moved."""
    known = {_place(one): one for one in before.alarms}
    past = [one for one in ended if isinstance(one, WatchedAlarm)]
    for one in (*past, *after.alarms):
        there = known.get(_place(one))
        if there == one:
            continue
        first = {
            "about": one.about,
            "delta": one.state.bets.delta,
            "after_batch": one.after,
            "after_policy": one.after_policy,
            "run": one.run,
        }
        key = {"gate": before.gate, **dict(zip(_PLACE, _place(one), strict=True))}
        moves = {
            "evidence_ratio": min(_MOST_EVIDENCE, one.state.evidence * one.state.bets.delta),
            "state": one.state.to_json(),
            **{
                name: getattr(one, name)
                for name in ("raised_by", "raised_at", "alert_id", "closed_policy", "ended")
            },
        }
        _write(connection, monitor_alarms, key, moves, None if there else first)


_PLACE = ("kind", "statistic", "number")
_place = attrgetter(*_PLACE)


def read_watch(connection: sa.Connection, gate: str) -> GateWatch:
    """Read where the watching of a gate stands; a new one where it was never watched."""
    own = sa.select(monitor_gates).where(monitor_gates.c.gate == gate)
    row = connection.execute(own).mappings().one_or_none()
    if row is None:
        joined = sa.outerjoin(batches, decisions, decisions.c.batch == batches.c.id)
        left = sa.select(sa.func.max(batches.c.id)).select_from(joined)
        left = left.where(batches.c.gate == gate, decisions.c.batch.is_(None))
        # Of what was given out the drawn ones are left: that is no draw.
        return GateWatch(gate=gate, seen=connection.scalar(left) or 0)
    sequences = sa.select(monitor_sequences).where(monitor_sequences.c.gate == gate)
    last = sequences.order_by(monitor_sequences.c.number.desc()).limit(1)
    sequence = connection.execute(last).mappings().one_or_none()
    newest = (
        sa.select(
            *monitor_alarms.c["kind", "statistic"], sa.func.max(monitor_alarms.c.number).label("number")
        )
        .where(monitor_alarms.c.gate == gate)
        .group_by(monitor_alarms.c.kind, monitor_alarms.c.statistic)
        .subquery()
    )
    query = (
        sa.select(monitor_alarms)
        .join(newest, same(newest, monitor_alarms, "kind", "statistic", "number"))
        .where(monitor_alarms.c.gate == gate)
        .order_by(monitor_alarms.c.kind, monitor_alarms.c.statistic)
    )
    rows = connection.execute(query).mappings().all()
    return of_row(
        GateWatch,
        row,
        read=row["read_batch"],
        seen=row["seen_batch"],
        bet=row["bet_batch"],
        labels=row["seen_label"],
        marks=tuple(
            Watermark(decisions, labels, transactions, datetime.fromisoformat(at))
            for decisions, labels, transactions, at in json.loads(row["marks"])
        ),
        sequence=None if sequence is None else sequence_of(sequence),
        alarms=tuple(map(_alarm, rows)),
        service=None if row["service"] is None else ServiceState.from_json(row["service"]),
        tally=None if row["tally"] is None else Tally.from_json(row["tally"]),
    )


def sequence_of(row: Row) -> WatchedSequence:
    """A row of `monitor_sequences` as a value."""
    return of_row(
        WatchedSequence,
        row,
        terms=of_row(Terms, row),
        first=row["first_batch"],
        last=row["last_batch"],
        state=ExposureSequence.from_json(row["state"]),
    )


def _alarm(row: Row) -> WatchedAlarm:
    return of_row(
        WatchedAlarm,
        row,
        state=_STATES[row["kind"]](row["state"]),
        after=row["after_batch"],
    )
