"""The group commit: the outcomes of some records, all in one transaction, exactly once.

The progress rows are locked first, in one order for everybody; they show whether the lease is still held and
whether this very commit was made before (its answer was lost). Then keys are resolved, everything is written, each outcome
as a leaf of its partition's log, and progress is moved by compare-and-set. Last, the fence: what was decided must still be what the newest
policies say.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from streamer.errors import DatabaseFault
from streamer.events.receipts import receipt, with_receipt
from streamer.gates.batch_key import BatchKey
from streamer.journal import BatchDecision, Linked, OutboxMessage, OutcomeKind, Partition, Slice
from streamer.signing.merkle import Edge
from streamer.store.db.bulk_insert import Statement, drawing, execute_all, insert, insert_columns, look_up
from streamer.store.db.schema import (
    batches,
    candidate_decisions,
    control_head,
    decisions,
    desk_items,
    judgements,
    outcomes,
    pending_messages,
    responses,
)
from streamer.store.db.schema.joins import BATCH, PARTITION, key_of
from streamer.store.db.schema.types import Row, joined, row_of
from streamer.store.log import leaves
from streamer.store.log.outbox import pending_row
from streamer.store.log.progress import Position, Step, advancing, fenced, in_partition, locking, positions
from streamer.store.log.resolve_outcomes import DeadLetterMessage, Entry, entry_of, settle
from streamer.store.log.rows import check_decision, check_slice
from streamer.store.policies.fence import asking, check_current, keep_out_newer

_CONTROL = sa.select(control_head.c.log_size, control_head.c.log_edge)


def check_slices(slices: Sequence[Slice]) -> None:
    """Refuse slices that break their contract (a bug of the caller): raises `ValueError`."""
    if len({piece.lease.partition for piece in slices}) != len(slices):
        raise ValueError("one commit has two slices of one partition")
    for piece in slices:
        check_slice(piece)
        for outcome in piece.outcomes:
            if isinstance(outcome, BatchDecision):
                check_decision(outcome)


def commit_slices(
    connection: sa.Connection,
    slices: Sequence[Slice],
    *,
    now: datetime,
    firm: bool,
    clock: Callable[[], datetime],
    dead_letter_message: DeadLetterMessage,
    publish: bool = True,
    linked: Linked | None = None,
    queue: list[OutboxMessage] | None = None,
) -> list[list[OutcomeKind]]:
    """Write the slices and return what each outcome became; see `streamer.journal.Journal.commit`.

    `now` is when they are recorded; `clock` gives the present moment, for deadlines. `publish`: put
    their messages into the queue. `linked` is called with each leaf. `queue` gets the messages as
    `outbox.queued` would read them, and nothing unless it is all of them: the receipt of an earlier
    decision, say, only the database knows.

    Raises `Fenced` when one of the leases is no longer held, or its progress is neither where the
    slice begins nor where it ends; `Outdated` when a new decision must not be made any more
    (`streamer.store.policies.fence`). Nothing is written then.
    """
    held, batch_ids, message_ids, control = _lock_and_draw(connection, slices, publish=publish)
    kinds: list[list[OutcomeKind]] = []
    due: list[tuple[int, list[Entry]]] = []
    for index, piece in enumerate(slices):
        position = held.get(piece.lease.partition)
        if position is None or position.epoch != piece.lease.epoch:
            raise fenced(piece.lease, position)
        if position.next_offset == piece.next_offset:
            # Under our own epoch nobody else can have come here: the answer to this commit was lost.
            kinds.append(_recorded_kinds(connection, piece))
        elif position.next_offset == piece.expected_offset:
            kinds.append([])
            due.append((index, [entry_of(outcome) for outcome in piece.outcomes]))
        else:
            raise fenced(piece.lease, position)
    entries = [entry for _, part in due for entry in part]
    if firm:
        made = [entry.outcome for entry in entries if isinstance(entry.outcome, BatchDecision)]
        keep_out_newer(connection, made, clock)
    settle(connection, entries, batch_ids=batch_ids, now=now, dead_letter_message=dead_letter_message)
    ledger: list[Row] = []
    steps: list[Step] = []
    for index, part in due:
        piece = slices[index]
        position = held[piece.lease.partition]
        log = Edge(position.log_size, position.log_edge)
        ledger += [_appended(entry, log, control, now, linked) for entry in part]
        steps.append(Step(piece.lease, piece.expected_offset, piece.next_offset, log.size, log.to_bytes()))
        kinds[index] = [entry.kind for entry in part]
    announced = [entry for entry in entries if publish and entry.message is not None]
    _write(connection, entries, ledger, steps, [*zip(message_ids, announced, strict=False)], now, clock)
    if queue is not None and len(due) == len(slices):
        known = [_queued(number, entry) for number, entry in zip(message_ids, announced, strict=False)]
        queue.extend(filter(None, known) if all(known) else ())
    return kinds


def _appended(
    entry: Entry, log: Edge, control: tuple[int, bytes], now: datetime, linked: Linked | None
) -> Row:
    """Append the leaf of an outcome to its partition's log; returns its row."""
    record = entry.record
    row: dict[str, Any] = {
        **dict(zip(PARTITION, record.partition, strict=True)),
        "offset": record.offset,
        "kind": entry.kind,
        "batch": entry.batch["id"] if entry.batch else None,
        "dead_letter": entry.letter["id"] if entry.letter else None,
        "label": entry.label["id"] if entry.label else None,
        "label_signature": entry.signature["id"] if entry.signature else None,
        "recorded_at": now,
        "leaf_index": log.size,
        "control_size": control[0],
    }
    said = leaves.facts(
        entry.kind,
        batch=entry.batch,
        decision=entry.decision,
        responses=entry.responses,
        judgements=entry.judgements,
        letter=entry.letter,
        label=entry.label,
        signature=entry.signature,
        control=control,
    )
    leaf = row["leaf_hash"] = leaves.leaf(row, said)
    log.append(leaf)
    row["root"] = log.root()
    entry.place = (row["leaf_index"], leaf, row["root"])
    if linked is not None:
        linked(entry.record, *entry.place)
    return row


def _write(
    connection: sa.Connection,
    entries: Sequence[Entry],
    ledger: Sequence[Row],
    steps: Sequence[Step],
    announced: Sequence[tuple[int, Entry]],
    now: datetime,
    clock: Callable[[], datetime],
) -> None:
    """Insert what the entries bring, move progress, and pass the fence. Raises `Fenced` and `Outdated`."""
    decided = [
        (entry.decision, entry.outcome)
        for entry in entries
        if entry.decision is not None and isinstance(entry.outcome, BatchDecision)
    ]
    answers = [entry.responses for entry in entries if entry.responses is not None]
    written: list[tuple[sa.Table, Sequence[Row]]] = [
        (decisions, [row for row, _ in decided]),
        (desk_items, [one for pair in decided if (one := _at_desk(*pair)) is not None]),
        (judgements, [row for entry in entries for row in entry.judgements]),
        (candidate_decisions, [one for pair in decided if (one := _beside(*pair)) is not None]),
        (outcomes, ledger),
        (
            pending_messages,
            [
                pending_row(number, entry.message, entry.record.partition, _whose_action(entry))
                for number, entry in announced
                if entry.message is not None
            ],
        ),
    ]
    inserts = [
        *insert_columns(connection, responses, joined(answers)),
        *(one for table, rows in written if rows for one in insert(connection, table, rows)),
    ]
    made = [decision for _, decision in decided]
    asked = asking(connection, made)
    results = execute_all(connection, [*inserts, *(advancing(step, now) for step in steps), *asked])
    for step, moved in zip(steps, results[len(inserts) :], strict=False):
        if not moved:
            raise fenced(step.lease, None)
    check_current(results[-1] if asked else (), made, clock)


def _lock_and_draw(
    connection: sa.Connection, slices: Sequence[Slice], *, publish: bool
) -> tuple[dict[Partition, Position], list[int], list[int], tuple[int, bytes]]:
    """Lock the partitions and then draw ids, for at least as many batches and, with `publish`, messages as the slices have.

    Last come size and root of the control log. They are read once the partitions are ours, so that they never fall back
    along a partition's log; and before the fence, which lets nothing be written that was decided by an older policy than the newest one
    in there. Raises `DatabaseFault` where there is none.
    """
    outcomes_ = [outcome for piece in slices for outcome in piece.outcomes]
    found, heads, *drawn = execute_all(
        connection,
        [
            locking(connection, [piece.lease.partition for piece in slices]),
            Statement(_CONTROL, {}),
            drawing(connection, batches, sum(isinstance(one, BatchDecision) for one in outcomes_)),
            drawing(connection, pending_messages, len(outcomes_) if publish else 0),
        ],
    )
    if not heads:
        raise DatabaseFault("the head of the control log is gone; `streamer audit verify` shows more")
    ((size, edge),) = heads
    ids = [sorted(number for (number,) in one) for one in drawn]
    return positions(found), ids[0], ids[1], (int(size), Edge(size, edge).root())


def known_content(connection: sa.Connection, keys: Sequence[BatchKey]) -> dict[BatchKey, bytes]:
    """Content hashes of those keys that are decided; empty bytes where the content was erased."""
    columns = list(batches.c[BATCH])
    found = look_up(connection, sa.select(*columns, batches.c.content_hash), columns, sorted(set(keys)))
    return {key_of(row): row["content_hash"] or b"" for row in found}


def _recorded_kinds(connection: sa.Connection, piece: Slice) -> list[OutcomeKind]:
    kinds = list(
        connection.execute(
            sa.select(outcomes.c.kind)
            .where(
                in_partition(piece.lease.partition, outcomes),
                outcomes.c.offset >= piece.expected_offset,
                outcomes.c.offset < piece.next_offset,
            )
            .order_by(outcomes.c.offset)
        ).scalars()
    )
    if len(kinds) != len(piece.outcomes):
        raise fenced(piece.lease, None)
    return kinds


def _queued(number: int, entry: Entry) -> OutboxMessage | None:
    """The message of an entry as it stands in the queue; None where more is needed than the entry knows."""
    message = entry.message
    if message is None or entry.place is None or entry.kind == "duplicate":
        return None
    headers = message.headers
    if entry.kind == "decision":
        headers = with_receipt(headers, receipt(entry.record.partition, *entry.place))
    return OutboxMessage(message.topic, message.key, message.value, headers, id=number, queued=True)


def _whose_action(entry: Entry) -> int | None:
    """The batch whose stored action is the entry's message; None for a message of its own."""
    return entry.batch["id"] if entry.batch and entry.kind in ("decision", "duplicate") else None


def _at_desk(row: Row, decision: BatchDecision) -> Row | None:
    """What waits for a person; None for all that does not."""
    settings, answers = decision.policy.settings, len(decision.responses)
    until = settings.at_desk_until(decision.outcome, answers, decision.decided_at)
    return None if until is None else {"batch": row["batch"], "gate": row["gate"], "until": until}


def _beside(row: Row, decision: BatchDecision) -> Row | None:
    """What a candidate policy made of a batch; None where there is no candidate."""
    made = decision.candidate
    if made is None:
        return None
    return row_of(
        candidate_decisions,
        made,
        batch=row["batch"],
        scores=None if made.scores is None else list(made.scores),
        shipped=None if made.shipped is None else list(made.shipped),
        budget_count=None if made.needed is None else float(made.needed.count),
        budget_groups=None if made.needed is None else made.needed.groups,
    )
