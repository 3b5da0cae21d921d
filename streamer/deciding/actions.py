"""From a decided batch to the event that publishes it, byte for byte as it will be published and republished."""

from datetime import datetime
from typing import cast

import msgspec

from streamer.deciding.claims import Shipped
from streamer.events.actions import (
    SCHEMA,
    ActionAuditV1,
    ActionPolicyV1,
    ActionScorerV1,
    ActionSourceV1,
    ActionsV1,
    BatchAction,
    Reason,
    ResponseActionV1,
    action_id,
    call_seal,
)
from streamer.gates.batch_key import BatchKey
from streamer.gates.policy import Policy
from streamer.gates.policy_gate import Ruling
from streamer.gates.rule import Cut, Needed
from streamer.gates.settings import GateSettings
from streamer.journal import EmbeddingSource, Record, ScoredResponse
from streamer.scoring.judged import call_text


class Judged(msgspec.Struct, frozen=True):
    """What became of one batch; `ruling` is None when it was not scored."""

    ruling: Ruling | None
    cut: Cut
    segment: str | None
    uniforms: tuple[float, ...] | None
    shipped: tuple[bool, ...]
    outcome: BatchAction
    reason: str
    selected: str | None
    burst: str | None = None

    @property
    def best(self) -> int | None:
        """Position of the response that may ship; None but for the unit `best`."""
        return None if self.ruling is None else self.ruling.gate.best

    @property
    def needed(self) -> Needed | None:
        """The budget that its unit would have shipped with."""
        return None if self.ruling is None else self.ruling.needed


def needs_label(response: ScoredResponse, settings: GateSettings) -> bool:
    """Whether a drawn response is to be labelled: below a label floor nothing ever ships."""
    floor = settings.label_floor
    return floor is None or response.score is None or response.score > floor


def action_event(
    *,
    record: Record,
    key: BatchKey,
    content: bytes,
    policy: Policy,
    judged: Judged,
    responses: tuple[ScoredResponse, ...],
    sampled: bool,
    sampling_probability: float,
    decided_at: datetime,
    encoder: str,
    embedding_source: EmbeddingSource,
    shipped: Shipped | None = None,
) -> ActionsV1:
    """Say what was decided about one batch, under which policy, and what the audit asks for.

    `shipped` : of the response whose claims stand in the place of responses.
    """
    settings = policy.settings
    form = settings.form
    until = settings.at_desk_until(judged.outcome, len(responses), decided_at)
    chosen = [r for r in responses if form.ships is call_text and r.id == judged.selected]
    called = [call_text(r.text) for r in chosen]
    needed, place = judged.needed, judged.best or 0
    return ActionsV1(
        schema=SCHEMA,
        action_id=action_id(key),
        gate=key.gate,
        batch_id=key.batch_id,
        attempt=key.attempt,
        unit=settings.unit,
        action=judged.outcome,
        enforced=settings.mode == "enforce",
        selected=judged.selected,
        reason=cast("Reason", judged.reason),
        responses=tuple(
            [
                ResponseActionV1(
                    id=r.id,
                    score=r.score,
                    action=r.action,
                    budget_needed=msgspec.UNSET if needed is None or at != place else needed.share,
                    span=shipped.claims[at].span
                    if shipped is not None
                    else (form.span(r.text) if r.action == "ship" else None) or msgspec.UNSET,
                    not_read=r.not_read or msgspec.UNSET,
                )
                for at, r in enumerate(responses)
            ]
        ),
        policy=ActionPolicyV1(
            version=policy.version,
            state=judged.cut.state,
            threshold=judged.cut.threshold,
            alpha=settings.alpha,
            method=settings.method,
            segment=judged.segment,
        ),
        scorer=ActionScorerV1(
            name=settings.scorer, encoder=encoder, embedding_source=embedding_source, judged=settings.judged
        ),
        audit=ActionAuditV1(
            sampled=sampled,
            probability=sampling_probability,
            label=tuple([r.id for r in responses if r.drawn and needs_label(r, settings)]),
        ),
        source=ActionSourceV1(
            topic=record.partition.topic, partition=record.partition.number, offset=record.offset
        ),
        decided_at=decided_at,
        execute=call_seal(content, called[0]) if called else msgspec.UNSET,
        answer=msgspec.UNSET if shipped is None else shipped.answer,
        parts=msgspec.UNSET if shipped is None or not shipped.parts else shipped.parts,
        text_seal=msgspec.UNSET if shipped is None or shipped.seal is None else shipped.seal,
        desk_until=msgspec.UNSET if until is None else until,
    )
