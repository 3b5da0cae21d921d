"""The review page's side of the record: the next answer for each person, and the severities that people give."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from streamer.review.items import Decided, GateProgress, Mark, Progress, Reviewer, ReviewItem
from streamer.store.db.schema import decisions, responses, review_claims, review_offers
from streamer.store.labels.review_claims import (
    SHOWN,
    beside,
    candidates,
    claim_of_others,
    give_up,
    is_of,
    offer_to,
    take,
    take_one,
)
from streamer.store.labels.review_offers import (
    claims_of,
    decided,
    given,
    item_of,
    of_offers,
    offer_of,
    offered,
    store_severity,
    texts_of,
)
from streamer.store.labels.revisions import unlabelled
from streamer.store.part import Part
from streamer.store.risk.audit_rates import held_early

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
                row = take_one(connection, labels, found, reviewer, until=now + hold, now=now)
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
            return take(connection, labels, offer, reviewer, until=now + hold, now=now)

        return self._database.writing(work)

    def release(self, reviewer: Reviewer) -> None:
        mine = sa.delete(review_claims).where(is_of(reviewer))
        self._database.writing(lambda connection: connection.execute(mine))

    def progress(
        self, reviewer: Reviewer, gates: Sequence[str], *, since: datetime, now: datetime
    ) -> Progress:
        shown = responses.c.text.is_not(None)

        def count(*conditions: sa.ColumnElement[bool]) -> sa.ColumnElement[int]:
            return sa.func.coalesce(sa.func.sum(sa.case((sa.and_(*conditions), 1), else_=0)), 0)

        claim, offer = claim_of_others(reviewer, now), offer_to(reviewer)
        done = (
            sa.select(sa.func.count())
            .select_from(review_offers)
            .where(review_offers.c.labeller == reviewer.labeller, review_offers.c.marked_at >= since)
        )
        with self._database.reading() as connection:
            labels = self._read.table(connection)
            waiting = beside(
                unlabelled(
                    labels,
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
