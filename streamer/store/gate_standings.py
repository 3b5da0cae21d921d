"""How every gate stands between two runs, by queries that read little more than what is new."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

import sqlalchemy as sa

from streamer.policy import MONITOR, calibrated_for_another
from streamer.recalibration.standing import MOST_COUNTED, GateStanding, LastRun
from streamer.store import proposals
from streamer.store.audit_sample import readable
from streamer.store.policy_rows import SETTINGS, settings_of
from streamer.store.schema import (
    batches,
    calibration_candidates,
    calibration_runs,
    decisions,
    gate_revisions,
    label_revisions,
    policies,
    responses,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from streamer.policy import GateRevision, GateSettings
    from streamer.store.engine import Database
    from streamer.store.gates import Gates
    from streamer.store.labels import Labels
    from streamer.store.policies import Policies


_MOST_LABELS = 5 * MOST_COUNTED
"""A flood of labels for groups that have one already must not make a round long; runs by time go on."""


class _Run(NamedTuple):
    """The newest run of a gate, as far as the next one is concerned."""

    number: int
    finished_at: datetime
    groups: int
    candidates: tuple[tuple[str, float | None], ...]
    settings: GateSettings
    older_than: datetime
    since_version: int | None
    labels_through: int


class GateStandings:
    """Implements `streamer.recalibration.standing.Standings`."""

    def __init__(self, database: Database, *, policies: Policies, gates: Gates, labels: Labels) -> None:
        self._database = database
        self._policies = policies
        self._gates = gates
        self._labels = labels

    def standings(self, *, now: datetime) -> list[GateStanding]:
        """How every gate stands, by name. A gate whose newest policy cannot be read is left out."""
        every = self._gates.list()
        active = self._policies.active()
        with self._database.reading(snapshot=True) as connection:
            runs, closures = _newest_runs(connection), _closures(connection)
            found = []
            for gate in every:
                if gate.gate not in active:
                    continue
                run, since = runs.get(gate.gate), closures.get(gate.gate)
                usable = (
                    run is not None
                    and run.since_version == since
                    and not calibrated_for_another(run.settings, gate.settings)
                )
                found.append(
                    GateStanding(
                        gate=gate,
                        policy=active[gate.gate].policy,
                        last=None
                        if run is None
                        else LastRun(
                            run=run.number,
                            finished_at=run.finished_at,
                            groups=run.groups,
                            usable=usable,
                            candidates=run.candidates,
                        ),
                        new_groups=_new_groups(connection, gate, run if usable else None, since, now),
                        proposed=proposals.newest(connection, gate.gate) is not None,
                    )
                )
        return found

    def labels_pending(self) -> Mapping[str, int]:
        """How many drawn responses of each gate wait for a severity."""
        return self._labels.pending()


def _newest_runs(connection: sa.Connection) -> dict[str, _Run]:
    newest = (
        sa.select(sa.func.max(calibration_runs.c.id).label("id")).group_by(calibration_runs.c.gate).subquery()
    )
    candidates: dict[int, list[tuple[str, float | None]]] = {}
    for row in connection.execute(
        sa.select(
            calibration_candidates.c.run, calibration_candidates.c.method, calibration_candidates.c.threshold
        )
        .join_from(calibration_candidates, newest, newest.c.id == calibration_candidates.c.run)
        .order_by(calibration_candidates.c.run, calibration_candidates.c.method)
    ):
        candidates.setdefault(row.run, []).append((row.method, row.threshold))
    query = (
        sa.select(
            calibration_runs.c.id,
            calibration_runs.c.gate.label("of_gate"),
            calibration_runs.c.finished_at,
            calibration_runs.c.groups,
            calibration_runs.c.older_than,
            calibration_runs.c.since_version,
            calibration_runs.c.labels_through,
            *(gate_revisions.c[name] for name in SETTINGS),
        )
        .join_from(calibration_runs, newest, newest.c.id == calibration_runs.c.id)
        .join(
            gate_revisions,
            (gate_revisions.c.gate == calibration_runs.c.gate)
            & (gate_revisions.c.revision == calibration_runs.c.gate_revision),
        )
    )
    return {
        row["of_gate"]: _Run(
            number=row["id"],
            finished_at=row["finished_at"],
            groups=row["groups"],
            candidates=tuple(candidates.get(row["id"], ())),
            settings=settings_of(row),
            older_than=row["older_than"],
            since_version=row["since_version"],
            # A run older than this column has read every label there was: none of them is told apart any more.
            labels_through=row["labels_through"] or 0,
        )
        for row in connection.execute(query).mappings()
    }


def _closures(connection: sa.Connection) -> dict[str, int]:
    """Version of the newest policy that an alarm closed each gate with."""
    query = (
        sa.select(policies.c.gate, sa.func.max(policies.c.version).label("version"))
        .where(policies.c.created_by == MONITOR, policies.c.state == "closed")
        .group_by(policies.c.gate)
    )
    return {row.gate: row.version for row in connection.execute(query)}


def _new_groups(
    connection: sa.Connection, gate: GateRevision, run: _Run | None, since: int | None, now: datetime
) -> int:
    """Count the groups with a label that a run would read now and `run` has not read with one."""
    settings = gate.settings
    older_than = now - timedelta(seconds=settings.label_deadline_seconds)
    would_read = readable(gate.gate, settings, older_than=older_than, since_version=since)
    if run is None:
        return _count(connection, _labelled_since(gate, 0, would_read))
    decided = sa.select(batches.c.id).join_from(decisions, batches, batches.c.id == decisions.c.batch)
    labelled = _label_of_a_drawn_response(settings)
    young = decided.where(*would_read, decisions.c.decided_at >= run.older_than, labelled.exists())
    count = _count(connection, young)
    if count >= MOST_COUNTED:
        return count
    # Labels that came since for batches that the run has read without one. Whoever commits a label late under an
    # earlier number is missed here; the next run by time reads it.
    late = _labelled_since(
        gate,
        run.labels_through,
        (*would_read, decisions.c.decided_at < run.older_than, ~_had_a_label(gate, run.labels_through)),
    )
    return min(count + _count(connection, late), MOST_COUNTED)


def _labelled_since(
    gate: GateRevision, through: int, conditions: Sequence[sa.ColumnElement[bool]]
) -> sa.Select[tuple[int]]:
    """Batches of which a drawn response got one of the labels after number `through`, the next 50,000 of them.

    The labels are picked out first, whatever the planner thinks of it: they are few, and the decisions are not.
    """
    recent = (
        sa.select(label_revisions.c.batch_id, label_revisions.c.attempt, label_revisions.c.response_id)
        .where(
            label_revisions.c.gate == gate.gate,
            label_revisions.c.kind == gate.settings.severity_kind,
            label_revisions.c.id > through,
        )
        .order_by(label_revisions.c.id)
        .limit(_MOST_LABELS)
        .cte("recent")
        .prefix_with("MATERIALIZED")
    )
    return (
        sa.select(batches.c.id)
        .distinct()
        .select_from(recent)
        .join(
            batches,
            (batches.c.gate == gate.gate)
            & (batches.c.batch_id == recent.c.batch_id)
            & (batches.c.attempt == recent.c.attempt),
        )
        .join(decisions, decisions.c.batch == batches.c.id)
        .join(
            responses,
            (responses.c.batch == batches.c.id) & (responses.c.response_id == recent.c.response_id),
        )
        .where(responses.c.drawn, responses.c.score.is_not(None), *conditions)
    )


def _had_a_label(gate: GateRevision, through: int) -> sa.Exists:
    return (
        sa.select(label_revisions.c.id)
        .where(
            label_revisions.c.gate == batches.c.gate,
            label_revisions.c.batch_id == batches.c.batch_id,
            label_revisions.c.attempt == batches.c.attempt,
            label_revisions.c.kind == gate.settings.severity_kind,
            # An expression, so that the planner comes by the batch and not by the number.
            label_revisions.c.id + 0 <= through,
        )
        .correlate(batches)
        .exists()
    )


def _label_of_a_drawn_response(settings: GateSettings) -> sa.Select[tuple[int]]:
    return (
        sa.select(label_revisions.c.id)
        .join_from(
            label_revisions,
            responses,
            (responses.c.batch == batches.c.id) & (responses.c.response_id == label_revisions.c.response_id),
        )
        .where(
            label_revisions.c.gate == batches.c.gate,
            label_revisions.c.batch_id == batches.c.batch_id,
            label_revisions.c.attempt == batches.c.attempt,
            label_revisions.c.kind == settings.severity_kind,
            responses.c.drawn,
            responses.c.score.is_not(None),
        )
        .correlate(batches, decisions)
    )


def _count(connection: sa.Connection, query: sa.Select[tuple[int]]) -> int:
    counted = sa.select(sa.func.count()).select_from(query.limit(MOST_COUNTED).subquery())
    return connection.execute(counted).scalar_one()
