"""Batches, responses, decisions, and what calibration runs read of them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

BIGINT = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
MOMENT = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "batches",
        sa.Column("id", BIGINT, sa.Identity(always=False), nullable=False),
        sa.Column("gate", sa.Text(), nullable=False),
        sa.Column("batch_id", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("created_at", MOMENT, nullable=True, comment="as the publisher said"),
        sa.Column("prompt", sa.Text(), nullable=True, comment="NULL once erased"),
        sa.Column("references", sa.JSON(), nullable=True),
        sa.Column("metadata", sa.JSON(), nullable=True, comment="NULL once erased"),
        sa.Column(
            "content_hash",
            sa.LargeBinary(),
            nullable=True,
            comment="tells a duplicate from a conflict; NULL once erased",
        ),
        sa.Column("salt", sa.LargeBinary(), nullable=True, comment="key of content_mac; NULL once erased"),
        sa.Column(
            "content_mac", sa.LargeBinary(), nullable=False, comment="what the hash chain holds of the texts"
        ),
        sa.Column("erased_at", MOMENT, nullable=True),
        sa.CheckConstraint(
            '(erased_at IS NULL AND prompt IS NOT NULL AND metadata IS NOT NULL AND content_hash IS NOT NULL AND salt IS NOT NULL) OR (erased_at IS NOT NULL AND prompt IS NULL AND "references" IS NULL AND metadata IS NULL AND content_hash IS NULL AND salt IS NULL)',
            name=op.f("ck_batches_erased"),
        ),
        sa.CheckConstraint("attempt >= 1", name=op.f("ck_batches_attempt")),
        sa.CheckConstraint("length(batch_id) BETWEEN 1 AND 200", name=op.f("ck_batches_batch_id")),
        sa.CheckConstraint("length(content_hash) = 32", name=op.f("ck_batches_content_hash")),
        sa.CheckConstraint("length(content_mac) = 32", name=op.f("ck_batches_content_mac")),
        sa.CheckConstraint("length(salt) = 32", name=op.f("ck_batches_salt")),
        sa.ForeignKeyConstraint(["gate"], ["gates.name"], name=op.f("fk_batches_gate_gates")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_batches")),
        sa.UniqueConstraint("gate", "batch_id", "attempt", name=op.f("uq_batches_gate_batch_id_attempt")),
        sa.UniqueConstraint("id", "gate", name=op.f("uq_batches_id_gate")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "responses",
        sa.Column("batch", BIGINT, autoincrement=False, nullable=False),
        sa.Column(
            "position", sa.Integer(), autoincrement=False, nullable=False, comment="from 0, the event's order"
        ),
        sa.Column("response_id", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=True, comment="NULL once erased"),
        sa.Column("score", sa.Double(), nullable=True, comment="NULL when the batch was not scored"),
        sa.Column("raw_energy", sa.Double(), nullable=True),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("drawn", sa.Boolean(), nullable=False, comment="the audit sample asks for its severity"),
        sa.CheckConstraint(
            "action <> 'ship' OR score IS NOT NULL", name=op.f("ck_responses_shipped_has_score")
        ),
        sa.CheckConstraint(
            "action IN ('ship', 'abstain', 'regenerate', 'escalate')", name=op.f("ck_responses_action")
        ),
        sa.CheckConstraint("length(response_id) BETWEEN 1 AND 200", name=op.f("ck_responses_response_id")),
        sa.CheckConstraint("position >= 0", name=op.f("ck_responses_position")),
        sa.CheckConstraint(
            "raw_energy >= -1e300 AND raw_energy <= 1e300", name=op.f("ck_responses_raw_energy")
        ),
        sa.CheckConstraint("score >= 0 AND score <= 1", name=op.f("ck_responses_score")),
        sa.ForeignKeyConstraint(["batch"], ["batches.id"], name=op.f("fk_responses_batch_batches")),
        sa.PrimaryKeyConstraint("batch", "position", name=op.f("pk_responses")),
        sa.UniqueConstraint("batch", "response_id", name=op.f("uq_responses_batch_response_id")),
    )
    op.create_table(
        "decisions",
        sa.Column("batch", BIGINT, autoincrement=False, nullable=False),
        sa.Column("gate", sa.Text(), nullable=False),
        sa.Column("policy_version", sa.Integer(), nullable=False),
        sa.Column("unit", sa.Text(), nullable=False),
        sa.Column("mode", sa.Text(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("selected", sa.Text(), nullable=True),
        sa.Column("scorer", sa.Text(), nullable=False),
        sa.Column("encoder", sa.Text(), nullable=False),
        sa.Column("embedding_source", sa.Text(), nullable=False),
        sa.Column("sampled", sa.Boolean(), nullable=False),
        sa.Column("sampling_probability", sa.Double(), nullable=False),
        sa.Column("action_id", sa.Text(), nullable=False),
        sa.Column("decided_at", MOMENT, nullable=False),
        sa.Column("action_topic", sa.Text(), nullable=False),
        sa.Column("action_key", sa.LargeBinary(), nullable=True),
        sa.Column("action_value", sa.LargeBinary(), nullable=True),
        sa.Column("action_headers", sa.Text(), nullable=False),
        sa.CheckConstraint(
            "(unit = 'best' AND outcome = 'ship') = (selected IS NOT NULL)",
            name=op.f("ck_decisions_selected"),
        ),
        sa.CheckConstraint(
            "embedding_source IN ('encoder', 'event', 'none')", name=op.f("ck_decisions_embedding_source")
        ),
        sa.CheckConstraint("mode IN ('shadow', 'enforce')", name=op.f("ck_decisions_mode")),
        sa.CheckConstraint(
            "outcome <> 'mixed' OR unit = 'response'", name=op.f("ck_decisions_mixed_is_per_response")
        ),
        sa.CheckConstraint(
            "outcome IN ('ship', 'mixed', 'abstain', 'regenerate', 'escalate')",
            name=op.f("ck_decisions_outcome"),
        ),
        sa.CheckConstraint(
            "outcome NOT IN ('ship', 'mixed') OR reason = 'scored'",
            name=op.f("ck_decisions_shipped_is_scored"),
        ),
        sa.CheckConstraint("unit IN ('best', 'response', 'batch')", name=op.f("ck_decisions_unit")),
        sa.CheckConstraint(
            "NOT sampled OR sampling_probability > 0", name=op.f("ck_decisions_sampled_had_a_chance")
        ),
        sa.CheckConstraint("length(action_id) BETWEEN 1 AND 64", name=op.f("ck_decisions_action_id")),
        sa.CheckConstraint("length(reason) BETWEEN 1 AND 64", name=op.f("ck_decisions_reason")),
        sa.CheckConstraint(
            "sampling_probability >= 0 AND sampling_probability <= 1",
            name=op.f("ck_decisions_sampling_probability"),
        ),
        sa.ForeignKeyConstraint(
            ["batch", "gate"], ["batches.id", "batches.gate"], name=op.f("fk_decisions_batch_gate_batches")
        ),
        sa.ForeignKeyConstraint(
            ["batch", "selected"],
            ["responses.batch", "responses.response_id"],
            name=op.f("fk_decisions_batch_selected_responses"),
        ),
        sa.ForeignKeyConstraint(
            ["gate", "policy_version"],
            ["policies.gate", "policies.version"],
            name=op.f("fk_decisions_gate_policy_version_policies"),
        ),
        sa.PrimaryKeyConstraint("batch", name=op.f("pk_decisions")),
        sa.UniqueConstraint("action_id", name=op.f("uq_decisions_action_id")),
    )
    op.create_index("ix_decisions_gate_decided_at", "decisions", ["gate", "decided_at"], unique=False)
    op.create_index(
        "ix_decisions_sampled",
        "decisions",
        ["gate", "decided_at"],
        unique=False,
        postgresql_where=sa.text("sampled"),
        sqlite_where=sa.text("sampled"),
    )
    op.create_table(
        "calibration_inputs",
        sa.Column("run", BIGINT, autoincrement=False, nullable=False),
        sa.Column("batch", BIGINT, autoincrement=False, nullable=False),
        sa.Column("response_id", sa.Text(), nullable=False),
        sa.Column("score", sa.Double(), nullable=False),
        sa.Column("severity", sa.Double(), nullable=True, comment="NULL: no label by then, counted as 1"),
        sa.Column(
            "probability", sa.Double(), nullable=False, comment="of the batch being drawn for the audit"
        ),
        sa.CheckConstraint(
            "probability > 0 AND probability <= 1", name=op.f("ck_calibration_inputs_probability")
        ),
        sa.CheckConstraint("score >= 0 AND score <= 1", name=op.f("ck_calibration_inputs_score")),
        sa.CheckConstraint("severity >= 0 AND severity <= 1", name=op.f("ck_calibration_inputs_severity")),
        sa.ForeignKeyConstraint(
            ["batch", "response_id"],
            ["responses.batch", "responses.response_id"],
            name=op.f("fk_calibration_inputs_batch_response_id_responses"),
        ),
        sa.ForeignKeyConstraint(
            ["run"], ["calibration_runs.id"], name=op.f("fk_calibration_inputs_run_calibration_runs")
        ),
        sa.PrimaryKeyConstraint("run", "batch", "response_id", name=op.f("pk_calibration_inputs")),
    )


def downgrade() -> None:
    """Drop them, with all that they hold."""
    op.drop_table("calibration_inputs")
    op.drop_table("decisions")
    op.drop_table("responses")
    op.drop_table("batches")
