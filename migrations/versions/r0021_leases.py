"""Who leads among recalibrators, and who calibrates a gate: rows with an expiry and an epoch."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None

BIGINT = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
MOMENT = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "leases",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("holder", sa.Text(), nullable=False, comment="one lease of one process"),
        sa.Column("epoch", BIGINT, nullable=False, comment="one more for each new holder"),
        sa.Column("expires_at", MOMENT, nullable=False, comment="from then on it is anybody's"),
        sa.CheckConstraint("length(name) BETWEEN 1 AND 300", name=op.f("ck_leases_name")),
        sa.CheckConstraint("length(holder) BETWEEN 1 AND 200", name=op.f("ck_leases_holder")),
        sa.CheckConstraint("epoch >= 1", name=op.f("ck_leases_epoch")),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_leases")),
    )


def downgrade() -> None:
    """Drop it."""
    op.drop_table("leases")
