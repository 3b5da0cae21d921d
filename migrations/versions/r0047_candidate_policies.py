"""Candidate policies, and what they made of batches that other policies decided."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0047"
down_revision = "0045"
branch_labels = None
depends_on = None

BIGINT = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Add the tables, append-only. Gates that are there have no candidate."""
    op.create_table(
        "candidate_policies",
        sa.Column("id", BIGINT, sa.Identity(), nullable=False),
        sa.Column("gate", sa.Text(), nullable=False),
        sa.Column("settings", sa.Text(), comment="by their flat names; NULL: no candidate from here on"),
        sa.Column("state", sa.Text(), comment="NULL: it has no threshold, and scores alone"),
        sa.Column("threshold", sa.Double()),
        sa.Column("rule", sa.Text(), comment="NULL: ship what is above the threshold"),
        sa.Column("guarantee", sa.Text(), nullable=False),
        sa.Column("by", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint(
            "settings IS NOT NULL OR state IS NULL", name=op.f("ck_candidate_policies_stopped")
        ),
        sa.CheckConstraint("state IN ('closed', 'cut', 'open')", name=op.f("ck_candidate_policies_state")),
        sa.CheckConstraint(
            "(state = 'cut') = (threshold IS NOT NULL)", name=op.f("ck_candidate_policies_threshold")
        ),
        sa.CheckConstraint(
            "threshold >= -1e300 AND threshold <= 1e300",
            name=op.f("ck_candidate_policies_threshold_finite"),
        ),
        sa.CheckConstraint("length(rule) BETWEEN 2 AND 1048576", name=op.f("ck_candidate_policies_rule")),
        sa.CheckConstraint("length(by) BETWEEN 1 AND 200", name=op.f("ck_candidate_policies_by")),
        sa.CheckConstraint("length(reason) BETWEEN 1 AND 2000", name=op.f("ck_candidate_policies_reason")),
        sa.ForeignKeyConstraint(["gate"], ["gates.name"], name=op.f("fk_candidate_policies_gate_gates")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_candidate_policies")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_candidate_policies_gate_id", "candidate_policies", ["gate", "id"])
    op.create_table(
        "candidate_decisions",
        sa.Column("batch", BIGINT, nullable=False, autoincrement=False),
        sa.Column("candidate", BIGINT, nullable=False),
        sa.Column("scores", sa.JSON(), comment="in event order; NULL: it has none"),
        sa.Column("shipped", sa.JSON(), comment="what it would have shipped; NULL: it decided nothing"),
        sa.Column("why", sa.Text(), comment="why it has no scores"),
        sa.CheckConstraint(
            "(scores IS NULL) = (why IS NOT NULL)", name=op.f("ck_candidate_decisions_scored")
        ),
        sa.CheckConstraint(
            "shipped IS NULL OR scores IS NOT NULL", name=op.f("ck_candidate_decisions_shipped")
        ),
        sa.CheckConstraint("length(why) BETWEEN 1 AND 64", name=op.f("ck_candidate_decisions_why")),
        sa.ForeignKeyConstraint(["batch"], ["batches.id"], name=op.f("fk_candidate_decisions_batch_batches")),
        sa.ForeignKeyConstraint(
            ["candidate"],
            ["candidate_policies.id"],
            name=op.f("fk_candidate_decisions_candidate_candidate_policies"),
        ),
        sa.PrimaryKeyConstraint("batch", name=op.f("pk_candidate_decisions")),
    )
    sqlite = op.get_context().dialect.name == "sqlite"
    for table in ("candidate_policies", "candidate_decisions"):
        for verb in ("UPDATE", "DELETE"):
            name = f"append_only_{table}_{verb.lower()}"
            op.execute(
                f"CREATE TRIGGER {name} BEFORE {verb} ON {table} BEGIN"
                f" SELECT RAISE(ABORT, '{table} is append-only'); END"
                if sqlite
                else f"CREATE TRIGGER {name} BEFORE {verb} ON {table}"
                " FOR EACH ROW EXECUTE FUNCTION refuse_change()"
            )


def downgrade() -> None:
    """Drop them; the control chain says so of the candidates that were set."""
    op.drop_table("candidate_decisions")
    op.drop_table("candidate_policies")
