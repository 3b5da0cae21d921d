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
ENDED = ("monitor_sequences", "monitor_alarms")
"""Whose rows move on until they have ended."""

SHARES = (
    "exposure",
    "exposure_lower",
    "exposure_upper",
    "selective",
    "selective_lower",
    "selective_upper",
)

INTERVALS = """
CREATE VIEW v_risk_intervals AS
SELECT s.gate, s.number AS sequence, s.began_at, s.read_at, s.period_days, s.ended, s.unit, s.severity_kind,
       s.budget, s.delta, s.decisions, s.labelled, s.overdue,
       s.exposure_lower, s.exposure, s.exposure_upper, s.selective_lower, s.selective, s.selective_upper,
       CASE WHEN s.exposure_lower > s.budget THEN 'broken'
            WHEN s.exposure_upper < s.budget THEN 'kept'
            ELSE 'not known yet' END AS budget_is,
       g.read_through, g.late,
       (SELECT count(*) FROM monitor_alarms a
        WHERE a.gate = s.gate AND a.raised_at IS NOT NULL AND a.ended IS NULL) AS alarms_raised
FROM monitor_sequences s
JOIN monitor_gates g ON g.gate = s.gate
"""


def upgrade() -> None:
    """Create the tables and their guards; let decisions keep a few numbers of their embeddings."""
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
    op.create_table(
        "monitor_gates",
        sa.Column("gate", sa.Text(), nullable=False),
        sa.Column(
            "step",
            BIGINT,
            nullable=False,
            comment="how often it was written; who writes names what he read",
        ),
        sa.Column("read_batch", BIGINT, nullable=False, comment="read with labels up to this batch"),
        sa.Column("seen_batch", BIGINT, nullable=False, comment="read without labels up to this batch"),
        sa.Column("seen_label", BIGINT, nullable=False),
        sa.Column("read_through", MOMENT, nullable=True, comment="every decision before this moment is read"),
        sa.Column("unwatched", BIGINT, nullable=False, comment="decisions that no audit sample could take"),
        sa.Column("late", BIGINT, nullable=False, comment="labels that came after their decision was read"),
        sa.Column("marks", sa.Text(), nullable=False, comment="how far the record reached, and when; JSON"),
        sa.Column(
            "drift_run", BIGINT, nullable=True, comment="the calibration run that drift is looked for against"
        ),
        sa.Column("drift_policy", sa.Integer(), nullable=False),
        sa.Column("updated_at", MOMENT, nullable=False),
        sa.CheckConstraint("step >= 1", name=op.f("ck_monitor_gates_step")),
        sa.CheckConstraint(
            "read_batch >= 0 AND seen_batch >= 0 AND seen_label >= 0", name=op.f("ck_monitor_gates_places")
        ),
        sa.CheckConstraint("unwatched >= 0 AND late >= 0", name=op.f("ck_monitor_gates_counts")),
        sa.ForeignKeyConstraint(["gate"], ["gates.name"], name=op.f("fk_monitor_gates_gate_gates")),
        sa.PrimaryKeyConstraint("gate", name=op.f("pk_monitor_gates")),
    )
    op.create_table(
        "monitor_sequences",
        sa.Column("gate", sa.Text(), nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False, comment="from 1"),
        sa.Column("unit", sa.Text(), nullable=False),
        sa.Column("scorer", sa.Text(), nullable=False),
        sa.Column("severity_kind", sa.Text(), nullable=False),
        sa.Column("budget", sa.Double(), nullable=False, comment="alpha over the attempts"),
        sa.Column("delta", sa.Double(), nullable=False, comment="chance that a bound ever fails"),
        sa.Column("period_days", sa.Double(), nullable=False),
        sa.Column("judge_kind", sa.Text(), nullable=True),
        sa.Column("since_policy", sa.Integer(), nullable=False),
        sa.Column("first_batch", BIGINT, nullable=False),
        sa.Column("last_batch", BIGINT, nullable=False),
        sa.Column("began_at", MOMENT, nullable=False),
        sa.Column("read_at", MOMENT, nullable=False, comment="when its newest decision was made"),
        sa.Column("decisions", BIGINT, nullable=False),
        sa.Column("labelled", BIGINT, nullable=False, comment="drawn decisions whose loss is known"),
        sa.Column("overdue", BIGINT, nullable=False),
        sa.Column("exposure", sa.Double(), nullable=True),
        sa.Column("exposure_lower", sa.Double(), nullable=False),
        sa.Column("exposure_upper", sa.Double(), nullable=False),
        sa.Column("selective", sa.Double(), nullable=True),
        sa.Column("selective_lower", sa.Double(), nullable=False),
        sa.Column("selective_upper", sa.Double(), nullable=False),
        sa.Column(
            "state", sa.Text(), nullable=False, comment="exact, JSON; the figures above follow from it"
        ),
        sa.Column("ended", sa.Text(), nullable=True, comment="why it reads no more; NULL while it does"),
        sa.CheckConstraint("unit IN ('best', 'response', 'batch')", name=op.f("ck_monitor_sequences_unit")),
        sa.CheckConstraint("number >= 1", name=op.f("ck_monitor_sequences_number")),
        sa.CheckConstraint(
            "decisions >= 0 AND labelled >= 0 AND overdue >= 0", name=op.f("ck_monitor_sequences_counts")
        ),
        *(
            sa.CheckConstraint(f"{name} >= 0 AND {name} <= 1", name=op.f(f"ck_monitor_sequences_{name}"))
            for name in SHARES
        ),
        sa.ForeignKeyConstraint(["gate"], ["gates.name"], name=op.f("fk_monitor_sequences_gate_gates")),
        sa.PrimaryKeyConstraint("gate", "number", name=op.f("pk_monitor_sequences")),
    )
    op.create_table(
        "monitor_alarms",
        sa.Column("gate", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column(
            "statistic",
            sa.Text(),
            nullable=False,
            comment="the number that a drift alarm watches, or empty",
        ),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False, comment="from 1"),
        sa.Column("about", sa.Text(), nullable=False),
        sa.Column("delta", sa.Double(), nullable=False, comment="chance that it is ever false"),
        sa.Column("evidence_ratio", sa.Double(), nullable=False, comment="of what raises it; at most 1e300"),
        sa.Column("after_batch", BIGINT, nullable=False),
        sa.Column("after_policy", sa.Integer(), nullable=False),
        sa.Column("run", BIGINT, nullable=True),
        sa.Column("state", sa.Text(), nullable=False, comment="exact, JSON"),
        sa.Column("raised_by", BIGINT, nullable=True, comment="the batch"),
        sa.Column("raised_at", MOMENT, nullable=True),
        sa.Column("alert_id", sa.Text(), nullable=True),
        sa.Column(
            "closed_policy", sa.Integer(), nullable=True, comment="the policy by which it closed the gate"
        ),
        sa.Column(
            "ended",
            sa.Text(),
            nullable=True,
            comment="why it reads no more; NULL while it does, or stands raised",
        ),
        sa.CheckConstraint("length(kind) BETWEEN 1 AND 64", name=op.f("ck_monitor_alarms_kind")),
        sa.CheckConstraint("length(statistic) <= 64", name=op.f("ck_monitor_alarms_statistic")),
        sa.CheckConstraint("number >= 1", name=op.f("ck_monitor_alarms_number")),
        sa.CheckConstraint("delta > 0 AND delta < 1", name=op.f("ck_monitor_alarms_delta")),
        sa.CheckConstraint(
            "evidence_ratio >= 0 AND evidence_ratio <= 1e300", name=op.f("ck_monitor_alarms_evidence_ratio")
        ),
        sa.CheckConstraint(
            "(raised_by IS NULL) = (raised_at IS NULL)", name=op.f("ck_monitor_alarms_raised")
        ),
        sa.ForeignKeyConstraint(["gate"], ["gates.name"], name=op.f("fk_monitor_alarms_gate_gates")),
        sa.PrimaryKeyConstraint("gate", "kind", "statistic", "number", name=op.f("pk_monitor_alarms")),
    )
    op.create_index("ix_decisions_gate_batch", "decisions", ["gate", "batch"])
    op.add_column(
        "decisions",
        sa.Column(
            "cloud",
            sa.JSON(),
            nullable=True,
            comment="numbers of the embeddings, for drift; no chain covers them",
        ),
    )
    op.execute(INTERVALS)
    sqlite = op.get_context().dialect.name == "sqlite"
    for table in ENDED:
        when = "OLD.ended IS NOT NULL"
        op.execute(
            f"CREATE TRIGGER history_{table}_update BEFORE UPDATE ON {table} "
            + (
                f"WHEN ({when}) BEGIN SELECT RAISE(ABORT, '{table} is append-only'); END"
                if sqlite
                else f"FOR EACH ROW WHEN ({when}) EXECUTE FUNCTION refuse_change()"
            )
        )
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
    op.execute("DROP VIEW v_risk_intervals")
    # With SQLite the table is not copied: it is watched by triggers, and people look at it by views.
    op.execute("ALTER TABLE decisions DROP COLUMN cloud")
    op.drop_index("ix_decisions_gate_batch", "decisions")
    for table in ("monitor_alarms", "monitor_sequences", "monitor_gates"):
        op.drop_table(table)
    op.drop_table("alert_acknowledgements")
    op.drop_table("alerts")
