"""Thresholds that a run found and that wait for somebody to put them in force."""

from dataclasses import replace
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from streamer.errors import UsageError
from streamer.gates.policy import SIGNED_IN, Policy
from streamer.gates.rule import Cut
from streamer.gates.setting_changes import calibrated_for_another
from streamer.recalibration.gate_rule import Proposal
from streamer.store.audit import control
from streamer.store.calibration.run_rows import bursts_of, with_prompts
from streamer.store.db.schema import (
    calibration_candidates,
    calibration_runs,
    gate_revisions,
    policies,
    proposal_rejections,
)
from streamer.store.db.schema.joins import CANDIDATE_OF_RUN, REVISION_OF_RUN
from streamer.store.db.schema.types import of_row
from streamer.store.part import Part
from streamer.store.policies.policy_rows import SETTINGS, settings_of
from streamer.store.risk.alerts import closures

_COLUMNS: tuple[sa.ColumnElement[Any], ...] = (
    calibration_runs.c.id.label("run"),
    calibration_runs.c.groups,
    calibration_runs.c["items"],
    *calibration_runs.c[
        "missing", "guarantee", "why", "requested_by", "finished_at", "held_until", "older_than", "burst_key"
    ],
    *calibration_candidates.c["state", "threshold", "rule"],
    *gate_revisions.c[SETTINGS],
)


class Proposals(Part):
    """What a gate's newest run found, and what people make of it."""

    def proposal(self, gate: str) -> Proposal | None:
        """What waits for somebody; None where nothing is proposed."""
        return self._database.read(newest, gate)

    def activate(self, gate: str, run: int | None = None, *, by: str, reason: str, now: datetime) -> Policy:
        """Put the threshold of the gate's newest run in force, under a new version.

        Only the newest: a choice among thresholds after labels were read has no guarantee. Raises
        `UsageError` when nothing is proposed, `run` is not what is, or the gate was changed since
        in what it is calibrated for.
        """

        def work(connection: sa.Connection) -> Policy:
            present = self._writer.lock_newest(connection, gate)
            proposal = newest(connection, gate)
            if (
                proposal is None
                and (connection.execute(_alarm_closure(gate)).scalar() or 0) >= present.version
            ):
                raise UsageError(
                    f"an alarm closed gate {gate!r} since its newest run, or should have: what was found before it is not proposed "
                    f"any more; `streamer recalibrate {gate} --propose` reads what was decided since"
                )
            proposal = _of_run(proposal, gate, run)
            if present.settings.two_people:
                require_another_person(gate, proposal.by, by)
            changed = calibrated_for_another(proposal.settings, present.settings)
            if changed:
                raise UsageError(
                    f"run {proposal.run} was calibrated for different settings than gate {gate!r} has now ({', '.join(changed)}); "
                    "recalibrate instead"
                )
            return self._writer.next(
                connection,
                replace(
                    present,
                    state=proposal.cut.state,
                    threshold=proposal.cut.threshold,
                    rule=proposal.rule,
                    calibrated=True,
                    calibration_run=proposal.run,
                    guarantee=proposal.guarantee,
                ),
                by=by,
                reason=reason,
                now=now,
            )

        return self._database.writing(work)

    def reject(self, gate: str, run: int | None = None, *, by: str, reason: str, now: datetime) -> Proposal:
        """Record that a proposal is rejected; it is not proposed again, and waits for nothing. Returns it.

        Raises `UsageError` when nothing is proposed, or `run` is not what is, or no reason is given.
        """

        def work(connection: sa.Connection) -> Proposal:
            self._writer.lock_any(connection, gate)
            proposal = _of_run(newest(connection, gate), gate, run)
            if not reason.strip():
                raise UsageError("say why the proposal is rejected")
            row = {"run": proposal.run, "rejected_at": now, "rejected_by": by, "reason": reason}
            control.insert(connection, proposal_rejections, row, now=now)
            return proposal

        return self._database.writing(work)


def _of_run(proposal: Proposal | None, gate: str, run: int | None) -> Proposal:
    """What is proposed, if it is of this run. Raises `UsageError`."""
    if proposal is None:
        raise UsageError(
            f"nothing is proposed for gate {gate!r}; `streamer recalibrate {gate} --propose` makes a proposal"
        )
    if run is not None and run != proposal.run:
        raise UsageError(
            f"run {run} is not what is proposed for gate {gate!r}: that is run {proposal.run}, and only the newest may "
            "be put in force"
        )
    return proposal


def newest(connection: sa.Connection, gate: str) -> Proposal | None:
    """What the gate's newest run found, if it was neither put in force nor rejected; None otherwise."""
    alarm = _alarm_closure(gate).scalar_subquery()
    in_force = (
        sa.select(sa.func.max(policies.c.calibration_run)).where(policies.c.gate == gate).scalar_subquery()
    )
    last = (
        sa.select(sa.func.max(calibration_runs.c.id)).where(calibration_runs.c.gate == gate).scalar_subquery()
    )
    row = (
        connection.execute(
            sa.select(*_COLUMNS)
            .select_from(calibration_runs)
            .join(calibration_candidates, CANDIDATE_OF_RUN)
            .join(gate_revisions, REVISION_OF_RUN)
            .where(
                calibration_runs.c.id == last,
                calibration_runs.c.id > sa.func.coalesce(in_force, 0),
                calibration_runs.c.id.not_in(sa.select(proposal_rejections.c.run)),
                calibration_runs.c.outcome.is_(None) | (calibration_runs.c.outcome != "unchanged"),
                # Older runs did not read what made an alarm close the gate.
                sa.func.coalesce(calibration_runs.c.since_version, 0) >= sa.func.coalesce(alarm, 0),
            )
        )
        .mappings()
        .one_or_none()
    )
    if row is None:
        return None
    return of_row(
        Proposal,
        row,
        gate=gate,
        settings=settings_of(row),
        cut=Cut(row["state"], row["threshold"]),
        rule=with_prompts(connection, row["rule"], row["run"], row["older_than"]),
        bursts=bursts_of(connection, settings_of(row), row["run"], row["burst_key"]),
        by=row["requested_by"],
        at=row["finished_at"],
    )


def _alarm_closure(gate: str) -> sa.Select[Any]:
    """The policy from which on batches are read since the gate's newest alarm."""
    return sa.select(sa.func.max(closures(gate).subquery().c.version))


def require_another_person(gate: str, proposer: str, by: str) -> None:
    """Raise `UsageError` unless `by` has signed in and is not, under any kind of name, who asked for the run."""
    if not by.startswith(SIGNED_IN):
        raise UsageError(
            f"gate {gate!r} demands two people: what is proposed comes into force by somebody who has signed in at the console "
            "(`streamer console`), not by a command"
        )
    if by.removeprefix(SIGNED_IN) == proposer.removeprefix(SIGNED_IN):
        raise UsageError(
            f"gate {gate!r} demands two people: {proposer.removeprefix(SIGNED_IN)} asked for this run, so that somebody else "
            "must approve what it found"
        )
