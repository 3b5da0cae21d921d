"""The cuts that a calibration run took from prompts which nobody was to label."""

from __future__ import annotations

from alembic import op

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column. Runs that are there read no such prompts."""
    # A column brings its own CHECK, so that SQLite need not copy the table.
    op.execute(
        "ALTER TABLE calibration_runs ADD COLUMN history TEXT CONSTRAINT ck_calibration_runs_history"
        " CHECK (length(history) BETWEEN 2 AND 10000)"
    )
    if op.get_context().dialect.name != "sqlite":
        op.execute(
            "COMMENT ON COLUMN calibration_runs.history IS"
            " 'the cuts that undrawn prompts fixed; JSON; NULL: none were read'"
        )


def downgrade() -> None:
    """Drop it."""
    op.execute("ALTER TABLE calibration_runs DROP COLUMN history")
