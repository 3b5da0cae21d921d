"""Which draws a calibration run reads: by age, the newest alone; and what it found of the newest."""

from __future__ import annotations

from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None

_GATES, _RUNS = "gate_revisions", "calibration_runs"

# Each column brings its own CHECK, so that SQLite need not copy the table.
_COLUMNS = (
    (
        _GATES,
        "pending",
        "TEXT NOT NULL DEFAULT 'age' CONSTRAINT ck_gate_revisions_pending"
        " CHECK (pending IN ('age', 'worst', 'labelled-only'))",
    ),
    (
        _GATES,
        '"window"',
        'INTEGER CONSTRAINT ck_gate_revisions_window CHECK ("window" BETWEEN 1 AND 1000000000)',
    ),
    (
        _RUNS,
        "age_cut",
        "TEXT CONSTRAINT ck_calibration_runs_age_cut CHECK (length(age_cut) BETWEEN 2 AND 10000)",
    ),
    (
        _RUNS,
        "suffix",
        "TEXT CONSTRAINT ck_calibration_runs_suffix CHECK (length(suffix) BETWEEN 2 AND 10000)",
    ),
    (_RUNS, "held_until", "{moment}"),
)

_COMMENTS = {
    (_GATES, '"window"'): "groups that calibration reads, the newest; NULL: all",
    (_RUNS, "age_cut"): "from which age on draws counted, and what that was chosen from; JSON",
    (_RUNS, "suffix"): "the newest groups beside older ones; JSON; NULL: not compared",
    (_RUNS, "held_until"): "a looser threshold waits until then, and is tested again",
}


def upgrade() -> None:
    """Add the columns."""
    dialect = op.get_context().dialect.name
    moment = "DATETIME" if dialect == "sqlite" else "TIMESTAMP WITH TIME ZONE"
    for table, column, what in _COLUMNS:
        op.execute(f"ALTER TABLE {table} ADD COLUMN {column} {what.format(moment=moment)}")
    if dialect != "sqlite":
        for (table, column), text in _COMMENTS.items():
            op.execute(f"COMMENT ON COLUMN {table}.{column} IS '{text}'")


def downgrade() -> None:
    """Drop them."""
    for table, column, _ in reversed(_COLUMNS):
        op.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
