"""What waits for a person at the desk, what became of it, and the texts that people released."""

import sqlalchemy as sa

from streamer.events.desk import DESK_ACTIONS, DESK_REASONS, MOST_REMARK_CHARACTERS
from streamer.store.db.schema.types import (
    BIGINT,
    Names,
    UtcDateTime,
    check,
    digest,
    identity_column,
    one_of,
    required,
    sized_text,
    table,
)

desk_items = table(
    "desk_items",
    sa.Column("batch", BIGINT, sa.ForeignKey("batches.id"), primary_key=True, autoincrement=False),
    required("gate", sa.Text),
    required("until", UtcDateTime, comment="then it is rejected"),
    sa.Index("ix_desk_items_until", "until", "batch"),
    deletes=True,
)
"""Deleted by whoever decides: one transaction alone can delete a row."""

desk_outcomes = table(
    "desk_outcomes",
    sa.Column("id", sa.Text, primary_key=True, comment="follows from gate, batch_id and attempt"),
    required("gate", sa.Text),
    required("batch_id", sa.Text),
    required("attempt", sa.Integer),
    required("action", sa.Text),
    required("reason", sa.Text),
    sa.Column("response_id", sa.Text, comment="what was released; NULL: it was rejected"),
    sa.Column("claims", Names, comment="that were put back, of a gate of claims; else NULL"),
    required("edited", sa.Boolean),
    sa.Column("text_mac", sa.LargeBinary, comment="HMAC-SHA256 of the text that was released"),
    sa.Column("by", sa.Text, comment="NULL: nobody, the deadline passed"),
    required("remark", sa.Text),
    required("until", UtcDateTime),
    required("at", UtcDateTime),
    sa.UniqueConstraint("gate", "batch_id", "attempt"),
    sa.ForeignKeyConstraint(
        ["gate", "batch_id", "attempt"], ["batches.gate", "batches.batch_id", "batches.attempt"]
    ),
    sized_text("id", 64),
    one_of("action", DESK_ACTIONS),
    one_of("reason", DESK_REASONS),
    sized_text("response_id", 200),
    check(
        "released",
        "(action = 'released') = (response_id IS NOT NULL) AND (action = 'released') = (text_mac IS NOT NULL)"
        " AND (action = 'released' OR (NOT edited AND claims IS NULL))",
    ),
    check(
        "by_person",
        "(reason = 'person') = (\"by\" IS NOT NULL) AND (reason = 'person' OR action = 'rejected')",
    ),
    digest("text_mac"),
    sized_text("by", 200),
    sized_text("remark", MOST_REMARK_CHARACTERS, least=0),
    sa.Index("ix_desk_outcomes_gate_at", "gate", "at"),
    sealed=True,
)

desk_texts = table(
    "desk_texts",
    identity_column(),
    required("outcome", sa.Text, sa.ForeignKey("desk_outcomes.id"), unique=True),
    sa.Column("text", sa.Text, comment="what people were shown; NULL once erased"),
    sa.Column("salt", sa.LargeBinary, comment="key of text_mac; NULL once erased"),
    sa.Column("erased_at", UtcDateTime),
    digest("salt"),
    check(
        "erased",
        "(erased_at IS NULL AND text IS NOT NULL AND salt IS NOT NULL)"
        " OR (erased_at IS NOT NULL AND text IS NULL AND salt IS NULL)",
    ),
    erased=("text", "salt", "erased_at"),
    no_evidence={"id": "a number that nothing names"},
)
