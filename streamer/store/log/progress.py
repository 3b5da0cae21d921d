"""Who may write a partition, and how far it has come."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import sqlalchemy as sa

from streamer.errors import Fenced, TopicRecreated
from streamer.journal import NO_IDS, DataGap, Lease, Partition
from streamer.signing.merkle import root_hex
from streamer.store.audit import control
from streamer.store.db.bulk_insert import Statement, execute_all
from streamer.store.db.engine import upsert
from streamer.store.db.schema import data_gaps, progress
from streamer.store.db.schema.joins import PARTITION

_KEY = tuple(progress.c[PARTITION])


class Position(NamedTuple):
    """A partition's progress row: lease, next offset, and the right edge of its Merkle log."""

    epoch: int
    next_offset: int
    log_size: int
    log_edge: bytes


def take_leases(
    connection: sa.Connection,
    partitions: Sequence[Partition],
    now: datetime,
    *,
    topic_ids: Mapping[str, str] = NO_IDS,
) -> dict[Partition, Lease]:
    """Raise each partition's epoch by one; writers under the old one are fenced from now on.

    The topic's id is kept from when it is first known, or from when the first outcome is still to come. Raises
    `TopicRecreated` where the stored one is another.
    """
    leases = {}
    for partition in sorted(set(partitions)):
        given = topic_ids.get(partition.topic)
        row = connection.execute(
            upsert(connection, progress)
            .values(
                **dict(zip(PARTITION, partition, strict=True)),
                epoch=1,
                next_offset=0,
                log_size=0,
                log_edge=b"",
                topic_id=given,
                updated_at=now,
            )
            .on_conflict_do_update(
                index_elements=_KEY,
                set_={
                    "epoch": progress.c.epoch + 1,
                    "topic_id": sa.case(
                        (
                            progress.c.next_offset == 0,
                            sa.func.coalesce(sa.literal(given), progress.c.topic_id),
                        ),
                        else_=sa.func.coalesce(progress.c.topic_id, sa.literal(given)),
                    ),
                    "updated_at": now,
                },
            )
            .returning(progress.c.epoch, progress.c.next_offset, progress.c.topic_id)
        ).one()
        if given is not None and row.topic_id != given:
            raise TopicRecreated(partition.topic)
        leases[partition] = Lease(partition, row.epoch, row.next_offset)
    return leases


def lock(connection: sa.Connection, partitions: Iterable[Partition]) -> dict[Partition, Position]:
    """Lock and read progress rows, in one order for everybody."""
    (rows,) = execute_all(connection, [locking(connection, partitions)])
    return positions(rows)


def locking(connection: sa.Connection, partitions: Iterable[Partition]) -> Statement:
    """What `lock` runs; `positions` reads its rows."""
    wanted = sorted(set(partitions))
    if connection.dialect.name == "sqlite":
        return Statement(_LOCK, {"partitions": wanted})
    return Statement(_LOCK_ARRAYS, dict(zip(PARTITION, map(list, zip(*wanted, strict=True)), strict=True)))


def positions(rows: Iterable[Sequence[Any]]) -> dict[Partition, Position]:
    """Progress rows by partition."""
    return {Partition(*row[:3]): Position(*row[3:]) for row in rows}


_FOUND = sa.select(*_KEY, *(progress.c[name] for name in Position._fields))
_LOCK = _FOUND.where(sa.tuple_(*_KEY).in_(sa.bindparam("partitions", expanding=True)))
# The order is Python's, in which leases are taken.
_LOCK_ARRAYS = (
    _FOUND.where(
        sa.tuple_(*_KEY).in_(
            sa.text(
                "SELECT * FROM unnest(CAST(:log_id AS text[]), CAST(:topic AS text[]), CAST(:partition AS integer[]))"
            )
        )
    )
    .order_by(*(sa.collate(one, "C") if one.type.python_type is str else one for one in _KEY))
    .with_for_update(of=progress)
)


class Step(NamedTuple):
    """A partition's progress from `expected` to `to`; `size` and `edge` are its log's then."""

    lease: Lease
    expected: int
    to: int
    size: int
    edge: bytes


_ADVANCE = (
    sa.update(progress)
    .where(
        *(one == sa.bindparam(f"of_{one.name}") for one in _KEY),
        progress.c.epoch == sa.bindparam("of_epoch"),
        progress.c.next_offset == sa.bindparam("expected"),
    )
    .values({name: sa.bindparam(name) for name in ("next_offset", "log_size", "log_edge", "updated_at")})
    .returning(progress.c.epoch)
)


def advancing(step: Step, now: datetime) -> Statement:
    """Compare and set: take a step if its lease is held. Without a row in return it could not be taken."""
    return Statement(
        _ADVANCE,
        {f"of_{name}": value for name, value in zip(PARTITION, step.lease.partition, strict=True)}
        | {
            "of_epoch": step.lease.epoch,
            "expected": step.expected,
            "next_offset": step.to,
            "log_size": step.size,
            "log_edge": step.edge,
            "updated_at": now,
        },
    )


def record_gap(connection: sa.Connection, lease: Lease, gap: DataGap, now: datetime) -> None:
    """Record that offsets are lost permanently, and move past them. Safe to repeat."""
    if gap.partition != lease.partition or not 0 <= gap.from_offset < gap.to_offset:
        raise ValueError(f"{gap} is no gap of {lease.partition}")
    position = lock(connection, [lease.partition]).get(lease.partition)
    if position is None or position.epoch != lease.epoch:
        raise fenced(lease, position)
    if position.next_offset == gap.to_offset:
        recorded = connection.execute(
            sa.select(data_gaps.c.to_offset).where(
                in_partition(lease.partition, data_gaps), data_gaps.c.from_offset == gap.from_offset
            )
        ).scalar()
        if recorded == gap.to_offset:
            return
    step = Step(lease, gap.from_offset, gap.to_offset, position.log_size, position.log_edge)
    if execute_all(connection, [advancing(step, now)]) == [[]]:
        raise fenced(lease, None)
    row = dict(zip(PARTITION, gap.partition, strict=True)) | {
        "from_offset": gap.from_offset,
        "to_offset": gap.to_offset,
        "epoch": lease.epoch,
        "recorded_at": now,
    }
    control.insert(connection, data_gaps, row, now=now)


def partition_heads(connection: sa.Connection) -> list[dict[str, Any]]:
    """Where each partition's log ends, in one order."""
    query = sa.select(progress).order_by(*_KEY)
    heads = [
        {
            "log_id": row["log_id"],
            "topic": row["topic"],
            "partition": row["partition"],
            "size": row["log_size"],
            "root": root_hex(row["log_size"], row["log_edge"]),
            "next_offset": row["next_offset"],
        }
        for row in connection.execute(query).mappings()
    ]
    return sorted(heads, key=lambda head: (head["log_id"], head["topic"], head["partition"]))


def fenced(lease: Lease, position: Position | None) -> Fenced:
    """The error for a lease that is no longer held, or progress that somebody else made."""
    stored = (
        "" if position is None else f"; stored: epoch {position.epoch}, next offset {position.next_offset}"
    )
    partition = lease.partition
    return Fenced(f"{partition.topic}[{partition.number}] is not ours under epoch {lease.epoch}{stored}")


def in_partition(partition: Partition, table: sa.Table = progress) -> sa.ColumnElement[bool]:
    return sa.and_(*(table.c[name] == one for name, one in zip(PARTITION, partition, strict=True)))
