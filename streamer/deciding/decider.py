"""From records to outcomes: decode, score what can be scored with one call of an encoder, gate, draw the audit sample."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from itertools import repeat
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import structlog
from numpy.typing import NDArray

from streamer.deciding.actions import Judged, action_event
from streamer.deciding.candidates import WAIT_SECONDS, CandidateScorer, beside_of
from streamer.deciding.claims import claims_of, recorded, shipped_of
from streamer.deciding.measuring import NoScore, batch_made, measured, scores_given
from streamer.deciding.pending import (
    Pending,
    accepts,
    embedded_each,
    encoder_of,
    keep_scores,
    known_beside,
    parts_of,
)
from streamer.deciding.policy_book import PolicyBook
from streamer.errors import BadMessage
from streamer.events import codes
from streamer.events.actions import BatchAction, action_message
from streamer.events.claims import ClaimV1
from streamer.events.cloudevents import traced
from streamer.events.dead_letters import dead_letter_message
from streamer.events.labels import decode_label, label_revision
from streamer.events.limits import Limits
from streamer.events.outgoing import UNREADABLE, truncation
from streamer.events.responses import (
    UPSTREAM,
    ResponsesV1,
    content_hash,
    decode_responses,
    embedding_rows,
    recorded_metadata,
)
from streamer.events.topics import HTTP_LABELS, Topics
from streamer.gates.audit_rate import probability_under
from streamer.gates.batch_key import BatchKey
from streamer.gates.policy import ActivePolicy, Policy, segment_of
from streamer.gates.policy_gate import PolicyGate, Ruling
from streamer.gates.rule import BatchCut, Cut, Segments
from streamer.gates.settings import NO_ENCODER
from streamer.gates.uniforms import uniforms_for
from streamer.journal import (
    AnswersToMark,
    BatchDecision,
    DeadLetter,
    EmbeddingSource,
    LabelRevision,
    Outcome,
    Record,
    Redelivery,
    ScoredResponse,
)
from streamer.labels.audit_sample import draw_responses, is_sampled
from streamer.scoring.cloud import cloud_numbers
from streamer.scoring.encoders.encoder import CachedEncoder
from streamer.tracing import NO_TRACING, Tracing

if TYPE_CHECKING:
    from streamer.labels.judge.scores import JudgeScores

log = structlog.get_logger(__name__)


class _Named(msgspec.Struct):
    """An event as far as it names its gate; reading no more of it takes a tenth of the time."""

    gate: str


_named = msgspec.json.Decoder(_Named)


def _gate_of(record: Record) -> str | None:
    """The gate of an event in the plain form; others wait for their turn."""
    try:
        return _named.decode(record.value or b"").gate
    except msgspec.MsgspecError:
        return None


class BatchDecider:
    """Turns records of the responses and labels topics into outcomes. Implements
    `streamer.stream`'s `Decider`.

    `known` gives the content hashes of batches that are decided already. `encoder` embeds texts;
    its identity is compared with what each gate was calibrated with. None: this worker decides
    batches that bring their embeddings or scores, where the gate takes them, and holds the others
    (`encoder_mismatch`). `candidate_encoder` is another one, for candidate policies and for gates
    that were calibrated with it; a call of `outcomes` waits for candidates for at most
    `candidate_seconds`, >= 0. `judge` marks answers for gates of the scorer `judge`; None: those
    hold (`encoder_mismatch`). `topics` and `limits` are names and bounds for what is read; `clock`
    gives the present time, with zone. `tracing` is told what is decided; actions carry the traces
    that it gives.
    """

    def __init__(
        self,
        *,
        book: PolicyBook,
        known: Callable[[Sequence[BatchKey]], dict[BatchKey, bytes]],
        encoder: CachedEncoder | None,
        topics: Topics,
        limits: Limits,
        clock: Callable[[], datetime],
        judge: JudgeScores | None = None,
        tracing: Tracing = NO_TRACING,
        candidate_encoder: CachedEncoder | None = None,
        candidate_seconds: float = WAIT_SECONDS,
    ) -> None:
        self._judge = judge
        self._book = book
        self._known = known
        self._topics = topics
        self._limits = limits
        self._clock = clock
        self._tracing = tracing
        self._gates: dict[str, tuple[int, PolicyGate]] = {}
        self._encoders = {one.identity.id: one for one in (candidate_encoder, encoder) if one is not None}
        self._candidates = CandidateScorer(self._encoders, seconds=candidate_seconds)

    def outcomes(self, records: Sequence[Record], outdated: Sequence[Outcome] = ()) -> list[Outcome]:
        """Decide `records`, one outcome each, in order.

        With `outdated`, earlier outcomes of the same records, they are decided again by the newest policies; scores that
        are still those the gate asks for are taken from there. Blocks (database, encoder); raises `Unavailable` when
        either is unavailable. No content raises an error on purpose; if one does, the stream isolates
        the record (`streamer.stream.isolation`).
        """
        self._tracing.begin([traced(record) for record in records])
        results: list[Outcome | Pending] = []
        decoded: list[tuple[Record, ResponsesV1 | LabelRevision | DeadLetter]] = [
            (record, self._decode(record)) for record in records
        ]
        self._learn_unknown_gates(decoded)
        if outdated:
            self._book.refresh({one.key.gate for one in outdated if isinstance(one, BatchDecision)})
        for (record, item), before in zip(decoded, outdated or repeat(None, len(decoded)), strict=True):
            if isinstance(item, DeadLetter):
                results.append(item)
            else:
                gate = item.key.gate
                active = self._book.get(gate)
                if active is None:
                    results.append(
                        self.dead_letter(
                            record,
                            codes.UNKNOWN_GATE,
                            f"there is no gate {gate!r}; create it with `streamer gate create`",
                        )
                    )
                elif isinstance(item, LabelRevision):
                    results.append(item)
                else:
                    pending = self._admit(record, item, active)
                    if isinstance(before, BatchDecision):
                        keep_scores(pending, before)
                    results.append(pending)
        undecided = self._set_known_aside(results)
        unscored = [p for p in undecided if p.held is None and p.scores is None]
        with self._tracing.scoring([p.record for p in unscored]):
            self._score(unscored)
        beside = {
            place: one
            for place, item in enumerate(results)
            if isinstance(item, Pending) and (one := beside_of(item)) is not None
        }
        ready = None
        if beside:
            left = min(records[place].seconds_left(self._clock()) for place in beside)
            ready = self._candidates.begin(list(beside.values()), left=left)
        outcomes = [self._decide(item) if isinstance(item, Pending) else item for item in results]
        if ready is not None:
            for place, made in zip(beside, ready(), strict=True):
                decision = outcomes[place]
                if isinstance(decision, BatchDecision):
                    outcomes[place] = msgspec.structs.replace(decision, candidate=made)
        self._tracing.decided(outcomes)
        return outcomes

    def encodes(self, encoder: str) -> bool:
        """Whether a gate compares answers by this encoder, as far as is known here."""
        return encoder in self._book.encoders()

    def texts_of(self, records: Sequence[Record], encoder: str) -> list[frozenset[str]]:
        """What deciding each record will ask this encoder for, by what is known now; nothing of what is decided already.

        Safe beside `outcomes`. Blocks (database) and raises what it raises.
        """
        found = [self._asking(record, encoder) for record in records]
        keys = sorted({p.key for p in found if p is not None})
        known = self._known(keys) if keys else {}
        return [frozenset() if p is None or p.key in known else frozenset(parts_of(p)) for p in found]

    def _asking(self, record: Record, encoder: str) -> Pending | None:
        gate = _gate_of(record)
        active = None if gate is None else self._book.get(gate)
        if active is None or active.policy.settings.encoder != encoder:
            return None
        item = self._decode(record)
        p = self._admit(record, item, active) if isinstance(item, ResponsesV1) else None
        return p if p is not None and p.embeddings == "encoder" and p.held is None else None

    def _decode(self, record: Record) -> ResponsesV1 | LabelRevision | DeadLetter:
        missing = truncation(record)
        if missing is not None:
            code = codes.UNREADABLE if missing.startswith(UNREADABLE) else codes.TOO_LARGE
            return self.dead_letter(record, code, f"not kept as it was sent: {missing}")
        try:
            if record.partition.topic in (self._topics.labels, HTTP_LABELS):
                return label_revision(decode_label(record.value, self._limits), record)
            return decode_responses(record.value, self._limits)
        except BadMessage as bad:
            return self.dead_letter(record, bad.code, bad.detail)

    def dead_letter(self, record: Record, code: str, detail: str) -> DeadLetter:
        """The outcome of a record that is refused, with the message that says so."""
        message = dead_letter_message(
            record, code, detail, topic=self._topics.dead_letters, max_bytes=self._limits.max_output_bytes
        )
        return DeadLetter(record=record, code=code, detail=detail, message=message)

    def _learn_unknown_gates(
        self, decoded: Sequence[tuple[Record, ResponsesV1 | LabelRevision | DeadLetter]]
    ) -> None:
        """A gate may have been created a moment ago: ask SQL once, for all unknown names together."""
        names = {item.key.gate for _, item in decoded if not isinstance(item, DeadLetter)}
        unknown = {name for name in names if self._book.get(name) is None}
        if unknown:
            self._book.refresh(unknown)

    def _admit(self, record: Record, event: ResponsesV1, active: ActivePolicy) -> Pending:
        settings = active.policy.settings
        blank = settings.form.blank([response.text for response in event.responses])
        given = [response.embedding for response in event.responses if response.embedding is not None]
        rows = embedding_rows(given) if given else None
        held: str | None = None
        embeddings: EmbeddingSource = "none"
        claims: tuple[ClaimV1, ...] = ()
        now = self._clock()
        if not active.trusted:
            held = "no_threshold"
        elif event.attempt > settings.max_attempts:
            held = "attempts_exhausted"
        elif record.is_overdue(now) or settings.is_late(event.created_at, record.timestamp_ms, now):
            held = "deadline_passed"
        elif settings.upstream is not None and event.metadata.get(UPSTREAM) != settings.upstream:
            held = "upstream_mismatch"
        elif len(event.responses) < settings.least_answers:
            held = "too_few_responses"
        elif all(blank) or (settings.unit == "batch" and any(blank)):
            held = "empty_text"
        elif settings.unit == "claim":
            claims, why = claims_of(event)
            held = why or None
        elif not settings.embeds:
            if settings.asks and (self._judge is None or settings.encoder != self._judge.id):
                held = "encoder_mismatch"
        elif given:
            embeddings = "event"
            if not accepts(settings, event):
                held = "encoder_mismatch"
        elif settings.encoder not in self._encoders:
            held = "encoder_mismatch"
        else:
            embeddings = "encoder"
        return Pending(
            record=record,
            event=event,
            key=event.key,
            content_hash=content_hash(event, rows),
            active=active,
            blank=blank,
            held=held,
            late_at=now if held == "deadline_passed" else None,
            embeddings=embeddings,
            rows=rows,
            claims=claims,
        )

    def _set_known_aside(self, results: list[Outcome | Pending]) -> list[Pending]:
        """Replace batches that are decided already by redeliveries, in place; return those that are not.

        Only texts are worth the look-up: they would be encoded, or judged. The commit finds the others' repeats.
        """
        keys = {
            item.key
            for item in results
            if isinstance(item, Pending)
            and (item.embeddings == "encoder" or item.active.policy.settings.asks)
        }
        decided = self._known(sorted(keys)) if keys else {}
        pending = []
        for i, item in enumerate(results):
            if not isinstance(item, Pending):
                continue
            if item.key in decided:
                results[i] = Redelivery(record=item.record, key=item.key, content_hash=item.content_hash)
            else:
                pending.append(item)
        return pending

    def _score(self, batches: Sequence[Pending]) -> None:
        """Give scores to `batches`, all texts of an encoder in one call."""
        vectors: dict[int, NDArray[np.float32] | None] = {}
        for name, encoder in self._encoders.items():
            to_encode = [
                p for p in batches if p.embeddings == "encoder" and p.active.policy.settings.encoder == name
            ]
            vectors |= zip(map(id, to_encode), embedded_each(to_encode, encoder), strict=True)
        self._mark([p for p in batches if p.active.policy.settings.asks])
        for p in batches:
            if not p.active.policy.settings.asks:
                self._score_one(p, vectors.get(id(p)))

    def _mark(self, batches: Sequence[Pending]) -> None:
        """Have a judge mark all answers of `batches` together; those without a mark for each are held."""
        if not batches or self._judge is None:
            return
        found = self._judge.of([AnswersToMark(prompt=p.event.prompt, answers=parts_of(p)) for p in batches])
        for p, marks in zip(batches, found, strict=True):
            p.asked += tuple((p.event.responses[place].id, one) for place, one in marks.asked)
            scorer = p.active.policy.settings.scores_by
            made = scorer.of_given(marks.marks, p.blank)
            if made is None:
                p.held = scorer.missing
            else:
                p.scores, p.raw = made

    def _score_one(self, p: Pending, vectors: NDArray[np.float32] | NDArray[np.float64] | None) -> None:
        settings, encoded = p.active.policy.settings, p.embeddings == "encoder"
        if p.claims:
            scores = recorded(p.event, p.claims).scores_by(settings.scores_by)
            p.scores = tuple(scores.tolist())
            return
        if p.embeddings == "event":
            vectors = p.rows
        if settings.embeds and vectors is None:
            p.held = "scorer_failed"
            return
        scorer, listed = settings.scores_by, settings.signal_list
        try:
            if scorer.of_event is not None and listed is None:
                p.scores, p.raw = scores_given(scorer, p.event, p.blank)
                return
            batch = batch_made(settings, p.event, p.blank, vectors, encoded=encoded)
            p.batch = batch if p.active.candidate is not None and settings.embeds else None
            if listed is not None or scorer.holds(batch):
                p.not_read = batch.not_read
            p.scores, p.raw, p.signals = measured(settings, p.event, batch)
        except NoScore as error:
            p.held = str(error)
            return
        except ValueError:
            log.warning("deciding.scoring_failed", gate=p.key.gate, batch_id=p.key.batch_id, exc_info=True)
            p.held = "scorer_failed"
            return
        if batch.embedded:
            p.cloud = cloud_numbers(batch.unit_rows, len(p.blank) - sum(p.blank), settings.encoder)

    def _decide(self, p: Pending) -> BatchDecision:
        policy = p.active.policy
        settings = policy.settings
        judged = self._rule(p)
        decided_at = p.late_at or self._clock()  # a verifier asks whether it was late then
        probability, rate = 0.0, None
        if p.scores is not None:
            probability, rate = probability_under(
                p.active.rate, settings, attempt=p.key.attempt, at=decided_at
            )
        sampled, drawn = self._draw(p, judged.ruling, probability)
        extra = (
            sampled
            and rate is not None
            and not is_sampled(p.active.audit_salt, p.key, settings.audit_probability)
        )
        responses = _responses(p, judged, drawn)
        elsewhere = () if settings.signals else (settings.of_event or "",)
        metadata = recorded_metadata(p.event, elsewhere)
        shipped = None
        if p.claims and p.scores is not None:
            how = settings.left_out, p.content_hash
            shipped = shipped_of(p.event, p.claims, judged.shipped, *how)
            metadata |= shipped.recorded(p.event)
        # A hold also says that embeddings came with the event: they may be its reason.
        source = "none" if p.embeddings == "encoder" and p.scores is None else p.embeddings
        encoder = NO_ENCODER if p.scores is None and source == "none" else encoder_of(settings, source)
        event = action_event(
            record=p.record,
            key=p.key,
            content=p.content_hash,
            policy=policy,
            judged=judged,
            responses=responses,
            sampled=sampled,
            sampling_probability=probability,
            decided_at=decided_at,
            encoder=encoder,
            embedding_source=source,
            shipped=shipped,
        )
        references = p.event.references
        return BatchDecision(
            record=p.record,
            key=p.key,
            content_hash=p.content_hash,
            prompt=p.event.prompt,
            references=None if references is None else tuple(references),
            metadata=metadata,
            created_at=p.event.created_at,
            unit=settings.unit,
            mode=settings.mode,
            outcome=judged.outcome,
            reason=judged.reason,
            selected=judged.selected,
            responses=responses,
            policy=policy,
            scorer=settings.scorer,
            encoder=encoder,
            embedding_source=source,
            sampled=sampled,
            sampling_probability=probability,
            decided_at=decided_at,
            action=action_message(
                event,
                topic=self._topics.actions,
                key=p.record.key,
                trace=self._tracing.context(traced(p.record)),
            ),
            action_id=event.action_id,
            newest_seen=p.active.newest_seen,
            cut=judged.cut if isinstance(policy.rule, BatchCut | Segments) and p.scores is not None else None,
            segment=judged.segment,
            audit_rate=rate,
            extra_draw=extra,
            cloud=p.cloud,
            asked=p.asked,
            candidate=known_beside(p),
            signals=None if p.signals is None else p.signals.astype("<f4").tobytes(),
            needed=judged.needed,
            burst=judged.burst,
        )

    def _rule(self, p: Pending) -> Judged:
        """Apply the policy to a batch; one that was not scored is held whole."""
        policy = p.active.policy
        settings = policy.settings
        ids = [one.id for one in p.units]
        if p.scores is None:
            cut = Cut(policy.state, policy.threshold)
            reason = p.held or "scorer_failed"
            return Judged(None, cut, None, None, (False,) * len(ids), settings.hold_action, reason, None)
        gate = self._gate(policy)
        # Also while nothing is calibrated: the first calibration needs segments.
        segment = None if settings.segment_by is None else segment_of(p.event.metadata, settings.segment_by)
        uniforms = None
        if gate.needs_uniforms:
            uniforms = uniforms_for(p.active.audit_salt, p.key, ids, settings.unit)
        burst = None
        if policy.bursts is not None:
            burst = policy.bursts.name(p.event.prompt, p.event.metadata)
        blank = None if p.claims else p.blank
        ruling = gate.decide(
            p.scores, blank=blank, uniforms=uniforms, segment=segment, row=p.signals, burst=burst
        )
        shipped = ruling.gate.shipped
        reason = ruling.reason if policy.calibrated else "no_threshold"
        if reason == "closed" and policy.held_early:
            reason = "early_warning"
        outcome: BatchAction
        if all(shipped) or ruling.gate.selected is not None:
            outcome = "ship"
        else:
            outcome = "mixed" if any(shipped) else settings.hold_action
        selected = None if ruling.gate.selected is None else ids[ruling.gate.selected]
        return Judged(ruling, ruling.cut, segment, uniforms, shipped, outcome, reason, selected, burst)

    def _gate(self, policy: Policy) -> PolicyGate:
        """Return the gate of a policy, built once for each version."""
        held = self._gates.get(policy.gate)
        if held is None or held[0] != policy.version:
            held = (policy.version, PolicyGate.of(policy))
            self._gates[policy.gate] = held
        return held[1]

    def _draw(self, p: Pending, ruling: Ruling | None, probability: float) -> tuple[bool, frozenset[str]]:
        """Say whether the audit sample takes a batch, and which of its responses."""
        settings = p.active.policy.settings
        if ruling is None or not is_sampled(p.active.audit_salt, p.key, probability):
            return False, frozenset()
        ids = [one.id for one in p.units]
        if settings.unit == "claim":
            return True, frozenset(ids)
        if settings.unit == "best" and ruling.gate.best is not None:
            return True, frozenset({ids[ruling.gate.best]})
        return True, draw_responses(p.active.audit_salt, p.key, ids, settings.audit_draws)


def _responses(p: Pending, judged: Judged, drawn: frozenset[str]) -> tuple[ScoredResponse, ...]:
    nothing = (None,) * len(judged.shipped)
    hold = p.active.policy.settings.hold_action
    scores, raws, uniforms, unread = (
        one or nothing for one in (p.scores, p.raw, judged.uniforms, p.not_read)
    )
    return tuple(
        [
            ScoredResponse(r.id, r.text, score, raw, "ship" if ships else hold, r.id in drawn, uniform, why)
            for r, ships, score, raw, uniform, why in zip(
                p.units, judged.shipped, scores, raws, uniforms, unread, strict=True
            )
        ]
    )
