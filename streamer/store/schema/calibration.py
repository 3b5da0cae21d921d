"""Calibration runs with the exact inputs they read and every candidate they found; append-only."""

from __future__ import annotations

import sqlalchemy as sa

from streamer.store.schema.types import (
    BIGINT,
    REAL,
    Rule,
    UtcDateTime,
    check,
    finite_cut,
    identity_column,
    metadata,
    sized_rule,
    sized_text,
    within_unit_interval,
)

calibration_runs = sa.Table(
    "calibration_runs",
    metadata,
    identity_column(),
    sa.Column("gate", sa.Text, nullable=False),
    sa.Column("gate_revision", sa.Integer, nullable=False, comment="the settings calibrated for"),
    sa.Column("method", sa.Text, nullable=False, comment="the one that decides"),
    sa.Column("alpha", REAL, nullable=False, comment="the budget used: alpha / attempts"),
    sa.Column("seed", BIGINT, nullable=False),
    sa.Column("older_than", UtcDateTime, nullable=False, comment="batches decided before this moment"),
    sa.Column("groups", sa.Integer, nullable=False),
    sa.Column("items", sa.Integer, nullable=False),
    sa.Column("missing", sa.Integer, nullable=False, comment="items without a label: severity 1"),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("threshold", REAL),
    sa.Column("guarantee", sa.Text, nullable=False),
    sa.Column("requested_by", sa.Text, nullable=False),
    sa.Column("started_at", UtcDateTime, nullable=False),
    sa.Column("finished_at", UtcDateTime, nullable=False),
    sa.ForeignKeyConstraint(["gate", "gate_revision"], ["gate_revisions.gate", "gate_revisions.revision"]),
    sized_text("method", 64),
    check("alpha", "alpha > 0 AND alpha < 1"),
    check("seed", "seed >= 0"),
    check("counts", "groups >= 0 AND items >= groups AND missing BETWEEN 0 AND items"),
    *finite_cut(),
    sqlite_autoincrement=True,
)

calibration_inputs = sa.Table(
    "calibration_inputs",
    metadata,
    sa.Column("run", BIGINT, sa.ForeignKey("calibration_runs.id"), primary_key=True, autoincrement=False),
    sa.Column("batch", BIGINT, primary_key=True, autoincrement=False),
    sa.Column("response_id", sa.Text, primary_key=True),
    sa.Column("score", REAL, nullable=False),
    sa.Column("severity", REAL, comment="NULL: no label by then, counted as 1"),
    sa.Column("probability", REAL, nullable=False, comment="of the batch being drawn for the audit"),
    sa.Column(
        "draws",
        sa.Integer,
        nullable=False,
        server_default=sa.text("1"),
        comment="responses drawn from the batch at most",
    ),
    sa.Column("segment", sa.Text),
    sa.ForeignKeyConstraint(["batch", "response_id"], ["responses.batch", "responses.response_id"]),
    within_unit_interval("score"),
    within_unit_interval("severity"),
    check("probability", "probability > 0 AND probability <= 1"),
    check("draws", "draws >= 1"),
    check("segment", "length(segment) <= 200"),
)

calibration_candidates = sa.Table(
    "calibration_candidates",
    metadata,
    sa.Column("run", BIGINT, sa.ForeignKey("calibration_runs.id"), primary_key=True, autoincrement=False),
    sa.Column("method", sa.Text, primary_key=True),
    sa.Column("decides", sa.Boolean, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("threshold", REAL),
    sa.Column("rule", Rule, comment="how the threshold is to be read; NULL: ship iff the score is above it"),
    sa.Column("guarantee", sa.Text, nullable=False),
    sized_text("method", 64),
    *finite_cut(),
    sized_rule(),
)
sa.Index(
    "uq_calibration_candidates_one_decides",
    calibration_candidates.c.run,
    unique=True,
    postgresql_where=calibration_candidates.c.decides,
    sqlite_where=calibration_candidates.c.decides,
)
