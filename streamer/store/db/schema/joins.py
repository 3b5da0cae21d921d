"""What names a batch and a response, and on what tables are joined that many queries join."""

from typing import Any, Final

import sqlalchemy as sa

from streamer.gates.batch_key import BatchKey
from streamer.store.db.schema.calibration import calibration_candidates, calibration_runs
from streamer.store.db.schema.decisions import batches, carried_signals, decisions, responses
from streamer.store.db.schema.gates import gate_revisions, policies
from streamer.store.db.schema.types import Row

PARTITION: Final = ("log_id", "topic", "partition")
BATCH: Final = ("gate", "batch_id", "attempt")
RESPONSE: Final = (*BATCH, "response_id")


def key_of(row: Row) -> BatchKey:
    """Which batch a row is of."""
    return BatchKey(row["gate"], row["batch_id"], row["attempt"])


def is_batch(key: BatchKey, table: sa.FromClause = batches) -> sa.ColumnElement[bool]:
    """Whether a row is of this batch."""
    return sa.and_(*(table.c[name] == value for name, value in zip(BATCH, key, strict=True)))


def same(one: sa.FromClause, other: sa.FromClause, *names: str) -> sa.ColumnElement[bool]:
    """Whether rows of two tables agree in columns of these names."""
    return sa.and_(*(one.c[name] == other.c[name] for name in names))


DECIDED: Final = decisions.join(batches, batches.c.id == decisions.c.batch)
"""Decisions with their batches."""

ANSWERED: Final = DECIDED.join(responses, responses.c.batch == decisions.c.batch)
"""The same with each response."""


def newest(column: Any) -> sa.Select[tuple[str, int]]:
    """Select each gate and the highest value of a column of its rows, under the column's name."""
    gate = column.table.c.gate
    return sa.select(gate, sa.func.max(column).label(column.name)).group_by(gate)


def is_label(
    labels: sa.FromClause,
    batch: sa.FromClause,
    kind: str | sa.ColumnElement[str],
    of: sa.FromClause = responses,
) -> sa.ColumnElement[bool]:
    """Whether a label is of this kind, and of a response of the batch."""
    return same(labels, batch, *BATCH) & (labels.c.response_id == of.c.response_id) & (labels.c.kind == kind)


def revision_of(table: sa.FromClause, revisions: sa.FromClause = gate_revisions) -> sa.ColumnElement[bool]:
    """The gate's settings that a row of `table` was made for."""
    return (revisions.c.gate == table.c.gate) & (revisions.c.revision == table.c.gate_revision)


def signals_of(listed: str | None) -> tuple[sa.ColumnElement[bytes], sa.FromClause]:
    """The row of a decision by a list of signals, named by its hash, and what has to be joined to `decisions` by batch for it."""
    later = sa.select(carried_signals).where(carried_signals.c.list == (listed or "")).subquery("carried")
    return sa.func.coalesce(later.c.signals, decisions.c.signals), later


POLICY_OF_DECISION: Final = (policies.c.gate == decisions.c.gate) & (
    policies.c.version == decisions.c.policy_version
)
"""The policy that decided."""

REVISION_OF_POLICY: Final = revision_of(policies)
"""The gate's settings as the policy was made for them."""

_decided = gate_revisions.alias("decided_by")
JUDGED: Final = (
    sa.select(_decided.c.judged)
    .join_from(policies, _decided, revision_of(policies, _decided))
    .where(POLICY_OF_DECISION)
    .correlate(decisions)
    .scalar_subquery()
    .label("judged")
)
"""What of the answers of a decision is judged."""

REVISION_OF_RUN: Final = revision_of(calibration_runs)
"""The gate's settings that a run calibrated for."""

CANDIDATE_OF_RUN: Final = (
    calibration_candidates.c.run == calibration_runs.c.id
) & calibration_candidates.c.decides
"""The threshold that a run found by the gate's method."""
