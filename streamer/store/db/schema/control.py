"""What governs decisions, sealed in a hash chain of its own, and the checkpoints of all chains; append-only."""

from __future__ import annotations

import sqlalchemy as sa

from streamer.store.db.schema.types import BIGINT, UtcDateTime, check, digest, metadata, sized_text

control_head = sa.Table(
    "control_head",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False, comment="always 1"),
    sa.Column("record_id", sa.LargeBinary, nullable=False, comment="drawn once: which record this is"),
    sa.Column("chain_height", BIGINT, nullable=False),
    sa.Column("chain_hash", sa.LargeBinary, nullable=False),
    check("id", "id = 1"),
    digest("record_id"),
    check("chain_height", "chain_height >= 0"),
    digest("chain_hash"),
)

control_log = sa.Table(
    "control_log",
    metadata,
    sa.Column("chain_height", BIGINT, primary_key=True, autoincrement=False, comment="from 1, without holes"),
    sa.Column("kind", sa.Text, nullable=False, comment="the table whose row is sealed"),
    sa.Column("subject", sa.Text, nullable=False, comment="its primary key, a JSON array"),
    sa.Column("sealed", sa.Text, nullable=False, comment="the row as it was written, canonical JSON"),
    sa.Column("recorded_at", UtcDateTime, nullable=False),
    sa.Column("chain_hash", sa.LargeBinary, nullable=False),
    sa.UniqueConstraint("kind", "subject"),
    check("chain_height", "chain_height >= 1"),
    sized_text("kind", 64),
    digest("chain_hash"),
)

checkpoints = sa.Table(
    "checkpoints",
    metadata,
    sa.Column("sequence", BIGINT, primary_key=True, autoincrement=False, comment="from 1, without holes"),
    sa.Column("made_at", UtcDateTime, nullable=False),
    sa.Column("value", sa.LargeBinary, nullable=False, comment="as it was published, signed"),
    check("sequence", "sequence >= 1"),
)
