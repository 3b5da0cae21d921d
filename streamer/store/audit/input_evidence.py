"""What scores were made of, and what waits at the desk, against what is recorded."""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import groupby
from operator import itemgetter
from typing import Any

import sqlalchemy as sa

from streamer.errors import BadMessage
from streamer.events.actions import decode_action
from streamer.events.responses import recorded_models, recorded_numbers
from streamer.scoring.registry import CHOICE
from streamer.scoring.signals.signal_list import SignalList
from streamer.store.db.schema import (
    batches,
    carried_scores,
    carried_signals,
    decisions,
    desk_items,
    desk_outcomes,
    gate_revisions,
    policies,
    responses,
)
from streamer.store.db.schema.joins import BATCH, POLICY_OF_DECISION, REVISION_OF_POLICY, same


def scored_later(connection: sa.Connection) -> Iterator[dict[str, Any]]:
    """Batches that got an adopted candidate's scores, or rows of signals, after they were decided; see `streamer.audit.verification.Snapshot`."""
    of_response = same(responses, carried_scores, "batch", "response_id")
    scores = carried_scores.c
    for rows in _carried(connection, carried_scores, scores.scorer, [scores.score], of_response):
        yield _carried_facts(rows, rows[0].scorer) | {"scores": [row.score for row in rows]}
    lists = {
        (gate, SignalList.of_text(text).hash): text
        if scorer == CHOICE
        else None  # that of a likelihood, if both have it
        for gate, text, scorer in connection.execute(
            sa.select(*gate_revisions.c["gate", "signals", "scorer"])
            .where(gate_revisions.c.signals.is_not(None))
            .distinct()
            .order_by(gate_revisions.c.scorer)
        )
    }
    columns = [carried_signals.c.signals, decisions.c.unit, batches.c.prompt]
    of_batch = responses.c.batch == batches.c.id
    for rows in _carried(connection, carried_signals, carried_signals.c.list, columns, of_batch):
        first = rows[0]
        yield _carried_facts(rows, CHOICE) | {
            "scores": None,
            "row": {
                "recorded": first.signals,
                "signals": lists.get((first.gate, first.list)),
                "unit": first.unit,
                "prompt": first.prompt,
                "given": recorded_numbers(first.metadata, [row.response_id for row in rows]),
            },
        }


def _carried(
    connection: sa.Connection,
    table: sa.Table,
    by: sa.Column[Any],
    columns: Iterable[sa.Column[Any]],
    of_response: sa.ColumnElement[bool],
) -> Iterator[list[Any]]:
    """The responses of each batch that a table has something of, by what made it."""
    query = (
        sa.select(
            by,
            *batches.c["id", "gate", "batch_id", "attempt", "metadata"],
            *decisions.c["encoder", "embedding_source"],
            gate_revisions.c.judged,
            *responses.c["response_id", "text"],
            *columns,
        )
        .join_from(table, batches, batches.c.id == table.c.batch)
        .join(decisions, decisions.c.batch == batches.c.id)
        .join(policies, POLICY_OF_DECISION)
        .join(gate_revisions, REVISION_OF_POLICY)
        .join(responses, of_response)
        .order_by(by, batches.c.id, responses.c.position)
    )
    found = connection.execution_options(yield_per=1000).execute(query)
    return (list(group) for _, group in groupby(found, key=itemgetter(0, 1)))


def _carried_facts(rows: list[Any], scorer: str) -> dict[str, Any]:
    first = rows[0]
    return {
        "scorer": scorer,
        "batch": [first.gate, first.batch_id, first.attempt],
        "judged": first.judged,
        "encoder": first.encoder,
        "encoded": first.embedding_source == "encoder",
        "texts": [row.text for row in rows],
        "models": recorded_models(first.metadata, [row.response_id for row in rows]),
    }


def gone_from_the_desk(connection: sa.Connection) -> Iterator[list[Any]]:
    """Batches (gate, batch id, attempt) that have no outcome at the desk and do not wait there until the moment that their action says."""
    waiting, decided = desk_items.c, decisions.c
    query = (
        sa.select(*batches.c[BATCH], waiting.gate.label("at"), waiting.until, decided.action_value)
        .join_from(decisions, batches, batches.c.id == decided.batch)
        .outerjoin(desk_items, waiting.batch == decided.batch)
        .outerjoin(desk_outcomes, same(desk_outcomes, batches, *BATCH))
        .join(policies, POLICY_OF_DECISION)
        .join(gate_revisions, REVISION_OF_POLICY)
        .where(
            desk_outcomes.c.id.is_(None),
            waiting.batch.is_not(None)
            | gate_revisions.c.desk_deadline_seconds.is_not(None)
            & ((decided.outcome == "escalate") | (decided.outcome == "mixed") & (decided.unit == "claim"))
            & (decided.mode == "enforce"),
        )
        .order_by(batches.c.id)
    )
    for *batch, at, until, value in connection.execute(query):
        with suppress(BadMessage):
            said = decode_action(value).desk_until or None
            if (at, until) != (said and batch[0], said):
                yield batch
