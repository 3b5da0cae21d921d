"""A queue for what input records cause, in which an action is a reference to its decision.

Workers of the earlier version go on with the outbox, and do not see this table: what waits in it is published once a
worker of this version has the partition.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None

BIGINT = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
MOMENT = sa.DateTime(timezone=True)

BACK = """
INSERT INTO outbox (source_log_id, source_topic, source_partition, topic, key, value, headers, created_at, parked_at, error)
SELECT p.source_log_id, p.source_topic, p.source_partition, p.topic,
       CASE WHEN p.batch IS NULL THEN p.key ELSE d.action_key END,
       CASE WHEN p.batch IS NULL THEN p.value ELSE d.action_value END,
       CASE WHEN p.batch IS NULL THEN p.headers ELSE d.action_headers END,
       CURRENT_TIMESTAMP, p.parked_at, p.error
FROM pending_messages p LEFT JOIN decisions d ON d.batch = p.batch
ORDER BY p.id
"""


def upgrade() -> None:
    """Create the table; what waits in the outbox stays there and is published from there."""
    op.create_table(
        "pending_messages",
        sa.Column("id", BIGINT, sa.Identity(always=False), nullable=False),
        sa.Column("source_log_id", sa.Text(), nullable=False),
        sa.Column("source_topic", sa.Text(), nullable=False),
        sa.Column("source_partition", sa.Integer(), nullable=False),
        sa.Column("topic", sa.Text(), nullable=False),
        sa.Column("batch", BIGINT, nullable=True, comment="its decision has key, value and headers"),
        sa.Column("key", sa.LargeBinary(), nullable=True),
        sa.Column("value", sa.LargeBinary(), nullable=True),
        sa.Column("headers", sa.Text(), nullable=True, comment="NULL for a decision's action"),
        sa.Column("parked_at", MOMENT, nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.CheckConstraint("length(topic) BETWEEN 1 AND 249", name=op.f("ck_pending_messages_topic")),
        sa.CheckConstraint(
            "(batch IS NULL) = (headers IS NOT NULL)", name=op.f("ck_pending_messages_content")
        ),
        sa.CheckConstraint(
            "batch IS NULL OR (key IS NULL AND value IS NULL)", name=op.f("ck_pending_messages_reference")
        ),
        sa.CheckConstraint("(parked_at IS NULL) = (error IS NULL)", name=op.f("ck_pending_messages_parked")),
        sa.ForeignKeyConstraint(["batch"], ["batches.id"], name=op.f("fk_pending_messages_batch_batches")),
        sa.ForeignKeyConstraint(
            ["source_log_id", "source_topic", "source_partition"],
            ["progress.log_id", "progress.topic", "progress.partition"],
            name=op.f("fk_pending_messages_source_progress"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_pending_messages")),
        sqlite_autoincrement=True,
    )
    op.create_index(
        "ix_pending_messages_lane",
        "pending_messages",
        ["topic", "id"],
        unique=False,
        postgresql_where=sa.text("parked_at IS NULL"),
        sqlite_where=sa.text("parked_at IS NULL"),
    )


def downgrade() -> None:
    """Drop it; what waits goes into the outbox in full."""
    op.execute(BACK)
    op.drop_table("pending_messages")
