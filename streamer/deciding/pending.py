"""A batch on its way to a decision: what is known of it, what it is encoded by, and what its candidate gets."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np
import structlog
from numpy.typing import NDArray

from streamer.errors import EncoderGivenUp, Unavailable
from streamer.events.claims import ClaimV1
from streamer.events.responses import ResponsesV1, ResponseV1, dimension_of
from streamer.gates.batch_key import BatchKey
from streamer.gates.policy import ActivePolicy, CandidateDecision
from streamer.gates.settings import NO_ENCODER, GateSettings
from streamer.journal import AskedMark, BatchDecision, EmbeddingSource, Record
from streamer.scoring.encoders.encoder import CachedEncoder
from streamer.scoring.scorer import AnswerBatch
from streamer.scoring.unread_answers import Rule

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Pending:
    """A valid batch on its way to a decision: either `held` names why it will not be scored, or it gets scores.

    `claims` are what has the scores in place of the responses, where the gate decides claims.
    `rows` are the embeddings that came with it, shape (n, d); `signals` the row of signals of what its unit may ship; `batch` is what was scored, and `beside` what the candidate made of it
    before, where the gate has a candidate.
    """

    record: Record
    event: ResponsesV1
    key: BatchKey
    content_hash: bytes
    active: ActivePolicy
    blank: tuple[bool, ...]
    held: str | None
    late_at: datetime | None
    embeddings: EmbeddingSource = "none"
    rows: NDArray[np.float64] | None = None
    scores: tuple[float, ...] | None = None
    raw: tuple[float | None, ...] | None = None
    cloud: tuple[float, ...] | None = None
    asked: tuple[tuple[str, AskedMark], ...] = ()
    signals: NDArray[np.float32] | None = None
    not_read: tuple[Rule | None, ...] = ()
    batch: AnswerBatch | None = None
    beside: CandidateDecision | None = None
    claims: tuple[ClaimV1, ...] = ()

    @property
    def units(self) -> Sequence[ClaimV1 | ResponseV1]:
        """What is decided one by one: the responses, or the claims of a batch that has scores."""
        if self.claims and self.scores is not None:
            return self.claims
        return self.event.responses


def keep_scores(p: Pending, before: BatchDecision) -> None:
    """Take over the scores of an earlier decision of the same event, if the policy still asks for these."""
    settings = p.active.policy.settings
    p.asked = before.asked  # what was paid for stays on record
    p.beside = before.candidate
    asked = (settings.scorer, encoder_of(settings, p.embeddings), p.embeddings)
    if settings.signals != before.policy.settings.signals:
        return
    if p.held is not None or asked != (before.scorer, before.encoder, before.embedding_source):
        return
    scores = tuple(one.score for one in before.responses if one.score is not None)
    raw = tuple(one.raw_energy for one in before.responses)
    if scores:
        p.scores, p.cloud = scores, before.cloud
        p.signals = None if before.signals is None else np.frombuffer(before.signals, "<f4")
        p.raw = None if all(one is None for one in raw) else raw


def known_beside(p: Pending) -> CandidateDecision | None:
    """What the gate's candidate made of a batch when it was decided before, if it is the same one still."""
    candidate, known = p.active.candidate, p.beside
    return (
        known if candidate is not None and known is not None and known.candidate == candidate.number else None
    )


def parts_of(p: Pending) -> list[str]:
    """The judged part of each answer."""
    return p.active.policy.settings.form.parts([response.text for response in p.event.responses])


def embedded_each(batches: Sequence[Pending], encoder: CachedEncoder) -> list[NDArray[np.float32] | None]:
    """Embed each batch; if that fails, halve until only the failing ones are None."""
    if not batches:
        return []
    try:
        return list(encoder.embed(list(map(parts_of, batches))))
    except Unavailable:
        raise
    except EncoderGivenUp:
        if len(batches) == 1:
            return [None]  # the others may need texts alone that are remembered
    except Exception:
        if len(batches) == 1:
            key = batches[0].key
            log.warning("deciding.encoding_failed", gate=key.gate, batch_id=key.batch_id, exc_info=True)
            return [None]
    half = len(batches) // 2
    return embedded_each(batches[:half], encoder) + embedded_each(batches[half:], encoder)


def encoder_of(settings: GateSettings, source: EmbeddingSource) -> str:
    """What a decision names as the encoder of its scores."""
    return NO_ENCODER if source == "none" and settings.embeds else settings.encoder


def accepts(settings: GateSettings, event: ResponsesV1) -> bool:
    """Whether a gate takes the embeddings that came with a batch."""
    first = event.responses[0].embedding
    return first is not None and settings.accepts(event.embedding_encoder, dimension_of(first))
