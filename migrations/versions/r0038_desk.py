"""The desk: how long a gate's held batches wait for a person, what waits, what became of it, and the texts that were released."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0038"
down_revision = "0037"
branch_labels = None
depends_on = None

BIGINT = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
MOMENT = sa.DateTime(timezone=True)
GUARDED = (
    ("desk_outcomes", "UPDATE", None),
    ("desk_outcomes", "DELETE", None),
    ("desk_texts", "UPDATE", "id, outcome"),
    ("desk_texts", "DELETE", None),
)


def upgrade() -> None:
    """Add the column and the tables. Gates that are there have no desk: what they do with a held batch stays as it was."""
    sqlite = op.get_context().dialect.name == "sqlite"
    # A column brings its own CHECK, so that SQLite need not copy the table.
    op.execute(
        f"ALTER TABLE gate_revisions ADD COLUMN desk_deadline_seconds {'DOUBLE' if sqlite else 'DOUBLE PRECISION'}"
        " CONSTRAINT ck_gate_revisions_desk_deadline CHECK (desk_deadline_seconds BETWEEN 1 AND 2592000)"
    )
    if not sqlite:
        op.execute(
            "COMMENT ON COLUMN gate_revisions.desk_deadline_seconds IS"
            " 'what is escalated waits so long for a person; NULL: for nobody'"
        )
    op.create_table(
        "desk_items",
        sa.Column("batch", BIGINT, nullable=False, autoincrement=False),
        sa.Column("gate", sa.Text(), nullable=False),
        sa.Column("until", MOMENT, nullable=False, comment="then it is rejected"),
        sa.ForeignKeyConstraint(["batch"], ["batches.id"], name=op.f("fk_desk_items_batch_batches")),
        sa.PrimaryKeyConstraint("batch", name=op.f("pk_desk_items")),
    )
    op.create_index("ix_desk_items_until", "desk_items", ["until", "batch"])
    op.create_table(
        "desk_outcomes",
        sa.Column("id", sa.Text(), nullable=False, comment="follows from gate, batch_id and attempt"),
        sa.Column("gate", sa.Text(), nullable=False),
        sa.Column("batch_id", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("response_id", sa.Text(), comment="what was released; NULL: it was rejected"),
        sa.Column("edited", sa.Boolean(), nullable=False),
        sa.Column("text_mac", sa.LargeBinary(), comment="HMAC-SHA256 of the text that was released"),
        sa.Column("by", sa.Text(), comment="NULL: nobody, the deadline passed"),
        sa.Column("remark", sa.Text(), nullable=False),
        sa.Column("until", MOMENT, nullable=False),
        sa.Column("at", MOMENT, nullable=False),
        sa.CheckConstraint("length(id) BETWEEN 1 AND 64", name=op.f("ck_desk_outcomes_id")),
        sa.CheckConstraint("action IN ('released', 'rejected')", name=op.f("ck_desk_outcomes_action")),
        sa.CheckConstraint("reason IN ('person', 'deadline_passed')", name=op.f("ck_desk_outcomes_reason")),
        sa.CheckConstraint(
            "length(response_id) BETWEEN 1 AND 200", name=op.f("ck_desk_outcomes_response_id")
        ),
        sa.CheckConstraint(
            "(action = 'released') = (response_id IS NOT NULL) AND (action = 'released') = (text_mac IS NOT NULL)"
            " AND (action = 'released' OR NOT edited)",
            name=op.f("ck_desk_outcomes_released"),
        ),
        sa.CheckConstraint(
            "(reason = 'person') = (\"by\" IS NOT NULL) AND (reason = 'person' OR action = 'rejected')",
            name=op.f("ck_desk_outcomes_by_person"),
        ),
        sa.CheckConstraint("length(text_mac) = 32", name=op.f("ck_desk_outcomes_text_mac")),
        sa.CheckConstraint("length(by) BETWEEN 1 AND 200", name=op.f("ck_desk_outcomes_by")),
        sa.CheckConstraint("length(remark) <= 500", name=op.f("ck_desk_outcomes_remark")),
        sa.ForeignKeyConstraint(
            ["gate", "batch_id", "attempt"],
            ["batches.gate", "batches.batch_id", "batches.attempt"],
            name=op.f("fk_desk_outcomes_gate_batch_id_attempt_batches"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_desk_outcomes")),
        sa.UniqueConstraint(
            "gate", "batch_id", "attempt", name=op.f("uq_desk_outcomes_gate_batch_id_attempt")
        ),
    )
    op.create_index("ix_desk_outcomes_gate_at", "desk_outcomes", ["gate", "at"])
    op.create_table(
        "desk_texts",
        sa.Column("id", BIGINT, sa.Identity(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), comment="what people were shown; NULL once erased"),
        sa.Column("salt", sa.LargeBinary(), comment="key of text_mac; NULL once erased"),
        sa.Column("erased_at", MOMENT),
        sa.CheckConstraint("length(salt) = 32", name=op.f("ck_desk_texts_salt")),
        sa.CheckConstraint(
            "(erased_at IS NULL AND text IS NOT NULL AND salt IS NOT NULL)"
            " OR (erased_at IS NOT NULL AND text IS NULL AND salt IS NULL)",
            name=op.f("ck_desk_texts_erased"),
        ),
        sa.ForeignKeyConstraint(
            ["outcome"], ["desk_outcomes.id"], name=op.f("fk_desk_texts_outcome_desk_outcomes")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_desk_texts")),
        sa.UniqueConstraint("outcome", name=op.f("uq_desk_texts_outcome")),
        sqlite_autoincrement=True,
    )
    for table, verb, columns in GUARDED:
        name = f"append_only_{table}_{verb.lower()}"
        what = f"{verb} OF {columns}" if columns else verb
        op.execute(
            f"CREATE TRIGGER {name} BEFORE {what} ON {table} BEGIN"
            f" SELECT RAISE(ABORT, '{table} is append-only'); END"
            if sqlite
            else f"CREATE TRIGGER {name} BEFORE {what} ON {table}"
            " FOR EACH ROW EXECUTE FUNCTION refuse_change()"
        )
    refused = "NOT (OLD.erased_at IS NULL AND NEW.erased_at IS NOT NULL)"
    op.execute(
        "CREATE TRIGGER append_only_desk_texts_erase BEFORE UPDATE OF text, salt, erased_at ON desk_texts"
        f" WHEN {refused} BEGIN SELECT RAISE(ABORT, 'desk_texts is append-only'); END"
        if sqlite
        else "CREATE TRIGGER append_only_desk_texts_erase BEFORE UPDATE OF text, salt, erased_at ON desk_texts"
        f" FOR EACH ROW WHEN ({refused}) EXECUTE FUNCTION refuse_change()"
    )


def downgrade() -> None:
    """Drop them; what people decided is gone, and the control chain says so."""
    op.drop_table("desk_texts")
    op.drop_table("desk_outcomes")
    op.drop_table("desk_items")
    op.execute("ALTER TABLE gate_revisions DROP COLUMN desk_deadline_seconds")
