"""What allowed texts to be erased, and who erased them and why; append-only."""

from __future__ import annotations

import sqlalchemy as sa

from streamer.store.db.schema.types import BIGINT, UtcDateTime, check, digest, metadata, required, sized_text

erasures = sa.Table(
    "erasures",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    required("at", UtcDateTime),
    required("by", sa.Text),
    required("reason", sa.Text),
    sa.Column(
        "before",
        UtcDateTime,
        comment="what was decided or refused before then may be erased; NULL: what was erased when erasures began to be kept",
    ),
    required("sooner", sa.Boolean, comment="younger than six months was permitted"),
    sa.Column("erased", BIGINT, comment="batches and refused messages that were erased by then"),
    sa.Column("digest", sa.LargeBinary, comment="SHA-256 of their content_mac, in order"),
    sized_text("id", 64),
    sized_text("by", 200),
    sized_text("reason", 500),
    check("before", '"before" <= at'),
    check(
        "adopted", '("before" IS NULL) = (erased IS NOT NULL) AND ("before" IS NULL) = (digest IS NOT NULL)'
    ),
    check("erased", "erased >= 0"),
    digest("digest"),
)
