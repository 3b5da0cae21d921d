"""Every calibrator and every shape of the gate: their parameters, the rules of policies, and what served each batch."""

from __future__ import annotations

from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

# (table, column, type, rule, default): a column brings its own CHECK, so that SQLite need not copy the table.
_COLUMNS = (
    ("gate_revisions", "delta", "DOUBLE PRECISION", "delta > 0 AND delta < 1", "0.1"),
    ("gate_revisions", "rho", "DOUBLE PRECISION", "rho > 0 AND rho <= 1", "0.99"),
    ("gate_revisions", "grid", "INTEGER", "grid BETWEEN 1 AND 10000", "100"),
    ("gate_revisions", "starts", "INTEGER", "starts BETWEEN 1 AND 10000", "5"),
    (
        "gate_revisions",
        "shape",
        "TEXT",
        "shape IN ('indicator', 'smooth', 'ramp', 'quantile', 'rank')",
        "'indicator'",
    ),
    ("gate_revisions", "width", "DOUBLE PRECISION", "width > 0 AND width <= 100", "0.05"),
    ("gate_revisions", "segment_by", "TEXT", "length(segment_by) BETWEEN 1 AND 200", None),
    ("gate_revisions", "segment_fallback", "TEXT", "segment_fallback IN ('closed', 'pooled')", "'closed'"),
    ("gate_revisions", "label_floor", "DOUBLE PRECISION", "label_floor >= 0 AND label_floor <= 1", None),
    ("policies", "rule", "TEXT", "length(rule) BETWEEN 2 AND 1048576", None),
    ("decisions", "cut_state", "TEXT", "cut_state IN ('closed', 'cut', 'open')", None),
    (
        "decisions",
        "cut_threshold",
        "DOUBLE PRECISION",
        "cut_threshold >= -1e300 AND cut_threshold <= 1e300",
        None,
    ),
    ("decisions", "segment", "TEXT", "length(segment) <= 200", None),
    ("responses", "uniform", "DOUBLE PRECISION", "uniform > 0 AND uniform < 1", None),
    ("calibration_inputs", "segment", "TEXT", "length(segment) <= 200", None),
    ("calibration_inputs", "draws", "INTEGER", "draws >= 1", "1"),
    ("calibration_candidates", "rule", "TEXT", "length(rule) BETWEEN 2 AND 1048576", None),
)

_RULE = "how the threshold is to be read; NULL: ship iff the score is above it"
_COMMENTS = {
    ("policies", "rule"): _RULE,
    ("calibration_candidates", "rule"): _RULE,
    ("decisions", "cut_state"): "what cut this batch, where not all share the policy's cut",
    ("responses", "uniform"): "the random number of a gate that ships by chance",
    ("calibration_inputs", "draws"): "responses drawn from the batch at most",
}


def upgrade() -> None:
    """Add the columns; what is there already gets what it was decided with."""
    sqlite = op.get_context().dialect.name == "sqlite"
    for table, column, kind, rule, default in _COLUMNS:
        needed = "" if default is None else f" NOT NULL DEFAULT {default}"
        name = "DOUBLE" if sqlite and kind == "DOUBLE PRECISION" else kind
        op.execute(
            f"ALTER TABLE {table} ADD COLUMN {column} {name}{needed}"
            f" CONSTRAINT ck_{table}_{column} CHECK ({rule})"
        )
    if not sqlite:
        for (table, column), words in _COMMENTS.items():
            quoted = words.replace("'", "''")
            op.execute(f"COMMENT ON COLUMN {table}.{column} IS '{quoted}'")


def downgrade() -> None:
    """Drop the columns, their rules with them."""
    for table, column, _, _, _ in reversed(_COLUMNS):
        op.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
