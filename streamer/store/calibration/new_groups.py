"""The queries that tell which groups a recalibration would read that the newest run has not read so."""

from collections.abc import Sequence
from datetime import datetime, timedelta

import sqlalchemy as sa

from streamer.gates.policy import GateRevision
from streamer.gates.settings import GateSettings
from streamer.recalibration.gate_status import MOST_COUNTED
from streamer.recalibration.run import SampleQuery
from streamer.store.calibration.audit_sample import readable
from streamer.store.calibration.newest_runs import NewestRun
from streamer.store.db.schema import batches, calibration_inputs, decisions, responses
from streamer.store.db.schema.joins import BATCH, same

_MOST_LABELS = 5 * MOST_COUNTED
"""A flood of labels for groups that have one already must not make a round long; runs by time go on."""


def new_and_raised(
    connection: sa.Connection,
    labels: sa.FromClause,
    gate: GateRevision,
    run: NewestRun | None,
    since: int | None,
    now: datetime,
) -> tuple[int, int]:
    """Count the groups with a label that a run would read now and `run` has not read with one, and those raised since."""
    settings = gate.settings
    older_than = now - timedelta(seconds=youngest_read(settings, run))
    would_read = readable(SampleQuery(gate.gate, settings, older_than, since))
    if run is None:
        return _number(connection, _labelled_since(labels, gate, 0, would_read)), 0
    decided = sa.select(batches.c.id).join_from(decisions, batches, batches.c.id == decisions.c.batch)
    labelled = _label_of_a_drawn_response(labels, settings)
    is_young = decided.where(*would_read, decisions.c.decided_at >= run.older_than, labelled.exists())
    young = _number(connection, is_young)
    if young and run.age_cut.seconds < run.age_cut.longest_seconds:
        ripe = is_young.where(decisions.c.decided_at < now - timedelta(seconds=run.age_cut.longest_seconds))
        came = _came_since(connection, labels, gate, run, since, now)
        young = max(_number(connection, ripe), min(young, came))
    # Labels that came since for batches that the run has read without one. Whoever commits a label late under an
    # earlier number is missed here; the next run by time reads it.
    late = _labelled_since(
        labels,
        gate,
        run.labels_through,
        (
            *would_read,
            decisions.c.decided_at < run.older_than,
            ~_had_a_label(labels, gate, run.labels_through),
        ),
    )
    new = min(young + _number(connection, late), MOST_COUNTED)
    return new, _number(connection, _raised_since(labels, gate, run))


def youngest_read(settings: GateSettings, run: NewestRun | None) -> float:
    """Seconds of age below which the next run reads no decision; the newest run's age cut is a guess at its own."""
    return max(settings.label_deadline_seconds, 0.0 if run is None else run.age_cut.seconds)


def _came_since(
    connection: sa.Connection,
    labels: sa.FromClause,
    gate: GateRevision,
    run: NewestRun,
    since: int | None,
    now: datetime,
) -> int:
    """Count the draws and the labels that came since the run: only they move an age cut that is the middle draw's age.

    That cut grows as fast as time passes, so that without them the next run reads what this one has read.
    """
    draws = (
        sa.select(batches.c.id)
        .join_from(decisions, batches, batches.c.id == decisions.c.batch)
        .where(
            *readable(SampleQuery(gate.gate, gate.settings, now, since)),
            decisions.c.decided_at >= run.started_at,
        )
    )
    recent = _recent_labels(labels, gate, run.labels_through)
    return _number(connection, draws) + _number(connection, sa.select(recent.c.response_id))


def _raised_since(labels: sa.FromClause, gate: GateRevision, run: NewestRun) -> sa.Select[tuple[int]]:
    """Batches of which a response got a higher label than the run read for it."""
    recent = _recent_labels(labels, gate, run.labels_through)
    return (
        _batches_of(gate, recent)
        .join(
            calibration_inputs,
            (calibration_inputs.c.run == run.number)
            & (calibration_inputs.c.batch == batches.c.id)
            & (calibration_inputs.c.response_id == recent.c.response_id),
        )
        .where(recent.c.severity > calibration_inputs.c.severity)
    )


def _recent_labels(labels: sa.FromClause, gate: GateRevision, through: int) -> sa.CTE:
    """The next 50,000 labels after number `through`.

    They are picked out first, whatever the planner thinks of it: they are few, and the decisions are not.
    """
    return (
        sa.select(*labels.c["batch_id", "attempt", "response_id", "severity"])
        .where(
            labels.c.gate == gate.gate,
            labels.c.kind == gate.settings.severity_kind,
            labels.c.id > through,
        )
        .order_by(labels.c.id)
        .limit(_MOST_LABELS)
        .cte("recent")
        .prefix_with("MATERIALIZED")
    )


def _batches_of(gate: GateRevision, recent: sa.CTE) -> sa.Select[tuple[int]]:
    """The gate's batches that such labels are of, each once; joined with `recent`."""
    return (
        sa.select(batches.c.id)
        .distinct()
        .select_from(recent)
        .join(batches, (batches.c.gate == gate.gate) & same(batches, recent, "batch_id", "attempt"))
    )


def _labelled_since(
    labels: sa.FromClause,
    gate: GateRevision,
    through: int,
    conditions: Sequence[sa.ColumnElement[bool]],
) -> sa.Select[tuple[int]]:
    """Batches of which a drawn response got one of the labels after number `through`."""
    recent = _recent_labels(labels, gate, through)
    return (
        _batches_of(gate, recent)
        .join(decisions, decisions.c.batch == batches.c.id)
        .join(
            responses,
            (responses.c.batch == batches.c.id) & (responses.c.response_id == recent.c.response_id),
        )
        .where(responses.c.drawn, responses.c.score.is_not(None), *conditions)
    )


def _had_a_label(labels: sa.FromClause, gate: GateRevision, through: int) -> sa.Exists:
    return (
        sa.select(labels.c.id)
        .where(
            same(labels, batches, *BATCH),
            labels.c.kind == gate.settings.severity_kind,
            # An expression, so that the planner comes by the batch and not by the number.
            labels.c.id + 0 <= through,
        )
        .correlate(batches)
        .exists()
    )


def _label_of_a_drawn_response(labels: sa.FromClause, settings: GateSettings) -> sa.Select[tuple[int]]:
    return (
        sa.select(labels.c.id)
        .join_from(
            labels,
            responses,
            (responses.c.batch == batches.c.id) & (responses.c.response_id == labels.c.response_id),
        )
        .where(
            same(labels, batches, *BATCH),
            labels.c.kind == settings.severity_kind,
            responses.c.drawn,
            responses.c.score.is_not(None),
        )
        .correlate(batches, decisions)
    )


def _number(connection: sa.Connection, query: sa.Select[tuple[int]]) -> int:
    counted = sa.select(sa.func.count()).select_from(query.limit(MOST_COUNTED).subquery())
    return connection.execute(counted).scalar_one()
