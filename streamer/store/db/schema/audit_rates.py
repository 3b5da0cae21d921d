"""How often decisions of a gate are drawn for labelling, where that differs from its settings; append-only."""

import sqlalchemy as sa

from streamer.store.db.schema.types import (
    BIGINT,
    REAL,
    UtcDateTime,
    check,
    identity_column,
    kept,
    metadata,
    required,
    sized_text,
)

audit_rates = sa.Table(
    "audit_rates",
    metadata,
    identity_column(),
    required("gate", sa.Text, sa.ForeignKey("gates.name")),
    required("boosted", sa.Boolean, comment="else the gate's own audit probability holds"),
    required("since", UtcDateTime),
    required("until", UtcDateTime, comment="a raised rate ends by itself"),
    required("evidence", REAL, comment="of the risk alarm"),
    required("extra", BIGINT, comment="labels that raised rates asked for since midnight"),
    required("reason", sa.Text),
    check("evidence", "evidence >= 0 AND evidence <= 1e300"),
    check("extra", "extra >= 0"),
    sized_text("reason", 500),
    sa.Index("ix_audit_rates_gate_id", "gate", "id"),
    sqlite_autoincrement=True,
    info=kept(sealed=True),
)
