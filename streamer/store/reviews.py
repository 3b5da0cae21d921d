"""The review page's side of the record: who has which answer, and the severities that people give to them.

A claim is a row under the answer's key, so that of any number of processes one alone gets it; it lasts until it
expires, and counts for nothing afterwards. What was shown to whom is kept as an offer, under a random name: a mark that
comes late, after a restart or a second time, still finds its answer.
"""

from __future__ import annotations

import secrets
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from streamer.journal import BatchKey, LabelRevision
from streamer.review.items import (
    Decided,
    GateProgress,
    Progress,
    ReviewItem,
    UnknownItem,
)
from streamer.store import rows
from streamer.store.labels import store_labels, unlabelled
from streamer.store.schema import (
    batches,
    decisions,
    gate_revisions,
    label_revisions,
    policies,
    responses,
    review_claims,
    review_offers,
)
from streamer.store.schema.types import UtcDateTime

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from streamer.review.items import Mark, Reviewer
    from streamer.store.engine import Database

SOURCE = "review"

_CANDIDATES = 8
_FORGOTTEN = timedelta(days=1)
_TICK = timedelta(microseconds=1)
_NOT_BY_ITS_SCORE = frozenset({"smooth", "ramp", "rank"})

_SHOWN = (
    responses.c.batch,
    responses.c.position,
    responses.c.text,
    batches.c.prompt,
    batches.c.references,
    decisions.c.gate,
)


class Reviews:
    """Implements `streamer.review.items.ReviewStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def next(
        self, reviewer: Reviewer, gates: Sequence[str], *, hold: timedelta, now: datetime
    ) -> ReviewItem | None:
        """Claim the oldest decision's answer that nobody labelled or has, what this person skipped last.

        A page that has a claim gets the same item again. None when nothing is to be had.
        """

        def work(connection: sa.Connection) -> ReviewItem | None:
            connection.execute(sa.delete(review_claims).where(review_claims.c.expires_at < now - _FORGOTTEN))
            while found := connection.execute(_candidates(reviewer, gates, now)).all():
                for row in found:
                    if _claim(connection, row.batch, row.position, reviewer, until=now + hold, now=now):
                        return _offered(connection, row, reviewer, now)
            return None

        return self._database.writing(work)

    def others(self, reviewer: Reviewer, token: str) -> list[str]:
        """Return the texts of the batch's other answers, in the order of the event. Raises `UnknownItem`."""
        with self._database.reading() as connection:
            offer = _offer(connection, reviewer, token)
            query = (
                sa.select(responses.c.text)
                .where(responses.c.batch == offer.batch, responses.c.position != offer.position)
                .order_by(responses.c.position)
            )
            return [text for text in connection.execute(query).scalars() if text is not None]

    def mark(self, reviewer: Reviewer, mark: Mark, *, now: datetime) -> Decided:
        """Store a severity, seal it and give the claim up. Safe to repeat.

        Of the same labeller's severities the one that was given last counts, however fast they follow one another and
        wherever a clock stands. Raises `UnknownItem`.
        """

        def work(connection: sa.Connection) -> Decided:
            offer = _offer(connection, reviewer, mark.token)
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
                _store_severity(connection, reviewer.labeller, offer, mark.severity, now)
            _give_up(connection, reviewer, offer)
            return _decided(connection, offer.batch, offer.position)

        return self._database.writing(work)

    def skip(self, reviewer: Reviewer, token: str, *, now: datetime) -> None:
        """Put an item behind everything else that waits for this person, and give the claim up.

        Raises `UnknownItem`.
        """

        def work(connection: sa.Connection) -> None:
            offer = _offer(connection, reviewer, token)
            connection.execute(
                sa.update(review_offers).where(review_offers.c.token == token).values(skipped_at=now)
            )
            _give_up(connection, reviewer, offer)

        self._database.writing(work)

    def back(
        self, reviewer: Reviewer, gates: Sequence[str], *, before: str | None, since: datetime
    ) -> ReviewItem | None:
        """Return what this person labelled last, or last before the item `before`, but not before `since`."""
        query = (
            _of_offers(*_SHOWN, review_offers.c.token, review_offers.c.kind, review_offers.c.marks)
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
            if before is not None and (offer := _offer(connection, reviewer, before)).marked_at is not None:
                query = query.where(review_offers.c.marked_at < offer.marked_at)
            row = connection.execute(query).one_or_none()
            if row is None:
                return None
            given = _given(reviewer.labeller, _offer(connection, reviewer, row.token))
            severity = connection.execute(
                given.with_only_columns(label_revisions.c.severity)
                .order_by(label_revisions.c.effective_at.desc(), label_revisions.c.id.desc())
                .limit(1)
            ).scalar_one_or_none()
            return _item(
                connection,
                row,
                token=row.token,
                kind=row.kind,
                marks=row.marks,
                severity=severity,
                skipped=False,
            )

    def renew(self, reviewer: Reviewer, token: str, *, hold: timedelta, now: datetime) -> bool:
        """Keep a claim for longer; False when it is no longer this page's. Raises `UnknownItem`."""

        def work(connection: sa.Connection) -> bool:
            offer = _offer(connection, reviewer, token)
            if offer.marked_at is not None:
                return True  # it is labelled, and opened again to be corrected: nobody else is asked for it
            asked = unlabelled(sa.literal(1)).where(
                responses.c.batch == offer.batch, responses.c.position == offer.position
            )
            if connection.execute(asked).first() is None:
                return False
            return _claim(connection, offer.batch, offer.position, reviewer, until=now + hold, now=now)

        return self._database.writing(work)

    def release(self, reviewer: Reviewer) -> None:
        """Give up what this page has: the person leaves."""
        mine = sa.delete(review_claims).where(_is_of(reviewer))
        self._database.writing(lambda connection: connection.execute(mine))

    def progress(
        self, reviewer: Reviewer, gates: Sequence[str], *, since: datetime, now: datetime
    ) -> Progress:
        """Count what waits, and what this person has labelled since a moment."""
        shown = responses.c.text.is_not(None)

        def count(*conditions: sa.ColumnElement[bool]) -> sa.ColumnElement[int]:
            return sa.func.coalesce(sa.func.sum(sa.case((sa.and_(*conditions), 1), else_=0)), 0)

        claim, offer = _claim_of_others(reviewer, now), _offer_to(reviewer)
        waiting = _with(
            unlabelled(
                decisions.c.gate,
                count(shown).label("waiting"),
                count(shown, claim.c.batch.is_not(None)).label("held"),
                count(shown, offer.c.skipped_at.is_not(None)).label("skipped"),
                count(~shown).label("textless"),
            ),
            claim,
            offer,
        )
        done = (
            sa.select(sa.func.count())
            .select_from(review_offers)
            .where(review_offers.c.labeller == reviewer.labeller, review_offers.c.marked_at >= since)
        )
        with self._database.reading() as connection:
            found = {
                row.gate: row
                for row in connection.execute(
                    waiting.where(decisions.c.gate.in_(gates)).group_by(decisions.c.gate)
                )
            }
            return Progress(
                gates=tuple(
                    GateProgress(gate=gate, waiting=0, held=0, skipped=0, textless=0)
                    if (row := found.get(gate)) is None
                    else GateProgress(
                        gate=gate,
                        waiting=int(row.waiting),
                        held=int(row.held),
                        skipped=int(row.skipped),
                        textless=int(row.textless),
                    )
                    for gate in gates
                ),
                done=connection.execute(done).scalar_one(),
            )


# -- what waits, and whose it is ----------------------------------------------------------------------------


def _is_of(reviewer: Reviewer) -> sa.ColumnElement[bool]:
    """Tell of a claim whether this page has it, with this person at it."""
    return (review_claims.c.holder == reviewer.holder) & (review_claims.c.labeller == reviewer.labeller)


def _claim_of_others(reviewer: Reviewer, now: datetime) -> sa.Subquery:
    """Select the claims that hold, and are not this page's."""
    return (
        sa.select(review_claims.c.batch, review_claims.c.position)
        .where(review_claims.c.expires_at > now, ~_is_of(reviewer))
        .subquery()
    )


def _offer_to(reviewer: Reviewer) -> sa.Subquery:
    return sa.select(review_offers).where(review_offers.c.labeller == reviewer.labeller).subquery()


def _with(query: sa.Select[Any], claim: sa.Subquery, offer: sa.Subquery) -> sa.Select[Any]:
    """Add, to each drawn response, another's claim and what this person was offered, where there is one."""
    return query.outerjoin(
        claim, (claim.c.batch == responses.c.batch) & (claim.c.position == responses.c.position)
    ).outerjoin(
        offer,
        (offer.c.batch == responses.c.batch)
        & (offer.c.position == responses.c.position)
        & (offer.c.kind == gate_revisions.c.severity_kind),
    )


def _candidates(reviewer: Reviewer, gates: Sequence[str], now: datetime) -> sa.Select[Any]:
    """Select what this page may have, in the order in which it is to get it: first what it has."""
    claim, offer = _claim_of_others(reviewer, now), _offer_to(reviewer)
    own = sa.exists().where(
        review_claims.c.batch == responses.c.batch,
        review_claims.c.position == responses.c.position,
        _is_of(reviewer),
    )
    return (
        _with(
            unlabelled(
                *_SHOWN,
                gate_revisions.c.severity_kind.label("kind"),
                offer.c.skipped_at.label("skipped_at"),
            ),
            claim,
            offer,
        )
        .where(decisions.c.gate.in_(gates), responses.c.text.is_not(None), claim.c.batch.is_(None))
        .order_by(
            sa.case((own, 0), (offer.c.skipped_at.is_(None), 1), else_=2),
            offer.c.skipped_at,
            decisions.c.decided_at,
            batches.c.id,
            responses.c.position,
        )
        .limit(_CANDIDATES)
    )


def _claim(
    connection: sa.Connection,
    batch: int,
    position: int,
    reviewer: Reviewer,
    *,
    until: datetime,
    now: datetime,
) -> bool:
    """Take a response for a page, or keep it; False when another has it at this moment."""
    insert = sqlite.insert if connection.dialect.name == "sqlite" else postgresql.insert
    values = {"labeller": reviewer.labeller, "holder": reviewer.holder, "expires_at": until}
    taken = connection.execute(
        insert(review_claims)
        .values(batch=batch, position=position, **values)
        .on_conflict_do_update(
            index_elements=["batch", "position"],
            set_=values,
            where=(review_claims.c.expires_at <= sa.literal(now, UtcDateTime)) | _is_of(reviewer),
        )
        .returning(review_claims.c.batch)
    )
    return taken.first() is not None


def _give_up(connection: sa.Connection, reviewer: Reviewer, offer: sa.Row[Any]) -> None:
    """Free a response, whichever page of this person has it: one may send a mark that another left behind."""
    connection.execute(
        sa.delete(review_claims).where(
            review_claims.c.batch == offer.batch,
            review_claims.c.position == offer.position,
            review_claims.c.labeller == reviewer.labeller,
        )
    )


# -- what was shown to whom ---------------------------------------------------------------------------------


def _offered(connection: sa.Connection, row: sa.Row[Any], reviewer: Reviewer, now: datetime) -> ReviewItem:
    """Write that this response is shown to this person, unless it was before; return it as it is shown."""
    insert = sqlite.insert if connection.dialect.name == "sqlite" else postgresql.insert
    connection.execute(
        insert(review_offers)
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
            review_offers.c.batch == row.batch,
            review_offers.c.position == row.position,
            review_offers.c.labeller == reviewer.labeller,
            review_offers.c.kind == row.kind,
        )
    ).one()
    return _item(
        connection,
        row,
        token=offer.token,
        kind=row.kind,
        marks=offer.marks,
        severity=None,
        skipped=row.skipped_at is not None,
    )


def _item(
    connection: sa.Connection,
    row: sa.Row[Any],
    *,
    token: str,
    kind: str,
    marks: int,
    severity: float | None,
    skipped: bool,
) -> ReviewItem:
    every = connection.execute(
        sa.select(sa.func.count()).select_from(responses).where(responses.c.batch == row.batch)
    ).scalar_one()
    return ReviewItem(
        token=token,
        gate=row.gate,
        kind=kind,
        prompt=row.prompt,
        text=row.text,
        references=tuple(row.references or ()),
        others=every - 1,
        skipped=skipped,
        marks=marks,
        severity=severity,
    )


def _of_offers(*columns: sa.ColumnElement[Any]) -> sa.Select[Any]:
    return (
        sa.select(*columns)
        .select_from(review_offers)
        .join(
            responses,
            (responses.c.batch == review_offers.c.batch) & (responses.c.position == review_offers.c.position),
        )
        .join(batches, batches.c.id == review_offers.c.batch)
        .join(decisions, decisions.c.batch == review_offers.c.batch)
    )


def _offer(connection: sa.Connection, reviewer: Reviewer, token: str) -> sa.Row[Any]:
    """Read what was offered under a name, to this person; raises `UnknownItem`."""
    row = connection.execute(
        _of_offers(
            review_offers.c.batch,
            review_offers.c.position,
            review_offers.c.kind,
            review_offers.c.marked_at,
            batches.c.gate,
            batches.c.batch_id,
            batches.c.attempt,
            responses.c.response_id,
        ).where(review_offers.c.token == token, review_offers.c.labeller == reviewer.labeller)
    ).one_or_none()
    if row is None:
        raise UnknownItem(f"nothing was shown to {reviewer.labeller!r} under this name")
    return row


# -- severities ---------------------------------------------------------------------------------------------


def _given(labeller: str, offer: sa.Row[Any]) -> sa.Select[Any]:
    """Select the severities that a labeller gave to what was offered."""
    return sa.select(label_revisions).where(
        label_revisions.c.gate == offer.gate,
        label_revisions.c.batch_id == offer.batch_id,
        label_revisions.c.attempt == offer.attempt,
        label_revisions.c.response_id == offer.response_id,
        label_revisions.c.kind == offer.kind,
        label_revisions.c.labeller == labeller,
    )


def _store_severity(
    connection: sa.Connection, labeller: str, offer: sa.Row[Any], severity: float, now: datetime
) -> None:
    last = connection.execute(
        _given(labeller, offer).with_only_columns(
            sa.func.max(label_revisions.c.effective_at, type_=UtcDateTime())
        )
    ).scalar_one()
    # Also where two marks share a clock's tick, or the clock was put back between them.
    moment = now if last is None else max(now, last + _TICK)
    label = LabelRevision(
        key=BatchKey(offer.gate, offer.batch_id, offer.attempt),
        response_id=offer.response_id,
        severity=severity,
        raw_severity=None,
        kind=offer.kind,
        labeller=labeller,
        labelled_at=moment,
    )
    store_labels(connection, [rows.label_row(label, source=SOURCE, now=moment)], now=now)


def _decided(connection: sa.Connection, batch: int, position: int) -> Decided:
    row = connection.execute(
        sa.select(
            decisions.c.unit,
            decisions.c.mode,
            decisions.c.reason,
            decisions.c.cut_state,
            decisions.c.cut_threshold,
            decisions.c.policy_version,
            policies.c.state,
            policies.c.threshold,
            policies.c.rule,
            responses.c.action,
            responses.c.score,
        )
        .select_from(decisions)
        .join(responses, responses.c.batch == decisions.c.batch)
        .join(
            policies,
            (policies.c.gate == decisions.c.gate) & (policies.c.version == decisions.c.policy_version),
        )
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
