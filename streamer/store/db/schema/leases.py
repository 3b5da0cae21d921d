"""Who may do what only one process may do at a time: lead among recalibrators, calibrate a gate."""

from __future__ import annotations

import sqlalchemy as sa

from streamer.store.db.schema.types import BIGINT, UtcDateTime, check, metadata, sized_text

leases = sa.Table(
    "leases",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("holder", sa.Text, nullable=False, comment="one lease of one process"),
    sa.Column("epoch", BIGINT, nullable=False, comment="one more for each new holder"),
    sa.Column("expires_at", UtcDateTime, nullable=False, comment="from then on it is anybody's"),
    sized_text("name", 300),
    sized_text("holder", 200),
    check("epoch", "epoch >= 1"),
)
