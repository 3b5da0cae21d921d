"""What governs decisions, sealed in a hash chain of its own, and the checkpoints of all chains; append-only."""

from __future__ import annotations

import sqlalchemy as sa

from streamer.store.db.schema.types import (
    BIGINT,
    UtcDateTime,
    check,
    digest,
    identity_column,
    metadata,
    required,
    sized_text,
)

control_head = sa.Table(
    "control_head",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False, comment="always 1"),
    required("record_id", sa.LargeBinary, comment="drawn once: which record this is"),
    required("chain_height", BIGINT),
    required("chain_hash", sa.LargeBinary),
    check("id", "id = 1"),
    digest("record_id"),
    check("chain_height", "chain_height >= 0"),
    digest("chain_hash"),
)

control_log = sa.Table(
    "control_log",
    metadata,
    sa.Column("chain_height", BIGINT, primary_key=True, autoincrement=False, comment="from 1, without holes"),
    required("kind", sa.Text, comment="the table whose row is sealed"),
    required("subject", sa.Text, comment="its primary key, a JSON array"),
    required("sealed", sa.Text, comment="the row as it was written, canonical JSON"),
    required("recorded_at", UtcDateTime),
    required("chain_hash", sa.LargeBinary),
    sa.UniqueConstraint("kind", "subject"),
    check("chain_height", "chain_height >= 1"),
    sized_text("kind", 64),
    digest("chain_hash"),
)

control_queue = sa.Table(
    "control_queue",
    metadata,
    identity_column(),
    required("kind", sa.Text, comment="as in control_log"),
    required("subject", sa.Text, comment="as in control_log"),
    required("sealed", sa.Text, comment="as in control_log"),
    required("recorded_at", UtcDateTime),
    sqlite_autoincrement=True,
)
"""What closings wrote and the chain does not have yet, in order: whoever holds the chain's head next moves it there."""

checkpoints = sa.Table(
    "checkpoints",
    metadata,
    sa.Column("sequence", BIGINT, primary_key=True, autoincrement=False, comment="from 1, without holes"),
    required("made_at", UtcDateTime),
    required("value", sa.LargeBinary, comment="as it was published, signed"),
    check("sequence", "sequence >= 1"),
)
