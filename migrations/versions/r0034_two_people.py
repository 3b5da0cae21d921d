"""Gates whose proposals come into force only by another person than who asked for them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0034"
down_revision = "0033"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column: gates that are there demand nothing."""
    op.add_column(
        "gate_revisions",
        sa.Column(
            "two_people",
            sa.Boolean(),
            nullable=False,
            server_default=sa.false(),
            comment="a proposal needs another person, who has signed in",
        ),
    )


def downgrade() -> None:
    """Drop it."""
    op.drop_column("gate_revisions", "two_people")
