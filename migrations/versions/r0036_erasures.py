"""Who erased texts, why, and what age allowed it; alerts and their acknowledgements in the control chain."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from streamer.store.audit.adoption import adopt_alerts, adopt_erased

revision = "0036"
down_revision = "0035"
branch_labels = None
depends_on = None

BIGINT = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
MOMENT = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Add the table, append-only, and seal what is there: alerts, and what was erased until now."""
    op.create_table(
        "erasures",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("at", MOMENT, nullable=False),
        sa.Column("by", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column(
            "before",
            MOMENT,
            comment="what was decided or refused before then may be erased; NULL: what was erased when erasures began to be kept",
        ),
        sa.Column("sooner", sa.Boolean(), nullable=False, comment="younger than six months was permitted"),
        sa.Column("erased", BIGINT, comment="batches and refused messages that were erased by then"),
        sa.Column("digest", sa.LargeBinary(), comment="SHA-256 of their content_mac, in order"),
        sa.CheckConstraint("length(id) BETWEEN 1 AND 64", name=op.f("ck_erasures_id")),
        sa.CheckConstraint("length(by) BETWEEN 1 AND 200", name=op.f("ck_erasures_by")),
        sa.CheckConstraint("length(reason) BETWEEN 1 AND 500", name=op.f("ck_erasures_reason")),
        sa.CheckConstraint('"before" <= at', name=op.f("ck_erasures_before")),
        sa.CheckConstraint(
            '("before" IS NULL) = (erased IS NOT NULL) AND ("before" IS NULL) = (digest IS NOT NULL)',
            name=op.f("ck_erasures_adopted"),
        ),
        sa.CheckConstraint("erased >= 0", name=op.f("ck_erasures_erased")),
        sa.CheckConstraint("length(digest) = 32", name=op.f("ck_erasures_digest")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_erasures")),
    )
    sqlite = op.get_context().dialect.name == "sqlite"
    for verb in ("UPDATE", "DELETE"):
        name = f"append_only_erasures_{verb.lower()}"
        op.execute(
            f"CREATE TRIGGER {name} BEFORE {verb} ON erasures BEGIN"
            " SELECT RAISE(ABORT, 'erasures is append-only'); END"
            if sqlite
            else f"CREATE TRIGGER {name} BEFORE {verb} ON erasures"
            " FOR EACH ROW EXECUTE FUNCTION refuse_change()"
        )
    if not op.get_context().as_sql:
        # A script cannot: what is there already stays unsealed then, and verification says so.
        adopt_alerts(op.get_bind())
        adopt_erased(op.get_bind())


def downgrade() -> None:
    """Drop the table."""
    op.drop_table("erasures")
