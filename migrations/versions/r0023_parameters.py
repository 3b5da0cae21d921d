"""Parameters of methods and shapes that have no column of their own, so that a new method needs no new column."""

from __future__ import annotations

from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column. Gates that are there have methods whose parameters have columns."""
    # A column brings its own CHECK, so that SQLite need not copy the table.
    op.execute(
        "ALTER TABLE gate_revisions ADD COLUMN parameters TEXT CONSTRAINT ck_gate_revisions_parameters"
        " CHECK (length(parameters) BETWEEN 2 AND 10000)"
    )
    if op.get_context().dialect.name != "sqlite":
        op.execute(
            "COMMENT ON COLUMN gate_revisions.parameters IS"
            " 'of method and shape, beside those with a column; JSON'"
        )


def downgrade() -> None:
    """Drop it."""
    op.execute("ALTER TABLE gate_revisions DROP COLUMN parameters")
