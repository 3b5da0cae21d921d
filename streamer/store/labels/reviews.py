"""The review page's side of the record: the next answer for each person, and the severities that people give.

A claim is a row under the answer's key, so that of any number of processes one alone gets it; it lasts until it
expires, and counts for nothing afterwards. Each offer has a random name: a mark that comes late, after a restart or a
second time, still finds its answer.
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
from streamer.review.items import Decided, GateProgress, Mark, Progress, Reviewer, ReviewItem, UnknownItem
from streamer.scoring.judged import form
from streamer.store.db.engine import upsert
from streamer.store.db.schema import (
    batches,
    decisions,
    gate_revisions,
    label_revisions,
    policies,
    responses,
    review_claims,
    review_offers,
)
from streamer.store.db.schema.joins import ANSWERED, BATCH, JUDGED, POLICY_OF_DECISION, RESPONSE, same
from streamer.store.db.schema.types import UtcDateTime, of_row
from streamer.store.labels.revisions import FROM_THE_TOP, store_labels, unlabelled
from streamer.store.part import Part
from streamer.store.risk.audit_rates import held_early, raised_gates

SHOWN = (
    *responses.c["batch", "position", "text"],
    *batches.c["prompt", "references"],
    decisions.c.gate,
    JUDGED,
)
"""What a page learns about an answer."""

_CANDIDATES = 8
_FORGOTTEN = timedelta(days=1)


def is_of(reviewer: Reviewer) -> sa.ColumnElement[bool]:
    """Report whether this page holds a claim, for this person."""
    return (review_claims.c.holder == reviewer.holder) & (review_claims.c.labeller == reviewer.labeller)


def claim_of_others(reviewer: Reviewer, now: datetime) -> sa.Subquery:
    """Select the claims that hold, and are not this page's."""
    return (
        sa.select(review_claims.c.batch, review_claims.c.position)
        .where(review_claims.c.expires_at > now, ~is_of(reviewer))
        .subquery()
    )


def offer_to(reviewer: Reviewer) -> sa.Subquery:
    """Select what was shown to this person."""
    return sa.select(review_offers).where(review_offers.c.labeller == reviewer.labeller).subquery()


def beside(query: sa.Select[Any], claim: sa.Subquery, offer: sa.Subquery) -> sa.Select[Any]:
    """Add, to each drawn response, another's claim and what this person was offered, where there is one."""
    return query.outerjoin(claim, same(claim, responses, "batch", "position")).outerjoin(
        offer,
        same(offer, responses, "batch", "position") & (offer.c.kind == gate_revisions.c.severity_kind),
    )


def candidates(
    labels: sa.FromClause,
    reviewer: Reviewer,
    gates: Sequence[str],
    now: datetime,
    held: Sequence[str] = (),
) -> sa.Select[Any]:
    """Select what this page may have, in the order in which it is to get it: what it has, then gates in doubt, then others."""
    claim, offer = claim_of_others(reviewer, now), offer_to(reviewer)
    own = sa.exists().where(same(review_claims, responses, "batch", "position"), is_of(reviewer))
    elsewhere = sa.exists().where(
        same(review_claims, responses, "batch"), review_claims.c.expires_at > now, ~is_of(reviewer)
    )
    return (
        beside(
            unlabelled(
                labels,
                *SHOWN,
                gate_revisions.c.severity_kind.label("kind"),
                offer.c.skipped_at.label("skipped_at"),
                held=held,
            ),
            claim,
            offer,
        )
        .where(
            decisions.c.gate.in_(gates),
            responses.c.text.is_not(None),
            claim.c.batch.is_(None),
            # Of an answer with claims one person has all: what is given decides what is asked next.
            (decisions.c.unit != "claim") | ~elsewhere,
        )
        .order_by(
            sa.case((own, 0), (offer.c.skipped_at.is_(None), 1), else_=2),
            # Whole gates, so that within one the order has nothing to do with draws and answers.
            sa.case((decisions.c.gate.in_(raised_gates(now)), 0), else_=1),
            offer.c.skipped_at,
            decisions.c.decided_at,
            batches.c.id,
            FROM_THE_TOP,
            responses.c.position,
        )
        .limit(_CANDIDATES)
    )


def taken(
    connection: sa.Connection,
    labels: sa.FromClause,
    row: sa.Row[Any],
    reviewer: Reviewer,
    *,
    until: datetime,
    now: datetime,
) -> bool:
    """Claim a response that waits for a severity, or keep it; False when another has it, or it was labelled."""
    values = {"labeller": reviewer.labeller, "holder": reviewer.holder, "expires_at": until}
    taken = connection.execute(
        upsert(connection, review_claims)
        .values(batch=row.batch, position=row.position, **values)
        .on_conflict_do_update(
            index_elements=["batch", "position"],
            set_=values,
            where=(review_claims.c.expires_at <= sa.literal(now, UtcDateTime)) | is_of(reviewer),
        )
        .returning(review_claims.c.batch)
    )
    if taken.first() is None:
        return False
    # Asked once it is ours: its former holder may have labelled it, and given it up, a moment ago.
    waits = unlabelled(labels, sa.literal(1), held=held_early(connection)).where(
        responses.c.batch == row.batch, responses.c.position == row.position
    )
    if connection.execute(waits).first() is not None:
        return True
    give_up(connection, reviewer, row)
    return False


def give_up(connection: sa.Connection, reviewer: Reviewer, response: sa.Row[Any]) -> None:
    """Free a response, whichever page of this person has it: one may send a mark that another left behind."""
    connection.execute(
        sa.delete(review_claims).where(
            review_claims.c.batch == response.batch,
            review_claims.c.position == response.position,
            review_claims.c.labeller == reviewer.labeller,
        )
    )


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
        .select_from(ANSWERED)
        .join(review_offers, same(review_offers, responses, "batch", "position"))
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
        .select_from(ANSWERED)
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


_ROUNDS = 20


class Reviews(Part):
    """Implements `streamer.review.items.ReviewStore`."""

    def next(
        self, reviewer: Reviewer, gates: Sequence[str], *, hold: timedelta, now: datetime
    ) -> ReviewItem | None:
        # Looked for without a lock, so that workers can commit meanwhile, and taken in a short transaction.
        for _ in range(_ROUNDS):
            with self._database.reading() as connection:
                labels = self._read.table(connection)
                found = connection.execute(
                    candidates(labels, reviewer, gates, now, held_early(connection))
                ).all()
            if not found:
                return None

            def take(connection: sa.Connection, found: Sequence[sa.Row[Any]] = found) -> ReviewItem | None:
                labels = self._read.table(connection)
                # Of answers that were labelled otherwise long ago.
                old = review_claims.c.expires_at < now - _FORGOTTEN
                connection.execute(sa.delete(review_claims).where(old))
                each = (
                    row
                    for row in found
                    if taken(connection, labels, row, reviewer, until=now + hold, now=now)
                )
                row = next(each, None)
                return None if row is None else offered(connection, row, reviewer, now)

            item = self._database.writing(take)
            if item is not None:
                return item
        return None

    def refusals(self, labeller: str, gates: Sequence[str]) -> dict[str, str]:
        return self._database.read(self._read.refusals, labeller, gates)

    def others(self, reviewer: Reviewer, token: str) -> list[str]:
        with self._database.reading() as connection:
            offer = offer_of(connection, reviewer, token)
            if (claims := claims_of(connection, offer.batch)) is not None:
                return list(claims.responses.values())[1:]
            query = texts_of(offer.batch).where(responses.c.position != offer.position)
            return [text for text in connection.execute(query).scalars() if text is not None]

    def mark(self, reviewer: Reviewer, mark: Mark, *, now: datetime) -> Decided:
        """Store a severity, seal it and give the claim up. Safe to repeat.

        Of the same labeller's severities the one that was given last counts, however fast they follow one another and
        wherever a clock stands. Raises `UnknownItem`.
        """

        def work(connection: sa.Connection) -> Decided:
            offer = offer_of(connection, reviewer, mark.token)
            # Whoever changes the row has it to the end: of two pages that send the same mark, one waits.
            counted = connection.execute(
                sa.update(review_offers)
                .where(
                    review_offers.c.token == mark.token,
                    (review_offers.c.marks < mark.count)
                    | ((review_offers.c.marks == mark.count) & (review_offers.c.mark != mark.name)),
                )
                .values(marks=mark.count, mark=mark.name, marked_at=now, skipped_at=None)
            )
            if counted.rowcount:
                store_severity(
                    connection,
                    reviewer.labeller,
                    offer,
                    mark,
                    now,
                    keys=self._read.keys,
                )
            give_up(connection, reviewer, offer)
            return decided(connection, offer.batch, offer.position)

        return self._database.writing(work)

    def skip(self, reviewer: Reviewer, token: str, *, now: datetime) -> None:
        def work(connection: sa.Connection) -> None:
            offer = offer_of(connection, reviewer, token)
            connection.execute(
                sa.update(review_offers).where(review_offers.c.token == token).values(skipped_at=now)
            )
            give_up(connection, reviewer, offer)

        self._database.writing(work)

    def back(
        self, reviewer: Reviewer, gates: Sequence[str], *, before: str | None, since: datetime
    ) -> ReviewItem | None:
        query = (
            of_offers(*SHOWN, review_offers.c.token, review_offers.c.kind, review_offers.c.marks)
            .where(
                review_offers.c.labeller == reviewer.labeller,
                review_offers.c.marked_at >= since,
                decisions.c.gate.in_(gates),
                responses.c.text.is_not(None),
            )
            .order_by(review_offers.c.marked_at.desc(), review_offers.c.token)
            .limit(1)
        )
        with self._database.reading() as connection:
            if before is not None and (offer := offer_of(connection, reviewer, before)).marked_at is not None:
                query = query.where(review_offers.c.marked_at < offer.marked_at)
            row = connection.execute(query).one_or_none()
            if row is None:
                return None
            labels = self._read.table(connection, row.gate)
            own = given(labels, reviewer.labeller, offer_of(connection, reviewer, row.token))
            newest = own.order_by(labels.c.effective_at.desc(), labels.c.id.desc()).limit(1)
            label = connection.execute(newest).one_or_none()
            return item_of(
                connection,
                row,
                token=row.token,
                kind=row.kind,
                marks=row.marks,
                skipped=False,
                severity=None if label is None else label.severity,
                wrong=()
                if label is None
                else [name for name, one in (label.severities or {}).items() if one],
            )

    def renew(self, reviewer: Reviewer, token: str, *, hold: timedelta, now: datetime) -> bool:
        def work(connection: sa.Connection) -> bool:
            offer = offer_of(connection, reviewer, token)
            if offer.marked_at is not None:
                return True  # it is labelled, and opened again to be corrected: nobody else is asked for it
            labels = self._read.table(connection, offer.gate)
            return taken(connection, labels, offer, reviewer, until=now + hold, now=now)

        return self._database.writing(work)

    def release(self, reviewer: Reviewer) -> None:
        mine = sa.delete(review_claims).where(is_of(reviewer))
        self._database.writing(sa.Connection.execute, mine)

    def progress(
        self, reviewer: Reviewer, gates: Sequence[str], *, since: datetime, now: datetime
    ) -> Progress:
        shown = responses.c.text.is_not(None)

        def count(*conditions: sa.ColumnElement[bool]) -> sa.ColumnElement[int]:
            return sa.func.count().filter(*conditions)

        claim, offer = claim_of_others(reviewer, now), offer_to(reviewer)
        done = (
            sa.select(sa.func.count())
            .select_from(review_offers)
            .where(review_offers.c.labeller == reviewer.labeller, review_offers.c.marked_at >= since)
        )
        with self._database.reading() as connection:
            waiting = beside(
                unlabelled(
                    self._read.table(connection),
                    decisions.c.gate,
                    count(shown).label("waiting"),
                    count(shown, claim.c.batch.is_not(None)).label("held"),
                    count(shown, offer.c.skipped_at.is_not(None)).label("skipped"),
                    count(~shown).label("textless"),
                    held=held_early(connection),
                ),
                claim,
                offer,
            )
            counted = waiting.where(decisions.c.gate.in_(gates)).group_by(decisions.c.gate)
            found = {row["gate"]: row for row in connection.execute(counted).mappings()}
            none = dict.fromkeys(("waiting", "held", "skipped", "textless"), 0)
            return Progress(
                gates=tuple(
                    of_row(GateProgress, {**none, "gate": one, **found.get(one, {})}) for one in gates
                ),
                done=connection.execute(done).scalar_one(),
            )
