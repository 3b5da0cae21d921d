"""Alerts as they were raised, who looks after them and has acknowledged them, and where they were sent; append-only."""

import sqlalchemy as sa

from streamer.store.db.schema import types as db

alerts = db.table(
    "alerts",
    db.identity_column(),
    db.required(
        "alert_id", sa.Text, unique=True, comment="the same cause has the same", must=db.Characters(64)
    ),
    db.required("gate", sa.Text, sa.ForeignKey("gates.name")),
    db.required("kind", sa.Text, must=db.Characters(64)),
    db.required("level", sa.Text, must=db.one_of(("page", "ticket"))),
    db.required("message", sa.Text, must=db.Characters(2000)),
    db.required("details", db.DOCUMENT),
    db.optional("policy_version", sa.Integer, comment="in force then, as far as it bears on it"),
    db.required("raised_at", db.UtcDateTime),
    sa.Index("ix_alerts_gate_raised_at", "gate", "raised_at"),
    sealed=True,
)

alert_acknowledgements = db.table(
    "alert_acknowledgements",
    db.key("alert", db.BIGINT, sa.ForeignKey("alerts.id")),
    db.required("by", sa.Text),
    db.required("reason", sa.Text),
    db.required("at", db.UtcDateTime),
    db.required("last_batch", db.BIGINT, comment="the newest batch then; 0: none", must="{} >= 0"),
    sealed=True,
)

alert_assignments = db.table(
    "alert_assignments",
    db.identity_column(),
    db.required("alert", db.BIGINT, sa.ForeignKey("alerts.id")),
    db.required("assignee", sa.Text, must=db.Characters(200)),
    db.required("by", sa.Text),
    db.required("at", db.UtcDateTime),
    sa.Index("ix_alert_assignments_alert", "alert"),
    no_evidence="who looks after an alert, which decides nothing",
)

alert_deliveries = db.table(
    "alert_deliveries",
    db.key("alert", db.BIGINT, sa.ForeignKey("alerts.id")),
    db.key("channel", sa.Text, must=db.one_of(("webhook", "mail"))),
    db.required("at", db.UtcDateTime),
    db.optional("error", sa.Text, comment="why it was given up; NULL: it was taken"),
    no_evidence="where alerts were sent",
)
