"""What a judge was asked about an answer and what it said; append-only but for the texts, which can be erased."""

from __future__ import annotations

import sqlalchemy as sa

from streamer.store.db.schema.types import (
    BIGINT,
    DOCUMENT,
    REAL,
    UtcDateTime,
    check,
    digest,
    identity_column,
    metadata,
    sized_text,
)

judgements = sa.Table(
    "judgements",
    metadata,
    identity_column(),
    sa.Column("gate", sa.Text, sa.ForeignKey("gates.name"), nullable=False),
    sa.Column("batch_id", sa.Text, nullable=False),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("response_id", sa.Text, nullable=False),
    sa.Column("judge", sa.Text, nullable=False, comment="model and rubric: the label's labeller"),
    sa.Column("judged_at", UtcDateTime, nullable=False),
    sa.Column(
        "label", BIGINT, sa.ForeignKey("label_revisions.id"), comment="NULL when it brought no new label"
    ),
    sa.Column("mark", REAL, comment="from 0 to 100, higher is better; NULL when there is none"),
    sa.Column("subscores", DOCUMENT),
    sa.Column("failure", sa.Text, comment="the code of why there is no mark"),
    sa.Column("requests", sa.Integer, nullable=False, comment="how often it was asked"),
    sa.Column("input_tokens", BIGINT, nullable=False, comment="as far as the endpoint counted"),
    sa.Column("output_tokens", BIGINT, nullable=False, comment="as far as the endpoint counted"),
    sa.Column("cost", REAL, comment="in the price list's currency; NULL when unknown"),
    sa.Column("exchanges", DOCUMENT, comment="every request and reply; NULL once erased"),
    sa.Column("salt", sa.LargeBinary, comment="key of content_mac; NULL once erased"),
    sa.Column("content_mac", sa.LargeBinary, nullable=False, comment="HMAC-SHA256 of the exchanges"),
    sa.Column("erased_at", UtcDateTime),
    sa.Column(
        "for_score",
        sa.Boolean,
        nullable=False,
        server_default=sa.false(),
        comment="it gave a score, and no label",
    ),
    sa.Column(
        "remembered",
        sa.Boolean,
        nullable=False,
        server_default=sa.false(),
        comment="the judge had marked the same answer to the same prompt before, and was not asked again",
    ),
    sized_text("batch_id", 200),
    check("attempt", "attempt >= 1"),
    sized_text("response_id", 200),
    sized_text("judge", 200),
    check("mark", "mark >= 0 AND mark <= 100"),
    check("mark_or_failure", "(mark IS NULL) = (failure IS NOT NULL)"),
    check("mark_has_subscores", "(mark IS NULL) = (subscores IS NULL)"),
    check("label_has_mark", "label IS NULL OR mark IS NOT NULL"),
    sized_text("failure", 64),
    check("requests", "requests >= 1"),
    check("tokens", "input_tokens >= 0 AND output_tokens >= 0"),
    check("cost", "cost >= 0 AND cost <= 1e300"),
    digest("salt"),
    digest("content_mac"),
    check(
        "erased",
        "(erased_at IS NULL AND exchanges IS NOT NULL AND salt IS NOT NULL)"
        " OR (erased_at IS NOT NULL AND exchanges IS NULL AND salt IS NULL)",
    ),
    sa.Index("ix_judgements_response", "gate", "batch_id", "attempt", "response_id"),
    sqlite_autoincrement=True,
)
