"""What calibration runs say they read, and what scores were made of, against what is recorded."""

from __future__ import annotations

import hmac
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from streamer.events.responses import recorded_models, recorded_numbers
from streamer.scoring.registry import CHOICE
from streamer.scoring.scorers.judge import Judge
from streamer.scoring.signals.signal_list import SignalList
from streamer.store.calibration.audit_sample import base_probability
from streamer.store.db.schema import (
    batches,
    calibration_inputs,
    calibration_runs,
    carried_scores,
    carried_signals,
    decisions,
    gate_revisions,
    judgements,
    label_revisions,
    policies,
    responses,
)
from streamer.store.db.schema.joins import BATCH, RESPONSE, REVISION_OF_RUN, revision_of, same
from streamer.store.log.leaves import judgement_mac

if TYPE_CHECKING:
    from collections.abc import Iterator

_ROUNDING = 1e-12
"""A mean of several labellers may lie outside their range by its last digit."""


def contradicted_inputs(connection: sa.Connection) -> Iterator[dict[str, Any]]:
    """Inputs that no drawn response of a recorded decision has, or no label can have given.

    Each has ``run``, ``input`` (batch id, attempt, response id) and ``detail``. The score of the unit `batch` and of the
    shape `rank` is not compared: it is of the whole batch. A severity must lie between the least and the largest that was
    ever given to the response; a label that was left out cannot be detected, for it may have come later.
    """
    given = _given()
    found = connection.execute(_query(given).order_by(calibration_inputs.c.run, batches.c.id))
    for row in found.mappings():
        name = [row["batch_id"], row["attempt"], row["response_id"]]
        for wrong, detail in (
            (row["decided"] is None or row["decided"] != row["gate"], "no decision of its gate has it"),
            (not row["sampled"] or not row["drawn"], "the audit sample did not draw it"),
            (row["extra_draw"], "only a raised audit rate drew it"),
            (row["base_probability"] != row["probability"], "it was drawn with another probability"),
            (row["compared"] and row["recorded_score"] != row["score"], "its decision has another score"),
            (row["severity"] is not None and row["least"] is None, "nobody gave it a severity"),
            (True, "no labels that were given have this severity as their mean"),
        ):
            if wrong:
                yield {"run": row["run"], "input": name, "detail": detail}
                break


def scored_later(connection: sa.Connection) -> Iterator[dict[str, Any]]:
    """Batches that got an adopted candidate's scores, or rows of signals, after they were decided; see `streamer.audit.verification.Snapshot`."""
    query = (
        sa.select(
            carried_scores.c.scorer,
            *batches.c["id", "gate", "batch_id", "attempt", "metadata"],
            *decisions.c["encoder", "embedding_source"],
            *responses.c["response_id", "text"],
            carried_scores.c.score,
        )
        .join_from(carried_scores, batches, batches.c.id == carried_scores.c.batch)
        .join(decisions, decisions.c.batch == batches.c.id)
        .join(responses, same(responses, carried_scores, "batch", "response_id"))
        .order_by(carried_scores.c.scorer, batches.c.id, responses.c.position)
    )
    found = connection.execution_options(yield_per=1000).execute(query)
    for (scorer, _), group in groupby(found, key=itemgetter(0, 1)):
        rows = list(group)
        yield {
            "scorer": scorer,
            "batch": [rows[0].gate, rows[0].batch_id, rows[0].attempt],
            "encoder": rows[0].encoder,
            "encoded": rows[0].embedding_source == "encoder",
            "texts": [row.text for row in rows],
            "models": recorded_models(rows[0].metadata, [row.response_id for row in rows]),
            "scores": [row.score for row in rows],
        }
    lists = {
        (gate, SignalList.of_text(text).hash): text
        for gate, text in connection.execute(sa.select(*gate_revisions.c["gate", "signals"]).distinct())
        if text is not None
    }
    rows_later = (
        sa.select(
            *carried_signals.c["list", "signals"],
            *batches.c["id", "gate", "batch_id", "attempt", "prompt", "metadata"],
            *decisions.c["encoder", "embedding_source", "unit"],
            *responses.c["response_id", "text"],
        )
        .join_from(carried_signals, batches, batches.c.id == carried_signals.c.batch)
        .join(decisions, decisions.c.batch == batches.c.id)
        .join(responses, responses.c.batch == batches.c.id)
        .order_by(carried_signals.c.list, batches.c.id, responses.c.position)
    )
    found = connection.execution_options(yield_per=1000).execute(rows_later)
    for (listed, _), group in groupby(found, key=itemgetter(0, 2)):
        rows = list(group)
        first, ids = rows[0], [row.response_id for row in rows]
        yield {
            "scorer": CHOICE,
            "batch": [first.gate, first.batch_id, first.attempt],
            "encoder": first.encoder,
            "encoded": first.embedding_source == "encoder",
            "texts": [row.text for row in rows],
            "models": recorded_models(first.metadata, ids),
            "scores": None,
            "row": {
                "recorded": first.signals,
                "signals": lists.get((first.gate, listed)),
                "unit": first.unit,
                "prompt": first.prompt,
                "given": recorded_numbers(first.metadata, ids),
            },
        }


def marked(connection: sa.Connection) -> Iterator[dict[str, Any]]:
    """Responses that a judge's mark has decided; see `streamer.audit.verification.Snapshot`."""
    query = (
        sa.select(
            batches.c.id,
            responses.c.position,
            *batches.c["gate", "batch_id", "attempt", "prompt"],
            *responses.c["response_id", "text", "raw_energy"],
            *judgements.c["judge", "mark", "exchanges", "salt", "content_mac"],
        )
        .join_from(decisions, batches, batches.c.id == decisions.c.batch)
        .join(responses, responses.c.batch == decisions.c.batch)
        .outerjoin(
            judgements,
            same(judgements, batches, *BATCH)
            & (judgements.c.response_id == responses.c.response_id)
            & judgements.c.for_score
            & judgements.c.mark.is_not(None),
        )
        .where(decisions.c.scorer == Judge.name, responses.c.raw_energy.is_not(None))
        .order_by(batches.c.id, responses.c.position, judgements.c.id)
    )
    found = connection.execution_options(yield_per=1000).execute(query)
    for _, group in groupby(found, key=itemgetter(0, 1)):
        rows = list(group)
        yield {
            "batch": [rows[0].gate, rows[0].batch_id, rows[0].attempt],
            "response_id": rows[0].response_id,
            "prompt": rows[0].prompt,
            "text": rows[0].text,
            "mark": rows[0].raw_energy,
            "judged": [
                {
                    "judge": row.judge,
                    "mark": row.mark,
                    "exchanges": row.exchanges,
                    "intact": row.exchanges is not None
                    and hmac.compare_digest(judgement_mac(row.salt, row.exchanges), row.content_mac),
                }
                for row in rows
                if row.mark is not None
            ],
        }


def _given() -> sa.Subquery:
    """The least and the largest severity of each response, by kind."""
    response = tuple(label_revisions.c[*RESPONSE, "kind"])
    return (
        sa.select(
            *response,
            sa.func.min(label_revisions.c.severity).label("least"),
            sa.func.max(label_revisions.c.severity).label("largest"),
        )
        .group_by(*response)
        .subquery()
    )


def _query(given: sa.Subquery) -> sa.Select[Any]:
    compared = gate_revisions.c.unit.in_(("best", "response")) & (gate_revisions.c.shape != "rank")
    decided_by = policies.alias()
    decided_under = gate_revisions.alias()
    base = base_probability(decided_under)
    later, answer = carried_scores, ("batch", "response_id")
    recorded = sa.func.coalesce(later.c.score, responses.c.score)
    severity, score = calibration_inputs.c.severity, calibration_inputs.c.score
    beyond = given.c.least.is_(None) | ~severity.between(
        given.c.least - _ROUNDING, given.c.largest + _ROUNDING
    )
    return (
        sa.select(
            calibration_inputs.c.run,
            calibration_runs.c.gate,
            *batches.c["batch_id", "attempt"],
            calibration_inputs.c.response_id,
            score,
            severity,
            calibration_inputs.c.probability,
            decisions.c.gate.label("decided"),
            *decisions.c["sampled", "extra_draw"],
            base.label("base_probability"),
            responses.c.drawn,
            recorded.label("recorded_score"),
            compared.label("compared"),
            given.c.least,
        )
        .select_from(calibration_inputs)
        .join(calibration_runs, calibration_runs.c.id == calibration_inputs.c.run)
        .join(gate_revisions, REVISION_OF_RUN)
        .outerjoin(batches, batches.c.id == calibration_inputs.c.batch)
        .outerjoin(decisions, decisions.c.batch == calibration_inputs.c.batch)
        .outerjoin(
            decided_by,
            (decided_by.c.gate == decisions.c.gate) & (decided_by.c.version == decisions.c.policy_version),
        )
        .outerjoin(decided_under, revision_of(decided_by, decided_under))
        .outerjoin(responses, same(responses, calibration_inputs, *answer))
        .outerjoin(later, same(later, gate_revisions, "scorer") & same(later, calibration_inputs, *answer))
        .outerjoin(
            given,
            same(given, batches, *BATCH)
            & same(given, calibration_inputs, "response_id")
            & (given.c.kind == gate_revisions.c.severity_kind),
        )
        .where(
            decisions.c.gate.is_(None)
            | (decisions.c.gate != calibration_runs.c.gate)
            | ~decisions.c.sampled
            | responses.c.drawn.is_(None)
            | ~responses.c.drawn
            | decisions.c.extra_draw
            | base.is_(None)
            | (base != calibration_inputs.c.probability)
            | (compared & (recorded.is_(None) | (recorded != score)))
            | (severity.is_not(None) & beyond)
        )
    )
