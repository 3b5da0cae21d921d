"""Deriving the Merkle logs again from the tables, and naming the first row that does not fit."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any

import sqlalchemy as sa

from streamer.journal import Partition
from streamer.scoring.scorers.judge import Judge
from streamer.signing.merkle import EMPTY_ROOT, Edge
from streamer.store.db import bulk_insert
from streamer.store.db.schema import (
    batches,
    control_log,
    dead_letters,
    decisions,
    judgements,
    label_revisions,
    label_signatures,
    outcomes,
    progress,
    responses,
)
from streamer.store.db.schema.joins import BATCH, key_of
from streamer.store.db.schema.types import Row
from streamer.store.log import leaves
from streamer.store.log.progress import in_partition

_PAGE = 1_000


@dataclass(frozen=True, slots=True)
class ChainFault:
    """The first row of a partition's record that does not fit.

    Attributes
    ----------
    partition : whose log it is.
    index : of the leaf that does not fit; the log's size when it ends wrongly.
    offset : of the input whose outcome that is; None when there is no such row.
    detail : what does not fit, in words.
    """

    partition: Partition
    index: int
    offset: int | None
    detail: str

    def __str__(self) -> str:
        place = "" if self.offset is None else f", offset {self.offset}"
        return f"{self.partition.topic}[{self.partition.number}], leaf {self.index}{place}: {self.detail}"


def verify_chain(connection: sa.Connection, partition: Partition | None = None) -> list[ChainFault]:
    """Recompute the log of one partition (or of all); returns the first fault of each that has one.

    Seals of texts are recomputed too, wherever texts were not erased. The connection should see one moment
    throughout.
    """
    query = sa.select(progress).order_by(progress.c.log_id, progress.c.topic, progress.c.partition)
    if partition is not None:
        query = query.where(in_partition(partition))
    faults = []
    for head in connection.execute(query).mappings().all():
        fault = _verify(connection, Partition(head["log_id"], head["topic"], head["partition"]), head)
        if fault is not None:
            faults.append(fault)
    if partition is None and not faults:
        faults += _outside_every_chain(connection)
    return faults


def _verify(connection: sa.Connection, partition: Partition, head: Row) -> ChainFault | None:
    log, last = Edge(), -1
    for page in pages(connection, partition):
        about = OutcomeRows(connection, page)
        for row in page:
            index, offset = log.size, row["offset"]
            if row["leaf_index"] != index:
                return ChainFault(partition, index, None, f"it is missing (the next is {row['leaf_index']})")
            if offset <= last:
                return ChainFault(partition, index, offset, f"its offset does not come after {last}")
            try:
                facts = about.facts(row)
            except LookupError as error:
                return ChainFault(partition, index, offset, str(error.args[0]))
            if leaves.leaf(row, facts) != row["leaf_hash"]:
                return ChainFault(partition, index, offset, f"the {row['kind']} is not what was recorded")
            broken = about.broken_seal(row)
            if broken is not None:
                return ChainFault(partition, index, offset, broken)
            log.append(row["leaf_hash"])
            last = offset
    if (log.size, log.to_bytes()) != (head["log_size"], head["log_edge"]):
        return ChainFault(
            partition, head["log_size"], None, f"the log has {log.size} leaves instead, or others"
        )
    if last >= head["next_offset"]:
        return ChainFault(partition, log.size, last, f"progress stands at {head['next_offset']}, before it")
    return None


def _outside_every_chain(connection: sa.Connection) -> list[ChainFault]:
    """Decisions that no offset led to: somebody wrote them past the journal."""
    led = sa.exists().where(outcomes.c.batch == decisions.c.batch, outcomes.c.kind == "decision")
    stray = connection.execute(
        sa.select(batches.c.gate, batches.c.batch_id, batches.c.attempt)
        .join_from(decisions, batches, batches.c.id == decisions.c.batch)
        .where(~led)
        .order_by(batches.c.id)
        .limit(1)
    ).one_or_none()
    if stray is None:
        return []
    key = f"{stray.gate}/{stray.batch_id}#{stray.attempt}"
    return [ChainFault(Partition("", "", 0), 0, None, f"the decision of {key} belongs to no offset")]


def pages(connection: sa.Connection, partition: Partition, *, after: int = 0) -> Iterator[Sequence[Row]]:
    """Read a partition's outcomes in the order of its log, from a leaf on."""
    place = (outcomes.c.leaf_index, outcomes.c.offset)
    query = sa.select(outcomes).where(in_partition(partition, outcomes)).order_by(*place).limit(_PAGE)
    page = connection.execute(query.where(place[0] >= after) if after else query).mappings().all()
    while page:
        yield page
        reached = (page[-1]["leaf_index"], page[-1]["offset"])
        page = connection.execute(query.where(sa.tuple_(*place) > reached)).mappings().all()


class OutcomeRows:
    """The rows that one page of outcomes is about.

    Attributes
    ----------
    batches, decisions, letters, labels, signatures : by the numbers by which outcomes name them.
    responses : of each decided batch, in event order.
    judged : what a judge was asked for each decided batch's scores, in the leaf's order.
    controls : the roots of the control log that outcomes name, by its size.
    """

    def __init__(self, connection: sa.Connection, page: Sequence[Row]) -> None:
        decided = {row["batch"] for row in page if row["kind"] == "decision"}
        self.batches = _by(connection, batches.c.id, {row["batch"] for row in page})
        self.decisions = _by(connection, decisions.c.batch, decided, without=("cloud",))
        self.letters = _by(connection, dead_letters.c.id, {row["dead_letter"] for row in page})
        self.labels = _by(connection, label_revisions.c.id, {row["label"] for row in page})
        self.signatures = _by(connection, label_signatures.c.id, {row["label_signature"] for row in page})
        last = _by(connection, control_log.c.leaf_index, {row["control_size"] - 1 for row in page})
        self.controls = {0: EMPTY_ROOT} | {index + 1: row["root"] for index, row in last.items()}
        found = sorted(
            bulk_insert.look_up(
                connection, sa.select(responses), [responses.c.batch], [(batch,) for batch in decided]
            ),
            key=itemgetter("batch", "position"),
        )
        self.responses = {batch: list(rows) for batch, rows in groupby(found, key=itemgetter("batch"))}
        self.judged = self._judged(connection)

    def _judged(self, connection: sa.Connection) -> dict[int | None, list[Row]]:
        names = {
            key_of(self.batches[number]): number
            for number, decision in self.decisions.items()
            if decision["scorer"] == Judge.name and number in self.batches
        }
        query = sa.select(judgements).where(judgements.c.for_score)
        found = defaultdict(list)
        for row in bulk_insert.look_up(connection, query, list(judgements.c[BATCH]), sorted(names)):
            found[names[key_of(row)]].append(row)
        return {batch: leaves.in_order(rows) for batch, rows in found.items()}

    def facts(self, row: Row) -> dict[str, Any]:
        """What the leaf covers of one outcome. Raises `LookupError` when a row that it refers to is gone."""
        return leaves.facts(
            row["kind"],
            batch=self.batches.get(row["batch"]),
            decision=self.decisions.get(row["batch"]),
            responses=self.responses.get(row["batch"], []),
            judgements=self.judged.get(row["batch"], []),
            letter=self.letters.get(row["dead_letter"]),
            label=self.labels.get(row["label"]),
            signature=self._signature(row["label_signature"]),
            control=self._control(row["control_size"]),
        )

    def _control(self, size: int) -> tuple[int, bytes]:
        if size not in self.controls:
            raise LookupError(f"control leaf {size - 1}, which was the newest then, is missing")
        return size, self.controls[size]

    def _signature(self, number: int | None) -> Row | None:
        return None if number is None else self.signatures[number]

    def broken_seal(self, row: Row) -> str | None:
        """Say which texts are not those that were sealed, if any."""
        if row["kind"] == "decision":
            batch = self.batches[row["batch"]]
            texts = [response["text"] for response in self.responses.get(row["batch"], [])]
            if batch["salt"] is not None and leaves.batch_mac(batch, texts) != batch["content_mac"]:
                return "the batch's texts, references, metadata or content hash were changed"
            if any(
                one["salt"] is not None
                and leaves.judgement_mac(one["salt"], one["exchanges"]) != one["content_mac"]
                for one in self.judged.get(row["batch"], [])
            ):
                return "what its judge was asked or said was changed"
        letter = self.letters.get(row["dead_letter"])
        if (
            letter is not None
            and letter["salt"] is not None
            and leaves.dead_letter_mac(letter) != letter["content_mac"]
        ):
            return "the dead letter's bytes, headers or detail were changed"
        return None


def _by(
    connection: sa.Connection,
    column: sa.Column[Any],
    values: Iterable[int | None],
    *,
    without: Sequence[str] = (),
) -> dict[int, Row]:
    keys = [(value,) for value in sorted(value for value in values if value is not None)]
    query = sa.select(*(one for one in column.table.columns if one.name not in without))
    return {row[column.name]: row for row in bulk_insert.look_up(connection, query, [column], keys)}
