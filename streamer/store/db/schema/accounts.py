"""Accounts of people who use the console, as append-only revisions."""

import sqlalchemy as sa

from streamer.store.db.schema.types import Names, UtcDateTime, check, kept, metadata, required, sized_text

accounts = sa.Table(
    "accounts",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("revision", sa.Integer, primary_key=True, autoincrement=False),
    required("roles", Names, comment="as a JSON array; empty: the account is closed"),
    sa.Column("password", sa.Text, comment="scrypt, with its salt; NULL: the account is closed"),
    required("created_at", UtcDateTime),
    required("created_by", sa.Text),
    required("reason", sa.Text),
    sized_text("name", 200),
    check("revision", "revision >= 1"),
    sized_text("roles", 200, least=2),
    sized_text("password", 1000),
    check("closed", "(roles = '[]') = (password IS NULL)"),
    sized_text("created_by", 200),
    sized_text("reason", 500, least=0),
    info=kept(sealed=True),
)
