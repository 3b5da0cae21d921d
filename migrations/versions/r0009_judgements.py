"""What a judge was asked and what it said, beside the labels that came of it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

BIGINT = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
MOMENT = sa.DateTime(timezone=True)

FACTS = (
    "id",
    "gate",
    "batch_id",
    "attempt",
    "response_id",
    "judge",
    "judged_at",
    "label",
    "mark",
    "subscores",
    "failure",
    "requests",
    "input_tokens",
    "output_tokens",
    "cost",
    "content_mac",
)
TEXTS = ("exchanges", "salt", "erased_at")
"""These may change once: to erased, all together."""


def upgrade() -> None:
    """Create the table and its guards."""
    op.create_table(
        "judgements",
        sa.Column("id", BIGINT, sa.Identity(always=False), nullable=False),
        sa.Column("gate", sa.Text(), nullable=False),
        sa.Column("batch_id", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("response_id", sa.Text(), nullable=False),
        sa.Column("judge", sa.Text(), nullable=False, comment="model and rubric: the label's labeller"),
        sa.Column("judged_at", MOMENT, nullable=False),
        sa.Column("label", BIGINT, nullable=True, comment="NULL when it brought no new label"),
        sa.Column(
            "mark",
            sa.Double(),
            nullable=True,
            comment="from 0 to 100, higher is better; NULL when there is none",
        ),
        sa.Column("subscores", sa.JSON(), nullable=True),
        sa.Column("failure", sa.Text(), nullable=True, comment="the code of why there is no mark"),
        sa.Column("requests", sa.Integer(), nullable=False, comment="how often it was asked"),
        sa.Column("input_tokens", BIGINT, nullable=False, comment="as far as the endpoint counted"),
        sa.Column("output_tokens", BIGINT, nullable=False, comment="as far as the endpoint counted"),
        sa.Column(
            "cost", sa.Double(), nullable=True, comment="in the price list's currency; NULL when unknown"
        ),
        sa.Column("exchanges", sa.JSON(), nullable=True, comment="every request and reply; NULL once erased"),
        sa.Column("salt", sa.LargeBinary(), nullable=True, comment="key of content_mac; NULL once erased"),
        sa.Column("content_mac", sa.LargeBinary(), nullable=False, comment="HMAC-SHA256 of the exchanges"),
        sa.Column("erased_at", MOMENT, nullable=True),
        sa.CheckConstraint("length(batch_id) BETWEEN 1 AND 200", name=op.f("ck_judgements_batch_id")),
        sa.CheckConstraint("attempt >= 1", name=op.f("ck_judgements_attempt")),
        sa.CheckConstraint("length(response_id) BETWEEN 1 AND 200", name=op.f("ck_judgements_response_id")),
        sa.CheckConstraint("length(judge) BETWEEN 1 AND 200", name=op.f("ck_judgements_judge")),
        sa.CheckConstraint("mark >= 0 AND mark <= 100", name=op.f("ck_judgements_mark")),
        sa.CheckConstraint(
            "(mark IS NULL) = (failure IS NOT NULL)", name=op.f("ck_judgements_mark_or_failure")
        ),
        sa.CheckConstraint(
            "(mark IS NULL) = (subscores IS NULL)", name=op.f("ck_judgements_mark_has_subscores")
        ),
        sa.CheckConstraint("label IS NULL OR mark IS NOT NULL", name=op.f("ck_judgements_label_has_mark")),
        sa.CheckConstraint("length(failure) BETWEEN 1 AND 64", name=op.f("ck_judgements_failure")),
        sa.CheckConstraint("requests >= 1", name=op.f("ck_judgements_requests")),
        sa.CheckConstraint("input_tokens >= 0 AND output_tokens >= 0", name=op.f("ck_judgements_tokens")),
        sa.CheckConstraint("cost >= 0 AND cost <= 1e300", name=op.f("ck_judgements_cost")),
        sa.CheckConstraint("length(salt) = 32", name=op.f("ck_judgements_salt")),
        sa.CheckConstraint("length(content_mac) = 32", name=op.f("ck_judgements_content_mac")),
        sa.CheckConstraint(
            "(erased_at IS NULL AND exchanges IS NOT NULL AND salt IS NOT NULL)"
            " OR (erased_at IS NOT NULL AND exchanges IS NULL AND salt IS NULL)",
            name=op.f("ck_judgements_erased"),
        ),
        sa.ForeignKeyConstraint(["gate"], ["gates.name"], name=op.f("fk_judgements_gate_gates")),
        sa.ForeignKeyConstraint(
            ["label"], ["label_revisions.id"], name=op.f("fk_judgements_label_label_revisions")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_judgements")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_judgements_response", "judgements", ["gate", "batch_id", "attempt", "response_id"])
    sqlite = op.get_context().dialect.name == "sqlite"
    refuse = (
        "BEGIN SELECT RAISE(ABORT, 'judgements is append-only'); END"
        if sqlite
        else "FOR EACH ROW EXECUTE FUNCTION refuse_change()"
    )
    erases = "OLD.erased_at IS NULL AND NEW.erased_at IS NOT NULL"
    texts = (
        f"WHEN (NOT ({erases})) {refuse}" if sqlite else f"FOR EACH ROW WHEN (NOT ({erases})) {refuse[13:]}"
    )
    op.execute(
        f"CREATE TRIGGER append_only_judgements_update BEFORE UPDATE OF {', '.join(FACTS)} ON judgements {refuse}"
    )
    op.execute(
        f"CREATE TRIGGER append_only_judgements_erase BEFORE UPDATE OF {', '.join(TEXTS)} ON judgements {texts}"
    )
    op.execute(f"CREATE TRIGGER append_only_judgements_delete BEFORE DELETE ON judgements {refuse}")


def downgrade() -> None:
    """Drop it, its guards with it."""
    op.drop_table("judgements")
