"""The log's side: progress, the chained outcomes, labels, dead letters, gaps, the outbox."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

BIGINT = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
MOMENT = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "progress",
        sa.Column("log_id", sa.Text(), nullable=False),
        sa.Column("topic", sa.Text(), nullable=False),
        sa.Column("partition", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("epoch", BIGINT, nullable=False, comment="raised by each lease"),
        sa.Column("next_offset", BIGINT, nullable=False),
        sa.Column("chain_height", BIGINT, nullable=False),
        sa.Column("chain_hash", sa.LargeBinary(), nullable=False),
        sa.Column("updated_at", MOMENT, nullable=False),
        sa.CheckConstraint("chain_height >= 0", name=op.f("ck_progress_chain_height")),
        sa.CheckConstraint("epoch >= 1", name=op.f("ck_progress_epoch")),
        sa.CheckConstraint("length(chain_hash) = 32", name=op.f("ck_progress_chain_hash")),
        sa.CheckConstraint("next_offset >= 0", name=op.f("ck_progress_next_offset")),
        sa.CheckConstraint("partition >= 0", name=op.f("ck_progress_partition")),
        sa.PrimaryKeyConstraint("log_id", "topic", "partition", name=op.f("pk_progress")),
    )
    op.create_table(
        "dead_letters",
        sa.Column("id", BIGINT, sa.Identity(always=False), nullable=False),
        sa.Column("log_id", sa.Text(), nullable=False),
        sa.Column("topic", sa.Text(), nullable=False),
        sa.Column("partition", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("offset", BIGINT, nullable=False),
        sa.Column("timestamp_ms", BIGINT, nullable=False),
        sa.Column("code", sa.Text(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=True, comment="NULL once erased: it may quote the message"),
        sa.Column("key", sa.LargeBinary(), nullable=True),
        sa.Column("value", sa.LargeBinary(), nullable=True),
        sa.Column("headers", sa.Text(), nullable=True, comment="NULL once erased"),
        sa.Column("salt", sa.LargeBinary(), nullable=True, comment="key of content_mac; NULL once erased"),
        sa.Column("content_mac", sa.LargeBinary(), nullable=False),
        sa.Column("recorded_at", MOMENT, nullable=False),
        sa.Column("replayed_at", MOMENT, nullable=True),
        sa.Column("replayed_by", sa.Text(), nullable=True),
        sa.Column("erased_at", MOMENT, nullable=True),
        sa.CheckConstraint('"offset" >= 0', name=op.f("ck_dead_letters_offset")),
        sa.CheckConstraint(
            "(erased_at IS NULL AND detail IS NOT NULL AND headers IS NOT NULL AND salt IS NOT NULL) OR (erased_at IS NOT NULL AND detail IS NULL AND key IS NULL AND value IS NULL AND headers IS NULL AND salt IS NULL)",
            name=op.f("ck_dead_letters_erased"),
        ),
        sa.CheckConstraint(
            "(replayed_at IS NULL) = (replayed_by IS NULL)", name=op.f("ck_dead_letters_replayed")
        ),
        sa.CheckConstraint("length(code) BETWEEN 1 AND 64", name=op.f("ck_dead_letters_code")),
        sa.CheckConstraint("length(content_mac) = 32", name=op.f("ck_dead_letters_content_mac")),
        sa.CheckConstraint("length(salt) = 32", name=op.f("ck_dead_letters_salt")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_dead_letters")),
        sa.UniqueConstraint(
            "log_id",
            "topic",
            "partition",
            "offset",
            name=op.f("uq_dead_letters_log_id_topic_partition_offset"),
        ),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "label_revisions",
        sa.Column("id", BIGINT, sa.Identity(always=False), nullable=False),
        sa.Column("gate", sa.Text(), nullable=False),
        sa.Column("batch_id", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("response_id", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("labeller", sa.Text(), nullable=False),
        sa.Column("severity", sa.Double(), nullable=False),
        sa.Column("raw_severity", sa.Double(), nullable=True),
        sa.Column("labelled_at", MOMENT, nullable=False, comment="as the labeller said"),
        sa.Column("received_at", MOMENT, nullable=False),
        sa.Column("effective_at", MOMENT, nullable=False, comment="the earlier of the two"),
        sa.Column("source", sa.Text(), nullable=False, comment="topic, file, judge, ..."),
        sa.CheckConstraint("attempt >= 1", name=op.f("ck_label_revisions_attempt")),
        sa.CheckConstraint(
            "effective_at <= labelled_at AND effective_at <= received_at",
            name=op.f("ck_label_revisions_effective_at"),
        ),
        sa.CheckConstraint("length(batch_id) BETWEEN 1 AND 200", name=op.f("ck_label_revisions_batch_id")),
        sa.CheckConstraint("length(kind) BETWEEN 1 AND 64", name=op.f("ck_label_revisions_kind")),
        sa.CheckConstraint("length(labeller) BETWEEN 1 AND 200", name=op.f("ck_label_revisions_labeller")),
        sa.CheckConstraint(
            "length(response_id) BETWEEN 1 AND 200", name=op.f("ck_label_revisions_response_id")
        ),
        sa.CheckConstraint("length(source) BETWEEN 1 AND 64", name=op.f("ck_label_revisions_source")),
        sa.CheckConstraint(
            "raw_severity >= -1e300 AND raw_severity <= 1e300", name=op.f("ck_label_revisions_raw_severity")
        ),
        sa.CheckConstraint("severity >= 0 AND severity <= 1", name=op.f("ck_label_revisions_severity")),
        sa.ForeignKeyConstraint(["gate"], ["gates.name"], name=op.f("fk_label_revisions_gate_gates")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_label_revisions")),
        sa.UniqueConstraint(
            "gate",
            "batch_id",
            "attempt",
            "response_id",
            "kind",
            "labeller",
            "labelled_at",
            "severity",
            name="uq_label_revisions_repeat",
        ),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "outcomes",
        sa.Column("log_id", sa.Text(), nullable=False),
        sa.Column("topic", sa.Text(), nullable=False),
        sa.Column("partition", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("offset", BIGINT, autoincrement=False, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("batch", BIGINT, nullable=True),
        sa.Column("dead_letter", BIGINT, nullable=True),
        sa.Column("label", BIGINT, nullable=True),
        sa.Column("recorded_at", MOMENT, nullable=False),
        sa.Column("chain_height", BIGINT, nullable=False, comment="from 1, without holes"),
        sa.Column("chain_hash", sa.LargeBinary(), nullable=False),
        sa.CheckConstraint("(kind = 'label') = (label IS NOT NULL)", name=op.f("ck_outcomes_label")),
        sa.CheckConstraint(
            "(kind IN ('conflict', 'dead_letter')) = (dead_letter IS NOT NULL)",
            name=op.f("ck_outcomes_dead_letter"),
        ),
        sa.CheckConstraint(
            "(kind IN ('decision', 'duplicate', 'conflict')) = (batch IS NOT NULL)",
            name=op.f("ck_outcomes_batch"),
        ),
        sa.CheckConstraint(
            "kind IN ('decision', 'duplicate', 'conflict', 'dead_letter', 'label')",
            name=op.f("ck_outcomes_kind"),
        ),
        sa.CheckConstraint('"offset" >= 0', name=op.f("ck_outcomes_offset")),
        sa.CheckConstraint("chain_height >= 1", name=op.f("ck_outcomes_chain_height")),
        sa.CheckConstraint("length(chain_hash) = 32", name=op.f("ck_outcomes_chain_hash")),
        sa.ForeignKeyConstraint(["batch"], ["batches.id"], name=op.f("fk_outcomes_batch_batches")),
        sa.ForeignKeyConstraint(
            ["dead_letter"], ["dead_letters.id"], name=op.f("fk_outcomes_dead_letter_dead_letters")
        ),
        sa.ForeignKeyConstraint(
            ["label"], ["label_revisions.id"], name=op.f("fk_outcomes_label_label_revisions")
        ),
        sa.ForeignKeyConstraint(
            ["log_id", "topic", "partition"],
            ["progress.log_id", "progress.topic", "progress.partition"],
            name=op.f("fk_outcomes_log_id_topic_partition_progress"),
        ),
        sa.PrimaryKeyConstraint("log_id", "topic", "partition", "offset", name=op.f("pk_outcomes")),
        sa.UniqueConstraint(
            "log_id",
            "topic",
            "partition",
            "chain_height",
            name=op.f("uq_outcomes_log_id_topic_partition_chain_height"),
        ),
    )
    op.create_index(
        "uq_outcomes_decided_once",
        "outcomes",
        ["batch"],
        unique=True,
        postgresql_where=sa.text("kind = 'decision'"),
        sqlite_where=sa.text("kind = 'decision'"),
    )
    op.create_table(
        "data_gaps",
        sa.Column("log_id", sa.Text(), nullable=False),
        sa.Column("topic", sa.Text(), nullable=False),
        sa.Column("partition", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("from_offset", BIGINT, autoincrement=False, nullable=False),
        sa.Column("to_offset", BIGINT, nullable=False, comment="exclusive"),
        sa.Column("epoch", BIGINT, nullable=False),
        sa.Column("recorded_at", MOMENT, nullable=False),
        sa.CheckConstraint("from_offset >= 0 AND to_offset > from_offset", name=op.f("ck_data_gaps_offsets")),
        sa.ForeignKeyConstraint(
            ["log_id", "topic", "partition"],
            ["progress.log_id", "progress.topic", "progress.partition"],
            name=op.f("fk_data_gaps_log_id_topic_partition_progress"),
        ),
        sa.PrimaryKeyConstraint("log_id", "topic", "partition", "from_offset", name=op.f("pk_data_gaps")),
    )
    op.create_table(
        "outbox",
        sa.Column("id", BIGINT, sa.Identity(always=False), nullable=False),
        sa.Column("source_log_id", sa.Text(), nullable=True),
        sa.Column("source_topic", sa.Text(), nullable=True),
        sa.Column("source_partition", sa.Integer(), nullable=True),
        sa.Column("topic", sa.Text(), nullable=False),
        sa.Column("key", sa.LargeBinary(), nullable=True),
        sa.Column("value", sa.LargeBinary(), nullable=True),
        sa.Column("headers", sa.Text(), nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("published_at", MOMENT, nullable=True),
        sa.Column("parked_at", MOMENT, nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.CheckConstraint("(parked_at IS NULL) = (error IS NULL)", name=op.f("ck_outbox_parked")),
        sa.CheckConstraint(
            "(source_log_id IS NULL) = (source_topic IS NULL) AND (source_log_id IS NULL) = (source_partition IS NULL)",
            name=op.f("ck_outbox_source"),
        ),
        sa.CheckConstraint("length(topic) BETWEEN 1 AND 249", name=op.f("ck_outbox_topic")),
        sa.CheckConstraint("published_at IS NULL OR parked_at IS NULL", name=op.f("ck_outbox_one_end")),
        sa.ForeignKeyConstraint(
            ["source_log_id", "source_topic", "source_partition"],
            ["progress.log_id", "progress.topic", "progress.partition"],
            name=op.f("fk_outbox_source_log_id_source_topic_source_partition_progress"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_outbox")),
        sqlite_autoincrement=True,
    )
    op.create_index(
        "ix_outbox_unpublished",
        "outbox",
        ["id"],
        unique=False,
        postgresql_where=sa.text("published_at IS NULL AND parked_at IS NULL"),
        sqlite_where=sa.text("published_at IS NULL AND parked_at IS NULL"),
    )


def downgrade() -> None:
    """Drop them, with all that they hold."""
    op.drop_table("outbox")
    op.drop_table("data_gaps")
    op.drop_table("outcomes")
    op.drop_table("label_revisions")
    op.drop_table("dead_letters")
    op.drop_table("progress")
