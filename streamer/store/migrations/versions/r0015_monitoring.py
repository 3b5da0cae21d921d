"""Monitoring state and alerts."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

BIGINT = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
MOMENT = sa.DateTime(timezone=True)

APPEND_ONLY = ("alerts", "alert_acknowledgements")


def upgrade() -> None:
    """Create the tables and their guards."""
    op.create_table(
        "alerts",
        sa.Column("id", BIGINT, sa.Identity(always=False), nullable=False),
        sa.Column("alert_id", sa.Text(), nullable=False, comment="the same cause has the same"),
        sa.Column("gate", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("level", sa.Text(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("details", sa.JSON(), nullable=False),
        sa.Column(
            "policy_version", sa.Integer(), nullable=True, comment="in force then, as far as it bears on it"
        ),
        sa.Column("raised_at", MOMENT, nullable=False),
        sa.CheckConstraint("length(alert_id) BETWEEN 1 AND 64", name=op.f("ck_alerts_alert_id")),
        sa.CheckConstraint("length(kind) BETWEEN 1 AND 64", name=op.f("ck_alerts_kind")),
        sa.CheckConstraint("level IN ('page', 'ticket')", name=op.f("ck_alerts_level")),
        sa.CheckConstraint("length(message) BETWEEN 1 AND 2000", name=op.f("ck_alerts_message")),
        sa.ForeignKeyConstraint(["gate"], ["gates.name"], name=op.f("fk_alerts_gate_gates")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_alerts")),
        sa.UniqueConstraint("alert_id", name=op.f("uq_alerts_alert_id")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_alerts_gate_raised_at", "alerts", ["gate", "raised_at"])
    op.create_table(
        "alert_acknowledgements",
        sa.Column("alert", BIGINT, autoincrement=False, nullable=False),
        sa.Column("by", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("at", MOMENT, nullable=False),
        sa.Column("last_batch", BIGINT, nullable=False, comment="the newest batch then; 0: none"),
        sa.CheckConstraint("last_batch >= 0", name=op.f("ck_alert_acknowledgements_last_batch")),
        sa.ForeignKeyConstraint(
            ["alert"], ["alerts.id"], name=op.f("fk_alert_acknowledgements_alert_alerts")
        ),
        sa.PrimaryKeyConstraint("alert", name=op.f("pk_alert_acknowledgements")),
    )
    sqlite = op.get_bind().dialect.name == "sqlite"
    for table in APPEND_ONLY:
        for verb in ("UPDATE", "DELETE"):
            refuse = (
                f"BEGIN SELECT RAISE(ABORT, '{table} is append-only'); END"
                if sqlite
                else "FOR EACH ROW EXECUTE FUNCTION refuse_change()"
            )
            op.execute(f"CREATE TRIGGER append_only_{table}_{verb.lower()} BEFORE {verb} ON {table} {refuse}")


def downgrade() -> None:
    """Drop them, their guards with them."""
    op.drop_table("alert_acknowledgements")
    op.drop_table("alerts")
