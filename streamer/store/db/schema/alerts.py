"""Alerts as they were raised, and who has acknowledged them; append-only."""

from __future__ import annotations

import sqlalchemy as sa

from streamer.store.db.schema.types import (
    BIGINT,
    DOCUMENT,
    UtcDateTime,
    check,
    identity_column,
    metadata,
    one_of,
    sized_text,
)

alerts = sa.Table(
    "alerts",
    metadata,
    identity_column(),
    sa.Column("alert_id", sa.Text, nullable=False, unique=True, comment="the same cause has the same"),
    sa.Column("gate", sa.Text, sa.ForeignKey("gates.name"), nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("level", sa.Text, nullable=False),
    sa.Column("message", sa.Text, nullable=False),
    sa.Column("details", DOCUMENT, nullable=False),
    sa.Column("policy_version", sa.Integer, comment="in force then, as far as it bears on it"),
    sa.Column("raised_at", UtcDateTime, nullable=False),
    sized_text("alert_id", 64),
    sized_text("kind", 64),
    one_of("level", ("page", "ticket")),
    sized_text("message", 2000),
    sa.Index("ix_alerts_gate_raised_at", "gate", "raised_at"),
    sqlite_autoincrement=True,
)

alert_acknowledgements = sa.Table(
    "alert_acknowledgements",
    metadata,
    sa.Column("alert", BIGINT, sa.ForeignKey("alerts.id"), primary_key=True, autoincrement=False),
    sa.Column("by", sa.Text, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("at", UtcDateTime, nullable=False),
    sa.Column("last_batch", BIGINT, nullable=False, comment="the newest batch then; 0: none"),
    check("last_batch", "last_batch >= 0"),
)
