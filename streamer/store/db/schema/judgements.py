"""What a judge was asked about an answer and what it said; append-only but for the texts, which can be erased."""

import sqlalchemy as sa

from streamer.store.db.schema.types import (
    BIGINT,
    DOCUMENT,
    REAL,
    UtcDateTime,
    check,
    digest,
    identity_column,
    required,
    sized_text,
    table,
)

judgements = table(
    "judgements",
    identity_column(),
    required("gate", sa.Text, sa.ForeignKey("gates.name")),
    required("batch_id", sa.Text),
    required("attempt", sa.Integer),
    required("response_id", sa.Text),
    required("judge", sa.Text, comment="model and rubric: the label's labeller"),
    required("judged_at", UtcDateTime),
    sa.Column(
        "label", BIGINT, sa.ForeignKey("label_revisions.id"), comment="NULL when it brought no new label"
    ),
    sa.Column("mark", REAL, comment="from 0 to 100, higher is better; NULL when there is none"),
    sa.Column("subscores", DOCUMENT),
    sa.Column("failure", sa.Text, comment="the code of why there is no mark"),
    required("requests", sa.Integer, comment="how often it was asked"),
    required("input_tokens", BIGINT, comment="as far as the endpoint counted"),
    required("output_tokens", BIGINT, comment="as far as the endpoint counted"),
    sa.Column("cost", REAL, comment="in the price list's currency; NULL when unknown"),
    sa.Column("exchanges", DOCUMENT, comment="every request and reply; NULL once erased"),
    sa.Column("salt", sa.LargeBinary, comment="key of content_mac; NULL once erased"),
    required("content_mac", sa.LargeBinary, comment="HMAC-SHA256 of the exchanges"),
    sa.Column("erased_at", UtcDateTime),
    required("for_score", sa.Boolean, default=sa.false(), comment="it gave a score, and no label"),
    required(
        "remembered",
        sa.Boolean,
        default=sa.false(),
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
    sealed="NOT for_score",
    erased=("exchanges", "salt", "erased_at"),
    prunable=True,
    no_evidence={"id": "a number that nothing names, where the judgement is of a score"},
)
