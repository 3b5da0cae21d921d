"""Audit rates: while the risk alarm gathers evidence, decisions are drawn for labelling more often."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None

BIGINT = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
MOMENT = sa.DateTime(timezone=True)

_COMMENTS = {
    "gate_revisions.audit_boost": "times the audit probability in doubt; NULL: never",
    "gate_revisions.audit_boost_most": "labels a day that it may ask for",
    "decisions.audit_rate": "the audit rate that raised the probability above the gate's own; NULL: nothing",
    "decisions.extra_draw": "the gate's own probability would not have drawn it; calibration does not read it",
}


def upgrade() -> None:
    """Add table and columns. Gates that are there keep what they were made with: they are never raised."""
    sqlite = op.get_context().dialect.name == "sqlite"
    op.create_table(
        "audit_rates",
        sa.Column("id", BIGINT, sa.Identity(), nullable=False),
        sa.Column("gate", sa.Text(), nullable=False),
        sa.Column(
            "boosted", sa.Boolean(), nullable=False, comment="else the gate's own audit probability holds"
        ),
        sa.Column("since", MOMENT, nullable=False),
        sa.Column("until", MOMENT, nullable=False, comment="a raised rate ends by itself"),
        sa.Column("evidence", sa.Double(), nullable=False, comment="of the risk alarm"),
        sa.Column(
            "extra", BIGINT, nullable=False, comment="labels that raised rates asked for since midnight"
        ),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.CheckConstraint("evidence >= 0 AND evidence <= 1e300", name=op.f("ck_audit_rates_evidence")),
        sa.CheckConstraint("extra >= 0", name=op.f("ck_audit_rates_extra")),
        sa.CheckConstraint("length(reason) BETWEEN 1 AND 500", name=op.f("ck_audit_rates_reason")),
        sa.ForeignKeyConstraint(["gate"], ["gates.name"], name=op.f("fk_audit_rates_gate_gates")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit_rates")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_audit_rates_gate_id", "audit_rates", ["gate", "id"])
    for verb in ("UPDATE", "DELETE"):
        name = f"append_only_audit_rates_{verb.lower()}"
        op.execute(
            f"CREATE TRIGGER {name} BEFORE {verb} ON audit_rates BEGIN"
            " SELECT RAISE(ABORT, 'audit_rates is append-only'); END"
            if sqlite
            else f"CREATE TRIGGER {name} BEFORE {verb} ON audit_rates"
            " FOR EACH ROW EXECUTE FUNCTION refuse_change()"
        )
    # A column brings its own constraints, so that SQLite need not copy the table.
    real = "DOUBLE" if sqlite else "DOUBLE PRECISION"
    number = "INTEGER" if sqlite else "BIGINT"
    for statement in (
        f"ALTER TABLE gate_revisions ADD COLUMN audit_boost {real} CONSTRAINT ck_gate_revisions_audit_boost"
        " CHECK (audit_boost > 1 AND audit_boost <= 1000)",
        "ALTER TABLE gate_revisions ADD COLUMN audit_boost_most INTEGER DEFAULT 400 NOT NULL"
        " CONSTRAINT ck_gate_revisions_audit_boost_most CHECK (audit_boost_most BETWEEN 1 AND 1000000000)",
        f"ALTER TABLE decisions ADD COLUMN audit_rate {number}",
        f"ALTER TABLE decisions ADD COLUMN extra_draw BOOLEAN DEFAULT {0 if sqlite else 'false'} NOT NULL",
    ):
        op.execute(statement)
    if not sqlite:
        for column, comment in _COMMENTS.items():
            quoted = comment.replace("'", "''")
            op.execute(f"COMMENT ON COLUMN {column} IS '{quoted}'")
    op.create_index(
        "ix_decisions_extra_draw",
        "decisions",
        ["audit_rate"],
        postgresql_where=sa.text("extra_draw"),
        sqlite_where=sa.text("extra_draw"),
    )


def downgrade() -> None:
    """Drop them. What raised rates have drawn stays drawn."""
    op.drop_index("ix_decisions_extra_draw", "decisions")
    op.execute("ALTER TABLE decisions DROP COLUMN extra_draw")
    op.execute("ALTER TABLE decisions DROP COLUMN audit_rate")
    op.execute("ALTER TABLE gate_revisions DROP COLUMN audit_boost_most")
    op.execute("ALTER TABLE gate_revisions DROP COLUMN audit_boost")
    op.drop_table("audit_rates")
