"""Re-deriving the hash chains from the tables, and naming the first row that does not fit."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from streamer.journal import Partition
from streamer.scoring.scorers.judge import Judge
from streamer.store.audit import control
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
from streamer.store.log import chain
from streamer.store.log.progress import in_partition

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from streamer.store.db.schema.types import Row

_PAGE = 1_000


@dataclass(frozen=True, slots=True)
class ChainFault:
    """The first row of a partition's record that does not fit.

    Attributes
    ----------
    partition : whose chain it is.
    height : of the link that does not fit; of the head when the chain ends wrongly.
    offset : of the input whose outcome that is; None when there is no such row.
    detail : what does not fit, in words.
    """

    partition: Partition
    height: int
    offset: int | None
    detail: str

    def __str__(self) -> str:
        place = "" if self.offset is None else f", offset {self.offset}"
        return f"{self.partition.topic}[{self.partition.number}], link {self.height}{place}: {self.detail}"


def verify_chain(connection: sa.Connection, partition: Partition | None = None) -> list[ChainFault]:
    """Recompute the chain of one partition (or of all); returns the first fault of each that has one.

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
    height, link, last = 0, chain.genesis(partition), -1
    for page in pages(connection, partition):
        about = OutcomeRows(connection, page)
        for row in page:
            height += 1
            offset = row["offset"]
            if row["chain_height"] != height:
                return ChainFault(
                    partition, height, None, f"this link is missing (the next is {row['chain_height']})"
                )
            if offset <= last:
                return ChainFault(partition, height, offset, f"its offset does not come after {last}")
            try:
                facts = about.facts(row, link)
            except LookupError as error:
                return ChainFault(partition, height, offset, str(error.args[0]))
            if chain.link(link, row, facts) != row["chain_hash"]:
                return ChainFault(partition, height, offset, f"the {row['kind']} is not what was recorded")
            broken = about.broken_seal(row)
            if broken is not None:
                return ChainFault(partition, height, offset, broken)
            link, last = row["chain_hash"], offset
    if (height, link) != (head["chain_height"], head["chain_hash"]):
        return ChainFault(partition, head["chain_height"], None, f"the chain ends at link {height} instead")
    if last >= head["next_offset"]:
        return ChainFault(partition, height, last, f"progress stands at {head['next_offset']}, before it")
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
    """Read a partition's outcomes in the order of their chain, those above a height."""
    place = (outcomes.c.chain_height, outcomes.c.offset)
    query = sa.select(outcomes).where(in_partition(partition, outcomes)).order_by(*place).limit(_PAGE)
    page = connection.execute(query.where(place[0] > after) if after else query).mappings().all()
    while page:
        yield page
        reached = (page[-1]["chain_height"], page[-1]["offset"])
        page = connection.execute(query.where(sa.tuple_(*place) > reached)).mappings().all()


class OutcomeRows:
    """The rows that one page of outcomes is about.

    Attributes
    ----------
    batches, decisions, letters, labels, signatures : by the numbers by which outcomes name them.
    responses : of each decided batch, in event order.
    judged : what a judge was asked for each decided batch's scores, in the chain's order.
    controls : the links of the control chain that outcomes name, by height.
    """

    def __init__(self, connection: sa.Connection, page: Sequence[Row]) -> None:
        decided = {row["batch"] for row in page if row["kind"] == "decision"}
        self.batches = _by(connection, batches.c.id, {row["batch"] for row in page})
        self.decisions = _by(connection, decisions.c.batch, decided, without=("cloud",))
        self.letters = _by(connection, dead_letters.c.id, {row["dead_letter"] for row in page})
        self.labels = _by(connection, label_revisions.c.id, {row["label"] for row in page})
        self.signatures = _by(connection, label_signatures.c.id, {row["label_signature"] for row in page})
        heads = _by(connection, control_log.c.chain_height, {row["control_height"] for row in page})
        self.controls = {height: head["chain_hash"] for height, head in heads.items()}
        if any(row["control_height"] == 0 for row in page):  # before the first gate there is nothing
            self.controls[0] = control.genesis(control.head(connection).record_id)
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
        return {batch: chain.in_order(rows) for batch, rows in found.items()}

    def facts(self, row: Row, previous: bytes | None = None) -> dict[str, Any]:
        """What the chain covers of one outcome. Raises `LookupError` when a row that it refers to is gone.

        Earlier versions did not seal what a judge was asked. `previous`, the hash before the outcome's, shows whether this
        one's was; without it, it counts as sealed.
        """
        found = self._facts(row)
        if (
            "judged" in found
            and previous is not None
            and chain.link(previous, row, found) != row["chain_hash"]
        ):
            earlier = {name: found[name] for name in found if name != "judged"}
            if chain.link(previous, row, earlier) == row["chain_hash"]:
                return earlier
        return found

    def _facts(self, row: Row) -> dict[str, Any]:
        return chain.facts(
            row["kind"],
            batch=self.batches.get(row["batch"]),
            decision=self.decisions.get(row["batch"]),
            responses=self.responses.get(row["batch"], []),
            judgements=self.judged.get(row["batch"], []),
            letter=self.letters.get(row["dead_letter"]),
            label=self.labels.get(row["label"]),
            signature=self._signature(row["label_signature"]),
            control=self._control(row["control_height"]),
        )

    def _control(self, height: int | None) -> tuple[int, bytes] | None:
        if height is None:
            return None
        if height not in self.controls:
            raise LookupError(f"control link {height}, which was the newest then, is missing")
        return height, self.controls[height]

    def _signature(self, number: int | None) -> Row | None:
        return None if number is None else self.signatures[number]

    def broken_seal(self, row: Row) -> str | None:
        """Say which texts are not those that were sealed, if any."""
        if row["kind"] == "decision":
            batch = self.batches[row["batch"]]
            texts = [response["text"] for response in self.responses.get(row["batch"], [])]
            if batch["salt"] is not None and chain.batch_mac(batch, texts) != batch["content_mac"]:
                return "the batch's texts, references, metadata or content hash were changed"
            if any(
                one["salt"] is not None
                and chain.judgement_mac(one["salt"], one["exchanges"]) != one["content_mac"]
                for one in self.judged.get(row["batch"], [])
            ):
                return "what its judge was asked or said was changed"
        letter = self.letters.get(row["dead_letter"])
        if (
            letter is not None
            and letter["salt"] is not None
            and chain.dead_letter_mac(letter) != letter["content_mac"]
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
