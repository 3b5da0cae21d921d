"""Learned scores that the recalibrator fits: whether a gate wants them, and what became of each fit."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0044"
down_revision = "0043"
branch_labels = None
depends_on = None

BIGINT = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Add the column and the table, append-only. For gates that are there nothing is fitted."""
    sqlite = op.get_context().dialect.name == "sqlite"
    # A column brings its own CHECK, so that SQLite need not copy the table.
    op.execute(
        "ALTER TABLE gate_revisions ADD COLUMN learn_score TEXT DEFAULT 'off' NOT NULL"
        " CONSTRAINT ck_gate_revisions_learn_score CHECK (learn_score IN ('off', 'propose'))"
    )
    if not sqlite:
        op.execute(
            "COMMENT ON COLUMN gate_revisions.learn_score IS"
            " 'whether the service fits a learned score and proposes it'"
        )
    op.create_table(
        "score_fits",
        sa.Column("id", BIGINT, sa.Identity(), nullable=False),
        sa.Column("gate", sa.Text(), nullable=False),
        sa.Column(
            "gate_revision", sa.Integer(), nullable=False, comment="the settings that it was fitted for"
        ),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("scorer", sa.Text()),
        sa.Column("model", sa.Text(), comment="what was fitted, as JSON; NULL: nothing could be"),
        sa.Column("labelled", sa.Integer(), nullable=False, comment="prompts, in both folds"),
        sa.Column("before", sa.Double(), comment="share of prompts that Gram energy would serve"),
        sa.Column("after", sa.Double(), comment="share that the score would serve"),
        sa.Column("error", sa.Double(), comment="standard error of the difference"),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("by", sa.Text(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint(
            "outcome IN ('proposed', 'refused', 'rejected')", name=op.f("ck_score_fits_outcome")
        ),
        sa.CheckConstraint("length(scorer) BETWEEN 1 AND 64", name=op.f("ck_score_fits_scorer")),
        sa.CheckConstraint("length(model) BETWEEN 2 AND 20000", name=op.f("ck_score_fits_model")),
        sa.CheckConstraint(
            "outcome = 'refused' OR model IS NOT NULL", name=op.f("ck_score_fits_proposed_model")
        ),
        sa.CheckConstraint("(model IS NULL) = (scorer IS NULL)", name=op.f("ck_score_fits_named_model")),
        sa.CheckConstraint("labelled >= 0", name=op.f("ck_score_fits_labelled")),
        sa.CheckConstraint("length(reason) BETWEEN 1 AND 2000", name=op.f("ck_score_fits_reason")),
        sa.CheckConstraint("length(by) BETWEEN 1 AND 200", name=op.f("ck_score_fits_by")),
        sa.ForeignKeyConstraint(
            ["gate", "gate_revision"],
            ["gate_revisions.gate", "gate_revisions.revision"],
            name=op.f("fk_score_fits_gate_gate_revision_gate_revisions"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_score_fits")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_score_fits_gate_id", "score_fits", ["gate", "id"])
    for verb in ("UPDATE", "DELETE"):
        name = f"append_only_score_fits_{verb.lower()}"
        op.execute(
            f"CREATE TRIGGER {name} BEFORE {verb} ON score_fits BEGIN"
            " SELECT RAISE(ABORT, 'score_fits is append-only'); END"
            if sqlite
            else f"CREATE TRIGGER {name} BEFORE {verb} ON score_fits"
            " FOR EACH ROW EXECUTE FUNCTION refuse_change()"
        )


def downgrade() -> None:
    """Drop them."""
    op.drop_table("score_fits")
    op.execute("ALTER TABLE gate_revisions DROP COLUMN learn_score")
