"""From a decided batch to the event that tells the world, byte for byte as it will be published and republished."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamer.events import cloudevents
from streamer.events.actions import (
    ActionsV1,
    AuditNote,
    DecidingPolicy,
    ResponseAction,
    ScorerName,
    Source,
    action_id,
    encode_action,
)
from streamer.journal import OutboxMessage

if TYPE_CHECKING:
    from datetime import datetime

    from streamer.journal import BatchKey, Record, ScoredResponse
    from streamer.policy import Policy


def action_message(
    *,
    record: Record,
    key: BatchKey,
    policy: Policy,
    outcome: str,
    reason: str,
    selected: str | None,
    responses: tuple[ScoredResponse, ...],
    sampled: bool,
    sampling_probability: float,
    decided_at: datetime,
    topic: str,
) -> tuple[str, OutboxMessage]:
    """Return the action's stable id and its message; the message's key is the input's."""
    identity = action_id(key)
    settings = policy.settings
    event = ActionsV1(
        action_id=identity,
        gate=key.gate,
        batch_id=key.batch_id,
        attempt=key.attempt,
        unit=settings.unit,
        action=outcome,
        enforced=settings.mode == "enforce",
        selected=selected,
        reason=reason,
        responses=[ResponseAction(id=r.id, score=r.score, action=r.action) for r in responses],
        policy=DecidingPolicy(
            version=policy.version,
            state=policy.state,
            lambda_=policy.threshold,
            alpha=settings.alpha,
            method=settings.method,
            segment=None,
        ),
        scorer=ScorerName(name=settings.scorer, encoder=settings.encoder),
        audit=AuditNote(
            sampled=sampled, probability=sampling_probability, label=[r.id for r in responses if r.drawn]
        ),
        source=Source(
            topic=record.partition.topic, partition=record.partition.number, offset=record.offset
        ),
        decided_at=decided_at,
    )
    headers = cloudevents.headers(
        type="streamer.actions.v1",
        source=f"/gates/{key.gate}",
        subject=key.batch_id,
        time=decided_at,
        id=identity,
        dataschema="streamer.actions.v1",
        trace=record.headers,
    )
    return identity, OutboxMessage(topic=topic, key=record.key, value=encode_action(event), headers=headers)
