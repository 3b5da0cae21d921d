"""Whose embeddings a gate takes. Gates that are there refuse those of events, as new ones do: what a publisher made up
can ship nothing. Where events bring them on purpose, `streamer gate set GATE --embeddings accept` says so."""

from __future__ import annotations

from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None

# A column brings its own CHECK, so that SQLite need not copy the table. One default for all rows: policies that were
# signed before the setting existed are signed for it, and a revision written by an older version has it too.
_COLUMNS = {
    "embeddings": (
        "TEXT NOT NULL DEFAULT 'refuse'"
        " CONSTRAINT ck_gate_revisions_embeddings CHECK (embeddings IN ('refuse', 'accept'))"
        " CONSTRAINT ck_gate_revisions_external_encoder"
        " CHECK (embeddings = 'accept' OR substr(encoder, 1, 9) <> 'external:')",
        "whether batches may bring their own",
    ),
    "dimension": (
        "INTEGER CONSTRAINT ck_gate_revisions_dimension CHECK (dimension BETWEEN 2 AND 4096)"
        " CONSTRAINT ck_gate_revisions_accepted_dimension"
        " CHECK (embeddings = 'refuse' OR dimension IS NOT NULL)",
        "of embeddings that are accepted",
    ),
}


def upgrade() -> None:
    """Add the columns."""
    sqlite = op.get_context().dialect.name == "sqlite"
    for column, (definition, comment) in _COLUMNS.items():
        op.execute(f"ALTER TABLE gate_revisions ADD COLUMN {column} {definition}")
        if not sqlite:
            op.execute(f"COMMENT ON COLUMN gate_revisions.{column} IS '{comment}'")


def downgrade() -> None:
    """Drop the columns, the later one first, whose rule names the other."""
    for column in reversed(_COLUMNS):
        op.execute(f"ALTER TABLE gate_revisions DROP COLUMN {column}")
