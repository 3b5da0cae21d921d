"""Resolving outcomes: the first of a batch key is its decision, and the next ones repeat it."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import itemgetter
from typing import Any, NamedTuple

import sqlalchemy as sa

from streamer.events.codes import CONFLICTING_CONTENT, MEANINGS, UNKNOWN_GATE
from streamer.events.responses import REQUEST_HEADER, sampled_for
from streamer.events.topics import HTTP_LOG
from streamer.gates.batch_key import BatchKey
from streamer.journal import (
    BatchDecision,
    DeadLetter,
    LabelRevision,
    OutboxMessage,
    Outcome,
    OutcomeKind,
    Record,
    RecordedBatch,
    Redelivery,
)
from streamer.store.audit import control
from streamer.store.db import bulk_insert
from streamer.store.db.schema import (
    batches,
    dead_letters,
    decisions,
    gate_revisions,
    gates,
    label_revisions,
    label_signatures,
    responses,
)
from streamer.store.db.schema.joins import BATCH, DECIDED, RESPONSE, is_batch, key_of, newest
from streamer.store.db.schema.types import Columns, Row
from streamer.store.log import rows
from streamer.store.log.outbox import receipts_of

DeadLetterMessage = Callable[[Record, str, str], OutboxMessage]

_WITHHELD = "withheld: a gate keeps no texts; the message is in Kafka, at its topic, partition and offset"
_LABEL_KEY = (*RESPONSE, "kind", "labeller")
_LABEL_REPEAT = (*_LABEL_KEY, "labelled_at", "severity")
_SIGNATURE_REPEAT = ("label", "key_id", "signature")


@dataclass(slots=True, eq=False)
class Entry:
    """One outcome on its way into the tables, with the rows that it brings or refers to, and its place on record: index and hash of its leaf, and the root after it."""

    outcome: Outcome
    record: Record
    kind: OutcomeKind
    batch: Row | None = None
    decision: Row | None = None
    responses: Columns | None = None
    judgements: Sequence[Row] = ()
    letter: dict[str, Any] | None = None
    label: Row | None = None
    signature: Row | None = None
    message: OutboxMessage | None = None
    place: tuple[int, bytes, bytes] | None = None


def entry_of(outcome: Outcome) -> Entry:
    """An outcome before the tables were asked: a decision may yet turn out to be a duplicate."""
    record = outcome.record
    if record is None:
        raise ValueError("an outcome of the log needs its record")
    if isinstance(outcome, BatchDecision | Redelivery):
        return Entry(outcome, record, "decision")
    if isinstance(outcome, LabelRevision):
        return Entry(outcome, record, "label")
    return Entry(outcome, record, "dead_letter", message=outcome.message)


def settle(
    connection: sa.Connection,
    entries: Sequence[Entry],
    *,
    batch_ids: Sequence[int],
    now: datetime,
    dead_letter_message: DeadLetterMessage,
) -> None:
    """Find every entry's kind and rows, and insert the batches, labels and dead letters that are new.

    `batch_ids` are drawn for the batches, at least one for each decision.
    """
    decided: list[tuple[Entry, BatchDecision | Redelivery]] = []
    labelled: list[tuple[Entry, LabelRevision]] = []
    refused: list[tuple[Entry, str, str]] = []
    for entry in entries:
        outcome = entry.outcome
        if isinstance(outcome, DeadLetter):
            refused.append((entry, outcome.code, outcome.detail))
        elif isinstance(outcome, LabelRevision):
            labelled.append((entry, outcome))
        else:
            decided.append((entry, outcome))
    found = _settle_batches(connection, decided, batch_ids, now) if decided else []
    if labelled:
        found += _settle_labels(connection, labelled, now)
    for entry, code, detail in found:
        entry.message = dead_letter_message(entry.record, code, detail)
    refused += found
    if not refused:
        return
    if withhold := _some_gate_keeps_no_texts(connection):
        # Whose text a refused message holds is unknown: it stays in Kafka, where its place is known.
        refused = [(entry, code, _WITHHELD) for entry, code, _ in refused]
        for entry, code, detail in refused:
            entry.message = dead_letter_message(rows.withheld(entry.record), code, detail)
    letters = [
        {"id": identity}
        | rows.dead_letter_row(rows.withheld(entry.record) if withhold else entry.record, code, detail, now)
        for (entry, code, detail), identity in zip(
            refused, bulk_insert.allocate_ids(connection, dead_letters, len(refused)), strict=True
        )
    ]
    bulk_insert.append(connection, dead_letters, letters)
    for (entry, _, _), letter in zip(refused, letters, strict=True):
        entry.letter = letter


def _settle_batches(
    connection: sa.Connection,
    entries: Sequence[tuple[Entry, BatchDecision | Redelivery]],
    ids: Sequence[int],
    now: datetime,
) -> list[tuple[Entry, str, str]]:
    """Insert batches whose key is new; the others repeat one. Returns the conflicts, to be dead-lettered."""
    first: dict[BatchKey, tuple[Entry, BatchDecision]] = {}
    for entry, outcome in entries:
        if isinstance(outcome, BatchDecision):
            first.setdefault(outcome.key, (entry, outcome))
    answers = [
        rows.response_columns(decision, batch)
        for (_, decision), batch in zip(first.values(), ids, strict=False)
    ]
    new = [
        {"id": batch} | rows.batch_row(decision, columns["text"])
        for (_, decision), batch, columns in zip(first.values(), ids, answers, strict=False)
    ]
    inserted = bulk_insert.insert_new(connection, batches, new, unique=BATCH)
    standing: dict[BatchKey, tuple[Row, OutboxMessage | None]] = {}
    for (entry, decision), batch, columns in zip(first.values(), new, answers, strict=True):
        if batch["id"] in inserted:
            entry.batch, entry.message = batch, decision.action
            entry.decision = rows.decision_row(decision, batch["id"])
            entry.responses = columns
            entry.judgements = rows.judgement_rows(decision, now)
            standing[decision.key] = (batch, decision.action)
    conflicts: list[tuple[Entry, str, str]] = []
    if not (repeats := [(entry, outcome) for entry, outcome in entries if entry.decision is None]):
        return conflicts
    standing |= stored_decisions(connection, {outcome.key for _, outcome in repeats} - standing.keys())
    for entry, outcome in repeats:
        entry.batch, action = standing[outcome.key]
        # An erased batch has no hash to compare with; the decision stands, so the repeat is answered with it.
        same = entry.batch["content_hash"] in (None, outcome.content_hash)
        if same or _asks_the_same(entry.record, entry.batch):
            entry.kind, entry.message = "duplicate", action
        else:
            entry.kind = "conflict"
            conflicts.append((entry, CONFLICTING_CONTENT, MEANINGS[CONFLICTING_CONTENT]))
    return conflicts


def _asks_the_same(record: Record, batch: Row) -> bool:
    """Whether a chat request is the one that a batch was sampled for: two instances may sample for it, and differ."""
    asked = dict(record.headers).get(REQUEST_HEADER)
    if asked is None or record.partition.log_id != HTTP_LOG:  # publishers may send any header
        return False
    return asked.decode() == sampled_for(batch["metadata"])


def stored_decisions(
    connection: sa.Connection, keys: Iterable[BatchKey]
) -> dict[BatchKey, tuple[Row, OutboxMessage | None]]:
    """Those of the keys that are decided: the batch, and its action; None: it was given out."""
    found = bulk_insert.look_up(
        connection,
        sa.select(
            *batches.c["id", *BATCH, "content_hash", "metadata"],
            *(decisions.c[f"action_{name}"] for name in ("topic", "key", "value", "headers")),
        ).join_from(batches, decisions, decisions.c.batch == batches.c.id, isouter=True),
        list(batches.c[BATCH]),
        sorted(keys),
    )
    return {
        key_of(row): (
            row,
            None
            if row["action_topic"] is None
            else OutboxMessage(
                row["action_topic"], row["action_key"], row["action_value"], row["action_headers"]
            ),
        )
        for row in found
    }


def recorded_batch(connection: sa.Connection, key: BatchKey) -> RecordedBatch | None:
    """The action of a decided batch, its metadata and its responses' texts; None where it is not decided."""
    found = connection.execute(
        sa.select(batches.c.id, batches.c.metadata, decisions.c.action_value)
        .select_from(DECIDED)
        .where(is_batch(key))
    ).one_or_none()
    if found is None or found.action_value is None:
        return None
    texts = connection.execute(
        sa.select(responses.c.response_id, responses.c.text)
        .where(responses.c.batch == found.id)
        .order_by(responses.c.position)
    )
    return RecordedBatch(
        found.action_value,
        found.metadata,
        {row.response_id: row.text for row in texts},
        receipts_of(connection, [found.id]).get(found.id),
    )


def _some_gate_keeps_no_texts(connection: sa.Connection) -> bool:
    present = sa.tuple_(*gate_revisions.c["gate", "revision"]).in_(newest(gate_revisions.c.revision))
    some = sa.exists().where(present, ~gate_revisions.c.keep_texts)
    return bool(connection.scalar(sa.select(some)))


def _settle_labels(
    connection: sa.Connection, entries: Sequence[tuple[Entry, LabelRevision]], now: datetime
) -> list[tuple[Entry, str, str]]:
    """Insert severities that are new. Returns those of no known gate, to be dead-lettered."""
    known = known_gates(connection, {label.key.gate for _, label in entries})
    due = [(entry, label) for entry, label in entries if label.key.gate in known]
    stored = add_labels(connection, [label for _, label in due], source=control.TOPIC_SOURCE, now=now)
    for (entry, _), one in zip(due, stored, strict=True):
        entry.label, entry.signature = one.label, one.signature
    orphans = []
    for entry, label in entries:
        if entry.label is None:
            entry.kind = "dead_letter"
            orphans.append(
                (
                    entry,
                    UNKNOWN_GATE,
                    f"there is no gate {label.key.gate!r}; create it with `streamer gate create`",
                )
            )
    return orphans


def known_gates(connection: sa.Connection, names: Iterable[str]) -> set[str]:
    """Those of the names that are gates."""
    found = bulk_insert.look_up(
        connection, sa.select(gates.c.name), [gates.c.name], [(name,) for name in sorted(names)]
    )
    return {row["name"] for row in found}


class StoredLabel(NamedTuple):
    """The row that stands for a label, and that of its signature if it came with one; which of them are new."""

    label: Row
    is_new: bool
    signature: Row | None
    is_newly_signed: bool


def add_labels(
    connection: sa.Connection, labels: Sequence[LabelRevision], *, source: str, now: datetime
) -> list[StoredLabel]:
    """Insert labels and signatures that are new. Returns, for each label, the rows that stand for it.

    An identical one (same response, kind, labeller, moment and severity) is stored once, with every signature that came
    with a copy of it: an unsigned copy that came first keeps no signature out.
    """
    standing = _add_new(
        connection,
        label_revisions,
        [rows.label_row(label, source=source, now=now) for label in labels],
        unique=_LABEL_REPEAT,
        found_by=_LABEL_KEY,
    )
    signed = [index for index, label in enumerate(labels) if label.signature is not None]
    signatures = _add_new(
        connection,
        label_signatures,
        [
            rows.signature_row(labels[index], standing[index][0]["id"], source=source, now=now)
            for index in signed
        ],
        unique=_SIGNATURE_REPEAT,
        found_by=("label",),
    )
    of = dict(zip(signed, signatures, strict=True))
    return [StoredLabel(*one, *of.get(index, (None, False))) for index, one in enumerate(standing)]


def _add_new(
    connection: sa.Connection,
    table: sa.Table,
    new: Sequence[dict[str, Any]],
    *,
    unique: Sequence[str],
    found_by: Sequence[str],
) -> list[tuple[Row, bool]]:
    """Insert rows (without ids). Returns, for each, the row that stands for it and whether it is new.

    `found_by` are those of the unique columns by which rows that were there already are looked up.
    """
    if not new:
        return []
    repeat_of, found_of = itemgetter(*unique), itemgetter(*found_by)
    first: dict[Any, dict[str, Any]] = {}
    for row in new:
        first.setdefault(repeat_of(row), row)
    ids = bulk_insert.allocate_ids(connection, table, len(first))
    candidates = [{"id": identity, **row} for row, identity in zip(first.values(), ids, strict=True)]
    inserted = bulk_insert.insert_new(connection, table, candidates, unique=unique)
    standing: dict[Any, Row] = dict(zip(first, candidates, strict=True))
    if lost := [row for row in candidates if row["id"] not in inserted]:
        for row in lost:
            del standing[repeat_of(row)]
        keys = sorted({found_of(row) for row in lost})
        columns = [table.c[name] for name in found_by]
        for found in bulk_insert.look_up(
            connection, sa.select(table), columns, [one if len(columns) > 1 else (one,) for one in keys]
        ):
            standing.setdefault(repeat_of(found), found)
    result = []
    for row in new:
        stands = standing[repeat_of(row)]
        result.append((stands, stands["id"] in inserted))
        inserted.discard(stands["id"])
    return result
