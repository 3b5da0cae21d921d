"""The audit sample as calibration reads it, and the runs: exactly what they read, and every calibrator's answer."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from streamer.errors import UsageError
from streamer.gate import mean_score
from streamer.gate_shapes import rank_scores
from streamer.journal import BatchKey
from streamer.recalibration.run import SampledGroup, SampledItem
from streamer.ruling import segment_of
from streamer.store import bulk, control, proposals
from streamer.store.labels import Severities
from streamer.store.schema import (
    batches,
    calibration_candidates,
    calibration_inputs,
    calibration_runs,
    decisions,
    gate_revisions,
    policies,
    responses,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from streamer.calibration import Threshold
    from streamer.policy import GateSettings, Policy
    from streamer.recalibration.run import CalibrationRun
    from streamer.store.engine import Database
    from streamer.store.minting import Mint
    from streamer.store.proposals import Proposal
    from streamer.store.schema.types import Row


class Calibrations:
    """Implements `streamer.recalibration.run.CalibrationStore`."""

    def __init__(self, database: Database, *, mint: Mint) -> None:
        self._database = database
        self._mint = mint

    def audit_sample(self, gate: str, *, settings: GateSettings, older_than: datetime) -> list[SampledGroup]:
        """The audit sample that these settings can be calibrated on, in order of decision.

        First attempts that were drawn, scored under these settings' unit, scorer and encoder, and decided before
        `older_than`; of each, the drawn responses with their present severity of the settings' kind (None while
        there is no label), and what the settings' gate cuts: the response's score, for unit `batch` the batch's
        mean, for shape `rank` the rank within the batch. Where the settings have segments, batches whose segment is
        no longer known (their metadata are erased, and no policy had these segments) are passed over.
        """
        query = (
            sa.select(
                batches.c.id,
                batches.c.gate,
                batches.c.batch_id,
                batches.c.attempt,
                decisions.c.sampling_probability,
                responses.c.response_id,
                responses.c.score,
                responses.c.drawn,
                gate_revisions.c.audit_draws,
                *_segment_columns(settings),
            )
            .join_from(decisions, batches, batches.c.id == decisions.c.batch)
            .join(responses, responses.c.batch == decisions.c.batch)
            .join(
                policies,
                (policies.c.gate == decisions.c.gate) & (policies.c.version == decisions.c.policy_version),
            )
            .join(
                gate_revisions,
                (gate_revisions.c.gate == policies.c.gate)
                & (gate_revisions.c.revision == policies.c.gate_revision),
            )
            .where(
                decisions.c.gate == gate,
                decisions.c.sampled,
                decisions.c.decided_at < older_than,
                decisions.c.unit == settings.unit,
                decisions.c.scorer == settings.scorer,
                decisions.c.encoder == settings.encoder,
                batches.c.attempt == 1,
                responses.c.score.is_not(None),
            )
            .order_by(decisions.c.decided_at, batches.c.id, responses.c.position)
        )
        with self._database.reading(snapshot=True) as connection:
            severities = Severities.read(connection, gate, settings.severity_kind)
            found = connection.execute(query).mappings()
            groups = [
                _group(list(rows), settings, severities) for _, rows in groupby(found, key=itemgetter("id"))
            ]
        return [
            group
            for group in groups
            if group.items and (settings.segment_by is None or group.segment is not None)
        ]

    def record_run(
        self, run: CalibrationRun, *, guarantee: str, by: str, reason: str, now: datetime
    ) -> Policy:
        """Store the run with all inputs and candidates, and the policy that follows, in one transaction.

        Raises
        ------
        UsageError
            When the gate was revised since the run began: its settings are no longer what was calibrated for.
        """

        def work(connection: sa.Connection) -> Policy:
            present = self._unrevised(connection, run)
            identity = _store(connection, run, guarantee=guarantee, by=by, now=now)
            decided = run.decided
            return self._mint.next(
                connection,
                replace(
                    present,
                    state=decided.state,
                    threshold=_cut(decided),
                    rule=run.rule,
                    calibrated=True,
                    calibration_run=identity,
                    guarantee=guarantee,
                ),
                by=by,
                reason=reason,
                now=now,
            )

        return self._database.writing(work)

    def propose(self, run: CalibrationRun, *, guarantee: str, by: str, now: datetime) -> int:
        """Store the run with all inputs and candidates and leave the policy as it is; returns the run's number.

        `activate` puts it in force, as long as it is the gate's newest run. Raises `UsageError` as `record_run` does.
        """

        def work(connection: sa.Connection) -> int:
            self._unrevised(connection, run)
            return _store(connection, run, guarantee=guarantee, by=by, now=now)

        return self._database.writing(work)

    def _unrevised(self, connection: sa.Connection, run: CalibrationRun) -> Policy:
        """Lock the run's gate and return its newest policy; raise `UsageError` if the gate was revised since."""
        present = self._mint.lock_newest(connection, run.gate.gate)
        if present.gate_revision != run.gate.revision:
            raise UsageError(
                f"gate {run.gate.gate} was changed to revision {present.gate_revision} while revision"
                f" {run.gate.revision} was calibrated; run again"
            )
        if (present.settings, present.seed) != (run.gate.settings, run.gate.seed):
            raise UsageError(
                f"revision {run.gate.revision} of gate {run.gate.gate} was changed in the database while it was calibrated;"
                " `streamer audit verify` tells more"
            )
        return present

    def activate(self, gate: str, run: int | None = None, *, by: str, reason: str, now: datetime) -> Policy:
        """Put the threshold of the gate's newest run in force, under a new version.

        Only the newest: whoever may pick among thresholds after labels were read is promised nothing.

        Raises
        ------
        UsageError
            When nothing is proposed, `run` is not what is, or the gate was changed since in what it is calibrated for.
        """
        return self._database.writing(
            lambda connection: proposals.activate(
                connection, gate, run, by=by, reason=reason, now=now, mint=self._mint
            )
        )

    def proposal(self, gate: str) -> Proposal | None:
        """What the gate's newest run found, if it was not put in force; None if it was, or there is none."""
        with self._database.reading() as connection:
            return proposals.newest(connection, gate)

    def inputs(self, run: int) -> list[SampledGroup]:
        """What a stored run read, exactly, in order of decision and by response. Raises `UsageError` when there is no such run."""
        query = (
            sa.select(
                batches.c.id,
                batches.c.gate,
                batches.c.batch_id,
                batches.c.attempt,
                calibration_inputs.c.response_id,
                calibration_inputs.c.score,
                calibration_inputs.c.severity,
                calibration_inputs.c.probability,
                calibration_inputs.c.draws,
                calibration_inputs.c.segment,
            )
            .join_from(calibration_inputs, batches, batches.c.id == calibration_inputs.c.batch)
            .join(decisions, decisions.c.batch == batches.c.id)
            .where(calibration_inputs.c.run == run)
            .order_by(decisions.c.decided_at, batches.c.id, calibration_inputs.c.response_id)
        )
        with self._database.reading() as connection:
            found = connection.execute(query).mappings().all()
        if not found:
            raise UsageError(f"there is no calibration run {run}")
        return [
            SampledGroup(
                key=BatchKey(rows[0]["gate"], rows[0]["batch_id"], rows[0]["attempt"]),
                probability=rows[0]["probability"],
                items=tuple(
                    SampledItem(response_id=row["response_id"], score=row["score"], severity=row["severity"])
                    for row in rows
                ),
                draws=rows[0]["draws"],
                segment=rows[0]["segment"],
            )
            for rows in (list(group) for _, group in groupby(found, key=itemgetter("id")))
        ]


def _group(rows: Sequence[Row], settings: GateSettings, severities: Severities) -> SampledGroup:
    key = BatchKey(rows[0]["gate"], rows[0]["batch_id"], rows[0]["attempt"])
    scores = [row["score"] for row in rows]
    if settings.unit == "batch":
        scores = [mean_score(scores)] * len(scores)
    elif settings.shape == "rank":
        scores = rank_scores(scores).tolist()
    return SampledGroup(
        key=key,
        probability=rows[0]["sampling_probability"],
        items=tuple(
            SampledItem(
                response_id=row["response_id"],
                score=score,
                severity=severities.get(key, row["response_id"]),
            )
            for row, score in zip(rows, scores, strict=True)
            if row["drawn"]
        ),
        draws=rows[0]["audit_draws"],
        segment=_segment(rows[0], settings.segment_by),
    )


def _segment_columns(settings: GateSettings) -> tuple[sa.ColumnElement[Any], ...]:
    """Metadata are read only where segments are asked for: they may be long."""
    if settings.segment_by is None:
        return ()
    return (batches.c.metadata, decisions.c.segment, gate_revisions.c.segment_by)


def _segment(row: Row, key: str | None) -> str | None:
    """The segment of a batch: from its metadata, or as it was recorded by a policy with the same segments."""
    if key is None:
        return None
    if row["metadata"] is not None:
        return segment_of(row["metadata"], key)
    recorded: str | None = row["segment"]
    return recorded if row["segment_by"] == key else None


def _store(connection: sa.Connection, run: CalibrationRun, *, guarantee: str, by: str, now: datetime) -> int:
    columns = [batches.c.gate, batches.c.batch_id, batches.c.attempt]
    identity: int = connection.execute(
        sa.insert(calibration_runs)
        .values(
            gate=run.gate.gate,
            gate_revision=run.gate.revision,
            method=run.gate.settings.method,
            alpha=run.effective_alpha,
            seed=run.seed,
            older_than=run.older_than,
            groups=len(run.groups),
            items=run.drawn,
            missing=run.missing,
            state=run.decided.state,
            threshold=_cut(run.decided),
            guarantee=guarantee,
            requested_by=by,
            started_at=run.started_at,
            finished_at=now,
        )
        .returning(calibration_runs.c.id)
    ).scalar_one()
    ids = {
        BatchKey(row["gate"], row["batch_id"], row["attempt"]): row["id"]
        for row in bulk.look_up(
            connection,
            sa.select(batches.c.id, *columns),
            columns,
            sorted({group.key for group in run.groups}),
        )
    }
    inputs: list[dict[str, Any]] = [
        {
            "run": identity,
            "batch": ids[group.key],
            "response_id": item.response_id,
            "score": item.score,
            "severity": item.severity,
            "probability": group.probability,
            "draws": group.draws,
            "segment": group.segment,
        }
        for group in run.groups
        for item in group.items
    ]
    bulk.append(connection, calibration_inputs, inputs)
    bulk.append(
        connection,
        calibration_candidates,
        [
            {
                "run": identity,
                "method": candidate.name,
                "decides": candidate.decides,
                "state": candidate.threshold.state,
                "threshold": _cut(candidate.threshold),
                "rule": candidate.rule,
                "guarantee": candidate.threshold.guarantee,
            }
            for candidate in run.candidates
        ],
    )
    control.append(connection, calibration_runs, [(identity,)], now=now)
    return identity


def _cut(threshold: Threshold) -> float | None:
    return float(threshold.value) if threshold.state == "cut" else None
