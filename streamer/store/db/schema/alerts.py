"""Alerts as they were raised, who looks after them and has acknowledged them, and where they were sent; append-only."""

import sqlalchemy as sa

from streamer.store.db.schema.types import (
    BIGINT,
    DOCUMENT,
    UtcDateTime,
    check,
    identity_column,
    one_of,
    required,
    sized_text,
    table,
)

alerts = table(
    "alerts",
    identity_column(),
    required("alert_id", sa.Text, unique=True, comment="the same cause has the same"),
    required("gate", sa.Text, sa.ForeignKey("gates.name")),
    required("kind", sa.Text),
    required("level", sa.Text),
    required("message", sa.Text),
    required("details", DOCUMENT),
    sa.Column("policy_version", sa.Integer, comment="in force then, as far as it bears on it"),
    required("raised_at", UtcDateTime),
    sized_text("alert_id", 64),
    sized_text("kind", 64),
    one_of("level", ("page", "ticket")),
    sized_text("message", 2000),
    sa.Index("ix_alerts_gate_raised_at", "gate", "raised_at"),
    sealed=True,
)

alert_acknowledgements = table(
    "alert_acknowledgements",
    sa.Column("alert", BIGINT, sa.ForeignKey("alerts.id"), primary_key=True, autoincrement=False),
    required("by", sa.Text),
    required("reason", sa.Text),
    required("at", UtcDateTime),
    required("last_batch", BIGINT, comment="the newest batch then; 0: none"),
    check("last_batch", "last_batch >= 0"),
    sealed=True,
)

alert_assignments = table(
    "alert_assignments",
    identity_column(),
    required("alert", BIGINT, sa.ForeignKey("alerts.id")),
    required("assignee", sa.Text),
    required("by", sa.Text),
    required("at", UtcDateTime),
    sized_text("assignee", 200),
    sa.Index("ix_alert_assignments_alert", "alert"),
    no_evidence="who looks after an alert, which decides nothing",
)

alert_deliveries = table(
    "alert_deliveries",
    sa.Column("alert", BIGINT, sa.ForeignKey("alerts.id"), primary_key=True, autoincrement=False),
    sa.Column("channel", sa.Text, primary_key=True),
    required("at", UtcDateTime),
    sa.Column("error", sa.Text, comment="why it was given up; NULL: it was taken"),
    one_of("channel", ("webhook", "mail")),
    no_evidence="where alerts were sent",
)
