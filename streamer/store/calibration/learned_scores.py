"""Reads the audit sample that a score learns from, and keeps what a learned score makes of what was decided before."""

from __future__ import annotations

from itertools import groupby, repeat
from operator import itemgetter
from typing import TYPE_CHECKING

import sqlalchemy as sa

from streamer.events.responses import recorded_models
from streamer.gates.batch_key import BatchKey
from streamer.labels.learning import DrawnAnswer, DrawnBatch
from streamer.scoring.learned import PREFIX
from streamer.scoring.registry import GRAM
from streamer.store.audit import control
from streamer.store.db import bulk_insert
from streamer.store.db.schema import batches, decisions, learned_scores, responses
from streamer.store.labels.revisions import Severities

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from datetime import datetime

    from streamer.gates.settings import GateSettings
    from streamer.store.db.engine import Database
    from streamer.store.labels.read_labels import ReadLabels


class LearnedScores:
    """The batches that a score learns from, and the scores that are made of them again."""

    def __init__(self, database: Database, *, read: ReadLabels, clock: Callable[[], datetime]) -> None:
        self._database = database
        self._read = read
        self._clock = clock

    def drawn(self, gate: str, *, settings: GateSettings, before: datetime) -> list[DrawnBatch]:
        return self._batches(gate, settings, before, sa.true())

    def to_score(
        self, gate: str, *, settings: GateSettings, scorer: str, before: datetime
    ) -> list[DrawnBatch]:
        known = sa.exists().where(
            learned_scores.c.scorer == scorer, learned_scores.c.batch == decisions.c.batch
        )
        return self._batches(gate, settings, before, (decisions.c.scorer != scorer) & ~known)

    def labelled(self, gate: str, *, settings: GateSettings, before: datetime) -> int:
        query = (
            sa.select(batches.c.batch_id, responses.c.response_id)
            .join_from(decisions, batches, batches.c.id == decisions.c.batch)
            .join(responses, responses.c.batch == decisions.c.batch)
            .where(
                *_of_sample(gate, settings, before),
                responses.c.drawn,
                responses.c.text.is_not(None),
                decisions.c.embedding_source == "encoder",
            )
        )
        with self._database.reading(snapshot=True) as connection:
            severities = Severities.read(
                connection, self._read.table(connection, gate), gate, settings.severity_kind
            )
            return len(
                {
                    batch
                    for batch, response in connection.execute(query)
                    if severities.get(BatchKey(gate, batch, 1), response) is not None
                }
            )

    def keep(self, scorer: str, scores: Mapping[int, Mapping[str, float]]) -> None:
        def work(connection: sa.Connection) -> None:
            there = set(
                connection.execute(
                    sa.select(learned_scores.c.batch).where(
                        learned_scores.c.scorer == scorer, learned_scores.c.batch.in_(list(scores))
                    )
                ).scalars()
            )
            rows = [
                {"batch": batch, "scorer": scorer, "response_id": response, "score": score}
                for batch, found in scores.items()
                if batch not in there
                for response, score in found.items()
            ]
            if rows:
                bulk_insert.append(connection, learned_scores, rows)
                keys = [(row["scorer"], row["batch"], row["response_id"]) for row in rows]
                control.append(connection, learned_scores, keys, now=self._clock())

        self._database.writing(work)

    def _batches(
        self, gate: str, settings: GateSettings, before: datetime, condition: sa.ColumnElement[bool]
    ) -> list[DrawnBatch]:
        query = (
            sa.select(
                *batches.c["id", "batch_id", "metadata"],
                decisions.c.embedding_source,
                *responses.c["response_id", "text", "drawn"],
            )
            .join_from(decisions, batches, batches.c.id == decisions.c.batch)
            .join(responses, responses.c.batch == decisions.c.batch)
            .where(*_of_sample(gate, settings, before), condition)
            .order_by(decisions.c.decided_at, batches.c.id, responses.c.position)
        )
        with self._database.reading(snapshot=True) as connection:
            severities = Severities.read(
                connection, self._read.table(connection, gate), gate, settings.severity_kind
            )
            found = connection.execute(query).mappings()
            return [
                DrawnBatch(
                    row=number,
                    batch_id=rows[0]["batch_id"],
                    encoded=rows[0]["embedding_source"] == "encoder",
                    answers=tuple(
                        DrawnAnswer(
                            id=row["response_id"],
                            text=row["text"],
                            drawn=row["drawn"],
                            severity=severities.get(BatchKey(gate, row["batch_id"], 1), row["response_id"])
                            if row["drawn"]
                            else None,
                            model=model,
                        )
                        for row, model in zip(rows, models or repeat(""), strict=bool(models))
                    ),
                )
                for number, rows, models in _with_models(
                    (number, list(group)) for number, group in groupby(found, key=itemgetter("id"))
                )
            ]


def _with_models(
    grouped: Iterable[tuple[int, list[sa.RowMapping]]],
) -> Iterator[tuple[int, list[sa.RowMapping], tuple[str, ...]]]:
    for number, rows in grouped:
        yield number, rows, recorded_models(rows[0]["metadata"], [row["response_id"] for row in rows])


def _of_sample(gate: str, settings: GateSettings, before: datetime) -> tuple[sa.ColumnElement[bool], ...]:
    return (
        decisions.c.gate == gate,
        decisions.c.sampled,
        ~decisions.c.extra_draw,
        decisions.c.decided_at < before,
        decisions.c.unit == settings.unit,
        decisions.c.encoder == settings.encoder,
        (decisions.c.scorer == GRAM) | decisions.c.scorer.startswith(PREFIX, autoescape=True),
        batches.c.attempt == 1,
        responses.c.score.is_not(None),
    )
