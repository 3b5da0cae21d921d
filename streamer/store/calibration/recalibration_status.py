"""How every gate stands between two runs: a few queries for all gates, and a count where something came.

What does not change is kept: policies by their versions, runs by their numbers, a gate's count until a label of it comes.
Counts are made anew in turn all the same: for batches that grow old enough to be read, labels that came before their
batch, and rows that became visible after later ones.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from datetime import timedelta
from math import ceil
from typing import TYPE_CHECKING, NamedTuple

import sqlalchemy as sa

from streamer.gates.settings import calibrated_for_another
from streamer.recalibration.standing import MOST_COUNTED, GateStanding, LastRun
from streamer.store.calibration.audit_sample import readable
from streamer.store.db.schema import (
    batches,
    calibration_candidates,
    calibration_inputs,
    calibration_runs,
    decisions,
    gate_revisions,
    label_revisions,
    policies,
    responses,
)
from streamer.store.policies.policy_rows import SETTINGS, settings_of
from streamer.store.risk.alarm_closures import closures

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    from streamer.gates.policy import GateRevision, Policy
    from streamer.gates.settings import GateSettings
    from streamer.store.db.engine import Database
    from streamer.store.labels.read_labels import ReadLabels
    from streamer.store.labels.revisions import Labels
    from streamer.store.policies.gates import Gates
    from streamer.store.policies.policies import Policies
    from streamer.store.policies.policy_writer import Mint


_MOST_LABELS = 5 * MOST_COUNTED
"""A flood of labels for groups that have one already must not make a round long; runs by time go on."""

_MOST_SECONDS = 0.25
"""So long one look may count groups that were counted before; the rest waits for the next."""

_OLD_SECONDS = 60.0
"""A count that is older is made anew although no label came."""

_LATE_RUNS = 1000
"""A run gets its number when it is written and may become visible after so many later ones."""


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
    unchanged: bool
    held_until: datetime | None
    age_cut_seconds: float


class _InForce(NamedTuple):
    """The newest policy of a gate with its revision, and the newest run that any policy came from."""

    gate: GateRevision
    policy: Policy
    signed: bool
    run: int


@dataclass(slots=True)
class _Count:
    """New and raised groups, what they were counted against, and when by the monotonic clock."""

    new: int
    raised: int
    against: tuple[int | None, int | None, int]
    at: float


class GateStandings:
    """Implements `streamer.recalibration.standing.Standings`."""

    def __init__(
        self,
        database: Database,
        *,
        policies: Policies,
        gates: Gates,
        labels: Labels,
        mint: Mint,
        read: ReadLabels,
    ) -> None:
        self._database = database
        self._policies = policies
        self._gates = gates
        self._labels = labels
        self._mint = mint
        self._read = read
        self._versions: dict[str, int] = {}
        self._in_force: dict[str, _InForce] = {}
        self._newest: dict[str, int] = {}
        self._runs: dict[str, _Run] = {}
        self._counts: dict[str, _Count] = {}
        self._labels_seen: int | None = None
        self._labels_came: dict[str, int] = {}
        self._labelled: set[str] = set()
        self._labelled_at: dict[str, float] = {}
        self._one_at_a_time = threading.Lock()

    def standings(self, *, now: datetime, recount: bool = True) -> list[GateStanding]:
        """How every gate stands, by name. A gate whose newest policy cannot be read is left out.

        Without `recount` groups are counted where labels came, and of the others in turn.
        """
        with self._one_at_a_time, self._database.reading(snapshot=True) as connection:
            self._look_for_policies(connection)
            self._look_for_runs(connection)
            self._look_for_labels(connection)
            since = _since(connection)
            usable = {
                name: run
                for name, one in self._in_force.items()
                if (run := self._runs.get(name)) is not None
                and run.since_version == since.get(name)
                and not calibrated_for_another(run.settings, one.gate.settings)
            }
            self._count(connection, usable, since, now, recount=recount)
            return [
                self._standing(one, self._runs.get(name), since.get(name), usable=name in usable)
                for name, one in sorted(self._in_force.items())
            ]

    def labels_pending(self) -> Mapping[str, int]:
        """How many drawn responses of each gate wait for a severity."""
        return self._labels.pending()

    def labels_unread(self) -> Mapping[str, int]:
        """How many labels of each gate are recorded and not read."""
        unread = self._labels.unread()
        return {gate: unread[gate].total if gate in unread else 0 for gate in self._in_force}

    def _standing(self, one: _InForce, run: _Run | None, since: int | None, *, usable: bool) -> GateStanding:
        count = self._counts[one.gate.gate]
        last = None
        if run is not None:
            last = LastRun(
                run=run.number,
                finished_at=run.finished_at,
                groups=run.groups,
                usable=usable,
                candidates=run.candidates,
            )
        # As `proposals.newest` has it.
        proposed = (
            run is not None
            and run.number > one.run
            and not run.unchanged
            and (run.since_version or 0) >= (since or 0)
        )
        return GateStanding(
            gate=one.gate,
            policy=one.policy,
            last=last,
            new_groups=count.new,
            raised_groups=count.raised,
            proposed=proposed,
            held_until=run.held_until if run is not None and proposed else None,
            labels=self._labels_came.get(one.gate.gate, 0),
            missing_key=self._mint.missing_key(one.gate.gate, signed=one.signed),
        )

    def _look_for_policies(self, connection: sa.Connection) -> None:
        query = sa.select(
            policies.c.gate, sa.func.max(policies.c.version), sa.func.max(policies.c.calibration_run)
        )
        found = {
            name: (version, run) for name, version, run in connection.execute(query.group_by(policies.c.gate))
        }
        versions = {name: version for name, (version, _) in found.items()}
        if versions == self._versions:
            return
        revisions = {one.gate: one for one in self._gates.list()}
        newest = self._policies.versions()
        self._in_force = {
            name: _InForce(gate, one.active.policy, one.signature is not None, found[name][1] or 0)
            for name, gate in revisions.items()
            if (one := newest.get(name)) is not None and one.active is not None and name in found
        }
        # One that cannot be read is looked at again, and so is one that came while we read.
        self._versions = {
            name: one.policy.version
            for name, one in self._in_force.items()
            if one.policy.version == versions[name]
        }

    def _look_for_runs(self, connection: sa.Connection) -> None:
        through = max(self._newest.values(), default=0) - _LATE_RUNS
        query = sa.select(calibration_runs.c.gate, sa.func.max(calibration_runs.c.id)).where(
            calibration_runs.c.id > through
        )
        for gate, number in connection.execute(query.group_by(calibration_runs.c.gate)):
            self._newest[gate] = max(number, self._newest.get(gate, 0))
        unknown = [
            number
            for gate, number in self._newest.items()
            if (known := self._runs.get(gate)) is None or known.number != number
        ]
        self._runs |= dict(_runs(connection, unknown))

    def _look_for_labels(self, connection: sa.Connection) -> None:
        newest = connection.execute(sa.select(sa.func.max(label_revisions.c.id))).scalar() or 0
        seen = self._labels_seen
        if seen is not None and newest > seen:
            query = (
                sa.select(label_revisions.c.gate, sa.func.count())
                .where(label_revisions.c.id > seen)
                .group_by(label_revisions.c.gate)
            )
            came = set()
            for gate, labels in connection.execute(query):
                came.add(gate)
                self._labels_came[gate] = self._labels_came.get(gate, 0) + labels
            self._labelled |= came
            self._labelled_at |= dict.fromkeys(came, time.monotonic())
        self._labels_seen = newest

    def _count(
        self,
        connection: sa.Connection,
        usable: Mapping[str, _Run],
        since: Mapping[str, int],
        now: datetime,
        *,
        recount: bool,
    ) -> None:
        began = time.monotonic()
        for name, needed in self._to_count(usable, since, recount=recount):
            if not needed and time.monotonic() - began > _MOST_SECONDS:
                continue
            gate, run = self._in_force[name].gate, usable.get(name)
            labels = self._read.table(connection, name)
            new, raised = _groups(connection, labels, gate, run, since.get(name), now)
            against = _against(gate, run, since.get(name))
            self._counts[name] = _Count(new, raised, against, time.monotonic())
            self._labelled.discard(name)

    def _to_count(
        self, usable: Mapping[str, _Run], since: Mapping[str, int], *, recount: bool
    ) -> Iterator[tuple[str, bool]]:
        """Gates to be counted, the longest uncounted first, and whether the count that there is will not do."""
        aged = []
        for name in sorted(
            self._in_force, key=lambda one: self._counts[one].at if one in self._counts else 0.0
        ):
            count = self._counts.get(name)
            against = _against(self._in_force[name].gate, usable.get(name), since.get(name))
            if recount or count is None or count.against != against:
                yield name, True
            elif name in self._labelled or self._ripens(name, count.at):
                yield name, False
            elif time.monotonic() - count.at > _OLD_SECONDS:
                aged.append(name)
        for name in aged[: ceil(len(self._in_force) / 20)]:
            yield name, False

    def _ripens(self, name: str, counted_at: float) -> bool:
        """Whether labels came for decisions that were too young to be read when they were counted."""
        run = self._runs.get(name)
        deadline = max(
            self._in_force[name].gate.settings.label_deadline_seconds,
            0.0 if run is None else run.age_cut_seconds,
        )
        ripe = self._labelled_at.get(name, float("-inf")) + deadline
        return counted_at <= ripe and time.monotonic() - counted_at > deadline


def _against(gate: GateRevision, run: _Run | None, since: int | None) -> tuple[int | None, int | None, int]:
    return None if run is None else run.number, since, gate.revision


def _runs(connection: sa.Connection, numbers: Sequence[int]) -> Iterator[tuple[str, _Run]]:
    for start in range(0, len(numbers), 500):
        yield from _some_runs(connection, numbers[start : start + 500])


def _some_runs(connection: sa.Connection, numbers: Iterable[int]) -> Iterator[tuple[str, _Run]]:
    candidates: dict[int, list[tuple[str, float | None]]] = {}
    for one in connection.execute(
        sa.select(
            calibration_candidates.c.run, calibration_candidates.c.method, calibration_candidates.c.threshold
        )
        .where(calibration_candidates.c.run.in_(numbers))
        .order_by(calibration_candidates.c.run, calibration_candidates.c.method)
    ):
        candidates.setdefault(one.run, []).append((one.method, one.threshold))
    query = (
        sa.select(
            calibration_runs.c.id,
            calibration_runs.c.gate.label("of_gate"),
            calibration_runs.c.finished_at,
            calibration_runs.c.groups,
            calibration_runs.c.older_than,
            calibration_runs.c.since_version,
            calibration_runs.c.labels_through,
            calibration_runs.c.outcome,
            calibration_runs.c.held_until,
            calibration_runs.c.age_cut,
            *(gate_revisions.c[name] for name in SETTINGS),
        )
        .join(
            gate_revisions,
            (gate_revisions.c.gate == calibration_runs.c.gate)
            & (gate_revisions.c.revision == calibration_runs.c.gate_revision),
        )
        .where(calibration_runs.c.id.in_(numbers))
    )
    for row in connection.execute(query).mappings():
        yield (
            row["of_gate"],
            _Run(
                number=row["id"],
                finished_at=row["finished_at"],
                groups=row["groups"],
                candidates=tuple(candidates.get(row["id"], ())),
                settings=settings_of(row),
                older_than=row["older_than"],
                since_version=row["since_version"],
                # A run older than this column has read every label there was: none of them is told apart any more.
                labels_through=row["labels_through"] or 0,
                unchanged=row["outcome"] == "unchanged",
                held_until=row["held_until"],
                age_cut_seconds=0.0 if row["age_cut"] is None else row["age_cut"]["seconds"],
            ),
        )


def _since(connection: sa.Connection) -> dict[str, int]:
    """By gate, the policy from which on batches are read since its newest alarm."""
    every = closures().subquery()
    query = sa.select(every.c.gate, sa.func.max(every.c.version).label("version")).group_by(every.c.gate)
    return {row.gate: row.version for row in connection.execute(query)}


def _groups(
    connection: sa.Connection,
    labels: sa.FromClause,
    gate: GateRevision,
    run: _Run | None,
    since: int | None,
    now: datetime,
) -> tuple[int, int]:
    """Count the groups with a label that a run would read now and `run` has not read with one, and those raised since."""
    settings = gate.settings
    # What is younger than the newest run's age cut the next one will hardly read either.
    youngest = max(settings.label_deadline_seconds, 0.0 if run is None else run.age_cut_seconds)
    older_than = now - timedelta(seconds=youngest)
    would_read = readable(gate.gate, settings, older_than=older_than, since_version=since)
    if run is None:
        return _number(connection, _labelled_since(labels, gate, 0, would_read)), 0
    decided = sa.select(batches.c.id).join_from(decisions, batches, batches.c.id == decisions.c.batch)
    labelled = _label_of_a_drawn_response(labels, settings)
    young = decided.where(*would_read, decisions.c.decided_at >= run.older_than, labelled.exists())
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
    new = min(_number(connection, young) + _number(connection, late), MOST_COUNTED)
    return new, _number(connection, _raised_since(labels, gate, run))


def _raised_since(labels: sa.FromClause, gate: GateRevision, run: _Run) -> sa.Select[tuple[int]]:
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
        sa.select(
            labels.c.batch_id,
            labels.c.attempt,
            labels.c.response_id,
            labels.c.severity,
        )
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
        .join(
            batches,
            (batches.c.gate == gate.gate)
            & (batches.c.batch_id == recent.c.batch_id)
            & (batches.c.attempt == recent.c.attempt),
        )
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
            labels.c.gate == batches.c.gate,
            labels.c.batch_id == batches.c.batch_id,
            labels.c.attempt == batches.c.attempt,
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
            labels.c.gate == batches.c.gate,
            labels.c.batch_id == batches.c.batch_id,
            labels.c.attempt == batches.c.attempt,
            labels.c.kind == settings.severity_kind,
            responses.c.drawn,
            responses.c.score.is_not(None),
        )
        .correlate(batches, decisions)
    )


def _number(connection: sa.Connection, query: sa.Select[tuple[int]]) -> int:
    counted = sa.select(sa.func.count()).select_from(query.limit(MOST_COUNTED).subquery())
    return connection.execute(counted).scalar_one()
