"""The audit rates of gates: the newest of each, what they cost, and how one is written."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from streamer.gates.audit_rate import AuditRate, day_of
from streamer.gates.policy import WARNING
from streamer.store.audit import control
from streamer.store.db.schema import audit_rates, decisions, joins, policies, responses
from streamer.store.db.schema.decisions import EXTRA_DRAW
from streamer.store.db.schema.types import of_row, row_of

_NEWEST = sa.select(sa.func.max(audit_rates.c.id)).group_by(audit_rates.c.gate)


def newest_rates(
    connection: sa.Connection, gates: Sequence[str] | None = None, *, chained: bool = False
) -> dict[str, AuditRate]:
    """The newest audit rate of each gate (of all when None) that ever had one; or the newest that the control log has."""
    newest = _NEWEST
    if chained:
        newest = newest.where(~control.waits_for_chain(audit_rates))
    if gates is not None:
        newest = newest.where(audit_rates.c.gate.in_(list(gates)))
    found = connection.execute(sa.select(audit_rates).where(audit_rates.c.id.in_(newest))).mappings()
    return {row["gate"]: of_row(AuditRate, row, number=row["id"]) for row in found}


def extra_labels(connection: sa.Connection, gate: str, day: datetime) -> int:
    """How many labels raised rates asked for on the day (UTC) that a moment is in.

    The day is that of the rate that a decision names: workers date decisions, and their clocks may differ.
    """
    began = day_of(day)
    query = (
        sa.select(sa.func.count())
        .select_from(audit_rates)
        .join(decisions, (decisions.c.audit_rate == audit_rates.c.id) & EXTRA_DRAW)
        .join(responses, (responses.c.batch == decisions.c.batch) & responses.c.drawn)
        .where(responses.c.action == "ship")  # no other answer is asked for
        .where(audit_rates.c.gate == gate, audit_rates.c.since >= began, audit_rates.c.boosted)
    )
    return connection.execute(query).scalar_one()


def raised_gates(now: datetime) -> sa.CompoundSelect[Any]:
    """Select the gates whose audit rate is raised, or that an early warning holds."""
    raised = sa.select(audit_rates.c.gate).where(
        audit_rates.c.id.in_(_NEWEST), audit_rates.c.boosted, audit_rates.c.until > now
    )
    return sa.union(raised, _held_early())


def held_early(connection: sa.Connection) -> list[str]:
    """The gates that an early warning holds."""
    return list(connection.execute(_held_early()).scalars())


def _held_early() -> sa.Select[Any]:
    """Select the gates that an early warning holds."""
    return sa.select(policies.c.gate).where(
        sa.tuple_(policies.c.gate, policies.c.version).in_(joins.newest(policies.c.version)),
        policies.c.created_by == WARNING,
        policies.c.state == "closed",
    )


def newest_shipped(gate: sa.ColumnElement[str] | str, count: int) -> sa.Select[Any]:
    """Select the newest decisions of a gate of which something shipped."""
    one = decisions.alias()
    return (
        sa.select(one.c.batch)
        .where(one.c.gate == gate, one.c.outcome.in_(("ship", "mixed")))
        .order_by(one.c.batch.desc())
        .limit(count)
    )


def append(connection: sa.Connection, gate: str, rate: AuditRate, now: datetime) -> None:
    """Write a rate and seal it. Workers follow it once they read it, seconds later."""
    control.insert(connection, audit_rates, row_of(audit_rates, rate, gate=gate), now=now)
