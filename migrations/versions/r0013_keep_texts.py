"""Gates that keep hashes in place of texts."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; gates that are there keep texts, as they did."""
    op.add_column(
        "gate_revisions",
        sa.Column(
            "keep_texts",
            sa.Boolean(),
            server_default=sa.true(),
            nullable=False,
            comment="else their hash only",
        ),
    )


def downgrade() -> None:
    """Take it away."""
    op.drop_column("gate_revisions", "keep_texts")
