"""How often decisions of a gate are drawn for labelling, where that differs from its settings; append-only."""

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
)

audit_rates = sa.Table(
    "audit_rates",
    metadata,
    identity_column(),
    sa.Column("gate", sa.Text, sa.ForeignKey("gates.name"), nullable=False),
    sa.Column("boosted", sa.Boolean, nullable=False, comment="else the gate's own audit probability holds"),
    sa.Column("since", UtcDateTime, nullable=False),
    sa.Column("until", UtcDateTime, nullable=False, comment="a raised rate ends by itself"),
    sa.Column("evidence", REAL, nullable=False, comment="of the risk alarm"),
    sa.Column("extra", BIGINT, nullable=False, comment="labels that raised rates asked for since midnight"),
    sa.Column("reason", sa.Text, nullable=False),
    check("evidence", "evidence >= 0 AND evidence <= 1e300"),
    check("extra", "extra >= 0"),
    sized_text("reason", 500),
    sa.Index("ix_audit_rates_gate_id", "gate", "id"),
    sqlite_autoincrement=True,
)
