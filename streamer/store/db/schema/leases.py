"""Who may do what only one process may do at a time: lead among recalibrators, calibrate a gate."""

import sqlalchemy as sa

from streamer.store.db.schema.types import BIGINT, UtcDateTime, check, kept, metadata, required, sized_text

leases = sa.Table(
    "leases",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    required("holder", sa.Text, comment="one lease of one process"),
    required("epoch", BIGINT, comment="one more for each new holder"),
    required("expires_at", UtcDateTime, comment="from then on it is anybody's"),
    sized_text("name", 300),
    sized_text("holder", 200),
    check("epoch", "epoch >= 1"),
    info=kept(changes=None, no_evidence="which process does what only one may do"),
)
