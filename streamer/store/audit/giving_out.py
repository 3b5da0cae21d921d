"""Giving decisions out: what nobody needs any more leaves the database for a file.

What stays, and why: docs/decisions/0017.
"""

import hashlib
import json
import os
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import chain
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from streamer.audit.bundle import reading, write_bundle
from streamer.audit.story import fits
from streamer.errors import Unavailable, UsageError
from streamer.events.cloudevents import rfc3339
from streamer.journal import Partition
from streamer.signing.canonical_json import canonical_json
from streamer.signing.merkle import Edge, leaf_hash, root_of
from streamer.store.audit import control
from streamer.store.audit.chained_rows import ChainedRows, ChainedRowsSnapshot, left_by
from streamer.store.audit.forgetting import CHUNK, erased, overwriting
from streamer.store.audit.given_out import all_given_out
from streamer.store.audit.heads import all_cosigned, head_data, newest_signed
from streamer.store.db.engine import Database
from streamer.store.db.migrate import again_after_collisions, alone, require_migrated
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
from streamer.store.log.leaves import instant
from streamer.store.log.progress import in_partition, partition_heads
from streamer_verify.values import given_out_of

_Piece = tuple[tuple[str, str, int], int, int]
"""A log, its first leaf, and one past its last."""

_GIVEN = decisions.alias("given")

_TRIES, _PAUSE = 20, 2.0
"""How often, and seconds between, tables in use are asked for."""

_LOCKS = (("batches", "SHARE ROW EXCLUSIVE"), ("responses, decisions", "ACCESS EXCLUSIVE"))
_IN_USE = ("55P03", "40P01")
"""SQLSTATEs: waited too long for a lock, and deadlock."""


@dataclass(frozen=True, slots=True)
class GivenOut:
    """What was given out, or would be.

    Attributes
    ----------
    through : the month.
    decisions : how many.
    file, sha256, bytes : the segment; the last two are None where nothing was written.
    """

    through: str
    decisions: int
    file: str
    sha256: str | None
    bytes: int | None


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
    """Move what was recorded by the end of a month, and nobody needs, into a file.

    The file is compared with the record before anything leaves, and what left is sealed in the
    transaction in which it leaves: safe to stop and to repeat. Raises `UsageError` where something
    needs what would leave, no checkpoint covers it, `out` is not what an earlier call wrote, the record does not fit its leaves, or the
    database is not migrated or its user may not delete; `Unavailable` when it is unavailable.

    Parameters
    ----------
    month
        Like 2026-05; it has ended. What is left of earlier months goes too.
    out
        A new file that ends in .zip, or the one that an earlier call wrote.
    witnesses
        Names of those who must have cosigned a checkpoint that covers it all.
    keys
        Public keys put into the file.
    dry_run
        Say what would leave.
    progress
        Called with what is done: "written", then "recorded".
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
            if row is None:
                pieces = tuple(_pieces(connection, ended, before))
                heads = _covering(connection, month, pieces, witnesses)
                count = _needless(connection, month, pieces)
        if row is None and dry_run:
            return GivenOut(month, count, str(out), None, None)
        if row is None:
            if before:  # its call may have been interrupted
                _empty(database, list(before.values())[-1], chunk)
            with ChainedRows(database).snapshot() as rows:
                if not out.exists():
                    at, segment = rfc3339(now), (month, pieces)
                    write_bundle(rows, out, keys=keys, made_at=at, salts=False, segment=segment)
                _compare(rows, month, pieces, out)
            progress("written")
            said = {"at": now, "by": by, "reason": reason, "through": month, "heads": heads}
            said["sha256"] = _sha256(out)
            row = again_after_collisions(lambda: _leave(database, pieces, out, before, said), database)
            progress("recorded")
        elif row["through"] != month:
            raise UsageError(f"{month} was given out with {row['through']}, in {row['file']}")
        elif not out.is_file() or _sha256(out) != row["sha256"]:
            other = "another file" if out.exists() else "not there"
            raise UsageError(
                f"{month} was given out earlier, into {row['file']}, SHA-256 {row['sha256']}: {out} is {other}"
            )
        if not dry_run:
            _empty(database, row, chunk)
        return GivenOut(month, left_by(row), row["file"], row["sha256"], row["bytes"])
    finally:
        database.close()


def _end_of(month: str) -> datetime:
    try:
        begins = datetime.strptime(month, "%Y-%m").replace(tzinfo=UTC)
        if f"{begins:%Y-%m}" == month:
            return (begins + timedelta(days=31)).replace(day=1)
    except (ValueError, OverflowError):
        pass
    raise UsageError(f"a month is written like 2026-05, not {month!r}")


def _pieces(
    connection: sa.Connection, ended: datetime, before: dict[tuple[int], dict[str, Any]]
) -> Iterator[_Piece]:
    """What each log has recorded before a moment, behind what was given out before."""
    logs = (given_out_of(row["logs"]) for row in before.values())
    begun = {place: end for some in logs for place, (_, end, *_) in some.items()}
    for head in partition_heads(connection):
        place = head["log_id"], head["topic"], head["partition"]
        first, index = begun.get(place, 0), outcomes.c.leaf_index
        later = sa.select(index).where(in_partition(Partition(*place), outcomes), index >= first)
        later = later.where(outcomes.c.recorded_at >= ended).order_by(index).limit(1)
        end = connection.scalar(later)
        end = head["size"] if end is None else end
        if end > first:
            yield place, first, end


def _covering(
    connection: sa.Connection, month: str, pieces: Sequence[_Piece], witnesses: Collection[str]
) -> int:
    """How many heads the checkpoint covers that covers all of it, and is of these very logs."""
    cosigned = {one.witness: one.size for one in all_cosigned(connection)}
    sizes = [cosigned.get(name, 0) for name in witnesses]
    size = min(sizes, default=newest_signed(connection).size)
    head = json.loads(head_data(connection, size - 1) or b'{"partitions": []}')
    heads = {(one["log_id"], one["topic"], one["partition"]): one for one in head["partitions"]}
    for place, _, end in pieces:
        if end > heads.get(place, {"size": 0})["size"]:
            whom = "that every witness has cosigned " if witnesses else ""
            raise UsageError(
                f"no checkpoint {whom}covers all that was recorded through {month}:"
                " `streamer audit checkpoint` makes one"
            )
        leaves = ChainedRowsSnapshot(connection).leaves(place, heads[place]["size"])
        if root_of(leaves).hex() != heads[place]["root"]:
            raise UsageError(f"{place[1]}[{place[2]}] is not the log under checkpoint {size}")
    return size


def _needless(connection: sa.Connection, month: str, pieces: Sequence[_Piece]) -> int:
    """How many decisions leave. Raises `UsageError` where there are none, or one is needed."""
    gone = _gone(pieces)
    columns = (_GIVEN.c.gate, sa.func.max(_GIVEN.c.batch), sa.func.count())
    by_gate = gone.with_only_columns(*columns).group_by(_GIVEN.c.gate).order_by(_GIVEN.c.gate)
    found = connection.execute(by_gate).all()
    if not found:
        raise UsageError(f"nothing that was recorded through {month} is left to be given out")
    places = monitor_gates.c["gate", "read_batch", "seen_batch", "bet_batch"]
    read = {gate: min(some) for gate, *some in connection.execute(sa.select(*places))}
    if unread := [gate for gate, newest, _ in found if newest > read.get(gate, 0)]:
        raise UsageError(
            f"monitoring has not read all that {', '.join(unread)} decided through {month}:"
            " let `streamer recalibrator` run until it has"
        )
    waits = sa.exists().where(pending_messages.c.batch == _GIVEN.c.batch, QUEUED)
    waiting = gone.with_only_columns(sa.func.count()).where(waits.correlate(_GIVEN))
    if count := connection.scalar(waiting):
        raise UsageError(f"actions of {count} decisions through {month} wait for the broker")
    return sum(count for *_, count in found)


def _within(pieces: Sequence[_Piece]) -> sa.ColumnElement[bool]:
    """Whether an outcome is a decision among these leaves."""
    ranges = (
        in_partition(Partition(*place), outcomes) & outcomes.c.leaf_index.between(first, end - 1)
        for place, first, end in pieces
    )
    return (outcomes.c.kind == "decision") & sa.or_(sa.false(), *ranges)


def _gone(pieces: Sequence[_Piece]) -> sa.Select[Any]:
    """Select the numbers of the decisions that leave: nothing that this looks at ever changes."""
    own, of_policy = batches.alias("own"), decisions.alias("of_policy")
    first = (
        sa.select(sa.func.min(of_policy.c.batch))
        .join_from(of_policy, own, own.c.id == of_policy.c.batch)
        .where(own.c.attempt == 1)
        .group_by(of_policy.c.gate, of_policy.c.policy_version)
    )
    at_desk = sa.exists().where(own.c.id == _GIVEN.c.batch, same(own, desk_outcomes, *BATCH))
    return (
        sa.select(_GIVEN.c.batch)
        .join_from(_GIVEN, outcomes, outcomes.c.batch == _GIVEN.c.batch)
        .where(
            _within(pieces),
            ~_GIVEN.c.sampled,
            _GIVEN.c.batch.not_in(first),
            ~sa.exists().where(desk_items.c.batch == _GIVEN.c.batch),
            ~at_desk,
        )
    )


def _compare(rows: ChainedRowsSnapshot, month: str, pieces: Sequence[_Piece], out: Path) -> None:
    """Compare the segment with the record line by line, and see to it that it is on the disk."""
    with reading(out) as bundle:
        written: Iterator[bytes] = iter(())
        if bundle.manifest.get("segment") == month and not bundle.damaged():
            written = bundle.lines("outcomes.jsonl")
        for line in chain.from_iterable(map(rows.within, pieces)):
            if not fits(line):
                raise UsageError(
                    f"{line['source'][1]}[{line['source'][2]}], leaf {line['index']} is not what"
                    " was recorded: see `streamer audit verify`"
                )
            if next(written, None) != canonical_json(line):
                raise UsageError(f"{out} is not what the record has: remove it, and run this again")
    for place in (out, out.absolute().parent):
        opened = os.open(place, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)


def _leave(
    database: Database,
    pieces: Sequence[_Piece],
    out: Path,
    before: dict[tuple[int], dict[str, Any]],
    said: dict[str, Any],
) -> dict[str, Any]:
    """Delete what leaves, and seal what did, in one transaction; returns the row."""
    gone, logs = _gone(pieces), []
    with alone(database) as connection:
        if all_given_out(connection) != before:
            raise UsageError("somebody else has given out decisions meanwhile: run this again")
        for place, first, end in pieces:
            stays = gone.with_only_columns(*outcomes.c["leaf_hash", "recorded_at"], *batches.c[BATCH])
            stays = stays.join(batches, batches.c.id == _GIVEN.c.batch)
            stays = stays.where(in_partition(Partition(*place), outcomes))
            log = Edge()
            for leaf, at, *key in connection.execute(stays.order_by(outcomes.c.leaf_index)):
                log.append(leaf_hash(canonical_json([leaf.hex(), instant(at), key])))
            logs.append([*place, first, end, log.size, log.root().hex()])
        overwriting(connection)
        own = sa.exists().where(batches.c.id.in_(gone), same(batches, judgements, *BATCH))
        connection.execute(sa.delete(judgements).where(judgements.c.for_score, own))
        parts = [] if database.sqlite else _copied(connection, gone)
        _needless(connection, said["through"], pieces)  # a repeat may have come meanwhile
        _hold(connection, bool(parts), out)
        for part, bound in parts:
            _exchange(connection, part, bound)
        connection.execute(sa.delete(decisions).where(decisions.c.batch.in_(gone)))
        left = sa.select(outcomes.c.batch).where(_undecided(pieces))
        connection.execute(sa.delete(responses).where(responses.c.batch.in_(left)))
        row = said | {
            "id": len(before) + 1,
            "file": out.name,
            "bytes": out.stat().st_size,
            "logs": json.dumps(logs, separators=(",", ":")),
        }
        control.insert(connection, give_outs, row, now=said["at"])
    return row


def _sha256(out: Path) -> str:
    with out.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _undecided(pieces: Sequence[_Piece]) -> sa.ColumnElement[bool]:
    """Whether an outcome is of a decision that has left."""
    return _within(pieces) & ~sa.exists().where(decisions.c.batch == outcomes.c.batch)


def _copied(connection: sa.Connection, gone: sa.Select[Any]) -> list[tuple[str, str]]:
    """Copy what stays of each partition but the newest; returns their names and bounds."""
    of_row = "CAST(CAST(given.tableoid AS regclass) AS text)"
    name: sa.ColumnElement[str] = sa.literal_column(of_row)
    newest = sa.select(name).select_from(_GIVEN).order_by(_GIVEN.c.batch.desc()).limit(1)
    found = set(connection.scalars(gone.with_only_columns(name).distinct()))
    copied = []
    for whole in sorted(found - {connection.scalar(newest)}):
        part = whole.removeprefix(f"{decisions.name}_")
        (was, old), (now, new) = (
            [sa.table(f"{one.name}_{end}", *map(sa.column, one.c.keys())) for one in _MONTHLY]
            for end in (part, f"{part}_new")
        )
        connection.exec_driver_sql(f"LOCK TABLE {was.name}, {old.name} IN SHARE MODE")
        for one, before, table in zip(_MONTHLY, (was, old), (now, new), strict=True):
            connection.execute(_STAY_ON_DISK, {"part": before.name})
            connection.exec_driver_sql(f"CREATE TABLE {table.name} (LIKE {one.name} INCLUDING ALL)")
        stays = ~sa.exists(gone.where(_GIVEN.c.batch == was.c.batch).correlate(was))
        kept = sa.exists().where(now.c.batch == old.c.batch)
        for into, of, which in ((now, was, stays), (new, old, kept)):
            rows = sa.select(of).where(which)
            connection.execute(sa.insert(into).from_select(of.c.keys(), rows))
        bound = sa.text(
            "SELECT pg_get_expr(relpartbound, oid) FROM pg_class WHERE oid = CAST(:part AS regclass)"
        )
        copied.append((part, connection.scalar(bound, {"part": whole})))
    return copied


_MONTHLY = (decisions, responses)
_STAY_ON_DISK = sa.text(
    "SELECT set_config('default_tablespace', coalesce((SELECT spcname FROM pg_tablespace AS space"
    " JOIN pg_class ON reltablespace = space.oid WHERE pg_class.oid = CAST(:part AS regclass)), ''), true)"
)


def _hold(connection: sa.Connection, tables: bool, out: Path) -> None:
    """Hold the control log's head, then `tables`, which those read who hold it.

    Others wait a second at most: whoever reads them is waited for without holding anything.
    """
    for _ in range(_TRIES):
        try:
            with connection.begin_nested():
                if tables:
                    connection.exec_driver_sql("SET LOCAL lock_timeout = '1s'")
                control.hold_head(connection)
                if tables:  # in the order in which a commit writes them
                    for names, mode in _LOCKS:
                        connection.exec_driver_sql(f"LOCK TABLE {names} IN {mode} MODE")
            return
        except sa.exc.DBAPIError as error:
            if getattr(error.orig, "sqlstate", None) not in _IN_USE:
                raise
        time.sleep(_PAUSE)
    raise Unavailable(
        "decisions are read all the time, as by `streamer audit verify`: nothing has left."
        f" Run this again when that has ended; it goes on with {out}"
    )


def _exchange(connection: sa.Connection, part: str, bound: str) -> None:
    """Put the copies of a partition in its place: its disk is free at once."""
    for one in _MONTHLY:
        whole = f"{one.name}_{part}"
        connection.exec_driver_sql(f"ALTER TABLE {one.name} DETACH PARTITION {whole}")
        connection.exec_driver_sql(f"DROP TABLE {whole}")
        connection.exec_driver_sql(f"ALTER TABLE {whole}_new RENAME TO {whole}")
    for one in reversed(_MONTHLY):  # decisions refer to responses
        attached = f"ALTER TABLE {one.name} ATTACH PARTITION {one.name}_{part} {bound}"
        connection.exec_driver_sql(attached)


def _empty(database: Database, row: dict[str, Any], chunk: int) -> None:
    """Take texts, content hash and salt from the batches that left; their keys stay."""
    logs = given_out_of(row["logs"]).items()
    pieces = [(place, first, end) for place, (first, end, *_) in logs]
    left = sa.select(outcomes.c.batch).where(_undecided(pieces)).order_by(outcomes.c.batch)
    last: int | None = 0
    while last is not None:

        def work(connection: sa.Connection, after: int = last) -> int | None:
            overwriting(connection)
            ids = list(connection.scalars(left.where(outcomes.c.batch > after).limit(chunk)))
            emptied = erased(batches, ids, row["at"]).where(batches.c.erased_at.is_(None))
            connection.execute(emptied)
            return ids[-1] if ids else None

        last = database.writing(work)
