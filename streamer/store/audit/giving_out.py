"""Giving decisions out: what nobody needs any more leaves the database for a file, and its leaves stay.

What stays: decisions that were drawn, for calibration and alarms read them; the first under each policy, where an alarm begins;
what was ever at the desk; and of every batch its key, so that it is decided once. docs/decisions/0016 says why.
"""

import hashlib
import json
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from streamer.audit.bundle import reading, write_bundle
from streamer.audit.story import fits
from streamer.errors import UsageError
from streamer.events.cloudevents import rfc3339
from streamer.journal import Partition
from streamer.signing.canonical_json import canonical_json
from streamer.signing.merkle import Edge, root_of
from streamer.store.audit import control
from streamer.store.audit.chained_rows import ChainedRows, ChainedRowsSnapshot
from streamer.store.audit.forgetting import CHUNK, erased
from streamer.store.audit.given_out import all_given_out
from streamer.store.audit.heads import all_cosigned, head_data, newest_signed
from streamer.store.db.engine import Database
from streamer.store.db.migrate import alone, require_migrated
from streamer.store.db.schema import (
    batches,
    decisions,
    desk_items,
    desk_outcomes,
    give_outs,
    judgements,
    monitor_gates,
    outcomes,
    pending_messages,
    responses,
)
from streamer.store.db.schema.joins import BATCH, same
from streamer.store.db.schema.log import QUEUED
from streamer.store.log.progress import in_partition, partition_heads

_Piece = tuple[tuple[str, str, int], int, int]
"""A log, its first leaf, and one past its last."""

_GIVEN = decisions.alias("given")


@dataclass(frozen=True, slots=True)
class GivenOut:
    """What was given out, or would be.

    Attributes
    ----------
    through : the month.
    decisions : how many.
    file, sha256, bytes : the segment that has them; the last two are None where nothing was written.
    """

    through: str
    decisions: int
    file: str
    sha256: str | None
    bytes: int | None


@dataclass(frozen=True, slots=True)
class _Plan:
    month: str
    pieces: tuple[_Piece, ...]
    heads: int
    decisions: int


def give_out(
    url: str,
    month: str,
    out: Path,
    *,
    now: datetime,
    by: str,
    reason: str,
    witnesses: Collection[str] = (),
    keys: Sequence[bytes] = (),
    dry_run: bool = False,
    insecure: bool = False,
    chunk: int = CHUNK,
    progress: Callable[[str], None] = lambda _done: None,
) -> GivenOut:
    """Move what was recorded up to the end of a month, and nobody needs, into a file; safe to stop and to repeat.

    The file is compared with the record before anything leaves. What left goes on record, sealed, in the transaction in which it
    leaves. Raises `UsageError` where something still needs what would leave, no checkpoint covers it, the record does not fit its
    leaves, or the database is not migrated or its user may not delete; `Unavailable` when the database is unavailable.

    Parameters
    ----------
    month
        Like 2026-05; it has ended. What earlier months have left goes too.
    out
        A new file that ends in .zip, or the one that an interrupted call wrote.
    witnesses
        Names of those who must have cosigned a checkpoint that covers it all.
    keys
        Public keys put into the file.
    dry_run
        Say what would leave, or what forbids it.
    progress
        Called with what is done: "written", "recorded", "emptied".
    """
    ended = _end_of(month)
    if ended > now:
        raise UsageError(f"{month} has not ended")
    if out.suffix != ".zip":
        raise UsageError(f"a segment is one file: {out} must end in .zip")
    database = Database(url, insecure=insecure)
    try:
        require_migrated(database)
        with database.reading(snapshot=True) as connection:
            before = all_given_out(connection)
            row = next((one for one in before.values() if one["through"] >= month), None)
            plan = None if row is not None else _plan(connection, month, ended, before, witnesses)
        if plan is not None and dry_run:
            return GivenOut(month, plan.decisions, str(out), None, None)
        if plan is not None:
            _write(database, plan, out, keys=keys, made_at=rfc3339(now))
            progress("written")
            row = _leave(database, plan, out, before, {"at": now, "by": by, "reason": reason})
            progress("recorded")
        if row is None or row["through"] != month:
            raise UsageError(f"{month} was given out with {row and row['through']}, in {row and row['file']}")
        if not dry_run:
            _empty(database, row, chunk)
            progress("emptied")
        left = sum(count for *_, count, _ in row["logs"])
        return GivenOut(month, left, row["file"], row["sha256"], row["bytes"])
    finally:
        database.close()


def _end_of(month: str) -> datetime:
    try:
        begins = datetime.strptime(month, "%Y-%m").replace(tzinfo=UTC)
    except ValueError:
        raise UsageError(f"a month is written like 2026-05, not {month!r}") from None
    return begins.replace(year=begins.year + begins.month // 12, month=begins.month % 12 + 1)


def _plan(
    connection: sa.Connection,
    month: str,
    ended: datetime,
    before: dict[tuple[int], dict[str, Any]],
    witnesses: Collection[str],
) -> _Plan:
    pieces = tuple(_pieces(connection, ended, before))
    heads = _covering(connection, month, pieces, witnesses)
    joined = sa.join(_GIVEN, outcomes, outcomes.c.batch == _GIVEN.c.batch)
    by_gate = (
        sa.select(_GIVEN.c.gate, sa.func.max(_GIVEN.c.batch).label("newest"), sa.func.count())
        .select_from(joined)
        .where(*_leaving(pieces))
        .group_by(_GIVEN.c.gate)
        .order_by(_GIVEN.c.gate)
    )
    found = connection.execute(by_gate).all()
    if not found:
        raise UsageError(f"nothing is left to be given out of what was recorded through {month}")
    watched = monitor_gates.c
    read = {
        gate: min(places)
        for gate, *places in connection.execute(
            sa.select(watched.gate, watched.read_batch, watched.seen_batch, watched.bet_batch)
        )
    }
    if unread := [gate for gate, newest, _ in found if newest > read.get(gate, 0)]:
        raise UsageError(
            f"monitoring has not read all that {', '.join(unread)} decided through {month}: let `streamer recalibrator` run"
            " until it has"
        )
    waiting = connection.scalar(
        sa.select(sa.func.count())
        .select_from(joined.join(pending_messages, pending_messages.c.batch == _GIVEN.c.batch))
        .where(QUEUED, *_leaving(pieces))
    )
    if waiting:
        raise UsageError(f"actions of {waiting} decisions through {month} wait for the broker")
    return _Plan(month, pieces, heads, sum(count for *_, count in found))


def _pieces(
    connection: sa.Connection, ended: datetime, before: dict[tuple[int], dict[str, Any]]
) -> Iterator[_Piece]:
    """What each log has recorded before a moment, behind what was given out before."""
    begun = {tuple(place): end for row in before.values() for *place, _, end, _, _ in row["logs"]}
    for head in partition_heads(connection):
        place = head["log_id"], head["topic"], head["partition"]
        later = (
            sa.select(outcomes.c.leaf_index)
            .where(in_partition(Partition(*place), outcomes), outcomes.c.leaf_index >= begun.get(place, 0))
            .where(outcomes.c.recorded_at >= ended)
            .order_by(outcomes.c.leaf_index)
            .limit(1)
        )
        end = connection.scalar(later)
        end = head["size"] if end is None else end
        if end > begun.get(place, 0):
            yield place, begun.get(place, 0), end


def _covering(
    connection: sa.Connection, month: str, pieces: Sequence[_Piece], witnesses: Collection[str]
) -> int:
    """How many heads the checkpoint has that covers all of it, once the logs are compared with its head."""
    cosigned = {one.witness: one.size for one in all_cosigned(connection)}
    size = min((cosigned.get(name, 0) for name in witnesses), default=newest_signed(connection).size)
    head = json.loads(head_data(connection, size - 1) or b'{"partitions": []}')
    covered = {(one["log_id"], one["topic"], one["partition"]): one for one in head["partitions"]}
    for place, _, end in pieces:
        one = covered.get(place, {"size": 0})
        if end > one["size"]:
            whom = "that every witness has cosigned " if witnesses else ""
            raise UsageError(
                f"no checkpoint {whom}covers all that was recorded through {month}: `streamer audit checkpoint` makes one"
            )
        if root_of(ChainedRowsSnapshot(connection).leaves(place, one["size"])).hex() != one["root"]:
            raise UsageError(
                f"{place[1]}[{place[2]}] is not the log under checkpoint {size}: see `streamer audit verify`"
            )
    return size


def _within(pieces: Sequence[_Piece]) -> sa.ColumnElement[bool]:
    """Whether an outcome is a decision among these leaves."""
    ranges = (
        in_partition(Partition(*place), outcomes) & outcomes.c.leaf_index.between(first, end - 1)
        for place, first, end in pieces
    )
    return (outcomes.c.kind == "decision") & sa.or_(*ranges)


def _leaving(pieces: Sequence[_Piece]) -> tuple[sa.ColumnElement[bool], ...]:
    """Which decisions (`_GIVEN`, joined with `outcomes`) leave: nothing that this looks at ever changes."""
    own, of_policy = batches.alias("own"), decisions.alias("of_policy")
    begins = (
        sa.select(sa.func.min(of_policy.c.batch))
        .join_from(of_policy, own, own.c.id == of_policy.c.batch)
        .where(own.c.attempt == 1)
        .group_by(of_policy.c.gate, of_policy.c.policy_version)
    )
    at_desk = sa.exists().where(own.c.id == _GIVEN.c.batch, same(own, desk_outcomes, *BATCH))
    return (
        _within(pieces),
        ~_GIVEN.c.sampled,
        _GIVEN.c.batch.not_in(begins),
        ~sa.exists().where(desk_items.c.batch == _GIVEN.c.batch),
        ~at_desk,
    )


def _write(database: Database, plan: _Plan, out: Path, *, keys: Sequence[bytes], made_at: str) -> None:
    """Write the segment unless it is there, and compare it with the record line by line."""
    with ChainedRows(database).snapshot() as rows:
        if not out.exists():
            segment = (plan.month, plan.pieces)
            write_bundle(rows, out, keys=keys, made_at=made_at, salts=False, segment=segment)
        with reading(out) as bundle:
            other = UsageError(f"{out} is not what the record has: remove it, and run this again")
            if bundle.manifest.get("segment") != plan.month or bundle.damaged():
                raise other
            written = bundle.lines("outcomes.jsonl")
            for line in chain.from_iterable(map(rows.within, plan.pieces)):
                if not fits(line):
                    raise UsageError(
                        f"{line['source'][1]}[{line['source'][2]}], leaf {line['index']} is not what was recorded: see"
                        " `streamer audit verify`"
                    )
                if next(written, None) != canonical_json(line):
                    raise other
            if next(written, None) is not None:
                raise other
    for place in (out, out.absolute().parent):  # before anything is deleted
        opened = os.open(place, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)


def _leave(
    database: Database,
    plan: _Plan,
    out: Path,
    before: dict[tuple[int], dict[str, Any]],
    said: dict[str, Any],
) -> dict[str, Any]:
    """Delete what leaves, and seal what did, in one transaction; returns the row."""
    with out.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    joined = sa.join(_GIVEN, outcomes, outcomes.c.batch == _GIVEN.c.batch)
    gone = sa.select(_GIVEN.c.batch).select_from(joined).where(*_leaving(plan.pieces))
    with alone(database) as connection:
        if all_given_out(connection) != before:
            raise UsageError("somebody else has given out decisions meanwhile: run this again")
        logs = []
        for place, first, end in plan.pieces:
            leaves = gone.with_only_columns(outcomes.c.leaf_hash).where(
                in_partition(Partition(*place), outcomes)
            )
            log = Edge()
            for leaf in connection.execute(leaves.order_by(outcomes.c.leaf_index)).scalars():
                log.append(leaf)
            logs.append([*place, first, end, log.size, log.root().hex()])
        own = sa.exists().where(batches.c.id.in_(gone), same(batches, judgements, *BATCH))
        connection.execute(sa.delete(judgements).where(judgements.c.for_score, own))
        if not database.sqlite:
            _swap(connection, gone)
        connection.execute(sa.delete(decisions).where(decisions.c.batch.in_(gone)))
        left = sa.select(outcomes.c.batch).where(_within(plan.pieces), ~_decided(outcomes.c.batch))
        connection.execute(sa.delete(responses).where(responses.c.batch.in_(left)))
        row = {
            "id": len(before) + 1,
            **said,
            "through": plan.month,
            "file": out.name,
            "sha256": sha256,
            "bytes": out.stat().st_size,
            "heads": plan.heads,
            "logs": json.dumps(logs, separators=(",", ":")),
        }
        control.insert(connection, give_outs, row, now=said["at"])
    return row | {"logs": logs}


def _decided(batch: sa.ColumnElement[int]) -> sa.ColumnElement[bool]:
    return sa.exists().where(decisions.c.batch == batch)


def _swap(connection: sa.Connection, gone: sa.Select[Any]) -> None:
    """Put partitions of what stays in place of those that have something that leaves, but for the newest: their disk is free at once."""
    name: sa.ColumnElement[str] = sa.literal_column("CAST(CAST(given.tableoid AS regclass) AS text)")
    newest = connection.scalar(sa.select(name).select_from(_GIVEN).order_by(_GIVEN.c.batch.desc()).limit(1))
    found = set(connection.scalars(gone.with_only_columns(name).distinct())) - {newest}
    for part in sorted(one.removeprefix(f"{decisions.name}_") for one in found):
        tables = [table.name for table in (decisions, responses)]
        connection.exec_driver_sql(f"LOCK TABLE {', '.join(f'{one}_{part}' for one in tables)} IN SHARE MODE")
        (was, old), (now, new) = (
            [
                sa.table(f"{one.name}_{suffix}", *map(sa.column, one.c.keys()))
                for one in (decisions, responses)
            ]
            for suffix in (part, f"{part}_new")
        )
        for one in tables:
            connection.exec_driver_sql(f"CREATE TABLE {one}_{part}_new (LIKE {one} INCLUDING ALL)")
        stays = ~sa.exists(gone.where(_GIVEN.c.batch == was.c.batch).correlate(was))
        connection.execute(sa.insert(now).from_select(was.c.keys(), sa.select(was).where(stays)))
        stays = sa.exists().where(now.c.batch == old.c.batch)
        connection.execute(sa.insert(new).from_select(old.c.keys(), sa.select(old).where(stays)))
        bound = connection.scalar(
            sa.text(
                "SELECT pg_get_expr(relpartbound, oid) FROM pg_class WHERE oid = CAST(:name AS regclass)"
            ),
            {"name": was.name},
        )
        for one in tables:
            connection.exec_driver_sql(f"ALTER TABLE {one} DETACH PARTITION {one}_{part}")
            connection.exec_driver_sql(f"DROP TABLE {one}_{part}")
            connection.exec_driver_sql(f"ALTER TABLE {one}_{part}_new RENAME TO {one}_{part}")
        for one in reversed(tables):  # decisions refer to responses
            connection.exec_driver_sql(f"ALTER TABLE {one} ATTACH PARTITION {one}_{part} {bound}")


def _empty(database: Database, row: dict[str, Any], chunk: int) -> None:
    """Take texts, content hash and salt from the batches whose decisions left; their keys stay."""
    pieces = [((log_id, topic, number), *ends) for log_id, topic, number, *ends, _, _ in row["logs"]]
    left = sa.select(outcomes.c.batch).where(_within(pieces), ~_decided(outcomes.c.batch))
    last: int | None = 0
    while last is not None:

        def work(connection: sa.Connection, after: int = last) -> int | None:
            some = left.where(outcomes.c.batch > after).order_by(outcomes.c.batch).limit(chunk)
            ids = list(connection.scalars(some))
            if ids:
                connection.execute(erased(batches, ids, row["at"]).where(batches.c.erased_at.is_(None)))
            return ids[-1] if ids else None

        last = database.writing(work)
