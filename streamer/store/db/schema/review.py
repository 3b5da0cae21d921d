"""Who is looking at which response on the review page, and what was shown to whom."""

from __future__ import annotations

import sqlalchemy as sa

from streamer.store.db.schema.types import BIGINT, UtcDateTime, check, metadata, sized_text

review_claims = sa.Table(
    "review_claims",
    metadata,
    sa.Column("batch", BIGINT, primary_key=True, autoincrement=False),
    sa.Column("position", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("labeller", sa.Text, nullable=False),
    sa.Column("holder", sa.Text, nullable=False, comment="one open page of that labeller"),
    sa.Column("expires_at", UtcDateTime, nullable=False, comment="from then on it is anybody's"),
    sa.ForeignKeyConstraint(["batch", "position"], ["responses.batch", "responses.position"]),
    sized_text("labeller", 200),
    sized_text("holder", 64),
)

review_offers = sa.Table(
    "review_offers",
    metadata,
    sa.Column("token", sa.Text, primary_key=True, comment="what the page calls it; tells nothing"),
    sa.Column("batch", BIGINT, nullable=False),
    sa.Column("position", sa.Integer, nullable=False),
    sa.Column("labeller", sa.Text, nullable=False),
    sa.Column("kind", sa.Text, nullable=False, comment="of the severity that was asked for"),
    sa.Column("offered_at", UtcDateTime, nullable=False),
    sa.Column("skipped_at", UtcDateTime),
    sa.Column("marks", sa.Integer, nullable=False, comment="how many severities came of it"),
    sa.Column("mark", sa.Text, comment="the page's name of the last one: a repeat is known by it"),
    sa.Column("marked_at", UtcDateTime),
    sa.ForeignKeyConstraint(["batch", "position"], ["responses.batch", "responses.position"]),
    sa.UniqueConstraint("batch", "position", "labeller", "kind"),
    sized_text("token", 64),
    sized_text("labeller", 200),
    sized_text("kind", 64),
    check("marks", "marks >= 0"),
    sized_text("mark", 64),
    sa.Index("ix_review_offers_marked_at", "labeller", "marked_at"),
)
