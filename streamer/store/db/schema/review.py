"""Who is looking at which response on the review page, and what was shown to whom."""

import sqlalchemy as sa

from streamer.store.db.schema.types import BIGINT, UtcDateTime, check, required, sized_text, table

review_claims = table(
    "review_claims",
    sa.Column("batch", BIGINT, sa.ForeignKey("batches.id"), primary_key=True, autoincrement=False),
    sa.Column("position", sa.Integer, primary_key=True, autoincrement=False),
    required("labeller", sa.Text),
    required("holder", sa.Text, comment="one open page of that labeller"),
    required("expires_at", UtcDateTime, comment="from then on it is anybody's"),
    sized_text("labeller", 200),
    sized_text("holder", 64),
    changes=("labeller", "holder", "expires_at"),
    deletes=True,
    no_evidence="who was shown which answer",
)

review_offers = table(
    "review_offers",
    sa.Column("token", sa.Text, primary_key=True, comment="what the page calls it; tells nothing"),
    required("batch", BIGINT, sa.ForeignKey("batches.id")),
    required("position", sa.Integer),
    required("labeller", sa.Text),
    required("kind", sa.Text, comment="of the severity that was asked for"),
    required("offered_at", UtcDateTime),
    sa.Column("skipped_at", UtcDateTime),
    required("marks", sa.Integer, comment="how many severities came of it"),
    sa.Column("mark", sa.Text, comment="the page's name of the last one: a repeat is known by it"),
    sa.Column("marked_at", UtcDateTime),
    sa.UniqueConstraint("batch", "position", "labeller", "kind"),
    sized_text("token", 64),
    sized_text("labeller", 200),
    sized_text("kind", 64),
    check("marks", "marks >= 0"),
    sized_text("mark", 64),
    sa.Index("ix_review_offers_marked_at", "labeller", "marked_at"),
    changes=("skipped_at", "marks", "mark", "marked_at"),
    no_evidence="who was shown which answer",
)
