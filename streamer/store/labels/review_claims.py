"""Which drawn answers wait for people, and who has which at the moment.

A claim is a row under the answer's key, so that of any number of processes one alone gets it; it lasts until it
expires, and counts for nothing afterwards.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from streamer.review.items import Reviewer
from streamer.store.db.engine import upsert
from streamer.store.db.schema import (
    batches,
    decisions,
    gate_revisions,
    responses,
    review_claims,
    review_offers,
)
from streamer.store.db.schema.joins import JUDGED, same
from streamer.store.db.schema.types import UtcDateTime
from streamer.store.labels.revisions import FROM_THE_TOP, unlabelled
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


def take_one(
    connection: sa.Connection,
    labels: sa.FromClause,
    found: Sequence[sa.Row[Any]],
    reviewer: Reviewer,
    *,
    until: datetime,
    now: datetime,
) -> sa.Row[Any] | None:
    """Take the first of the candidates that is still available; None when none is."""
    # Of answers that were labelled otherwise long ago.
    connection.execute(sa.delete(review_claims).where(review_claims.c.expires_at < now - _FORGOTTEN))
    each = (row for row in found if take(connection, labels, row, reviewer, until=until, now=now))
    return next(each, None)


def take(
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
