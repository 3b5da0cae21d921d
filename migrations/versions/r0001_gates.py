"""Gates, policies, and the calibration runs that policies come from."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

BIGINT = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
MOMENT = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "gates",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("seed", BIGINT, nullable=False),
        sa.Column("audit_salt", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.CheckConstraint("length(audit_salt) = 32", name=op.f("ck_gates_audit_salt")),
        sa.CheckConstraint("length(name) BETWEEN 1 AND 64", name=op.f("ck_gates_name")),
        sa.CheckConstraint("seed >= 0", name=op.f("ck_gates_seed")),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_gates")),
    )
    op.create_table(
        "gate_revisions",
        sa.Column("gate", sa.Text(), nullable=False),
        sa.Column("revision", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("unit", sa.Text(), nullable=False),
        sa.Column("scorer", sa.Text(), nullable=False),
        sa.Column("encoder", sa.Text(), nullable=False),
        sa.Column("severity_kind", sa.Text(), nullable=False),
        sa.Column("alpha", sa.Double(), nullable=False),
        sa.Column("method", sa.Text(), nullable=False),
        sa.Column("eta", sa.Double(), nullable=False),
        sa.Column("draws", sa.Integer(), nullable=False),
        sa.Column("hold_action", sa.Text(), nullable=False),
        sa.Column("max_attempts", sa.Integer(), nullable=False),
        sa.Column("mode", sa.Text(), nullable=False),
        sa.Column("audit_probability", sa.Double(), nullable=False),
        sa.Column("audit_draws", sa.Integer(), nullable=False),
        sa.Column("label_deadline_seconds", sa.Double(), nullable=False),
        sa.Column("decision_deadline_seconds", sa.Double(), nullable=True),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.CheckConstraint(
            "(scorer = 'external') = (encoder = 'none')", name=op.f("ck_gate_revisions_encoder_of_scorer")
        ),
        sa.CheckConstraint(
            "hold_action IN ('abstain', 'regenerate', 'escalate')", name=op.f("ck_gate_revisions_hold_action")
        ),
        sa.CheckConstraint("mode IN ('shadow', 'enforce')", name=op.f("ck_gate_revisions_mode")),
        sa.CheckConstraint("unit IN ('best', 'response', 'batch')", name=op.f("ck_gate_revisions_unit")),
        sa.CheckConstraint("alpha > 0 AND alpha < 1", name=op.f("ck_gate_revisions_alpha")),
        sa.CheckConstraint("audit_draws BETWEEN 1 AND 256", name=op.f("ck_gate_revisions_audit_draws")),
        sa.CheckConstraint(
            "audit_probability >= 0 AND audit_probability <= 1",
            name=op.f("ck_gate_revisions_audit_probability"),
        ),
        sa.CheckConstraint(
            "decision_deadline_seconds > 0 AND decision_deadline_seconds <= 1e300",
            name=op.f("ck_gate_revisions_decision_deadline"),
        ),
        sa.CheckConstraint("draws >= 1", name=op.f("ck_gate_revisions_draws")),
        sa.CheckConstraint("eta > 0 AND eta <= 1e300", name=op.f("ck_gate_revisions_eta")),
        sa.CheckConstraint(
            "label_deadline_seconds >= 0 AND label_deadline_seconds <= 1e300",
            name=op.f("ck_gate_revisions_label_deadline"),
        ),
        sa.CheckConstraint("length(encoder) BETWEEN 1 AND 200", name=op.f("ck_gate_revisions_encoder")),
        sa.CheckConstraint("length(method) BETWEEN 1 AND 64", name=op.f("ck_gate_revisions_method")),
        sa.CheckConstraint("length(scorer) BETWEEN 1 AND 64", name=op.f("ck_gate_revisions_scorer")),
        sa.CheckConstraint(
            "length(severity_kind) BETWEEN 1 AND 64", name=op.f("ck_gate_revisions_severity_kind")
        ),
        sa.CheckConstraint("max_attempts BETWEEN 1 AND 1000", name=op.f("ck_gate_revisions_max_attempts")),
        sa.CheckConstraint("revision >= 1", name=op.f("ck_gate_revisions_revision")),
        sa.ForeignKeyConstraint(["gate"], ["gates.name"], name=op.f("fk_gate_revisions_gate_gates")),
        sa.PrimaryKeyConstraint("gate", "revision", name=op.f("pk_gate_revisions")),
    )
    op.create_table(
        "calibration_runs",
        sa.Column("id", BIGINT, sa.Identity(always=False), nullable=False),
        sa.Column("gate", sa.Text(), nullable=False),
        sa.Column("gate_revision", sa.Integer(), nullable=False, comment="the settings calibrated for"),
        sa.Column("method", sa.Text(), nullable=False, comment="the one that decides"),
        sa.Column("alpha", sa.Double(), nullable=False, comment="the budget used: alpha / attempts"),
        sa.Column("seed", BIGINT, nullable=False),
        sa.Column("older_than", MOMENT, nullable=False, comment="batches decided before this moment"),
        sa.Column("groups", sa.Integer(), nullable=False),
        sa.Column("items", sa.Integer(), nullable=False),
        sa.Column("missing", sa.Integer(), nullable=False, comment="items without a label: severity 1"),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("threshold", sa.Double(), nullable=True),
        sa.Column("guarantee", sa.Text(), nullable=False),
        sa.Column("requested_by", sa.Text(), nullable=False),
        sa.Column("started_at", MOMENT, nullable=False),
        sa.Column("finished_at", MOMENT, nullable=False),
        sa.CheckConstraint(
            "(state = 'cut') = (threshold IS NOT NULL)", name=op.f("ck_calibration_runs_threshold")
        ),
        sa.CheckConstraint("state IN ('closed', 'cut', 'open')", name=op.f("ck_calibration_runs_state")),
        sa.CheckConstraint("alpha > 0 AND alpha < 1", name=op.f("ck_calibration_runs_alpha")),
        sa.CheckConstraint(
            "groups >= 0 AND items >= groups AND missing BETWEEN 0 AND items",
            name=op.f("ck_calibration_runs_counts"),
        ),
        sa.CheckConstraint("length(method) BETWEEN 1 AND 64", name=op.f("ck_calibration_runs_method")),
        sa.CheckConstraint("seed >= 0", name=op.f("ck_calibration_runs_seed")),
        sa.CheckConstraint(
            "threshold >= -1e300 AND threshold <= 1e300", name=op.f("ck_calibration_runs_threshold_finite")
        ),
        sa.ForeignKeyConstraint(
            ["gate", "gate_revision"],
            ["gate_revisions.gate", "gate_revisions.revision"],
            name=op.f("fk_calibration_runs_gate_gate_revision_gate_revisions"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_calibration_runs")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "calibration_candidates",
        sa.Column("run", BIGINT, autoincrement=False, nullable=False),
        sa.Column("method", sa.Text(), nullable=False),
        sa.Column("decides", sa.Boolean(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("threshold", sa.Double(), nullable=True),
        sa.Column("guarantee", sa.Text(), nullable=False),
        sa.CheckConstraint(
            "(state = 'cut') = (threshold IS NOT NULL)", name=op.f("ck_calibration_candidates_threshold")
        ),
        sa.CheckConstraint(
            "state IN ('closed', 'cut', 'open')", name=op.f("ck_calibration_candidates_state")
        ),
        sa.CheckConstraint("length(method) BETWEEN 1 AND 64", name=op.f("ck_calibration_candidates_method")),
        sa.CheckConstraint(
            "threshold >= -1e300 AND threshold <= 1e300",
            name=op.f("ck_calibration_candidates_threshold_finite"),
        ),
        sa.ForeignKeyConstraint(
            ["run"], ["calibration_runs.id"], name=op.f("fk_calibration_candidates_run_calibration_runs")
        ),
        sa.PrimaryKeyConstraint("run", "method", name=op.f("pk_calibration_candidates")),
    )
    op.create_index(
        "uq_calibration_candidates_one_decides",
        "calibration_candidates",
        ["run"],
        unique=True,
        postgresql_where=sa.text("decides"),
        sqlite_where=sa.text("decides"),
    )
    op.create_table(
        "policies",
        sa.Column("gate", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("gate_revision", sa.Integer(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("threshold", sa.Double(), nullable=True),
        sa.Column("calibrated", sa.Boolean(), nullable=False),
        sa.Column("calibration_run", BIGINT, nullable=True),
        sa.Column("guarantee", sa.Text(), nullable=False),
        sa.Column("valid_from", MOMENT, nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.CheckConstraint("(state = 'cut') = (threshold IS NOT NULL)", name=op.f("ck_policies_threshold")),
        sa.CheckConstraint("calibrated OR state = 'closed'", name=op.f("ck_policies_uncalibrated_is_closed")),
        sa.CheckConstraint("state IN ('closed', 'cut', 'open')", name=op.f("ck_policies_state")),
        sa.CheckConstraint(
            "calibrated OR calibration_run IS NULL", name=op.f("ck_policies_uncalibrated_has_no_run")
        ),
        sa.CheckConstraint(
            "threshold >= -1e300 AND threshold <= 1e300", name=op.f("ck_policies_threshold_finite")
        ),
        sa.CheckConstraint("version >= 1", name=op.f("ck_policies_version")),
        sa.ForeignKeyConstraint(
            ["calibration_run"],
            ["calibration_runs.id"],
            name=op.f("fk_policies_calibration_run_calibration_runs"),
        ),
        sa.ForeignKeyConstraint(
            ["gate", "gate_revision"],
            ["gate_revisions.gate", "gate_revisions.revision"],
            name=op.f("fk_policies_gate_gate_revision_gate_revisions"),
        ),
        sa.ForeignKeyConstraint(["gate"], ["gates.name"], name=op.f("fk_policies_gate_gates")),
        sa.PrimaryKeyConstraint("gate", "version", name=op.f("pk_policies")),
    )
    op.create_table(
        "policy_events",
        sa.Column("id", BIGINT, sa.Identity(always=False), nullable=False),
        sa.Column("gate", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("event", sa.Text(), nullable=False),
        sa.Column("by", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("at", MOMENT, nullable=False),
        sa.CheckConstraint(
            "event IN ('created', 'activated', 'superseded', 'closed')", name=op.f("ck_policy_events_event")
        ),
        sa.ForeignKeyConstraint(
            ["gate", "version"],
            ["policies.gate", "policies.version"],
            name=op.f("fk_policy_events_gate_version_policies"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_policy_events")),
        sa.UniqueConstraint("gate", "version", "event", name=op.f("uq_policy_events_gate_version_event")),
        sqlite_autoincrement=True,
    )


def downgrade() -> None:
    """Drop them, with all that they hold."""
    op.drop_table("policy_events")
    op.drop_table("policies")
    op.drop_table("calibration_candidates")
    op.drop_table("calibration_runs")
    op.drop_table("gate_revisions")
    op.drop_table("gates")
