"""Accounts of people who use the console, and API keys, of which only the digest of the token is kept; append-only."""

import sqlalchemy as sa

from streamer.store.db.schema.types import Names, UtcDateTime, check, digest, required, sized_text, table

accounts = table(
    "accounts",
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
    sealed=True,
)


api_keys = table(
    "api_keys",
    sa.Column("id", sa.Text, primary_key=True),
    required("digest", sa.LargeBinary, comment="SHA-256 of the token, which has 256 random bits"),
    sa.Column("gates", Names, comment="NULL: every gate"),
    required("may", Names),
    sa.Column("rate_requests", sa.Integer, comment="NULL: no bound"),
    sa.Column("rate_seconds", sa.Integer),
    required("note", sa.Text),
    required("created_at", UtcDateTime),
    required("created_by", sa.Text),
    sa.Column("expires_at", UtcDateTime, comment="NULL: good until it is revoked"),
    sa.UniqueConstraint("digest"),
    sized_text("id", 64),
    digest("digest"),
    sized_text("gates", 100_000, least=2),
    sized_text("may", 100),
    check(
        "rate",
        "(rate_requests IS NULL) = (rate_seconds IS NULL) AND rate_requests >= 1 AND rate_seconds >= 1",
    ),
    sized_text("note", 500, least=0),
    sized_text("created_by", 200),
    check("expires_at", "expires_at > created_at"),
    sealed=True,
)

api_key_revocations = table(
    "api_key_revocations",
    sa.Column("id", sa.Text, sa.ForeignKey("api_keys.id"), primary_key=True),
    required("revoked_at", UtcDateTime),
    required("revoked_by", sa.Text),
    required("revoked_reason", sa.Text),
    sized_text("revoked_by", 200),
    sized_text("revoked_reason", 500),
    sealed=True,
)
