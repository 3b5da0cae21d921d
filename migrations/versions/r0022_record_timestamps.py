"""What a decision deadline counted from, where the event names no date: the timestamp of its record in Kafka."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None

BIGINT = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Add the column."""
    comment = "of its record in Kafka, where the gate has a decision deadline"
    op.add_column("decisions", sa.Column("timestamp_ms", BIGINT, comment=comment))


def downgrade() -> None:
    """Drop it."""
    op.drop_column("decisions", "timestamp_ms")
