"""Severities as they came in, append-only, and their signatures.

Which are read is a question for `streamer.store.labels.read_labels`, which one counts one for `streamer.store.labels.revisions`.
"""

import sqlalchemy as sa

from streamer.store.db.schema import types as db

label_revisions = db.table(
    "label_revisions",
    db.identity_column(),
    # No foreign key to a response: on the labels topic a severity may overtake the decision it belongs to.
    db.required("gate", sa.Text, sa.ForeignKey("gates.name")),
    db.required("batch_id", sa.Text, must=db.Characters(200)),
    db.required("attempt", sa.Integer, must="{} >= 1"),
    db.required("response_id", sa.Text, must=db.Characters(200)),
    db.required("kind", sa.Text, must=db.Characters(64)),
    db.required("labeller", sa.Text, must=db.Characters(200)),
    db.required("severity", db.REAL, must=db.UNIT_INTERVAL),
    db.optional("raw_severity", db.REAL, must=db.FINITE),
    db.required("labelled_at", db.UtcDateTime, comment="as the labeller said"),
    db.required("received_at", db.UtcDateTime),
    db.required("effective_at", db.UtcDateTime, comment="the earlier of the two"),
    db.required("source", sa.Text, comment="topic, http, file, judge, ...", must=db.Characters(64)),
    db.optional(
        "remark", sa.Text, comment="what the person wrote beside it; NULL: nothing", must=db.Characters(500)
    ),
    db.optional("severities", db.DOCUMENT, comment="of fields, by JSON Pointer; NULL: of the answer alone"),
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
    db.check("effective_at", "effective_at <= labelled_at AND effective_at <= received_at"),
    sa.Index("ix_label_revisions_gate_kind_id", "gate", "kind", "id"),
    sealed="source NOT IN ('topic', 'http')",
)

label_signatures = db.table(
    "label_signatures",
    db.identity_column(),
    # A table of its own: an unsigned copy that somebody sends first must not keep the signature out.
    db.required("label", db.BIGINT, sa.ForeignKey("label_revisions.id")),
    db.required("signature", sa.Text, comment="Ed25519, base64; good or not", must=db.Characters(200)),
    db.required(
        "key_id", sa.Text, comment="SHA-256 of the public key, in hexadecimal", must=db.Characters(64)
    ),
    db.required("received_at", db.UtcDateTime),
    db.required("source", sa.Text, comment="topic, http, file, judge, ...", must=db.Characters(64)),
    sa.UniqueConstraint("label", "key_id", "signature"),
    sealed="source NOT IN ('topic', 'http')",
)
