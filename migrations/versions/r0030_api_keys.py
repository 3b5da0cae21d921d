"""API keys, by which programs call the HTTP endpoint, and their revocations."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0030"
down_revision = "0029"
branch_labels = None
depends_on = None

MOMENT = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Add both tables, append-only."""
    op.create_table(
        "api_keys",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column(
            "digest",
            sa.LargeBinary(),
            nullable=False,
            comment="SHA-256 of the token, which has 256 random bits",
        ),
        sa.Column("gates", sa.Text(), comment="NULL: every gate"),
        sa.Column("may", sa.Text(), nullable=False),
        sa.Column("rate_requests", sa.Integer(), comment="NULL: no bound"),
        sa.Column("rate_seconds", sa.Integer()),
        sa.Column("note", sa.Text(), nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column("expires_at", MOMENT, comment="NULL: good until it is revoked"),
        sa.CheckConstraint("length(id) BETWEEN 1 AND 64", name=op.f("ck_api_keys_id")),
        sa.CheckConstraint("length(digest) = 32", name=op.f("ck_api_keys_digest")),
        sa.CheckConstraint("length(gates) BETWEEN 2 AND 100000", name=op.f("ck_api_keys_gates")),
        sa.CheckConstraint("length(may) BETWEEN 1 AND 100", name=op.f("ck_api_keys_may")),
        sa.CheckConstraint(
            "(rate_requests IS NULL) = (rate_seconds IS NULL) AND rate_requests >= 1 AND rate_seconds >= 1",
            name=op.f("ck_api_keys_rate"),
        ),
        sa.CheckConstraint("length(note) <= 500", name=op.f("ck_api_keys_note")),
        sa.CheckConstraint("length(created_by) BETWEEN 1 AND 200", name=op.f("ck_api_keys_created_by")),
        sa.CheckConstraint("expires_at > created_at", name=op.f("ck_api_keys_expires_at")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_api_keys")),
        sa.UniqueConstraint("digest", name=op.f("uq_api_keys_digest")),
    )
    op.create_table(
        "api_key_revocations",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("revoked_at", MOMENT, nullable=False),
        sa.Column("revoked_by", sa.Text(), nullable=False),
        sa.Column("revoked_reason", sa.Text(), nullable=False),
        sa.CheckConstraint(
            "length(revoked_by) BETWEEN 1 AND 200", name=op.f("ck_api_key_revocations_revoked_by")
        ),
        sa.CheckConstraint(
            "length(revoked_reason) BETWEEN 1 AND 500", name=op.f("ck_api_key_revocations_revoked_reason")
        ),
        sa.ForeignKeyConstraint(["id"], ["api_keys.id"], name=op.f("fk_api_key_revocations_id_api_keys")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_api_key_revocations")),
    )
    sqlite = op.get_context().dialect.name == "sqlite"
    for table in ("api_keys", "api_key_revocations"):
        for verb in ("UPDATE", "DELETE"):
            name = f"append_only_{table}_{verb.lower()}"
            op.execute(
                f"CREATE TRIGGER {name} BEFORE {verb} ON {table} BEGIN"
                f" SELECT RAISE(ABORT, '{table} is append-only'); END"
                if sqlite
                else f"CREATE TRIGGER {name} BEFORE {verb} ON {table}"
                " FOR EACH ROW EXECUTE FUNCTION refuse_change()"
            )


def downgrade() -> None:
    """Drop them: no key is good any more."""
    op.drop_table("api_key_revocations")
    op.drop_table("api_keys")
