"""What allowed texts to be erased, and who erased them and why; append-only."""

import sqlalchemy as sa

from streamer.store.db.schema.types import UtcDateTime, check, kept, metadata, required, sized_text

erasures = sa.Table(
    "erasures",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    required("at", UtcDateTime),
    required("by", sa.Text),
    required("reason", sa.Text),
    required("before", UtcDateTime, comment="what was decided or refused before then may be erased"),
    required("sooner", sa.Boolean, comment="younger than six months was permitted"),
    sized_text("id", 64),
    sized_text("by", 200),
    sized_text("reason", 500),
    check("before", '"before" <= at'),
    info=kept(sealed=True),
)
