"""How every gate stands between two runs: a few queries for all gates, and a count where something came.

What does not change is kept: policies by their versions, runs by their numbers, a gate's count until a label of it comes.
Counts are repeated in turn all the same: for batches that grow old enough to be read, labels that came before their
batch, and rows that became visible after later ones.
"""

import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import ceil
from typing import NamedTuple

import sqlalchemy as sa

from streamer.gates.policy import GateRevision, Policy
from streamer.gates.setting_changes import calibrated_for_another
from streamer.gates.settings import GateSettings
from streamer.recalibration.age_cut import AgeCut
from streamer.recalibration.gate_status import MOST_COUNTED, GateStatus, LastRun
from streamer.recalibration.run import SampleQuery
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
from streamer.store.db.schema.joins import BATCH, DECIDED, REVISION_OF_RUN, is_label, newest, same
from streamer.store.db.schema.types import of_row
from streamer.store.labels.read_labels import ReadLabels
from streamer.store.labels.revisions import Labels
from streamer.store.part import Part, Shared
from streamer.store.policies.gates import Gates
from streamer.store.policies.policies import Policies
from streamer.store.policies.policy_rows import SETTINGS, settings_of
from streamer.store.risk.alerts import closures

_LATE_RUNS = 1000
"""A run gets its number when it is written and may become visible after so many later ones."""


class NewestRun(NamedTuple):
    """The newest run of a gate, as far as the next one is concerned."""

    number: int
    started_at: datetime
    finished_at: datetime
    groups: int
    candidates: tuple[tuple[str, float | None], ...]
    settings: GateSettings
    older_than: datetime
    since_version: int | None
    labels_through: int
    unchanged: bool
    held_until: datetime | None
    age_cut: AgeCut


class NewestRuns:
    """The newest run of each gate that has one."""

    def __init__(self) -> None:
        self._newest: dict[str, int] = {}
        self._runs: dict[str, NewestRun] = {}

    def look(self, connection: sa.Connection) -> dict[str, NewestRun]:
        """Read those that came, and return all of them by gate."""
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
        for start in range(0, len(unknown), 500):
            self._runs |= dict(_runs(connection, unknown[start : start + 500]))
        return self._runs


def _runs(connection: sa.Connection, numbers: Iterable[int]) -> Iterator[tuple[str, NewestRun]]:
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
            *calibration_runs.c["started_at", "finished_at", "groups", "older_than", "since_version"],
            *calibration_runs.c["labels_through", "outcome", "held_until", "age_cut"],
            *gate_revisions.c[SETTINGS],
        )
        .join(gate_revisions, REVISION_OF_RUN)
        .where(calibration_runs.c.id.in_(numbers))
    )
    for row in connection.execute(query).mappings():
        yield (
            row["of_gate"],
            of_row(
                NewestRun,
                row,
                number=row["id"],
                candidates=tuple(candidates.get(row["id"], ())),
                settings=settings_of(row),
                unchanged=row["outcome"] == "unchanged",
                age_cut=AgeCut.from_json(row["age_cut"]),
            ),
        )


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
    decided = sa.select(batches.c.id).select_from(DECIDED)
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
        .select_from(DECIDED)
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
        .join_from(labels, responses, responses.c.batch == batches.c.id)
        .where(
            is_label(labels, batches, settings.severity_kind),
            responses.c.drawn,
            responses.c.score.is_not(None),
        )
        .correlate(batches, decisions)
    )


def _number(connection: sa.Connection, query: sa.Select[tuple[int]]) -> int:
    counted = sa.select(sa.func.count()).select_from(query.limit(MOST_COUNTED).subquery())
    return connection.execute(counted).scalar_one()


_MOST_SECONDS = 0.25
"""So long one look may count groups that were counted before; the rest waits for the next."""

_OLD_SECONDS = 60.0
"""A count that is older is repeated although no label came."""


class Asked(NamedTuple):
    """What groups of a gate are counted against: the newest `run` that the next one goes on from
    (None: all groups are new), and `since`, the policy from which on batches are read, after an
    alarm."""

    gate: GateRevision
    run: NewestRun | None
    since: int | None

    @property
    def against(self) -> tuple[int | None, int | None, int]:
        """What a count depends on, beside labels and time."""
        return None if self.run is None else self.run.number, self.since, self.gate.revision


@dataclass(slots=True)
class GroupCount:
    """New and raised groups, what they were counted against, and when by the monotonic clock."""

    new: int
    raised: int
    against: tuple[int | None, int | None, int]
    at: float


class GroupCounts:
    """The counts of all gates, kept until a label comes or time has passed."""

    def __init__(self, read: ReadLabels) -> None:
        self._read = read
        self._counts: dict[str, GroupCount] = {}
        self._labels_seen: int | None = None
        self._labels_came: dict[str, int] = {}
        self._labelled: set[str] = set()
        self._labelled_at: dict[str, float] = {}

    def count(
        self, connection: sa.Connection, asked: Mapping[str, Asked], now: datetime, *, recount: bool
    ) -> Mapping[str, GroupCount]:
        """Count where labels came, and of the other gates in turn; with `recount` everywhere."""
        self._look_for_labels(connection)
        began = time.monotonic()
        for name, needed in self._to_count(asked, recount=recount):
            if not needed and time.monotonic() - began > _MOST_SECONDS:
                continue
            one = asked[name]
            labels = self._read.table(connection, name)
            new, raised = new_and_raised(connection, labels, one.gate, one.run, one.since, now)
            self._counts[name] = GroupCount(new, raised, one.against, time.monotonic())
            self._labelled.discard(name)
        return self._counts

    def _look_for_labels(self, connection: sa.Connection) -> None:
        newest = connection.execute(sa.select(sa.func.max(label_revisions.c.id))).scalar() or 0
        seen = self._labels_seen
        if seen is not None and newest > seen:
            query = (
                sa.select(label_revisions.c.gate, sa.func.count())
                .where(label_revisions.c.id > seen)
                .group_by(label_revisions.c.gate)
            )
            for gate, labels in connection.execute(query):
                self._labels_came[gate] = self._labels_came.get(gate, 0) + labels
                self._labelled.add(gate)
                self._labelled_at[gate] = time.monotonic()
        self._labels_seen = newest

    def _to_count(self, asked: Mapping[str, Asked], *, recount: bool) -> Iterator[tuple[str, bool]]:
        """Gates to be counted, the longest uncounted first, and whether the count that there is will not do."""
        aged = []
        for name in sorted(asked, key=lambda one: self._counts[one].at if one in self._counts else 0.0):
            count = self._counts.get(name)
            against = asked[name].against
            if recount or count is None or count.against != against:
                yield name, True
            elif name in self._labelled or self._ripens(asked[name], count.at):
                yield name, False
            elif time.monotonic() - count.at > _OLD_SECONDS:
                aged.append(name)
        for name in aged[: ceil(len(asked) / 20)]:
            yield name, False

    def labels_seen(self, gate: str) -> int:
        """How many labels of a gate came since this process first looked."""
        return self._labels_came.get(gate, 0)

    def _ripens(self, one: Asked, counted_at: float) -> bool:
        """Whether labels came for decisions that were too young to be read when they were counted."""
        deadline = youngest_read(one.gate.settings, one.run)
        ripe = self._labelled_at.get(one.gate.gate, float("-inf")) + deadline
        return counted_at <= ripe and time.monotonic() - counted_at > deadline


class _InForce(NamedTuple):
    """The newest policy of a gate with its revision, and the newest run that any policy came from."""

    gate: GateRevision
    policy: Policy
    signed: bool
    run: int


class RecalibrationStatus(Part):
    """Implements `streamer.recalibration.gate_status.GateStatuses`."""

    def __init__(self, shared: Shared) -> None:
        super().__init__(shared)
        self._policies, self._gates, self._labels = Policies(shared), Gates(shared), Labels(shared)
        self._versions: dict[str, int] = {}
        self._in_force: dict[str, _InForce] = {}
        self._runs = NewestRuns()
        self._counts = GroupCounts(self._read)
        self._one_at_a_time = threading.Lock()

    def statuses(self, *, now: datetime, recount: bool = True) -> list[GateStatus]:
        """How every gate stands, by name. A gate whose newest policy cannot be read is left out.

        Without `recount` groups are counted where labels came, and of the others in turn.
        """
        with self._one_at_a_time, self._database.reading(snapshot=True) as connection:
            self._look_for_policies(connection)
            runs, since = self._runs.look(connection), _since(connection)
            asked = {
                name: Asked(one.gate, _usable(runs.get(name), one, since.get(name)), since.get(name))
                for name, one in self._in_force.items()
            }
            counts = self._counts.count(connection, asked, now, recount=recount)
            return [
                self._status(one, runs.get(name), asked[name], counts[name])
                for name, one in sorted(self._in_force.items())
            ]

    def labels_pending(self) -> Mapping[str, int]:
        return self._labels.pending()

    def labels_unread(self) -> Mapping[str, int]:
        unread = self._labels.unread()
        return {gate: unread[gate].total if gate in unread else 0 for gate in self._in_force}

    def _status(self, one: _InForce, run: NewestRun | None, asked: Asked, count: GroupCount) -> GateStatus:
        last = None
        if run is not None:
            last = LastRun(
                run=run.number,
                finished_at=run.finished_at,
                groups=run.groups,
                usable=asked.run is not None,
                candidates=run.candidates,
            )
        # As `proposals.newest` has it.
        proposed = (
            run is not None
            and run.number > one.run
            and not run.unchanged
            and (run.since_version or 0) >= (asked.since or 0)
        )
        return GateStatus(
            gate=one.gate,
            policy=one.policy,
            last=last,
            new_groups=count.new,
            raised_groups=count.raised,
            proposed=proposed,
            held_until=run.held_until if run is not None and proposed else None,
            labels=self._counts.labels_seen(one.gate.gate),
            missing_key=self._writer.missing_key(one.gate.gate, signed=one.signed),
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


def _usable(run: NewestRun | None, one: _InForce, since: int | None) -> NewestRun | None:
    """Return the run that the next one would go on from, if it was for what the gate is now."""
    if run is None or run.since_version != since:
        return None
    return None if calibrated_for_another(run.settings, one.gate.settings) else run


def _since(connection: sa.Connection) -> dict[str, int]:
    """By gate, the policy from which on batches are read since its newest alarm."""
    every = closures().subquery()
    return {row.gate: row.version for row in connection.execute(newest(every.c.version))}
