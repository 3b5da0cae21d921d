"""What was answered, scored and labelled, batch by batch: for an evaluation on the record."""

from collections.abc import Sequence
from datetime import datetime
from itertools import groupby
from operator import itemgetter

import sqlalchemy as sa

from streamer.clouds.stored_answers import StoredBatch, StoredResponse
from streamer.gates.settings import NO_ENCODER, GateSettings
from streamer.store.db.schema import batches, decisions, gate_revisions, policies, responses
from streamer.store.db.schema.joins import ANSWERED, POLICY_OF_DECISION, REVISION_OF_POLICY, key_of
from streamer.store.db.schema.types import Row
from streamer.store.labels.revisions import Severities
from streamer.store.part import Part


class SqlAnswers(Part):
    """Implements `streamer.clouds.stored_answers.AnswerStore`."""

    def audited(
        self, gate: str, *, settings: GateSettings, older_than: datetime, since: datetime | None = None
    ) -> list[StoredBatch]:
        """First attempts that the audit sample took, decided from `since` on and before `older_than` under these scores.

        What a raised audit rate alone has drawn is left out.

        Where the audit took every batch, those that were held unscored for their answers are among them: nothing draws these.
        """
        query = (
            sa.select(
                *batches.c["id", "gate", "batch_id", "attempt", "prompt", "references"],
                batches.c.metadata,
                *decisions.c["sampled", "decided_at"],
                sa.case((gate_revisions.c.signals == settings.signals, decisions.c.signals)).label("signals"),
                gate_revisions.c.audit_probability,
                *responses.c["response_id", "text", "score", "raw_energy", "drawn"],
            )
            .select_from(ANSWERED)
            .join(policies, POLICY_OF_DECISION)
            .join(gate_revisions, REVISION_OF_POLICY)
            .where(
                decisions.c.gate == gate,
                decisions.c.decided_at < older_than,
                *([] if since is None else [decisions.c.decided_at >= since]),
                decisions.c.scorer == settings.scorer,
                # The gate's: a batch of blank answers is not embedded, and its decision names none.
                gate_revisions.c.encoder == settings.encoder,
                gate_revisions.c.judged == settings.judged,
                batches.c.attempt == 1,
                (decisions.c.sampled & ~decisions.c.extra_draw & responses.c.score.is_not(None))
                | (
                    decisions.c.reason.in_(["too_few_responses", "empty_text", "not_read"])
                    & (gate_revisions.c.audit_probability == 1)
                ),
            )
            .order_by(decisions.c.decided_at, batches.c.id, responses.c.position)
        )
        with self._labels_of(gate) as (connection, labels):
            severities = Severities.read(connection, labels, gate, settings.severity_kind)
            found = connection.execute(query).mappings()
            return [
                _batch(list(rows), severities, settings) for _, rows in groupby(found, key=itemgetter("id"))
            ]


def _batch(rows: Sequence[Row], severities: Severities, settings: GateSettings) -> StoredBatch:
    first = rows[0]
    key = key_of(first)
    known = {row["response_id"]: severities.get(key, row["response_id"]) for row in rows}
    floor = settings.asked_above(
        (row["score"] or 0.0, known[row["response_id"]]) for row in rows if row["drawn"]
    )
    return StoredBatch(
        batch_id=first["batch_id"],
        prompt=first["prompt"],
        references=tuple(first["references"] or ()),
        probability=first["audit_probability"],
        responses=tuple(
            StoredResponse(
                id=row["response_id"],
                text=row["text"],
                score=row["score"],
                blank=_blank(row, settings),
                severity=known[row["response_id"]] if row["drawn"] or not first["sampled"] else None,
            )
            for row in rows
        ),
        decided_at=first["decided_at"],
        waits=any(
            row["drawn"] and known[row["response_id"]] is None and (row["score"] or 0.0) > floor
            for row in rows
        ),
        signals=first["signals"],
        metadata=first["metadata"],
    )


def _blank(row: Row, settings: GateSettings) -> bool:
    """Without its text a blank answer is known by its raw energy, which is 0 for no other.

    Where a score is made of another number than embeddings, only a blank answer has none.
    """
    if row["text"] is not None:
        return settings.form.blank([row["text"]])[0]
    if row["score"] is None:
        return True
    if settings.embeds or settings.encoder == NO_ENCODER:
        return bool(row["raw_energy"] == 0)
    return row["raw_energy"] is None
