"""What the record says, in numbers: for the command line, the metrics, and people who check."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

import sqlalchemy as sa

from streamer.journal import Partition
from streamer.scoring.unread_answers import RULES, Rule
from streamer.store.db import bulk_insert, roles
from streamer.store.db.schema import (
    batches,
    decisions,
    desk_items,
    label_revisions,
    pending_messages,
    progress,
    responses,
    views,
)
from streamer.store.db.schema.joins import BATCH, same
from streamer.store.db.schema.log import QUEUED
from streamer.store.db.schema.types import REAL, UtcDateTime
from streamer.store.db.transport import Pooling, pooling
from streamer.store.log import outbox
from streamer.store.part import Part

_SHIPS = (decisions.c.mode == "enforce", decisions.c.outcome.in_(("ship", "mixed")))


class Waiting(NamedTuple):
    """What still waits of one gate.

    `queue`: records of the topic of responses, of whichever gate, that no worker has recorded;
    None: the broker was not asked. `outbox`: ships that are committed and not published yet.
    `desk`: batches that wait for a person. `repeats`: ships on record, which whoever repeats the
    same batch or key gets once more.
    """

    queue: int | None
    outbox: int
    desk: int
    repeats: int


def still_waiting(
    connection: sa.Connection, gate: str, log: Mapping[Partition, tuple[int, int]] | None
) -> Waiting:
    """Count what waits of a gate. `log`: first and end offset of each partition of the responses; None: not known."""
    own = decisions.c
    desk, repeats = connection.execute(
        sa.select(
            sa.select(sa.func.count()).where(desk_items.c.gate == gate).scalar_subquery(),
            sa.select(sa.func.count()).where(own.gate == gate, *_SHIPS).scalar_subquery(),
        )
    ).one()
    queue = None
    if log is not None:
        read = {
            Partition(*row[:3]): row.next_offset
            for row in connection.execute(
                sa.select(*progress.c["log_id", "topic", "partition", "next_offset"])
            )
        }
        queue = sum(max(0, end - max(first, read.get(one, 0))) for one, (first, end) in log.items())
    return Waiting(queue, unpublished_ships(connection, gate), desk, repeats)


def unpublished_ships(connection: sa.Connection, gate: str) -> int:
    """Count the gate's enforced decisions that ship something and wait to be published, for the first time or again.

    What was parked does not wait: it is never published.
    """
    ships = sa.select(decisions.c.batch).where(decisions.c.gate == gate, *_SHIPS)
    queued = connection.scalars(
        sa.select(pending_messages.c.batch).where(pending_messages.c.batch.is_not(None), QUEUED).distinct()
    )
    keys = sorted((batch,) for batch in queued)
    return sum(1 for _ in bulk_insert.look_up(connection, ships, [decisions.c.batch], keys))


@dataclass(frozen=True, slots=True)
class DecidedScores:
    """Scores and marks of a batch's responses, in event order; all scores None when it was not scored."""

    scores: tuple[float | None, ...]
    shipped: tuple[bool, ...]


_DECISIONS = sa.table(
    "v_decisions", *(sa.column(name, one.type) for name, one in views.DECISIONS.selected_columns.items())
)
_MILLIONTHS = 1e6 * _DECISIONS.c.responses
_MEAN = sa.func.round(_DECISIONS.c.mean_score * _MILLIONTHS, type_=REAL) / _MILLIONTHS
"""The view's, whose last digit differs between databases, as scores have six digits."""
_LABELS = [one for one in label_revisions.c if one.name != "id"]
_LABELLED = label_revisions.outerjoin(batches, same(batches, label_revisions, *BATCH)).outerjoin(
    decisions, decisions.c.batch == batches.c.id
)
_TABLES: dict[str, tuple[sa.FromClause, Sequence[Any], Sequence[Any]]] = {
    "decisions": (
        _DECISIONS,
        [_MEAN.label(one.name) if one.name == "mean_score" else one for one in _DECISIONS.c],
        [_DECISIONS.c[name] for name in ("decided_at", "topic", "partition", "offset")],
    ),
    "labels": (
        _LABELLED,
        [*_LABELS, decisions.c.unit],
        [label_revisions.c.received_at, label_revisions.c.id],
    ),
}
"""What is exported: where from, columns, the gate first; and what orders the rows, their moment first."""


def columns_of(what: str) -> dict[str, type]:
    """The columns of `decisions` or `labels`, with the types of their values."""
    kinds = {one.name: one.type for one in _TABLES[what][1]}
    return {
        name: datetime if isinstance(kind, UtcDateTime) else kind.python_type for name, kind in kinds.items()
    }


class Reports(Part):
    """Read-only questions."""

    @contextmanager
    def table(
        self, what: str, *, gate: str | None = None, since: datetime | None = None
    ) -> Iterator[tuple[dict[str, type], Iterator[Sequence[sa.Row[Any]]]]]:
        """Read `decisions` or `labels`, the oldest first: columns with the types of their
        values, and rows by the thousand. `since` is the first moment of a decision, or at which
        a label came."""
        table, columns, (moment, *then) = _TABLES[what]
        query = sa.select(*columns).select_from(table).order_by(moment, *then)
        if gate is not None:
            query = query.where(columns[0] == gate)
        if since is not None:
            query = query.where(moment >= since)
        query = query.execution_options(yield_per=1000)
        with self._database.reading() as connection, connection.execute(query) as found:
            yield columns_of(what), found.partitions()

    def unpublished_ships(self, gate: str) -> int:
        """How many enforced decisions of a gate that ship something are committed and not yet published."""
        return self._database.read(unpublished_ships, gate)

    def still_waiting(self, gate: str, log: Mapping[Partition, tuple[int, int]] | None = None) -> Waiting:
        """What still waits of a gate. `log`: first and end offset of each partition of the responses; None: not known."""
        return self._database.read(still_waiting, gate, log)

    def outbox_pending(self) -> int:
        """Messages that wait to be published."""
        return self._database.read(outbox.waiting)

    def may_rewrite(self) -> bool:
        """Whether this database user could change or delete what was recorded; a file has no users: False."""
        if self._database.sqlite:
            return False
        return self._database.read(roles.may_rewrite)

    def pooling(self) -> Pooling | None:
        """How PostgreSQL is reached; None for a file."""
        if self._database.sqlite:
            return None
        with self._database.errors():
            return pooling(self._database.engine)

    def log_sizes(self) -> dict[Partition, int]:
        """Leaves of each partition's log."""
        query = sa.select(
            progress.c.log_id, progress.c.topic, progress.c.partition, progress.c.log_size
        ).order_by(progress.c.log_id, progress.c.topic, progress.c.partition)
        return {
            Partition(log, topic, number): size for log, topic, number, size in self._database.rows(query)
        }

    def has_others_than(self, gate: str, *, batch_prefix: str) -> bool:
        """Whether a gate has batches or labels of batches whose id does not begin with `batch_prefix`."""
        others = [
            sa.exists().where(
                table.c.gate == gate, ~table.c.batch_id.startswith(batch_prefix, autoescape=True)
            )
            for table in (batches, label_revisions)
        ]
        ((found,),) = self._database.rows(sa.select(sa.or_(*others)))
        return bool(found)

    def decided_and_shipped(self, gate: str) -> tuple[int, int]:
        """Batches decided by a gate, and those of them of which something shipped."""
        shipped = decisions.c.outcome.in_(("ship", "mixed"))
        query = sa.select(sa.func.count(), sa.func.count().filter(shipped)).where(decisions.c.gate == gate)
        ((decided, some),) = self._database.rows(query)
        return decided, some

    def brought_embeddings(self, gate: str, *, newest: int = 1000) -> tuple[int, int]:
        """Of a gate's newest decisions, those on batches that brought embeddings, and how many of these it did not take."""
        latest = _latest(gate, newest).c
        held = sa.func.count().filter(latest.reason == "encoder_mismatch")
        query = sa.select(sa.func.count(), held).where(latest.embedding_source == "event")
        ((brought, refused),) = self._database.rows(query)
        return brought, refused

    def not_read(self, gate: str, *, newest: int = 1000) -> tuple[int, dict[Rule, int]]:
        """How many newest decisions of a gate are looked at, and by each rule, those with an answer that the encoder did not read."""
        latest = _latest(gate, newest)
        query = (
            sa.select(responses.c.not_read, sa.func.count(latest.c.batch.distinct()))
            .join_from(latest, responses, responses.c.batch == latest.c.batch)
            .where(responses.c.not_read.is_not(None))
            .group_by(responses.c.not_read)
        )
        with self._database.reading() as connection:
            looked = connection.scalar(sa.select(sa.func.count()).select_from(latest))
            found = dict(map(tuple, connection.execute(query)))
        return int(looked or 0), {rule: found[rule] for rule in RULES if rule in found}

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


def _latest(gate: str, most: int) -> sa.Subquery:
    """Select the newest decisions of a gate."""
    query = sa.select(*decisions.c["batch", "reason", "embedding_source"]).where(decisions.c.gate == gate)
    return query.order_by(decisions.c.batch.desc()).limit(most).subquery()
