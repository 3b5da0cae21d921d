"""Gates that decide about the answers of one upstream alone, as it was set when they were calibrated."""

from __future__ import annotations

from alembic import op

revision = "0045"
down_revision = "0044"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column. Gates that are there name no upstream."""
    # A column brings its own CHECK, so that SQLite need not copy the table.
    op.execute(
        "ALTER TABLE gate_revisions ADD COLUMN upstream TEXT"
        " CONSTRAINT ck_gate_revisions_upstream CHECK (length(upstream) BETWEEN 10 AND 200)"
    )
    if op.get_context().dialect.name != "sqlite":
        op.execute(
            "COMMENT ON COLUMN gate_revisions.upstream IS 'whose answers it decides about; NULL: anybody''s'"
        )


def downgrade() -> None:
    """Take the column away."""
    op.execute("ALTER TABLE gate_revisions DROP COLUMN upstream")
