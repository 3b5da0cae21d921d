"""Guards for what no trigger watched yet: batches and refused messages change only by being erased, the outbox keeps
what was not published, and a gate's own row stays."""

from __future__ import annotations

from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

# (name, table, event, condition): the event is refused, if a condition is given only where it holds.
_GUARDS = (
    ("append_only_gates_update", "gates", "UPDATE", None),
    ("append_only_gates_delete", "gates", "DELETE", None),
    ("append_only_batches_delete", "batches", "DELETE", None),
    (
        "append_only_batches_update",
        "batches",
        "UPDATE OF id, gate, batch_id, attempt, created_at, content_mac",
        None,
    ),
    ("erase_only_batches_update", "batches", "UPDATE", "NEW.erased_at IS NULL OR OLD.erased_at IS NOT NULL"),
    ("append_only_responses_delete", "responses", "DELETE", None),
    (
        "append_only_responses_update",
        "responses",
        "UPDATE OF batch, position, response_id, score, uniform, raw_energy, action, drawn",
        None,
    ),
    ("erase_only_responses_update", "responses", "UPDATE", "NEW.text IS NOT NULL"),
    ("append_only_dead_letters_delete", "dead_letters", "DELETE", None),
    (
        "append_only_dead_letters_update",
        "dead_letters",
        'UPDATE OF id, log_id, topic, partition, "offset", timestamp_ms, code, content_mac, recorded_at',
        None,
    ),
    (
        "erase_only_dead_letters_update",
        "dead_letters",
        "UPDATE OF detail, key, value, headers, salt, erased_at",
        "NEW.erased_at IS NULL OR OLD.erased_at IS NOT NULL",
    ),
    ("published_only_outbox_delete", "outbox", "DELETE", "OLD.published_at IS NULL"),
)


def upgrade() -> None:
    """Set the guards."""
    sqlite = op.get_context().dialect.name == "sqlite"
    for name, table, event, condition in _GUARDS:
        when = "" if condition is None else f" WHEN ({condition})"
        if sqlite:
            op.execute(
                f"CREATE TRIGGER {name} BEFORE {event} ON {table}{when}"
                f" BEGIN SELECT RAISE(ABORT, '{table} is append-only'); END"
            )
        else:
            op.execute(
                f"CREATE TRIGGER {name} BEFORE {event} ON {table}"
                f" FOR EACH ROW{when} EXECUTE FUNCTION refuse_change()"
            )


def downgrade() -> None:
    """Take them away."""
    sqlite = op.get_context().dialect.name == "sqlite"
    for name, table, _, _ in reversed(_GUARDS):
        op.execute(f"DROP TRIGGER {name}" + ("" if sqlite else f" ON {table}"))
