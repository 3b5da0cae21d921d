"""What a record says, read for tests: its decisions, the offsets that have an outcome, and the view `v_risk`."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from streamer.journal import Partition
from streamer.store import Store
from streamer.store.db.schema import data_gaps, outcomes, progress
from streamer.store.db.schema.types import UtcDateTime, of_row
from streamer.store.log.progress import in_partition


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionSummary:
    """One decision, a line of `v_decisions`; `threshold` is lambda, `offset` the input's."""

    gate: str
    batch_id: str
    attempt: int
    decided_at: datetime
    unit: str
    mode: str
    outcome: str
    reason: str
    selected: str | None
    responses: int
    shipped: int
    best_score: float | None
    policy_version: int
    policy_state: str
    threshold: float | None
    sampled: bool
    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLedger:
    """The outcomes of one partition's offsets.

    Attributes
    ----------
    next_offset : everything below it has an outcome.
    kinds : how many outcomes of each kind.
    ranges : unbroken runs of offsets with an outcome, as [first, last]; between two there are offsets that the
        log skipped (transaction markers, compaction) or that are in `gaps`.
    gaps : offsets [first, last] that the broker no longer had.
    """

    partition: Partition
    epoch: int
    next_offset: int
    log_size: int
    log_edge: bytes
    kinds: Mapping[str, int]
    ranges: tuple[tuple[int, int], ...]
    gaps: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RiskEstimate:
    """Means over the labelled audit sample under one policy, each batch weighted by 1 / its probability.

    Estimates without an interval: they inform, and decide nothing. `exposure_risk` is the mean severity that
    reached people, held ones counting 0; `selective_risk` is the mean over the shipped ones, None when none was.
    All three are None while no batch is labelled.
    """

    gate: str
    policy_version: int
    unit: str
    severity_kind: str
    labelled_batches: int
    pending_batches: int
    served_ratio: float | None
    exposure_risk: float | None
    selective_risk: float | None


def newest_decisions(store: Store, gate: str | None = None, *, limit: int = 20) -> list[DecisionSummary]:
    """The newest decisions first, of one gate or of all."""
    view = sa.table(
        "v_decisions",
        sa.column("decided_at", UtcDateTime),
        sa.column("sampled", sa.Boolean),
        *(
            sa.column(name)
            for name in (*DecisionSummary.__slots__, "lambda")
            if name not in ("decided_at", "sampled", "threshold")
        ),
    )
    query = sa.select(view).order_by(view.c.decided_at.desc(), view.c.offset.desc()).limit(limit)
    if gate is not None:
        query = query.where(view.c.gate == gate)
    with store._database.reading() as connection:
        found = connection.execute(query).mappings().all()
    return [of_row(DecisionSummary, row, threshold=row["lambda"]) for row in found]


def risk_estimates(store: Store, gate: str | None = None) -> list[RiskEstimate]:
    """Exposure and selective risk over the labelled audit sample, by gate and policy version."""
    view: Any = sa.table("v_risk", *(sa.column(name) for name in RiskEstimate.__slots__))
    query = sa.select(view).order_by(view.c.gate, view.c.policy_version, view.c.severity_kind)
    if gate is not None:
        query = query.where(view.c.gate == gate)
    with store._database.reading() as connection:
        return [RiskEstimate(**row) for row in connection.execute(query).mappings()]


def ledgers_of(store: Store, log_id: str | None = None) -> list[PartitionLedger]:
    """The outcomes of every partition's offsets (of one log, or of all), and the edge of its log."""
    query = sa.select(progress).order_by(progress.c.log_id, progress.c.topic, progress.c.partition)
    if log_id is not None:
        query = query.where(progress.c.log_id == log_id)
    with store._database.reading(snapshot=True) as connection:
        heads = connection.execute(query).mappings().all()
        return [_ledger(connection, head) for head in heads]


def _ledger(connection: sa.Connection, head: sa.RowMapping) -> PartitionLedger:
    partition = Partition(head["log_id"], head["topic"], head["partition"])
    of_partition = in_partition(partition, outcomes)
    kinds = connection.execute(
        sa.select(outcomes.c.kind, sa.func.count().label("n")).where(of_partition).group_by(outcomes.c.kind)
    )
    # Offsets minus their rank are equal exactly within an unbroken run.
    island = (outcomes.c.offset - sa.func.row_number().over(order_by=outcomes.c.offset)).label("island")
    numbered = sa.select(outcomes.c.offset, island).where(of_partition).subquery()
    ranges = connection.execute(
        sa.select(sa.func.min(numbered.c.offset), sa.func.max(numbered.c.offset))
        .group_by(numbered.c.island)
        .order_by(sa.func.min(numbered.c.offset))
    )
    gaps = connection.execute(
        sa.select(data_gaps.c.from_offset, data_gaps.c.to_offset - 1)
        .where(in_partition(partition, data_gaps))
        .order_by(data_gaps.c.from_offset)
    )
    return PartitionLedger(
        partition=partition, epoch=head["epoch"], next_offset=head["next_offset"],
        log_size=head["log_size"], log_edge=head["log_edge"],
        kinds={row.kind: row.n for row in kinds},
        ranges=tuple((first, last) for first, last in ranges),
        gaps=tuple((first, last) for first, last in gaps),
    )  # fmt: skip
