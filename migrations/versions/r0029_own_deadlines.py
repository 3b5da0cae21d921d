"""When a request stops to wait for its decision: a deadline of its own, beside its gate's."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0029"
down_revision = "0028"
branch_labels = None
depends_on = None

BIGINT = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Add the column."""
    comment = "when its sender stopped to wait; NULL: it named no moment"
    op.add_column("decisions", sa.Column("deadline_ms", BIGINT, comment=comment))


def downgrade() -> None:
    """Drop it."""
    op.drop_column("decisions", "deadline_ms")
