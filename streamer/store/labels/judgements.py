"""Labels that a labeller gave in bulk, and what a judge was asked and said for each; texts can be erased."""

import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from streamer.gates.batch_key import BatchKey
from streamer.journal import LabelRevision
from streamer.labels.filling import Attempted
from streamer.labels.judge.exchanges import asked_mark, exchanges_of
from streamer.labels.llm.record import Exchange
from streamer.store.audit import control
from streamer.store.db import bulk_insert
from streamer.store.db.schema import judgements
from streamer.store.db.schema.joins import RESPONSE, is_batch, key_of
from streamer.store.db.schema.types import of_row
from streamer.store.labels.revisions import store_labels
from streamer.store.log.leaves import judgement_mac
from streamer.store.log.rows import judgement_row
from streamer.store.part import Part

_Response = tuple[BatchKey, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredJudgement:
    """One judgement as it is kept.

    `judge` is model and rubric: the labeller of the label. `label` is the label revision that came
    of it, None when none did. `mark` is in [0, 100], higher is better; None when there is none, and
    `failure` is the code of why. `subscores` are points by aspect, None without a mark. `requests`
    is how often the judge was asked; `cost` is in the price list's currency, None when unknown.
    `for_score`: it gave a gate's score, and no label. `remembered`: the judge had marked the same
    answer to the same prompt before, and was not asked again. `exchanges` are every request and
    reply, and `intact` says whether they are those that were sealed; both are None once erased.
    """

    judge: str
    judged_at: datetime
    label: int | None
    mark: float | None
    subscores: Mapping[str, float] | None
    failure: str | None
    requests: int
    input_tokens: int
    output_tokens: int
    cost: float | None
    for_score: bool
    remembered: bool
    exchanges: tuple[Exchange, ...] | None
    intact: bool | None
    erased_at: datetime | None


class Judgements(Part):
    """The judgements of all gates, and the labels that come with them."""

    def keep(self, attempts: Sequence[Attempted], *, kind: str, labeller: str, source: str) -> int:
        """Keep labels and judgements, all or none, and return how many labels are new.

        A response that has a label of this kind already, whoever of those that are read gave it, gets none; what a judge said of it is
        kept all the same.
        """
        now = self._clock()

        def work(connection: sa.Connection) -> int:
            labelled = _labelled(
                connection, self._read.table(connection), kind, [_response(attempt) for attempt in attempts]
            )
            new = {
                _response(attempt): LabelRevision(
                    key=attempt.task.key,
                    response_id=attempt.task.response_id,
                    severity=attempt.severity.value,
                    raw_severity=attempt.severity.raw,
                    kind=kind,
                    labeller=labeller,
                    labelled_at=now,
                )
                for attempt in attempts
                if attempt.severity is not None and _response(attempt) not in labelled
            }
            stored = store_labels(
                connection, list(new.values()), keys=self._read.keys, source=source, now=now
            )
            labels = {response: one.label["id"] for response, one in zip(new, stored, strict=True)}
            judged = [
                judgement_row(*(of := _response(attempt)), asked_mark(attempt.judgement), now)
                | {"label": labels.get(of), "for_score": False}
                for attempt in attempts
                if attempt.judgement is not None
            ]
            ids = bulk_insert.allocate_ids(connection, judgements, len(judged))
            rows = [{"id": number, **row} for number, row in zip(ids, judged, strict=True)]
            bulk_insert.append(connection, judgements, rows)
            control.append(connection, judgements, [(number,) for number in ids], now=now)
            return len(labels)

        return self._database.writing(work)

    def of(self, key: BatchKey, response_id: str | None = None) -> list[StoredJudgement]:
        """Judgements of a batch's responses, or of one of them, the oldest first."""
        query = sa.select(judgements).where(is_batch(key, judgements)).order_by(judgements.c.id)
        if response_id is not None:
            query = query.where(judgements.c.response_id == response_id)
        return [_stored(row) for row in self._database.mappings(query)]


def _response(attempt: Attempted) -> _Response:
    return attempt.task.key, attempt.task.response_id


def _labelled(
    connection: sa.Connection, labels: sa.FromClause, kind: str, responses: Sequence[_Response]
) -> set[_Response]:
    """Those responses that have a label of this kind."""
    columns = list(labels.c[RESPONSE])
    found = bulk_insert.look_up(
        connection,
        sa.select(*columns).where(labels.c.kind == kind),
        columns,
        [(*key, response_id) for key, response_id in responses],
    )
    return {(key_of(row), row["response_id"]) for row in found}


def _stored(row: sa.RowMapping) -> StoredJudgement:
    document = row["exchanges"]
    return of_row(
        StoredJudgement,
        row,
        exchanges=None if document is None else exchanges_of(document),
        intact=None
        if document is None
        else hmac.compare_digest(judgement_mac(row["salt"], document), row["content_mac"]),
    )
