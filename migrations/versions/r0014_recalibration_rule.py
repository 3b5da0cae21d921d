"""Columns for when and how a gate recalibrates by itself, what an alarm does, what became of each run and why; and an
index by which the labels that came since a run are found."""

from __future__ import annotations

from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

_REAL, _INTEGER, _TEXT, _BIGINT, _MOMENT = "real", "integer", "text", "bigint", "moment"
_TYPES = {
    "sqlite": {
        _REAL: "DOUBLE",
        _INTEGER: "INTEGER",
        _TEXT: "TEXT",
        _BIGINT: "INTEGER",
        _MOMENT: "DATETIME",
    },
    "postgresql": {
        _REAL: "DOUBLE PRECISION",
        _INTEGER: "INTEGER",
        _TEXT: "TEXT",
        _BIGINT: "BIGINT",
        _MOMENT: "TIMESTAMP WITH TIME ZONE",
    },
}

_GATES, _RUNS = "gate_revisions", "calibration_runs"
_SOME_GROUPS = "BETWEEN 1 AND 1000000000"

# (table, column, type, name of the rule, rule, default, may be NULL): a column brings its own CHECK, so that SQLite
# need not copy the table. Gates that are there get what a new one has: proposals, which change nothing.
_COLUMNS = (
    (
        _GATES,
        "recalibrate",
        _TEXT,
        "recalibrate",
        "recalibrate IN ('manual', 'propose', 'auto')",
        "'propose'",
        False,
    ),
    (
        _GATES,
        "recalibrate_every_seconds",
        _REAL,
        "recalibrate_every",
        "recalibrate_every_seconds > 0 AND recalibrate_every_seconds <= 1e300",
        "86400",
        True,
    ),
    (
        _GATES,
        "recalibrate_after_groups",
        _INTEGER,
        "recalibrate_after",
        f"recalibrate_after_groups {_SOME_GROUPS}",
        "100",
        True,
    ),
    (
        _GATES,
        "max_lambda_step",
        _REAL,
        "max_lambda_step",
        "max_lambda_step > 0 AND max_lambda_step <= 1",
        "0.1",
        False,
    ),
    (
        _GATES,
        "max_ship_rate_step",
        _REAL,
        "max_ship_rate_step",
        "max_ship_rate_step > 0 AND max_ship_rate_step <= 1",
        "0.1",
        False,
    ),
    (_GATES, "least_groups", _INTEGER, "least_groups", f"least_groups {_SOME_GROUPS}", "100", False),
    (_GATES, "on_alarm", _TEXT, "on_alarm", "on_alarm IN ('report', 'close')", "'close'", False),
    (
        _GATES,
        "monitor_delta",
        _REAL,
        "monitor_delta",
        "monitor_delta > 0 AND monitor_delta < 1",
        "0.1",
        False,
    ),
    (_GATES, "alarm_delta", _REAL, "alarm_delta", "alarm_delta > 0 AND alarm_delta < 1", "0.05", False),
    (
        _GATES,
        "alarm_tolerance",
        _REAL,
        "alarm_tolerance",
        "alarm_tolerance >= 0 AND alarm_tolerance <= 10",
        "0.2",
        False,
    ),
    (
        _GATES,
        "monitor_deadline_seconds",
        _REAL,
        "monitor_deadline",
        "monitor_deadline_seconds >= 0 AND monitor_deadline_seconds <= 1e300",
        "86400",
        False,
    ),
    (
        _GATES,
        "budget_period_days",
        _REAL,
        "budget_period",
        "budget_period_days > 0 AND budget_period_days <= 3660",
        "30",
        False,
    ),
    (_GATES, "drift_delta", _REAL, "drift_delta", "drift_delta > 0 AND drift_delta < 1", "0.05", False),
    (_GATES, "judge_kind", _TEXT, "judge_kind", "length(judge_kind) BETWEEN 1 AND 64", None, True),
    (_RUNS, "newer_than", _MOMENT, None, None, None, True),
    (_RUNS, "since_version", _INTEGER, "since_version", "since_version >= 1", None, True),
    (
        _RUNS,
        "severities",
        _TEXT,
        "severities",
        "severities IN ('mean', 'highest')",
        "'mean'",
        False,
    ),
    (
        _RUNS,
        "outcome",
        _TEXT,
        "outcome",
        "outcome IN ('applied', 'proposed', 'unchanged')",
        None,
        True,
    ),
    (_RUNS, "why", _TEXT, None, None, "''", False),
    (_RUNS, "labels_through", _BIGINT, "labels_through", "labels_through >= 0", None, True),
)

_COMMENTS = {
    (_GATES, "recalibrate_every_seconds"): "NULL: not by time",
    (_GATES, "recalibrate_after_groups"): "NULL: not by labels",
    (_RUNS, "newer_than"): "when since_version came into force",
    (_RUNS, "since_version"): "only batches decided under this policy or a later one",
    (_RUNS, "severities"): "of several labels of a response: their mean, or the highest ever given",
    (_RUNS, "outcome"): "what became of it at once; NULL: unknown, it is older than this column",
    (_RUNS, "why"): "why that became of it",
    (_RUNS, "labels_through"): "the newest label revision that it could read",
}


def upgrade() -> None:
    """Add the columns."""
    dialect = op.get_context().dialect.name
    for table, column, kind, name, rule, default, nullable in _COLUMNS:
        words = [f"ALTER TABLE {table} ADD COLUMN {column} {_TYPES[dialect][kind]}"]
        if not nullable:
            words.append("NOT NULL")
        if default is not None:
            words.append(f"DEFAULT {default}")
        if rule is not None:
            words.append(f"CONSTRAINT ck_{table}_{name} CHECK ({rule})")
        op.execute(" ".join(words))
    op.create_index("ix_label_revisions_gate_kind_id", "label_revisions", ["gate", "kind", "id"])
    if dialect != "sqlite":
        for (table, column), text in _COMMENTS.items():
            op.execute(f"COMMENT ON COLUMN {table}.{column} IS '{text}'")


def downgrade() -> None:
    """Drop the columns, their rules with them."""
    op.drop_index("ix_label_revisions_gate_kind_id", "label_revisions")
    for table, column, *_ in reversed(_COLUMNS):
        op.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
