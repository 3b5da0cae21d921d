"""What was decided while a gate was open, which its verdict rests on."""

from __future__ import annotations

from alembic import op

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column. Watching fills it, from the beginning of the present budget period on."""
    op.execute("ALTER TABLE monitor_gates ADD COLUMN service TEXT")
    if op.get_context().dialect.name != "sqlite":
        op.execute(
            "COMMENT ON COLUMN monitor_gates.service IS"
            " 'what was decided while the gate was open; exact, JSON'"
        )


def downgrade() -> None:
    """Drop it."""
    op.execute("ALTER TABLE monitor_gates DROP COLUMN service")
