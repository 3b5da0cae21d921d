"""Refused messages that were sent again, one row each time; these and learned scores in the control chain."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from streamer.store.audit.adoption import adopt_learned_scores, adopt_replays

revision = "0042"
down_revision = "0040"
branch_labels = None
depends_on = None

BIGINT = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
MOMENT = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Add the table, append-only, and seal what is there: learned scores, and the last replay of each message."""
    op.create_table(
        "dead_letter_replays",
        sa.Column("id", BIGINT, sa.Identity(always=False), nullable=False),
        sa.Column("dead_letter", BIGINT, nullable=False),
        sa.Column("at", MOMENT, nullable=False),
        sa.Column("by", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["dead_letter"], ["dead_letters.id"], name=op.f("fk_dead_letter_replays_dead_letter_dead_letters")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_dead_letter_replays")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_dead_letter_replays_dead_letter", "dead_letter_replays", ["dead_letter"])
    sqlite = op.get_context().dialect.name == "sqlite"
    for verb in ("UPDATE", "DELETE"):
        name = f"append_only_dead_letter_replays_{verb.lower()}"
        op.execute(
            f"CREATE TRIGGER {name} BEFORE {verb} ON dead_letter_replays BEGIN"
            " SELECT RAISE(ABORT, 'dead_letter_replays is append-only'); END"
            if sqlite
            else f"CREATE TRIGGER {name} BEFORE {verb} ON dead_letter_replays"
            " FOR EACH ROW EXECUTE FUNCTION refuse_change()"
        )
    if not op.get_context().as_sql:
        # A script cannot: what is there already stays unsealed then, and verification says so.
        adopt_learned_scores(op.get_bind())
        adopt_replays(op.get_bind())


def downgrade() -> None:
    """Drop the table: when a message was last sent again still stands at the message."""
    op.drop_table("dead_letter_replays")
