"""What the record says, in numbers: for the command line, the metrics, and people who check."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from streamer.journal import Partition
from streamer.store.db import roles
from streamer.store.db.pooling import pooling
from streamer.store.db.schema import (
    batches,
    data_gaps,
    decisions,
    label_revisions,
    outcomes,
    progress,
    responses,
)
from streamer.store.db.schema.types import UtcDateTime, of_row
from streamer.store.log import outbox
from streamer.store.log.progress import in_partition
from streamer.store.log.unpublished_ships import unpublished_ships

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from streamer.store.db.engine import Database
    from streamer.store.db.pooling import Pooling


@dataclass(frozen=True, slots=True)
class DecidedScores:
    """Scores and marks of a batch's responses, in event order; all scores None when it was not scored."""

    scores: tuple[float | None, ...]
    shipped: tuple[bool, ...]


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
    chain_height: int
    chain_hash: bytes
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


class Reports:
    """Read-only questions."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def unpublished_ships(self, gate: str) -> int:
        """How many enforced decisions of a gate that ship something are committed and not yet published."""
        with self._database.reading() as connection:
            return unpublished_ships(connection, gate)

    def outbox_pending(self) -> int:
        """Messages that wait to be published."""
        with self._database.reading() as connection:
            return outbox.waiting(connection)

    def may_rewrite(self) -> bool:
        """Whether this database user could change or delete what was recorded; a file has no users: False."""
        if self._database.sqlite:
            return False
        with self._database.reading() as connection:
            return roles.may_rewrite(connection)

    def pooling(self) -> Pooling | None:
        """How PostgreSQL is reached; None for a file."""
        if self._database.sqlite:
            return None
        with self._database.errors():
            return pooling(self._database.engine)

    def chain_heights(self) -> dict[Partition, int]:
        """Links in each partition's hash chain."""
        query = sa.select(
            progress.c.log_id, progress.c.topic, progress.c.partition, progress.c.chain_height
        ).order_by(progress.c.log_id, progress.c.topic, progress.c.partition)
        with self._database.reading() as connection:
            return {
                Partition(log, topic, number): height
                for log, topic, number, height in connection.execute(query)
            }

    def has_others_than(self, gate: str, *, batch_prefix: str) -> bool:
        """Whether a gate has batches or labels of batches whose id does not begin with `batch_prefix`."""
        others = [
            sa.exists().where(
                table.c.gate == gate, ~table.c.batch_id.startswith(batch_prefix, autoescape=True)
            )
            for table in (batches, label_revisions)
        ]
        with self._database.reading() as connection:
            return bool(connection.scalar(sa.select(sa.or_(*others))))

    def decided_and_shipped(self, gate: str) -> tuple[int, int]:
        """Batches decided by a gate, and those of them of which something shipped."""
        query = sa.select(
            sa.func.count(),
            sa.func.coalesce(
                sa.func.sum(sa.case((decisions.c.outcome.in_(("ship", "mixed")), 1), else_=0)), 0
            ),
        ).where(decisions.c.gate == gate)
        with self._database.reading() as connection:
            decided, shipped = connection.execute(query).one()
        return int(decided), int(shipped)

    def brought_embeddings(self, gate: str, *, newest: int = 1000) -> tuple[int, int]:
        """Of a gate's newest decisions, those on batches that brought embeddings, and how many of these it did not take."""
        latest = (
            sa.select(decisions.c.reason, decisions.c.embedding_source)
            .where(decisions.c.gate == gate)
            .order_by(decisions.c.batch.desc())
            .limit(newest)
            .subquery()
        )
        held = sa.case((latest.c.reason == "encoder_mismatch", 1), else_=0)
        query = sa.select(sa.func.count(), sa.func.coalesce(sa.func.sum(held), 0)).where(
            latest.c.embedding_source == "event"
        )
        with self._database.reading() as connection:
            brought, refused = connection.execute(query).one()
        return int(brought), int(refused)

    def decided_batches(self, gate: str) -> dict[str, DecidedScores]:
        """Scores and marks of every first attempt of a gate, by batch id."""
        query = (
            sa.select(batches.c.batch_id, responses.c.score, responses.c.action)
            .join_from(batches, responses, responses.c.batch == batches.c.id)
            .where(batches.c.gate == gate, batches.c.attempt == 1)
            .order_by(batches.c.id, responses.c.position)
        )
        with self._database.reading() as connection:
            found = connection.execute(query).mappings()
            return {
                batch_id: DecidedScores(
                    tuple(row["score"] for row in rows), tuple(row["action"] == "ship" for row in rows)
                )
                for batch_id, rows in (
                    (batch_id, list(rows)) for batch_id, rows in groupby(found, key=itemgetter("batch_id"))
                )
            }

    def recent(self, gate: str | None = None, *, limit: int = 20) -> list[DecisionSummary]:
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
        with self._database.reading() as connection:
            found = connection.execute(query).mappings().all()
        return [of_row(DecisionSummary, row, threshold=row["lambda"]) for row in found]

    def risk(self, gate: str | None = None) -> list[RiskEstimate]:
        """Exposure and selective risk over the labelled audit sample, by gate and policy version."""
        view: Any = sa.table("v_risk", *(sa.column(name) for name in RiskEstimate.__slots__))
        query = sa.select(view).order_by(view.c.gate, view.c.policy_version, view.c.severity_kind)
        if gate is not None:
            query = query.where(view.c.gate == gate)
        with self._database.reading() as connection:
            return [RiskEstimate(**row) for row in connection.execute(query).mappings()]

    def ledger(self, log_id: str | None = None) -> list[PartitionLedger]:
        """The outcomes of every partition's offsets (of one log, or of all), and the head of its chain."""
        query = sa.select(progress).order_by(progress.c.log_id, progress.c.topic, progress.c.partition)
        if log_id is not None:
            query = query.where(progress.c.log_id == log_id)
        with self._database.reading(snapshot=True) as connection:
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
        partition=partition,
        epoch=head["epoch"],
        next_offset=head["next_offset"],
        chain_height=head["chain_height"],
        chain_hash=head["chain_hash"],
        kinds={row.kind: row.n for row in kinds},
        ranges=tuple((first, last) for first, last in ranges),
        gaps=tuple((first, last) for first, last in gaps),
    )
