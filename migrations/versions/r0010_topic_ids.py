"""Which topic the stored progress is of: a topic that was made anew has the same name and another id."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; the workers fill it."""
    op.add_column(
        "progress",
        sa.Column("topic_id", sa.Text(), nullable=True, comment="the broker's; NULL where it has none"),
    )


def downgrade() -> None:
    """Take it away."""
    op.drop_column("progress", "topic_id")
