"""What a person wrote beside a severity that they gave."""

from __future__ import annotations

from alembic import op

revision = "0043"
down_revision = "0042"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column: severities that are there have no remark."""
    # A column brings its own CHECK, so that SQLite need not copy the table.
    op.execute(
        "ALTER TABLE label_revisions ADD COLUMN remark TEXT CONSTRAINT ck_label_revisions_remark"
        " CHECK (length(remark) BETWEEN 1 AND 500)"
    )
    if op.get_context().dialect.name != "sqlite":
        op.execute(
            "COMMENT ON COLUMN label_revisions.remark IS 'what the person wrote beside it; NULL: nothing'"
        )


def downgrade() -> None:
    """Drop it."""
    op.drop_column("label_revisions", "remark")
