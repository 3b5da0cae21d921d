"""The log's side of the record: progress, one outcome per offset as the leaf of a Merkle log, dead letters, gaps, and the messages
that wait for the broker."""

import sqlalchemy as sa

from streamer.store.db.schema import types as db

progress = db.table(
    "progress",
    *db.log_columns(db.key),
    db.required("epoch", db.BIGINT, comment="raised by each lease", must="{} >= 1"),
    db.required("next_offset", db.BIGINT, must="{} >= 0"),
    db.required("log_size", db.BIGINT, comment="leaves of the partition's Merkle log", must="{} >= 0"),
    db.required(
        "log_edge", sa.LargeBinary, comment="its right edge: a hash for each bit of its size", must=db.EDGE
    ),
    db.required("updated_at", db.UtcDateTime),
    db.optional("topic_id", sa.Text, comment="the broker's; NULL where it has none"),
    db.check("partition", "partition >= 0"),
    changes=None,
    no_evidence={
        "epoch": "how often a partition was leased",
        "topic_id": "the broker's own id of the topic",
        "updated_at": "when a partition was leased or went on",
    },
)

dead_letters = db.table(
    "dead_letters",
    db.identity_column(),
    *db.log_columns(),
    db.required("offset", db.BIGINT, must='"{}" >= 0'),
    db.required("timestamp_ms", db.BIGINT),
    db.required("code", sa.Text, must=db.Characters(64)),
    db.optional("detail", sa.Text, comment="NULL once erased: it may quote the message"),
    db.optional("key", sa.LargeBinary),
    db.optional("value", sa.LargeBinary),
    db.optional("headers", db.HeaderPairs, comment="NULL once erased"),
    db.optional("salt", sa.LargeBinary, comment="key of content_mac; NULL once erased", must=db.HASH),
    db.required("content_mac", sa.LargeBinary, must=db.HASH),
    db.required("recorded_at", db.UtcDateTime),
    db.optional("replayed_at", db.UtcDateTime),
    db.optional("replayed_by", sa.Text),
    db.optional("erased_at", db.UtcDateTime),
    sa.UniqueConstraint("log_id", "topic", "partition", "offset"),
    db.check("replayed", "(replayed_at IS NULL) = (replayed_by IS NULL)"),
    db.check(
        "erased",
        "(erased_at IS NULL AND detail IS NOT NULL AND headers IS NOT NULL AND salt IS NOT NULL)"
        " OR (erased_at IS NOT NULL AND detail IS NULL AND key IS NULL AND value IS NULL AND headers IS NULL"
        " AND salt IS NULL)",
    ),
    changes=("replayed_at", "replayed_by"),
    erased=("detail", "key", "value", "headers", "salt", "erased_at"),
)

dead_letter_replays = db.table(
    "dead_letter_replays",
    db.identity_column(),
    db.required("dead_letter", db.BIGINT, sa.ForeignKey("dead_letters.id")),
    db.required("at", db.UtcDateTime),
    db.required("by", sa.Text),
    sa.Index("ix_dead_letter_replays_dead_letter", "dead_letter"),
    sealed=True,
)
"""Each time that a refused message was sent again; append-only."""

outcomes = db.table(
    "outcomes",
    *db.log_columns(db.key),
    db.key("offset", db.BIGINT, must='"{}" >= 0'),
    db.required(
        "kind", sa.Text, must=db.one_of(("decision", "duplicate", "conflict", "dead_letter", "label"))
    ),
    db.optional("batch", db.BIGINT, sa.ForeignKey("batches.id")),
    db.optional("dead_letter", db.BIGINT, sa.ForeignKey("dead_letters.id")),
    db.optional("label", db.BIGINT, sa.ForeignKey("label_revisions.id")),
    # No foreign key: SQLite adds none that has a name. The leaf shows that the row exists.
    db.optional("label_signature", db.BIGINT, comment="the signature that came with the label"),
    db.required("recorded_at", db.UtcDateTime),
    db.required(
        "leaf_index", db.BIGINT, comment="in the partition's Merkle log, from 0 without holes", must="{} >= 0"
    ),
    db.required("leaf_hash", sa.LargeBinary, must=db.HASH),
    db.required("root", sa.LargeBinary, comment="of the log that ends with this leaf", must=db.HASH),
    db.required("control_size", db.BIGINT, comment="leaves of the control log then", must="{} >= 0"),
    sa.ForeignKeyConstraint(
        ["log_id", "topic", "partition"], ["progress.log_id", "progress.topic", "progress.partition"]
    ),
    sa.UniqueConstraint("log_id", "topic", "partition", "leaf_index"),
    db.check("batch", "(kind IN ('decision', 'duplicate', 'conflict')) = (batch IS NOT NULL)"),
    db.check("dead_letter", "(kind IN ('conflict', 'dead_letter')) = (dead_letter IS NOT NULL)"),
    db.check("label", "(kind = 'label') = (label IS NOT NULL)"),
    prunable=True,
)
sa.Index(
    "uq_outcomes_decided_once",
    outcomes.c.batch,
    unique=True,
    postgresql_where=outcomes.c.kind == "decision",
    sqlite_where=outcomes.c.kind == "decision",
)

data_gaps = db.table(
    "data_gaps",
    *db.log_columns(db.key),
    db.key("from_offset", db.BIGINT),
    db.required("to_offset", db.BIGINT, comment="exclusive"),
    db.required("epoch", db.BIGINT),
    db.required("recorded_at", db.UtcDateTime),
    sa.ForeignKeyConstraint(
        ["log_id", "topic", "partition"], ["progress.log_id", "progress.topic", "progress.partition"]
    ),
    db.check("offsets", "from_offset >= 0 AND to_offset > from_offset"),
    sealed=True,
    prunable=True,
)

outbox = db.table(
    "outbox",
    db.identity_column(),
    db.required("topic", sa.Text, must=db.Characters(249)),
    db.optional("key", sa.LargeBinary),
    db.optional("value", sa.LargeBinary),
    db.required("headers", db.HeaderPairs),
    db.required("created_at", db.UtcDateTime),
    db.optional("published_at", db.UtcDateTime),
    db.optional("parked_at", db.UtcDateTime),
    db.optional("error", sa.Text),
    db.check("one_end", "published_at IS NULL OR parked_at IS NULL"),
    db.check("parked", "(parked_at IS NULL) = (error IS NULL)"),
    changes=("published_at", "parked_at", "error"),
    deletes=True,
    no_evidence="what waits for the broker, and what it took",
)
UNPUBLISHED = outbox.c.published_at.is_(None) & outbox.c.parked_at.is_(None)
"""A row of the outbox waits."""
sa.Index("ix_outbox_unpublished", outbox.c.id, postgresql_where=UNPUBLISHED, sqlite_where=UNPUBLISHED)

pending_messages = db.table(
    "pending_messages",
    db.identity_column(),
    db.required("source_log_id", sa.Text),
    db.required("source_topic", sa.Text),
    db.required("source_partition", sa.Integer),
    db.required("topic", sa.Text, must=db.Characters(249)),
    db.optional(
        "batch", db.BIGINT, sa.ForeignKey("batches.id"), comment="its decision has key, value and headers"
    ),
    db.optional("key", sa.LargeBinary),
    db.optional("value", sa.LargeBinary),
    db.optional("headers", db.HeaderPairs, comment="NULL for a decision's action"),
    db.optional("parked_at", db.UtcDateTime),
    db.optional("error", sa.Text),
    sa.ForeignKeyConstraint(
        ["source_log_id", "source_topic", "source_partition"],
        ["progress.log_id", "progress.topic", "progress.partition"],
        name="fk_pending_messages_source_progress",  # the convention's would be too long for PostgreSQL
    ),
    db.check("content", "(batch IS NULL) = (headers IS NOT NULL)"),
    db.check("reference", "batch IS NULL OR (key IS NULL AND value IS NULL)"),
    db.check("parked", "(parked_at IS NULL) = (error IS NULL)"),
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


leases = db.table(
    "leases",
    db.key("name", sa.Text, must=db.Characters(300)),
    db.required("holder", sa.Text, comment="one lease of one process", must=db.Characters(200)),
    db.required("epoch", db.BIGINT, comment="one more for each new holder", must="{} >= 1"),
    db.required("expires_at", db.UtcDateTime, comment="from then on it is anybody's"),
    changes=None,
    no_evidence="which process does what only one may do",
)
