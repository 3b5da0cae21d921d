"""The rows that leaves of the partitions' logs are about."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

import sqlalchemy as sa

from streamer.journal import Partition
from streamer.scoring.scorers.judge import Judge
from streamer.signing.merkle import EMPTY_ROOT
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
    responses,
)
from streamer.store.db.schema.joins import BATCH, key_of
from streamer.store.db.schema.types import HeaderPairs, Row, columns_of
from streamer.store.log import leaves
from streamer.store.log.progress import in_partition

_PAGE = 1_000


def pages(
    connection: sa.Connection, partition: Partition, *, after: int = 0, end: int | None = None
) -> Iterator[Sequence[Row]]:
    """Read a partition's outcomes in the order of its log, from a leaf on, up to another."""
    place = (outcomes.c.leaf_index, outcomes.c.offset)
    query = sa.select(outcomes).where(in_partition(partition, outcomes)).order_by(*place).limit(_PAGE)
    if end is not None:
        query = query.where(place[0] < end)
    page = connection.execute(query.where(place[0] >= after) if after else query).mappings().all()
    while page:
        yield page
        reached = (page[-1]["leaf_index"], page[-1]["offset"])
        page = connection.execute(query.where(sa.tuple_(*place) > reached)).mappings().all()


class OutcomeRows:
    """The rows that one page of outcomes is about, by the numbers by which outcomes name them.

    `responses` has those of each decided batch by columns, in event order, `judged` what a judge was asked for their scores, in
    the leaf's order, and `controls` the roots of the control log that outcomes name, by its size.
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
        names = responses.c.keys()
        own = bulk_insert.look_up_rows(
            connection, sa.select(responses), [responses.c.batch], [(batch,) for batch in decided]
        )
        # Sorted as they are: batch and position come first, and are the key.
        self.responses = dict.fromkeys(decided, columns_of(names, ())) | {
            batch: dict(zip(names, zip(*rows, strict=True), strict=True))
            for batch, rows in groupby(sorted(own), key=itemgetter(0))
        }
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
        if (size := row["control_size"]) not in self.controls:
            raise LookupError(f"control leaf {size - 1}, which was the newest then, is missing")
        return leaves.facts(
            row["kind"],
            batch=self.batches.get(row["batch"]),
            decision=self.decisions.get(row["batch"]),
            responses=self.responses.get(row["batch"]),
            judgements=self.judged.get(row["batch"], []),
            letter=self.letters.get(row["dead_letter"]),
            label=self.labels.get(row["label"]),
            signature=None if (number := row["label_signature"]) is None else self.signatures[number],
            control=(size, self.controls[size]),
        )


def _by(
    connection: sa.Connection,
    column: sa.Column[Any],
    values: Iterable[int | None],
    *,
    without: Sequence[str] = (),
) -> dict[int, Row]:
    keys = [(value,) for value in sorted(value for value in values if value is not None)]
    own = [one for one in column.table.columns if one.name not in without]
    names = [one.name for one in own]
    columns = [sa.type_coerce(one, sa.Text) if isinstance(one.type, HeaderPairs) else one for one in own]
    rows = bulk_insert.look_up_rows(connection, sa.select(*columns), [column], keys)
    key = names.index(column.name)
    return {row[key]: dict(zip(names, row, strict=True)) for row in rows}
