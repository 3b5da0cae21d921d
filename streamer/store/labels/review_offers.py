"""What was shown to whom on the review page, and the severities that came of it.

Each offer has a random name: a mark that comes late, after a restart or a second time, still finds its answer.
"""

import secrets
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from streamer.events.claims import RecordedClaims
from streamer.gates.batch_key import BatchKey
from streamer.journal import LabelRevision
from streamer.labels.signing import LabelKeys
from streamer.review.items import Decided, Mark, Reviewer, ReviewItem, UnknownItem
from streamer.scoring.judged import form
from streamer.store.db.engine import upsert
from streamer.store.db.schema import (
    batches,
    decisions,
    gate_revisions,
    label_revisions,
    policies,
    responses,
    review_offers,
)
from streamer.store.db.schema.joins import BATCH, POLICY_OF_DECISION, RESPONSE, same
from streamer.store.db.schema.types import UtcDateTime
from streamer.store.labels.revisions import store_labels

SOURCE = "review"

_TICK = timedelta(microseconds=1)
_NOT_BY_ITS_SCORE = frozenset({"smooth", "ramp", "rank"})


def offered(connection: sa.Connection, row: sa.Row[Any], reviewer: Reviewer, now: datetime) -> ReviewItem:
    """Write that this response is shown to this person, unless it was before; return it as it is shown."""
    connection.execute(
        upsert(connection, review_offers)
        .values(
            token=secrets.token_urlsafe(18),
            batch=row.batch,
            position=row.position,
            labeller=reviewer.labeller,
            kind=row.kind,
            offered_at=now,
            marks=0,
        )
        .on_conflict_do_nothing(index_elements=["batch", "position", "labeller", "kind"])
    )
    offer = connection.execute(
        sa.select(review_offers.c.token, review_offers.c.marks).where(
            *(review_offers.c[name] == getattr(row, name) for name in ("batch", "position", "kind")),
            review_offers.c.labeller == reviewer.labeller,
        )
    ).one()
    return item_of(
        connection,
        row,
        token=offer.token,
        kind=row.kind,
        marks=offer.marks,
        skipped=row.skipped_at is not None,
    )


def item_of(
    connection: sa.Connection,
    row: sa.Row[Any],
    *,
    token: str,
    kind: str,
    marks: int,
    skipped: bool,
    severity: float | None = None,
    wrong: Iterable[str] = (),
) -> ReviewItem:
    claims = claims_of(connection, row.batch)
    every: Sequence[str | None] = (
        [] if claims is not None else connection.execute(texts_of(row.batch)).scalars().all()
    )
    judged = form(row.judged)
    parts = judged.parts([text or "" for text in every])
    disputed = judged.disputed(parts, row.position) if claims is None else ()
    came = row.text if claims is None else claims.answer
    text, claim, loss = judged.ships(came), tuple[str, ...](), ""
    if claims is not None:
        newest = sa.select(gate_revisions.c.loss).where(gate_revisions.c.gate == row.gate)
        loss = connection.execute(newest.order_by(gate_revisions.c.revision.desc()).limit(1)).scalar_one()
        begin, end = judged.span(came) or (0, len(came))
        first, last = claims.spans[row.position]
        claim = came[begin:first], came[first:last], came[last:end]
    return ReviewItem(
        token=token,
        gate=row.gate,
        kind=kind,
        prompt=row.prompt,
        text=text,
        came=None if text == came else came,
        claim=claim,
        until_wrong=loss == "any",
        judged=tuple((path, said, path in disputed) for path, said in judged.shown(came)),
        references=tuple(row.references or ()),
        others=(len(parts) if claims is None else len(claims.responses)) - 1,
        skipped=skipped,
        marks=marks,
        severity=severity,
        wrong=tuple(wrong),
    )


def claims_of(connection: sa.Connection, batch: int) -> RecordedClaims | None:
    """What the rows of a batch are claims of; None: they are responses."""
    query = sa.select(batches.c.metadata).where(batches.c.id == batch)
    return RecordedClaims.of(connection.execute(query).scalar_one())


def texts_of(batch: int) -> sa.Select[Any]:
    """Select the texts in a batch's rows."""
    found = sa.select(responses.c.text).where(responses.c.batch == batch)
    return found.order_by(responses.c.position)


def of_offers(*columns: sa.ColumnElement[Any]) -> sa.Select[Any]:
    return (
        sa.select(*columns)
        .select_from(review_offers)
        .join(responses, same(responses, review_offers, "batch", "position"))
        .join(batches, batches.c.id == review_offers.c.batch)
        .join(decisions, decisions.c.batch == review_offers.c.batch)
    )


def offer_of(connection: sa.Connection, reviewer: Reviewer, token: str) -> sa.Row[Any]:
    """Read what was offered under a name, to this person; raises `UnknownItem`."""
    row = connection.execute(
        of_offers(
            *review_offers.c["batch", "position", "kind", "marked_at"],
            *batches.c[BATCH],
            responses.c.response_id,
        ).where(review_offers.c.token == token, review_offers.c.labeller == reviewer.labeller)
    ).one_or_none()
    if row is None:
        raise UnknownItem(f"nothing was shown to {reviewer.labeller!r} under this name")
    return row


def given(labels: sa.FromClause, labeller: str, offer: sa.Row[Any]) -> sa.Select[Any]:
    """Select the severities of these that a labeller gave to what was offered."""
    own = (labels.c[name] == getattr(offer, name) for name in (*RESPONSE, "kind"))
    return sa.select(labels).where(*own, labels.c.labeller == labeller)


def store_severity(
    connection: sa.Connection,
    labeller: str,
    offer: sa.Row[Any],
    mark: Mark,
    now: datetime,
    *,
    keys: LabelKeys,
) -> None:
    last = connection.execute(
        given(label_revisions, labeller, offer).with_only_columns(
            sa.func.max(label_revisions.c.effective_at, type_=UtcDateTime())
        )
    ).scalar_one()
    # Also where two marks share a clock's tick, or the clock was put back between them.
    moment = now if last is None else max(now, last + _TICK)
    label = LabelRevision(
        key=BatchKey(offer.gate, offer.batch_id, offer.attempt),
        response_id=offer.response_id,
        severity=mark.severity,
        raw_severity=None,
        kind=offer.kind,
        labeller=labeller,
        labelled_at=moment,
        remark=mark.remark,
        severities=tuple((one, 1.0) for one in sorted(set(mark.wrong))),
    )
    store_labels(connection, [label], keys=keys, source=SOURCE, now=moment)


def decided(connection: sa.Connection, batch: int, position: int) -> Decided:
    row = connection.execute(
        sa.select(
            *decisions.c["unit", "mode", "reason", "cut_state", "cut_threshold", "policy_version"],
            *policies.c["state", "threshold", "rule"],
            *responses.c["action", "score"],
        )
        .select_from(decisions)
        .join(responses, responses.c.batch == decisions.c.batch)
        .join(policies, POLICY_OF_DECISION)
        .where(decisions.c.batch == batch, responses.c.position == position)
    ).one()
    by_its_score = row.unit != "batch" and row.rule.kind not in _NOT_BY_ITS_SCORE
    threshold = row.threshold if row.cut_state is None else row.cut_threshold
    return Decided(
        action=row.action,
        reason=row.reason,
        score=row.score,
        threshold=threshold if by_its_score else None,
        policy_version=row.policy_version,
        enforced=row.mode == "enforce",
    )
