"""What a judge was asked about an answer and what it said; append-only but for the texts, which can be erased."""

import sqlalchemy as sa

from streamer.store.db.schema import types as db

judgements = db.table(
    "judgements",
    db.identity_column(),
    db.required("gate", sa.Text, sa.ForeignKey("gates.name")),
    db.required("batch_id", sa.Text, must=db.Characters(200)),
    db.required("attempt", sa.Integer, must="{} >= 1"),
    db.required("response_id", sa.Text, must=db.Characters(200)),
    db.required("judge", sa.Text, comment="model and rubric: the label's labeller", must=db.Characters(200)),
    db.required("judged_at", db.UtcDateTime),
    db.optional(
        "label", db.BIGINT, sa.ForeignKey("label_revisions.id"), comment="NULL when it brought no new label"
    ),
    db.optional(
        "mark",
        db.REAL,
        comment="from 0 to 100, higher is better; NULL when there is none",
        must="{} >= 0 AND {} <= 100",
    ),
    db.optional("subscores", db.DOCUMENT),
    db.optional("failure", sa.Text, comment="the code of why there is no mark", must=db.Characters(64)),
    db.required("requests", sa.Integer, comment="how often it was asked", must="{} >= 1"),
    db.required("input_tokens", db.BIGINT, comment="as far as the endpoint counted"),
    db.required("output_tokens", db.BIGINT, comment="as far as the endpoint counted"),
    db.optional(
        "cost",
        db.REAL,
        comment="in the price list's currency; NULL when unknown",
        must="{} >= 0 AND {} <= 1e300",
    ),
    db.optional("exchanges", db.DOCUMENT, comment="every request and reply; NULL once erased"),
    db.optional("salt", sa.LargeBinary, comment="key of content_mac; NULL once erased", must=db.HASH),
    db.required("content_mac", sa.LargeBinary, comment="HMAC-SHA256 of the exchanges", must=db.HASH),
    db.optional("erased_at", db.UtcDateTime),
    db.required("for_score", sa.Boolean, default=sa.false(), comment="it gave a score, and no label"),
    db.required(
        "remembered",
        sa.Boolean,
        default=sa.false(),
        comment="the judge had marked the same answer to the same prompt before, and was not asked again",
    ),
    db.check("mark_or_failure", "(mark IS NULL) = (failure IS NOT NULL)"),
    db.check("mark_has_subscores", "(mark IS NULL) = (subscores IS NULL)"),
    db.check("label_has_mark", "label IS NULL OR mark IS NOT NULL"),
    db.check("tokens", "input_tokens >= 0 AND output_tokens >= 0"),
    db.check(
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
