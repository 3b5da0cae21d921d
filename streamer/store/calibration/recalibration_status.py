"""How every gate stands between two runs: a few queries for all gates, and a count where something came.

What does not change is kept: policies by their versions, runs by their numbers, a gate's count until a label of it comes.
Counts are repeated in turn all the same: for batches that grow old enough to be read, labels that came before their
batch, and rows that became visible after later ones.
"""

import threading
from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

import sqlalchemy as sa

from streamer.gates.policy import GateRevision, Policy
from streamer.gates.setting_changes import calibrated_for_another
from streamer.recalibration.gate_status import GateStatus, LastRun
from streamer.store.calibration.group_counts import Asked, GroupCount, GroupCounts
from streamer.store.calibration.newest_runs import NewestRun, NewestRuns
from streamer.store.db.engine import Database
from streamer.store.db.schema import policies
from streamer.store.labels.read_labels import ReadLabels
from streamer.store.labels.revisions import Labels
from streamer.store.policies.gates import Gates
from streamer.store.policies.policies import Policies
from streamer.store.policies.policy_writer import PolicyWriter
from streamer.store.risk.alarm_closures import closures


class _InForce(NamedTuple):
    """The newest policy of a gate with its revision, and the newest run that any policy came from."""

    gate: GateRevision
    policy: Policy
    signed: bool
    run: int


class RecalibrationStatus:
    """Implements `streamer.recalibration.gate_status.GateStatuses`."""

    def __init__(
        self,
        database: Database,
        *,
        policies: Policies,
        gates: Gates,
        labels: Labels,
        writer: PolicyWriter,
        read: ReadLabels,
    ) -> None:
        self._database = database
        self._policies = policies
        self._gates = gates
        self._labels = labels
        self._writer = writer
        self._versions: dict[str, int] = {}
        self._in_force: dict[str, _InForce] = {}
        self._runs = NewestRuns()
        self._counts = GroupCounts(read)
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
    query = sa.select(every.c.gate, sa.func.max(every.c.version).label("version")).group_by(every.c.gate)
    return {row.gate: row.version for row in connection.execute(query)}
