"""Accounts of people who use the console, and API keys, of which only the digest of the token is kept; append-only."""

import sqlalchemy as sa

from streamer.store.db.schema import types as db

accounts = db.table(
    "accounts",
    db.key("name", sa.Text, must=db.Characters(200)),
    db.key("revision", sa.Integer, must="{} >= 1"),
    db.required(
        "roles",
        db.Names,
        comment="as a JSON array; empty: the account is closed",
        must=db.Characters(200, least=2),
    ),
    db.optional(
        "password",
        sa.Text,
        comment="scrypt, with its salt; NULL: the account is closed",
        must=db.Characters(1000),
    ),
    db.required("created_at", db.UtcDateTime),
    db.required("created_by", sa.Text, must=db.Characters(200)),
    db.required("reason", sa.Text, must=db.Characters(500, least=0)),
    db.check("closed", "(roles = '[]') = (password IS NULL)"),
    sealed=True,
)


api_keys = db.table(
    "api_keys",
    db.key("id", sa.Text, must=db.Characters(64)),
    db.required(
        "digest", sa.LargeBinary, comment="SHA-256 of the token, which has 256 random bits", must=db.HASH
    ),
    db.optional("gates", db.Names, comment="NULL: every gate", must=db.Characters(100_000, least=2)),
    db.required("may", db.Names, must=db.Characters(100)),
    db.optional("rate_requests", sa.Integer, comment="NULL: no bound"),
    db.optional("rate_seconds", sa.Integer),
    db.required("note", sa.Text, must=db.Characters(500, least=0)),
    db.required("created_at", db.UtcDateTime),
    db.required("created_by", sa.Text, must=db.Characters(200)),
    db.optional("expires_at", db.UtcDateTime, comment="NULL: good until it is revoked"),
    sa.UniqueConstraint("digest"),
    db.check(
        "rate",
        "(rate_requests IS NULL) = (rate_seconds IS NULL) AND rate_requests >= 1 AND rate_seconds >= 1",
    ),
    db.check("expires_at", "expires_at > created_at"),
    sealed=True,
)

api_key_revocations = db.table(
    "api_key_revocations",
    db.key("id", sa.Text, sa.ForeignKey("api_keys.id")),
    db.required("revoked_at", db.UtcDateTime),
    db.required("revoked_by", sa.Text, must=db.Characters(200)),
    db.required("revoked_reason", sa.Text, must=db.Characters(500)),
    sealed=True,
)
