"""The audit sample as calibration reads it: drawn batches, their scores as the gate cuts them, their severities."""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from streamer.gate import mean_score
from streamer.gate_shapes import rank_scores
from streamer.journal import BatchKey
from streamer.recalibration.run import SampledGroup, SampledItem
from streamer.ruling import segment_of
from streamer.store.labels import Severities
from streamer.store.schema import batches, decisions, gate_revisions, policies, responses

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from streamer.policy import GateSettings
    from streamer.recalibration.run import SeverityBasis
    from streamer.store.schema.types import Row


def readable(
    gate: str, settings: GateSettings, *, older_than: datetime, since_version: int | None
) -> tuple[sa.ColumnElement[bool], ...]:
    """What a decision must be for a run of these settings to read it; `decisions` joined with `batches`."""
    conditions = (
        decisions.c.gate == gate,
        decisions.c.sampled,
        decisions.c.decided_at < older_than,
        decisions.c.unit == settings.unit,
        decisions.c.scorer == settings.scorer,
        decisions.c.encoder == settings.encoder,
        batches.c.attempt == 1,
    )
    if since_version is None:
        return conditions
    # By policy and not by moment: workers date decisions, and their clocks may differ.
    return (*conditions, decisions.c.policy_version >= since_version)


def read_sample(
    connection: sa.Connection,
    gate: str,
    *,
    settings: GateSettings,
    older_than: datetime,
    since_version: int | None,
    severities: SeverityBasis,
) -> list[SampledGroup]:
    """Read what `streamer.recalibration.run.AuditSample` promises, in one snapshot that the caller holds open."""
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
            *readable(gate, settings, older_than=older_than, since_version=since_version),
            responses.c.score.is_not(None),
        )
        .order_by(decisions.c.decided_at, batches.c.id, responses.c.position)
    )
    given = Severities.read(connection, gate, settings.severity_kind, basis=severities)
    found = connection.execute(query).mappings()
    groups = [_group(list(rows), settings, given) for _, rows in groupby(found, key=itemgetter("id"))]
    return [
        group
        for group in groups
        if group.items and (settings.segment_by is None or group.segment is not None)
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
        row=rows[0]["id"],
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
