"""What waits for a person at the desk, what became of it, and the texts that people released."""

import sqlalchemy as sa

from streamer.events.desk import DESK_ACTIONS, DESK_REASONS, MOST_REMARK_CHARACTERS
from streamer.store.db.schema import types as db

desk_items = db.table(
    "desk_items",
    db.key("batch", db.BIGINT, sa.ForeignKey("batches.id")),
    db.required("gate", sa.Text),
    db.required("until", db.UtcDateTime, comment="then it is rejected"),
    sa.Index("ix_desk_items_until", "until", "batch"),
    deletes=True,
)
"""Deleted by whoever decides: one transaction alone can delete a row."""

desk_outcomes = db.table(
    "desk_outcomes",
    db.key("id", sa.Text, comment="follows from gate, batch_id and attempt", must=db.Characters(64)),
    db.required("gate", sa.Text),
    db.required("batch_id", sa.Text),
    db.required("attempt", sa.Integer),
    db.required("action", sa.Text, must=db.one_of(DESK_ACTIONS)),
    db.required("reason", sa.Text, must=db.one_of(DESK_REASONS)),
    db.optional(
        "response_id", sa.Text, comment="what was released; NULL: it was rejected", must=db.Characters(200)
    ),
    db.optional("claims", db.Names, comment="that were put back, of a gate of claims; else NULL"),
    db.required("edited", sa.Boolean),
    db.optional(
        "text_mac", sa.LargeBinary, comment="HMAC-SHA256 of the text that was released", must=db.HASH
    ),
    db.optional("by", sa.Text, comment="NULL: nobody, the deadline passed", must=db.Characters(200)),
    db.required("remark", sa.Text, must=db.Characters(MOST_REMARK_CHARACTERS, least=0)),
    db.required("until", db.UtcDateTime),
    db.required("at", db.UtcDateTime),
    sa.UniqueConstraint("gate", "batch_id", "attempt"),
    sa.ForeignKeyConstraint(
        ["gate", "batch_id", "attempt"], ["batches.gate", "batches.batch_id", "batches.attempt"]
    ),
    db.check(
        "released",
        "(action = 'released') = (response_id IS NOT NULL) AND (action = 'released') = (text_mac IS NOT NULL)"
        " AND (action = 'released' OR (NOT edited AND claims IS NULL))",
    ),
    db.check(
        "by_person",
        "(reason = 'person') = (\"by\" IS NOT NULL) AND (reason = 'person' OR action = 'rejected')",
    ),
    sa.Index("ix_desk_outcomes_gate_at", "gate", "at"),
    sealed=True,
)

desk_texts = db.table(
    "desk_texts",
    db.identity_column(),
    db.required("outcome", sa.Text, sa.ForeignKey("desk_outcomes.id"), unique=True),
    db.optional("text", sa.Text, comment="what people were shown; NULL once erased"),
    db.optional("salt", sa.LargeBinary, comment="key of text_mac; NULL once erased", must=db.HASH),
    db.optional("erased_at", db.UtcDateTime),
    db.check(
        "erased",
        "(erased_at IS NULL AND text IS NOT NULL AND salt IS NOT NULL)"
        " OR (erased_at IS NOT NULL AND text IS NULL AND salt IS NULL)",
    ),
    erased=("text", "salt", "erased_at"),
    no_evidence={"id": "a number that nothing names"},
)
