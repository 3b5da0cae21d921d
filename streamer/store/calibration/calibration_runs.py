"""Calibration runs: exactly what each read, every calibrator's answer, the outcome and why; and the scores that an adopted
candidate made of batches decided before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from operator import itemgetter
from typing import Literal

import sqlalchemy as sa

from streamer.errors import UsageError
from streamer.events.alerts import AlertsV1
from streamer.gates.policy import RECALIBRATOR, Policy
from streamer.recalibration.age_cut import AgeCut
from streamer.recalibration.gate_rule import Held, Outcome
from streamer.recalibration.run import CalibrationRun, Heads, PolicyChanged, Since
from streamer.recalibration.sampled import SampledGroup
from streamer.risk.states import RiskAlarm
from streamer.store.audit import control
from streamer.store.calibration.audit_sample import AuditSamples
from streamer.store.calibration.run_rows import cut_of, inputs_of, write_run
from streamer.store.db import bulk_insert
from streamer.store.db.engine import writes_no_evidence
from streamer.store.db.schema import (
    batches,
    calibration_inputs,
    calibration_runs,
    carried_scores,
    carried_signals,
    decisions,
    label_revisions,
    monitor_alarms,
    monitor_gates,
    policies,
    proposal_rejections,
    responses,
    review_offers,
)
from streamer.store.db.schema.joins import is_label, same
from streamer.store.db.schema.types import Row
from streamer.store.log.progress import partition_heads
from streamer.store.part import Part
from streamer.store.policies.proposals import Proposals
from streamer.store.risk.alerts import closures, raise_alert

_CONTROL = {"log_id": "control", "topic": "", "partition": 0}
_HEAD = itemgetter("log_id", "topic", "partition", "size", "root")


class Calibrations(Proposals, AuditSamples):
    """Implements `streamer.recalibration.one_gate.RunStore`."""

    def newest_label(self) -> int:
        """Number of the newest label revision of any gate; 0 while there is none."""
        with self._reading() as connection:
            return connection.execute(sa.select(sa.func.max(label_revisions.c.id))).scalar() or 0

    def heads(self) -> Heads:
        with self._reading() as connection:
            log = control.head(connection).as_said()
            heads = [_CONTROL | log, *partition_heads(connection)]
            return tuple(_HEAD(head) for head in heads if head["size"])

    def alarm_closure(self, gate: str) -> Since | None:
        with self._reading() as connection:
            return _alarm_closure(connection, gate)

    def labelled_rows(self, run: int) -> set[int]:
        query = (
            sa.select(calibration_inputs.c.batch)
            .where(calibration_inputs.c.run == run, calibration_inputs.c.severity.is_not(None))
            .distinct()
        )
        return {batch for (batch,) in self._database.rows(query)}

    def standing_alarms(self, gate: str) -> frozenset[str]:
        return self._database.read(_standing_alarms, gate)

    def known_evidence(self, gate: str) -> float:
        query = sa.select(monitor_alarms.c.state).where(
            monitor_alarms.c.gate == gate,
            monitor_alarms.c.kind == "risk",
            monitor_alarms.c.raised_at.is_(None),
            monitor_alarms.c.ended.is_(None),
        )
        states = self._database.rows(query)
        return max((RiskAlarm.from_json(state).known_evidence for (state,) in states), default=0.0)

    def shown(self, gate: str, kind: str, *, before: datetime, deadline: timedelta) -> list[tuple[str, bool]]:
        """To whom the review page showed drawn answers before a moment, in order; True where no label came by the deadline.

        Labels that the gate does not read have not come.
        """
        with self._database.reading() as connection:
            labels = self._read.table(connection, gate).alias("read")
            came = sa.select(sa.func.min(labels.c.received_at)).where(is_label(labels, batches, kind))
            first = came.correlate(batches, responses).scalar_subquery()
            query = (
                sa.select(review_offers.c.labeller, review_offers.c.offered_at, first)
                .join(batches, batches.c.id == review_offers.c.batch)
                .join(responses, same(responses, review_offers, "batch", "position"))
                .where(
                    batches.c.gate == gate,
                    responses.c.drawn,
                    review_offers.c.kind == kind,
                    review_offers.c.offered_at < before,
                )
                .order_by(review_offers.c.offered_at, review_offers.c.token)
            )
            found = connection.execute(query).all()
        return [(who, came is None or came > at + deadline) for who, at, came in found]

    def unwatched_since(self, gate: str) -> datetime | None:
        """When the first decision was made that the gate's alarms have not read; None: they have read all, or never began."""
        query = (
            sa.select(decisions.c.decided_at)
            .join_from(monitor_gates, decisions, decisions.c.gate == monitor_gates.c.gate)
            .where(
                monitor_gates.c.gate == gate,
                decisions.c.batch > sa.func.coalesce(monitor_gates.c.bet_batch, monitor_gates.c.read_batch),
            )
            .order_by(decisions.c.batch)
            .limit(1)
        )
        return next((moment for (moment,) in self._database.rows(query)), None)

    def waiting(self, gate: str) -> str | None:
        """Say which labels the gate's newest run has not used yet, and which draws counted as wrong; None: nothing."""
        runs = calibration_runs.c
        query = (
            sa.select(runs.age_cut, runs.missing).where(runs.gate == gate).order_by(runs.id.desc()).limit(1)
        )
        found = self._database.rows(query)
        return AgeCut.from_json(found[0].age_cut).said(found[0].missing, gate) if found else None

    def held(self, gate: str) -> Held | None:
        runs = calibration_runs.c
        newest = sa.select(sa.func.max(runs.id)).where(runs.gate == gate).scalar_subquery()
        since = sa.select(sa.func.max(policies.c.valid_from)).where(policies.c.gate == gate).scalar_subquery()
        query = sa.select(runs.id, runs.held_until).where(
            runs.id == newest,
            runs.held_until.is_not(None),
            runs.finished_at >= since,
            runs.id.not_in(sa.select(proposal_rejections.c.run)),
        )
        found = self._database.rows(query)
        return Held(run=found[0].id, until=found[0].held_until) if found else None

    def record_run(
        self,
        run: CalibrationRun,
        *,
        by: str,
        reason: str,
        now: datetime,
        why: str = "",
        expected: int | None = None,
        known_alarms: frozenset[str] | None = None,
        alert: AlertsV1 | None = None,
    ) -> Policy:
        """Store the run with all inputs and candidates, and the policy that follows, in one
        transaction.

        `why` it is put in force is for the record; `alert` is raised in the same transaction.
        Raises `PolicyChanged` when `expected` is no longer the version in force (None: whichever
        is), the gate was revised since the run began (its settings are no longer what was
        calibrated for), an alarm was raised since that restarts its sample, or one of another kind
        than the `known_alarms` stands (None: whichever do); `UsageError` when the newest policy is
        not trusted, or there is no key to sign the next one with.
        """

        def work(connection: sa.Connection) -> Policy:
            identity, present = self._store(
                connection, run, expected, by=by, now=now, outcome="applied", why=why
            )
            if present.settings.two_people and by != RECALIBRATOR:
                raise UsageError(
                    f"gate {run.gate.gate!r} demands two people: have the run propose what it finds (--propose), and "
                    "somebody else put it in force at the console"
                )
            if known_alarms is not None:
                new = _standing_alarms(connection, run.gate.gate) - known_alarms
                if new:
                    raise PolicyChanged(
                        f"an alarm ({', '.join(sorted(new))}) of gate {run.gate.gate} was raised while a run was made"
                        " that would hold less; run again"
                    )
            decided = run.decided
            policy = self._writer.next(
                connection,
                replace(
                    present,
                    state=decided.state,
                    threshold=cut_of(decided),
                    rule=run.rule,
                    calibrated=True,
                    calibration_run=identity,
                    guarantee=run.guarantee,
                ),
                by=by,
                reason=reason,
                now=now,
            )
            if alert is not None:
                raise_alert(connection, alert, message=self._shared.alert_message, now=now)
            self._database.failpoint("in_record")
            return policy

        return self._database.writing(work)

    def record_only(
        self,
        run: CalibrationRun,
        outcome: Literal["proposed", "unchanged"],
        *,
        by: str,
        now: datetime,
        why: str = "",
        expected: int | None = None,
    ) -> int:
        """Store the run with all inputs and candidates and leave the policy as it is; returns the run's number.

        What is proposed waits for `activate`, as long as it is the gate's newest run: older proposals are gone. Raises as
        `record_run` does.
        """

        def work(connection: sa.Connection) -> int:
            identity, _ = self._store(connection, run, expected, by=by, now=now, outcome=outcome, why=why)
            self._database.failpoint("in_record")
            return identity

        return self._database.writing(work)

    def _store(
        self,
        connection: sa.Connection,
        run: CalibrationRun,
        expected: int | None,
        *,
        by: str,
        now: datetime,
        outcome: Outcome,
        why: str,
    ) -> tuple[int, Policy]:
        """Write a run, then lock its gate; returns the run's number and the gate's newest policy.

        Everything that takes long comes before the lock: closing the gate meanwhile does not wait.
        """
        self._database.take_time(connection)
        writes_no_evidence(connection)
        identity = write_run(connection, run, by=by, now=now, outcome=outcome, why=why)
        sealed = control.sealed_rows(connection, calibration_runs, [(identity,)])
        self._database.be_brief(connection)
        present = self._unrevised(connection, run, expected)
        control.append_sealed(connection, calibration_runs, sealed, now=now)
        return identity, present

    def _unrevised(self, connection: sa.Connection, run: CalibrationRun, expected: int | None) -> Policy:
        """Lock the run's gate and return its newest policy; raise `UsageError` if the gate was revised since."""
        present = self._writer.lock_newest(connection, run.gate.gate)
        if expected is not None and present.version != expected:
            raise PolicyChanged(
                f"gate {run.gate.gate} got policy {present.version} while a run was compared with {expected}; run again"
            )
        if present.gate_revision != run.gate.revision:
            raise PolicyChanged(
                f"gate {run.gate.gate} was changed to revision {present.gate_revision} while revision"
                f" {run.gate.revision} was calibrated; run again"
            )
        since = _alarm_closure(connection, run.gate.gate)
        if since is not None and (run.since is None or run.since.version != since.version):
            raise PolicyChanged(
                f"an alarm was raised while gate {run.gate.gate} was calibrated, and what was read came before it; run again"
            )
        if (present.settings, present.seed) != (run.gate.settings, run.gate.seed):
            raise UsageError(
                f"revision {run.gate.revision} of gate {run.gate.gate} was changed in the database while it was calibrated;"
                " `streamer audit verify` says more"
            )
        return present

    def inputs(self, run: int) -> list[SampledGroup]:
        """What a stored run read, exactly, in order of decision and by response. Raises `UsageError` when there is no such run."""
        with self._database.reading() as connection:
            if (
                connection.scalar(sa.select(calibration_runs.c.id).where(calibration_runs.c.id == run))
                is None
            ):
                raise UsageError(f"there is no calibration run {run}")
            return inputs_of(connection, run)

    def sample(self, run: int) -> list[SampledGroup]:
        """Those of `inputs` that the run calibrated on, for it may have read newer ones; none where there is no such run."""
        with self._database.reading() as connection:
            older_than = connection.scalar(
                sa.select(calibration_runs.c.older_than).where(calibration_runs.c.id == run)
            )
            found = inputs_of(connection, run)
        return [
            one
            for one in found
            if older_than is not None and (one.decided_at is None or one.decided_at < older_than)
        ]


def _alarm_closure(connection: sa.Connection, gate: str) -> Since | None:
    found = closures(gate).subquery()
    row = connection.execute(sa.select(found).order_by(found.c.version.desc()).limit(1)).first()
    return None if row is None else Since(row.version, row.moment, bool(row.closed))


def _standing_alarms(connection: sa.Connection, gate: str) -> frozenset[str]:
    query = sa.select(monitor_alarms.c.kind).where(
        monitor_alarms.c.gate == gate,
        monitor_alarms.c.raised_at.is_not(None),
        monitor_alarms.c.ended.is_(None),
    )
    return frozenset(connection.execute(query).scalars())


class CarriedScores(Part):
    """Scores of earlier batches, sealed; a batch has one set of them a scorer."""

    def keep(self, scorer: str, scores: Mapping[int, Mapping[str, float]]) -> None:
        decided, known = (
            sa.select(table.c.batch).where(table.c.scorer == scorer, table.c.batch.in_(list(scores)))
            for table in (decisions, carried_scores)
        )
        rows = [
            {"scorer": scorer, "batch": batch, "response_id": response, "score": score}
            for batch, found in scores.items()
            for response, score in found.items()
        ]
        self._keep(carried_scores, rows, known.union(decided))

    def keep_signals(self, listed: str, signals: Mapping[int, bytes]) -> None:
        """Keep the rows of batches by the list with this hash."""
        known = sa.select(carried_signals.c.batch).where(
            carried_signals.c.list == listed, carried_signals.c.batch.in_(list(signals))
        )
        rows = [{"list": listed, "batch": batch, "signals": row} for batch, row in signals.items()]
        self._keep(carried_signals, rows, known)

    def _keep(self, table: sa.Table, rows: Sequence[Row], known: sa.Executable) -> None:
        """Write and seal the rows but of batches that are known."""

        def work(connection: sa.Connection) -> None:
            there = set(connection.execute(known).scalars())
            new = [row for row in rows if row["batch"] not in there]
            if new:
                bulk_insert.append(connection, table, new)
                keys = [tuple(row[one.name] for one in table.primary_key) for row in new]
                control.append(connection, table, keys, now=self._clock())

        self._database.writing(work)
