"""What the encoders that decisions name were; append-only."""

import sqlalchemy as sa

from streamer.store.db.schema.types import UtcDateTime, check, kept, metadata, required, sized_text

encoders = sa.Table(
    "encoders",
    metadata,
    sa.Column("id", sa.Text, primary_key=True, comment="name@hash, as decisions name it"),
    sa.Column("revision", sa.Text, primary_key=True, comment="where the weights came from"),
    sa.Column("weight_hash", sa.Text, primary_key=True, comment="SHA-256 of the weights, hex"),
    required("dimension", sa.Integer),
    required("first_seen_at", UtcDateTime),
    sized_text("id", 200),
    sized_text("revision", 200),
    check("weight_hash", "length(weight_hash) = 64"),
    check("dimension", "dimension >= 1"),
    info=kept(sealed=True),
)
