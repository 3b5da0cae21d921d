"""Say of a state of watching only what is true: the figures beside it do not all follow from it."""

from __future__ import annotations

from alembic import op

revision = "0031"
down_revision = "0030"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Change the comment."""
    _say("exact, JSON")


def downgrade() -> None:
    """Change it back."""
    _say("exact, JSON; the figures above follow from it")


def _say(comment: str) -> None:
    if op.get_context().dialect.name != "sqlite":
        op.execute(f"COMMENT ON COLUMN monitor_sequences.state IS '{comment}'")
