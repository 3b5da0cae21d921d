"""The control log: a Merkle log of the rows that govern decisions, in the order in which they were written.

A partition's log covers what came in by the log. Gates, their revisions, policies and their story, calibration
runs, encoders, data gaps, audit rates, candidate policies, API keys and their revocations, accounts, rejected proposals, labels that came by a
file and their signatures, what a judge was asked and said for labels, alerts and their acknowledgements, what allowed texts to be erased, refused messages that were sent again,
what became of batches at the desk, what an adopted candidate made of earlier batches, and restored backups are written by commands and the recalibrator; each such row is sealed here, in the
transaction that writes it. What is sealed is the whole row as the database returns it, so that a new column enters by
itself.

Who seals holds the log's head to the end of its transaction. A closing must not wait for that (`chain_later`): its rows
come first, their seals wait in `control_queue`, and whoever holds the head next puts them into the log before its own.
"""

import hashlib
import json
from collections.abc import Collection, Sequence
from contextlib import nullcontext, suppress
from datetime import datetime
from operator import itemgetter
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.engine import default

from streamer.errors import Unavailable
from streamer.events.topics import HTTP_LOG
from streamer.signing import merkle
from streamer.signing.canonical_json import canonical_json, moment_text, salt_commitment
from streamer.signing.merkle import Edge
from streamer.store.db import bulk_insert
from streamer.store.db.engine import Database
from streamer.store.db.schema import (
    accounts,
    batches,
    calibration_candidates,
    calibration_inputs,
    calibration_runs,
    carried_scores,
    carried_signals,
    control_head,
    control_log,
    control_queue,
    gates,
    metadata,
)
from streamer.store.db.schema.joins import BATCH
from streamer.store.db.schema.types import Row, kept_of

SEALED_TABLES = tuple(table for table in metadata.sorted_tables if kept_of(table).sealed)
"""Whose rows the control log holds. Of the labels and their signatures those that did not come by the log, of judgements those
that gave no score."""

TOPIC_SOURCE = "topic"
LOGGED_SOURCES = (TOPIC_SOURCE, HTTP_LOG)
"""The sources of labels that a partition's log holds."""

RUN_PARTS = {"inputs": calibration_inputs, "candidates": calibration_candidates}
"""What a calibration run's seal covers beside its own row."""

_QUEUED = ("kind", "subject", "sealed", "recorded_at")
_NO_DIALECT = default.DefaultDialect()


class ControlHead(NamedTuple):
    """Which record this is, and its control log: how many leaves it has, and its right edge."""

    record_id: bytes
    size: int
    edge: bytes

    def as_said(self) -> dict[str, Any]:
        """Size and root as checkpoints and manifests have them."""
        return {"size": self.size, "root": merkle.root_hex(self.size, self.edge)}


def leaf(record_id: bytes, *, index: int, kind: str, recorded_at: datetime, row: Row) -> bytes:
    """Hash one sealed row as a leaf; it names the record, so that two databases never share one."""
    entry = {"record": record_id.hex(), "index": index, "kind": kind, "row": row}
    return merkle.leaf_hash(canonical_json(entry | {"recorded_at": moment_text(recorded_at)}))


def head(connection: sa.Connection, *, lock: bool = False) -> ControlHead:
    """Read the log's head; with `lock` nobody else appends until the transaction ends."""
    query = sa.select(control_head.c.record_id, control_head.c.log_size, control_head.c.log_edge)
    return ControlHead(*connection.execute(query.with_for_update() if lock else query).one())


def chain_later(connection: sa.Connection) -> None:
    """Have what this transaction seals wait for the control log, and the transaction wait for nobody who holds its head.

    `chain_closings` brings it into the log as soon as the head is free. For closings alone: decisions name a policy, and
    verifiers accept of no other that it was sealed after a decision by it. SQLite's one writer holds everything anyway.
    """
    if connection.dialect.name != "sqlite":
        connection.execution_options(chain_later=True)


def hold_head(connection: sa.Connection) -> None:
    """Take the log's head, unless this transaction does without: always before a gate's lock, for which closings wait."""
    if not connection.get_execution_options().get("chain_later", False):
        head(connection, lock=True)


def chain_closings(database: Database, *, wait: bool = False) -> None:
    """Put what waits for the log there, unless somebody holds its head, who will; with `wait` raises `Unavailable` then."""

    def work(connection: sa.Connection) -> None:
        free = sa.select(control_head.c.id).with_for_update(skip_locked=not wait)
        if connection.execute(free).first() is not None:
            _append(connection, [], None)

    with nullcontext() if wait else suppress(Unavailable):
        with database.reading() as connection:
            waits = is_waiting(connection)
        if waits:
            database.writing(work)


def is_waiting(connection: sa.Connection) -> bool:
    """Whether anything waits for the log."""
    return connection.execute(sa.select(control_queue.c.id).limit(1)).first() is not None


def waits_for_chain(table: sa.Table) -> sa.ColumnElement[bool]:
    """Whether a row waits for the log, by its `id`."""
    subject = sa.literal("[") + sa.cast(table.c.id, sa.Text) + "]"
    return sa.exists().where(control_queue.c.kind == table.name, control_queue.c.subject == subject)


def append(
    connection: sa.Connection, table: sa.Table, keys: Sequence[Sequence[Any]], *, now: datetime
) -> None:
    """Seal rows of one of `SEALED_TABLES` that this transaction has just written, by their primary keys, in the order of `keys`."""
    append_sealed(connection, table, sealed_rows(connection, table, keys) if keys else [], now=now)


def insert(connection: sa.Connection, table: sa.Table, row: Row, *, now: datetime) -> tuple[Any, ...]:
    """Write a row and seal it; returns its primary key."""
    written = connection.execute(sa.insert(table).values(row).returning(*table.primary_key.columns))
    key = tuple(written.one())
    append(connection, table, [key], now=now)
    return key


def append_sealed(
    connection: sa.Connection, table: sa.Table, rows: Sequence[dict[str, Any]], *, now: datetime
) -> None:
    """Put rows into the log that `sealed_rows` has read, for who takes no lock before that is done."""
    if rows:
        _append(connection, [(table, row) for row in rows], now)


def sealed_rows(
    connection: sa.Connection, table: sa.Table, keys: Sequence[Sequence[Any]], *, parts: bool = True
) -> list[dict[str, Any]]:
    """Read rows as they are sealed, in the order of `keys`; a row that is not there is left out.

    `parts`: with the digests of what calibration runs kept.
    """
    key = list(table.primary_key.columns)
    found = {
        tuple(row[column.name] for column in key): row
        for row in bulk_insert.look_up(connection, sa.select(table), key, [tuple(one) for one in keys])
    }
    # Numbers of ours mean nothing to others, and could be given to other batches.
    carried = table in (carried_scores, carried_signals)
    names = _batch_names(connection, {row["batch"] for row in found.values()}) if carried else {}
    rows = []
    for row in filter(None, (found.get(tuple(one)) for one in keys)):
        sealed = seal(table, row)
        if carried:
            sealed["of"] = names[row["batch"]]
        if parts and table is calibration_runs:
            for part in RUN_PARTS:
                sealed[part] = digest_of(part_columns(part), run_part(connection, part, row["id"]))
        rows.append(sealed)
    return rows


def _batch_names(connection: sa.Connection, numbers: Collection[int]) -> dict[int, Any]:
    """Name batches by gate, id and attempt; None for one that is gone."""
    query, keys = sa.select(*batches.c["id", *BATCH]), [(one,) for one in sorted(numbers)]
    found = bulk_insert.look_up_rows(connection, query, [batches.c.id], keys)
    return dict.fromkeys(numbers) | {number: name for number, *name in found}


def keys_to_seal(table: sa.Table) -> sa.Select[Any]:
    """Select the primary keys of the rows that this log holds, in their order."""
    key = list(table.primary_key.columns)
    query = sa.select(*key).order_by(*key)
    some = kept_of(table).sealed
    return query.where(sa.text(some)) if isinstance(some, str) else query


def subject_of(table: sa.Table, row: Row) -> str:
    """Name a row by its primary key; `row` as sealed or as read."""
    return canonical_json([_plain(column, row[column.name]) for column in table.primary_key.columns]).decode()


def part_columns(part: str) -> list[str]:
    """Name what a run keeps of each of its inputs or candidates."""
    table = RUN_PARTS[part]
    own = [column.name for column in table.c if column.name not in ("run", "batch")]
    return ["batch_id", "attempt", *own] if table is calibration_inputs else own


def run_part(connection: sa.Connection, part: str, run: int) -> list[list[Any]]:
    """Read a run's inputs or candidates: one list of values each, in the order of `part_columns` and sorted by key.

    Inputs name their batch by its own id and attempt, not by a number of ours.
    """
    table = RUN_PARTS[part]
    names = part_columns(part)
    source: sa.FromClause = table
    order: list[sa.Column[Any]] = [table.c.method] if table is calibration_candidates else []
    named: dict[str, sa.Column[Any]] = dict(table.c.items())
    if table is calibration_inputs:
        source = table.join(batches, batches.c.id == table.c.batch)
        named |= {"batch_id": batches.c.batch_id, "attempt": batches.c.attempt}
        order = [batches.c.batch_id, batches.c.attempt, table.c.response_id]
    chosen = [named[name] for name in names]
    rows = connection.execute(sa.select(*order, *chosen).select_from(source).where(table.c.run == run)).all()
    # Sorted here: databases differ in how they collate texts.
    rows = sorted(rows, key=itemgetter(*range(len(order))))
    values = list(zip(*rows, strict=True))[len(order) :]
    return list(map(list, zip(*map(_plain_column, chosen, values), strict=True)))


def digest_of(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """What the log keeps of a run's inputs or candidates: the columns, and a SHA-256 of the values."""
    return {
        "columns": list(columns),
        "rows": len(rows),
        "sha256": hashlib.sha256(canonical_json([list(row) for row in rows])).hexdigest(),
    }


def seal(table: sa.Table, row: Row) -> dict[str, Any]:
    """Turn a row into what is sealed of it: plain JSON values, secrets as commitments."""
    plain = {
        name: _plain(table.c.get(name), value)
        for name, value in row.items()
        if name not in kept_of(table).erased  # another column is a seal of it, but for keys
    }
    if table is gates:
        # Secret until it is revealed: anyone who knows it can predict which batches will be drawn.
        plain["audit_salt"] = salt_commitment(row["name"], row["audit_salt"])
    if table is accounts and row["password"] is not None:
        # Without its salt it cannot be guessed at, and bundles are given away.
        plain["password"] = hashlib.sha256(row["password"].encode()).hexdigest()
    # In the form in which it is read back: a tuple becomes a list.
    read: dict[str, Any] = json.loads(canonical_json(plain))
    return read


def _append(
    connection: sa.Connection, entries: Sequence[tuple[sa.Table, dict[str, Any]]], now: datetime | None
) -> None:
    added = [
        dict(
            zip(_QUEUED, (table.name, subject_of(table, one), canonical_json(one).decode(), now), strict=True)
        )
        for table, one in entries
    ]
    if connection.get_execution_options().get("chain_later", False):
        bulk_insert.append(connection, control_queue, added)
        return
    record_id, size, edge = head(connection, lock=True)
    # Read after the head is ours: what our rows are built on is in the log, or is here.
    gone = connection.execute(sa.delete(control_queue).returning(control_queue)).mappings()
    waited = [{name: one[name] for name in _QUEUED} for one in sorted(gone, key=itemgetter("id"))]
    found = [*(json.loads(one["sealed"]) for one in waited), *(sealed for _, sealed in entries)]
    log = Edge(size, edge)
    for entry, sealed in zip(waited + added, found, strict=True):
        index, of = log.size, {name: entry[name] for name in ("kind", "recorded_at")}
        log.append(hashed := leaf(record_id, index=index, row=sealed, **of))
        entry |= {"leaf_index": index, "leaf_hash": hashed, "root": log.root()}
    bulk_insert.append(connection, control_log, waited + added)
    connection.execute(sa.update(control_head).values(log_size=log.size, log_edge=log.to_bytes()))


def _plain_column(column: sa.ColumnElement[Any], values: Sequence[Any]) -> Sequence[Any]:
    if isinstance(column.type, sa.types.TypeDecorator) or not _PLAIN.issuperset(map(type, values)):
        return [_plain(column, value) for value in values]
    return values


_PLAIN = {bool, float, int, str, type(None)}


def _plain(column: sa.ColumnElement[Any] | None, value: Any) -> Any:
    if isinstance(value, datetime):
        return moment_text(value)
    if isinstance(value, bytes):
        return value.hex()
    if column is not None and isinstance(column.type, sa.types.TypeDecorator):
        # A value of ours, kept as text: the text is what is sealed.
        return column.type.process_bind_param(value, _NO_DIALECT)
    return value
