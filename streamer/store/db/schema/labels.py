"""Severities as they came in, append-only, and their signatures.

Which are read is a question for `streamer.store.labels.read_labels`, which one counts one for `streamer.store.labels.revisions`.
"""

from __future__ import annotations

import sqlalchemy as sa

from streamer.store.db.schema.types import (
    BIGINT,
    REAL,
    UtcDateTime,
    check,
    identity_column,
    metadata,
    sized_text,
    within_unit_interval,
)

label_revisions = sa.Table(
    "label_revisions",
    metadata,
    identity_column(),
    # No foreign key to a response: on the labels topic a severity may overtake the decision it belongs to.
    sa.Column("gate", sa.Text, sa.ForeignKey("gates.name"), nullable=False),
    sa.Column("batch_id", sa.Text, nullable=False),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("response_id", sa.Text, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("labeller", sa.Text, nullable=False),
    sa.Column("severity", REAL, nullable=False),
    sa.Column("raw_severity", REAL),
    sa.Column("labelled_at", UtcDateTime, nullable=False, comment="as the labeller said"),
    sa.Column("received_at", UtcDateTime, nullable=False),
    sa.Column("effective_at", UtcDateTime, nullable=False, comment="the earlier of the two"),
    sa.Column("source", sa.Text, nullable=False, comment="topic, file, judge, ..."),
    sa.Column("remark", sa.Text, comment="what the person wrote beside it; NULL: nothing"),
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
    sized_text("batch_id", 200),
    check("attempt", "attempt >= 1"),
    sized_text("response_id", 200),
    sized_text("kind", 64),
    sized_text("labeller", 200),
    within_unit_interval("severity"),
    check("raw_severity", "raw_severity >= -1e300 AND raw_severity <= 1e300"),
    check("effective_at", "effective_at <= labelled_at AND effective_at <= received_at"),
    sized_text("source", 64),
    sized_text("remark", 500),
    sa.Index("ix_label_revisions_gate_kind_id", "gate", "kind", "id"),
    sqlite_autoincrement=True,
)

label_signatures = sa.Table(
    "label_signatures",
    metadata,
    identity_column(),
    # A table of its own: an unsigned copy that somebody sends first must not keep the signature out.
    sa.Column("label", BIGINT, sa.ForeignKey("label_revisions.id"), nullable=False),
    sa.Column("signature", sa.Text, nullable=False, comment="Ed25519, base64; good or not"),
    sa.Column("key_id", sa.Text, nullable=False, comment="SHA-256 of the public key, in hexadecimal"),
    sa.Column("received_at", UtcDateTime, nullable=False),
    sa.Column("source", sa.Text, nullable=False, comment="topic, file, judge, ..."),
    sa.UniqueConstraint("label", "key_id", "signature"),
    sized_text("signature", 200),
    sized_text("key_id", 64),
    sized_text("source", 64),
    sqlite_autoincrement=True,
)
