"""Who is looking at which response on the review page, and what was shown to whom."""

import sqlalchemy as sa

from streamer.store.db.schema import types as db

review_claims = db.table(
    "review_claims",
    db.key("batch", db.BIGINT, sa.ForeignKey("batches.id")),
    db.key("position", sa.Integer),
    db.required("labeller", sa.Text, must=db.Characters(200)),
    db.required("holder", sa.Text, comment="one open page of that labeller", must=db.Characters(64)),
    db.required("expires_at", db.UtcDateTime, comment="from then on it is anybody's"),
    changes=("labeller", "holder", "expires_at"),
    deletes=True,
    no_evidence="who was shown which answer",
)

review_offers = db.table(
    "review_offers",
    db.key("token", sa.Text, comment="what the page calls it; tells nothing", must=db.Characters(64)),
    db.required("batch", db.BIGINT, sa.ForeignKey("batches.id")),
    db.required("position", sa.Integer),
    db.required("labeller", sa.Text, must=db.Characters(200)),
    db.required("kind", sa.Text, comment="of the severity that was asked for", must=db.Characters(64)),
    db.required("offered_at", db.UtcDateTime),
    db.optional("skipped_at", db.UtcDateTime),
    db.required("marks", sa.Integer, comment="how many severities came of it", must="{} >= 0"),
    db.optional(
        "mark",
        sa.Text,
        comment="the page's name of the last one: a repeat is known by it",
        must=db.Characters(64),
    ),
    db.optional("marked_at", db.UtcDateTime),
    sa.UniqueConstraint("batch", "position", "labeller", "kind"),
    sa.Index("ix_review_offers_marked_at", "labeller", "marked_at"),
    changes=("skipped_at", "marks", "mark", "marked_at"),
    no_evidence="who was shown which answer",
)
