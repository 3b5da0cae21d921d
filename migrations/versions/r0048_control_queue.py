"""What closings wrote and the control chain does not have yet."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0048"
down_revision = "0047"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the queue, empty."""
    op.create_table(
        "control_queue",
        sa.Column(
            "id",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            sa.Identity(always=False),
            nullable=False,
        ),
        sa.Column("kind", sa.Text(), nullable=False, comment="as in control_log"),
        sa.Column("subject", sa.Text(), nullable=False, comment="as in control_log"),
        sa.Column("sealed", sa.Text(), nullable=False, comment="as in control_log"),
        sa.Column("recorded_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_control_queue")),
        sqlite_autoincrement=True,
    )


def downgrade() -> None:
    """Drop the queue; a closing that waits in it is reported as in no chain."""
    op.drop_table("control_queue")
