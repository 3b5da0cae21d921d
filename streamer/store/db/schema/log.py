"""The log's side of the record: progress, one outcome per offset as the leaf of a Merkle log, dead letters, gaps, and the messages
that wait for the broker."""

import sqlalchemy as sa

from streamer.store.db.schema.types import (
    BIGINT,
    HeaderPairs,
    UtcDateTime,
    check,
    digest,
    edge,
    identity_column,
    log_columns,
    one_of,
    required,
    sized_text,
    table,
)

progress = table(
    "progress",
    *log_columns(primary_key=True),
    required("epoch", BIGINT, comment="raised by each lease"),
    required("next_offset", BIGINT),
    required("log_size", BIGINT, comment="leaves of the partition's Merkle log"),
    required("log_edge", sa.LargeBinary, comment="its right edge: a hash for each bit of its size"),
    required("updated_at", UtcDateTime),
    sa.Column("topic_id", sa.Text, comment="the broker's; NULL where it has none"),
    check("partition", "partition >= 0"),
    check("epoch", "epoch >= 1"),
    check("next_offset", "next_offset >= 0"),
    check("log_size", "log_size >= 0"),
    edge("log_edge"),
    changes=None,
    no_evidence={
        "epoch": "how often a partition was leased",
        "topic_id": "the broker's own id of the topic",
        "updated_at": "when a partition was leased or went on",
    },
)

dead_letters = table(
    "dead_letters",
    identity_column(),
    *log_columns(),
    required("offset", BIGINT),
    required("timestamp_ms", BIGINT),
    required("code", sa.Text),
    sa.Column("detail", sa.Text, comment="NULL once erased: it may quote the message"),
    sa.Column("key", sa.LargeBinary),
    sa.Column("value", sa.LargeBinary),
    sa.Column("headers", HeaderPairs, comment="NULL once erased"),
    sa.Column("salt", sa.LargeBinary, comment="key of content_mac; NULL once erased"),
    required("content_mac", sa.LargeBinary),
    required("recorded_at", UtcDateTime),
    sa.Column("replayed_at", UtcDateTime),
    sa.Column("replayed_by", sa.Text),
    sa.Column("erased_at", UtcDateTime),
    sa.UniqueConstraint("log_id", "topic", "partition", "offset"),
    check("offset", '"offset" >= 0'),
    sized_text("code", 64),
    digest("salt"),
    digest("content_mac"),
    check("replayed", "(replayed_at IS NULL) = (replayed_by IS NULL)"),
    check(
        "erased",
        "(erased_at IS NULL AND detail IS NOT NULL AND headers IS NOT NULL AND salt IS NOT NULL)"
        " OR (erased_at IS NOT NULL AND detail IS NULL AND key IS NULL AND value IS NULL AND headers IS NULL"
        " AND salt IS NULL)",
    ),
    changes=("replayed_at", "replayed_by"),
    erased=("detail", "key", "value", "headers", "salt", "erased_at"),
)

dead_letter_replays = table(
    "dead_letter_replays",
    identity_column(),
    required("dead_letter", BIGINT, sa.ForeignKey("dead_letters.id")),
    required("at", UtcDateTime),
    required("by", sa.Text),
    sa.Index("ix_dead_letter_replays_dead_letter", "dead_letter"),
    sealed=True,
)
"""Each time that a refused message was sent again; append-only."""

outcomes = table(
    "outcomes",
    *log_columns(primary_key=True),
    sa.Column("offset", BIGINT, primary_key=True, autoincrement=False),
    required("kind", sa.Text),
    sa.Column("batch", BIGINT, sa.ForeignKey("batches.id")),
    sa.Column("dead_letter", BIGINT, sa.ForeignKey("dead_letters.id")),
    sa.Column("label", BIGINT, sa.ForeignKey("label_revisions.id")),
    # No foreign key: SQLite adds none that has a name. The leaf shows that the row exists.
    sa.Column("label_signature", BIGINT, comment="the signature that came with the label"),
    required("recorded_at", UtcDateTime),
    required("leaf_index", BIGINT, comment="in the partition's Merkle log, from 0 without holes"),
    required("leaf_hash", sa.LargeBinary),
    required("root", sa.LargeBinary, comment="of the log that ends with this leaf"),
    required("control_size", BIGINT, comment="leaves of the control log then"),
    sa.ForeignKeyConstraint(
        ["log_id", "topic", "partition"], ["progress.log_id", "progress.topic", "progress.partition"]
    ),
    sa.UniqueConstraint("log_id", "topic", "partition", "leaf_index"),
    check("offset", '"offset" >= 0'),
    one_of("kind", ("decision", "duplicate", "conflict", "dead_letter", "label")),
    check("batch", "(kind IN ('decision', 'duplicate', 'conflict')) = (batch IS NOT NULL)"),
    check("dead_letter", "(kind IN ('conflict', 'dead_letter')) = (dead_letter IS NOT NULL)"),
    check("label", "(kind = 'label') = (label IS NOT NULL)"),
    check("leaf_index", "leaf_index >= 0"),
    digest("leaf_hash"),
    digest("root"),
    check("control_size", "control_size >= 0"),
    prunable=True,
)
sa.Index(
    "uq_outcomes_decided_once",
    outcomes.c.batch,
    unique=True,
    postgresql_where=outcomes.c.kind == "decision",
    sqlite_where=outcomes.c.kind == "decision",
)

data_gaps = table(
    "data_gaps",
    *log_columns(primary_key=True),
    sa.Column("from_offset", BIGINT, primary_key=True, autoincrement=False),
    required("to_offset", BIGINT, comment="exclusive"),
    required("epoch", BIGINT),
    required("recorded_at", UtcDateTime),
    sa.ForeignKeyConstraint(
        ["log_id", "topic", "partition"], ["progress.log_id", "progress.topic", "progress.partition"]
    ),
    check("offsets", "from_offset >= 0 AND to_offset > from_offset"),
    sealed=True,
    prunable=True,
)

outbox = table(
    "outbox",
    identity_column(),
    required("topic", sa.Text),
    sa.Column("key", sa.LargeBinary),
    sa.Column("value", sa.LargeBinary),
    required("headers", HeaderPairs),
    required("created_at", UtcDateTime),
    sa.Column("published_at", UtcDateTime),
    sa.Column("parked_at", UtcDateTime),
    sa.Column("error", sa.Text),
    sized_text("topic", 249),
    check("one_end", "published_at IS NULL OR parked_at IS NULL"),
    check("parked", "(parked_at IS NULL) = (error IS NULL)"),
    changes=("published_at", "parked_at", "error"),
    deletes=True,
    no_evidence="what waits for the broker, and what it took",
)
UNPUBLISHED = outbox.c.published_at.is_(None) & outbox.c.parked_at.is_(None)
"""A row of the outbox waits."""
sa.Index("ix_outbox_unpublished", outbox.c.id, postgresql_where=UNPUBLISHED, sqlite_where=UNPUBLISHED)

pending_messages = table(
    "pending_messages",
    identity_column(),
    required("source_log_id", sa.Text),
    required("source_topic", sa.Text),
    required("source_partition", sa.Integer),
    required("topic", sa.Text),
    sa.Column(
        "batch", BIGINT, sa.ForeignKey("batches.id"), comment="its decision has key, value and headers"
    ),
    sa.Column("key", sa.LargeBinary),
    sa.Column("value", sa.LargeBinary),
    sa.Column("headers", HeaderPairs, comment="NULL for a decision's action"),
    sa.Column("parked_at", UtcDateTime),
    sa.Column("error", sa.Text),
    sa.ForeignKeyConstraint(
        ["source_log_id", "source_topic", "source_partition"],
        ["progress.log_id", "progress.topic", "progress.partition"],
        name="fk_pending_messages_source_progress",  # the convention's would be too long for PostgreSQL
    ),
    sized_text("topic", 249),
    check("content", "(batch IS NULL) = (headers IS NOT NULL)"),
    check("reference", "batch IS NULL OR (key IS NULL AND value IS NULL)"),
    check("parked", "(parked_at IS NULL) = (error IS NULL)"),
    changes=("parked_at", "error"),
    deletes=True,
    no_evidence="what waits for the broker",
)
"""What input records caused and the broker has not acknowledged: a queue, from which acknowledged rows are deleted.

An action is its decision's, and only referred to. `outbox` has the messages that no input record caused.
"""
QUEUED = pending_messages.c.parked_at.is_(None)
"""A message of the queue waits."""
sa.Index(
    "ix_pending_messages_lane",
    pending_messages.c.topic,
    pending_messages.c.id,
    postgresql_where=QUEUED,
    sqlite_where=QUEUED,
)


leases = table(
    "leases",
    sa.Column("name", sa.Text, primary_key=True),
    required("holder", sa.Text, comment="one lease of one process"),
    required("epoch", BIGINT, comment="one more for each new holder"),
    required("expires_at", UtcDateTime, comment="from then on it is anybody's"),
    sized_text("name", 300),
    sized_text("holder", 200),
    check("epoch", "epoch >= 1"),
    changes=None,
    no_evidence="which process does what only one may do",
)
