"""Signatures of policies: who vouches for each, for workers that know the public key."""

from __future__ import annotations

from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

# (column, rule, comment): a column brings its own CHECK, so that SQLite need not copy the table.
_COLUMNS = (
    (
        "signature",
        "length(signature) BETWEEN 1 AND 200",
        "Ed25519, base64; covers this row and the settings of the gate; NULL: not signed",
    ),
    ("key_id", "length(key_id) BETWEEN 1 AND 64", "SHA-256 of the public key, in hexadecimal"),
)


def upgrade() -> None:
    """Add the columns; policies that are there are not signed."""
    sqlite = op.get_context().dialect.name == "sqlite"
    for column, rule, comment in _COLUMNS:
        op.execute(
            f"ALTER TABLE policies ADD COLUMN {column} TEXT CONSTRAINT ck_policies_{column} CHECK ({rule})"
        )
        if not sqlite:
            op.execute(f"COMMENT ON COLUMN policies.{column} IS '{comment}'")


def downgrade() -> None:
    """Drop the columns, and every signature with them."""
    for column, _, _ in reversed(_COLUMNS):
        op.execute(f"ALTER TABLE policies DROP COLUMN {column}")
