"""Learned scores: the model in a gate's settings, and what it makes of batches that were decided by another score."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0037"
down_revision = "0036"
branch_labels = None
depends_on = None

BIGINT = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Add the column and the table, append-only. Gates that are there have no model."""
    sqlite = op.get_context().dialect.name == "sqlite"
    # A column brings its own CHECK, so that SQLite need not copy the table.
    op.execute(
        "ALTER TABLE gate_revisions ADD COLUMN model TEXT CONSTRAINT ck_gate_revisions_model"
        " CHECK (length(model) BETWEEN 2 AND 20000)"
    )
    if not sqlite:
        op.execute(
            "COMMENT ON COLUMN gate_revisions.model IS"
            " 'what a learned score computes, as JSON; NULL: another scorer'"
        )
    op.create_table(
        "learned_scores",
        sa.Column("batch", BIGINT, nullable=False, autoincrement=False),
        sa.Column("scorer", sa.Text(), nullable=False),
        sa.Column("response_id", sa.Text(), nullable=False),
        sa.Column("score", sa.Double(), nullable=False),
        sa.CheckConstraint("length(scorer) BETWEEN 1 AND 64", name=op.f("ck_learned_scores_scorer")),
        sa.CheckConstraint("score >= 0 AND score <= 1", name=op.f("ck_learned_scores_score")),
        sa.ForeignKeyConstraint(
            ["batch", "response_id"],
            ["responses.batch", "responses.response_id"],
            name=op.f("fk_learned_scores_batch_response_id_responses"),
        ),
        sa.PrimaryKeyConstraint("scorer", "batch", "response_id", name=op.f("pk_learned_scores")),
    )
    for verb in ("UPDATE", "DELETE"):
        name = f"append_only_learned_scores_{verb.lower()}"
        op.execute(
            f"CREATE TRIGGER {name} BEFORE {verb} ON learned_scores BEGIN"
            " SELECT RAISE(ABORT, 'learned_scores is append-only'); END"
            if sqlite
            else f"CREATE TRIGGER {name} BEFORE {verb} ON learned_scores"
            " FOR EACH ROW EXECUTE FUNCTION refuse_change()"
        )


def downgrade() -> None:
    """Drop them: a gate with a learned score cannot be read any more, and holds everything."""
    op.drop_table("learned_scores")
    op.execute("ALTER TABLE gate_revisions DROP COLUMN model")
