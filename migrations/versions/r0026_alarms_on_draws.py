"""Alarms that bet on audit draws: how far they have read, and what gates say of them."""

from __future__ import annotations

from alembic import op

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None

_COLUMNS = (
    (
        "gate_revisions",
        "on_selective_alarm",
        "TEXT DEFAULT 'report' NOT NULL CONSTRAINT ck_gate_revisions_on_selective_alarm"
        " CHECK (on_selective_alarm IN ('report', 'close'))",
        None,
    ),
    (
        "gate_revisions",
        "alarm_false_every",
        "INTEGER CONSTRAINT ck_gate_revisions_alarm_false_every"
        " CHECK (alarm_false_every BETWEEN 1 AND 1000000000)",
        "draws for which one false alarm more is accepted; NULL: none is",
    ),
    (
        "monitor_gates",
        "bet_batch",
        "{big} CONSTRAINT ck_monitor_gates_bet_batch CHECK (bet_batch >= 0)",
        "given to the alarms on labels up to this batch; NULL: by an older version",
    ),
)


def upgrade() -> None:
    """Add the columns. Gates that are there keep the promise of their alarms: false with a chance of delta, ever."""
    sqlite = op.get_context().dialect.name == "sqlite"
    for table, name, template, comment in _COLUMNS:
        # A column brings its own CHECK, so that SQLite need not copy the table.
        kind = template.replace("{big}", "INTEGER" if sqlite else "BIGINT")
        op.execute(f"ALTER TABLE {table} ADD COLUMN {name} {kind}")
        if comment is not None and not sqlite:
            op.execute(f"COMMENT ON COLUMN {table}.{name} IS '{comment}'")


def downgrade() -> None:
    """Drop them."""
    for table, name, _, _ in _COLUMNS:
        op.execute(f"ALTER TABLE {table} DROP COLUMN {name}")
