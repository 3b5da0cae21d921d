"""Severities as they came in, append-only, and their signatures.

Which are read is a question for `streamer.store.labels.read_labels`, which one counts one for `streamer.store.labels.revisions`.
"""

import sqlalchemy as sa

from streamer.store.db.schema.types import (
    BIGINT,
    DOCUMENT,
    REAL,
    UtcDateTime,
    check,
    identity_column,
    required,
    sized_text,
    table,
    within_unit_interval,
)

label_revisions = table(
    "label_revisions",
    identity_column(),
    # No foreign key to a response: on the labels topic a severity may overtake the decision it belongs to.
    required("gate", sa.Text, sa.ForeignKey("gates.name")),
    required("batch_id", sa.Text),
    required("attempt", sa.Integer),
    required("response_id", sa.Text),
    required("kind", sa.Text),
    required("labeller", sa.Text),
    required("severity", REAL),
    sa.Column("raw_severity", REAL),
    required("labelled_at", UtcDateTime, comment="as the labeller said"),
    required("received_at", UtcDateTime),
    required("effective_at", UtcDateTime, comment="the earlier of the two"),
    required("source", sa.Text, comment="topic, file, judge, ..."),
    sa.Column("remark", sa.Text, comment="what the person wrote beside it; NULL: nothing"),
    sa.Column("severities", DOCUMENT, comment="of fields, by JSON Pointer; NULL: of the answer alone"),
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
    sealed="source <> 'topic'",
)

label_signatures = table(
    "label_signatures",
    identity_column(),
    # A table of its own: an unsigned copy that somebody sends first must not keep the signature out.
    required("label", BIGINT, sa.ForeignKey("label_revisions.id")),
    required("signature", sa.Text, comment="Ed25519, base64; good or not"),
    required("key_id", sa.Text, comment="SHA-256 of the public key, in hexadecimal"),
    required("received_at", UtcDateTime),
    required("source", sa.Text, comment="topic, file, judge, ..."),
    sa.UniqueConstraint("label", "key_id", "signature"),
    sized_text("signature", 200),
    sized_text("key_id", 64),
    sized_text("source", 64),
    sealed="source <> 'topic'",
)
