"""Write one index less with every decision: an action's id follows from gate, batch and attempt, which are unique."""

from __future__ import annotations

from alembic import op

revision = "0032"
down_revision = "0031"
branch_labels = None
depends_on = None

NAME = "uq_decisions_action_id"


def upgrade() -> None:
    """Drop it, except where that takes a copy of the table."""
    if op.get_context().dialect.name != "sqlite":
        op.drop_constraint(NAME, "decisions", type_="unique")


def downgrade() -> None:
    """Make it again."""
    if op.get_context().dialect.name != "sqlite":
        op.create_unique_constraint(NAME, "decisions", ["action_id"])
