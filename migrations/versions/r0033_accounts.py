"""People of the console, and proposals that somebody rejected."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0033"
down_revision = "0032"
branch_labels = None
depends_on = None

MOMENT = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Add both tables, append-only."""
    op.create_table(
        "accounts",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("revision", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column(
            "roles", sa.Text(), nullable=False, comment="as a JSON array; empty: the account is closed"
        ),
        sa.Column("password", sa.Text(), comment="scrypt, with its salt; NULL: the account is closed"),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.CheckConstraint("length(name) BETWEEN 1 AND 200", name=op.f("ck_accounts_name")),
        sa.CheckConstraint("revision >= 1", name=op.f("ck_accounts_revision")),
        sa.CheckConstraint("length(roles) BETWEEN 2 AND 200", name=op.f("ck_accounts_roles")),
        sa.CheckConstraint("length(password) BETWEEN 1 AND 1000", name=op.f("ck_accounts_password")),
        sa.CheckConstraint("(roles = '[]') = (password IS NULL)", name=op.f("ck_accounts_closed")),
        sa.CheckConstraint("length(created_by) BETWEEN 1 AND 200", name=op.f("ck_accounts_created_by")),
        sa.CheckConstraint("length(reason) <= 500", name=op.f("ck_accounts_reason")),
        sa.PrimaryKeyConstraint("name", "revision", name=op.f("pk_accounts")),
    )
    op.create_table(
        "proposal_rejections",
        sa.Column(
            "run", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False, autoincrement=False
        ),
        sa.Column("rejected_at", MOMENT, nullable=False),
        sa.Column("rejected_by", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.CheckConstraint(
            "length(rejected_by) BETWEEN 1 AND 200", name=op.f("ck_proposal_rejections_rejected_by")
        ),
        sa.CheckConstraint("length(reason) BETWEEN 1 AND 2000", name=op.f("ck_proposal_rejections_reason")),
        sa.ForeignKeyConstraint(
            ["run"], ["calibration_runs.id"], name=op.f("fk_proposal_rejections_run_calibration_runs")
        ),
        sa.PrimaryKeyConstraint("run", name=op.f("pk_proposal_rejections")),
    )
    sqlite = op.get_context().dialect.name == "sqlite"
    for table in ("accounts", "proposal_rejections"):
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
    """Drop them: nobody can sign in, and what was rejected is proposed again."""
    op.drop_table("proposal_rejections")
    op.drop_table("accounts")
