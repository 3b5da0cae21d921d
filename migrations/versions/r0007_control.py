"""A hash chain over what governs decisions, begun over what is there already; checkpoints of all chains."""

from __future__ import annotations

import secrets

import sqlalchemy as sa
from alembic import context, op

from streamer.errors import UsageError
from streamer.store.audit.control import adopt, genesis

revision = "0007"
down_revision = "0006"  # whose columns have defaults: rows are sealed with them
branch_labels = None
depends_on = None

BIGINT = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
MOMENT = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Create the tables and their guards, and seal the rows that governed decisions until now."""
    op.create_table(
        "control_head",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False, comment="always 1"),
        sa.Column("record_id", sa.LargeBinary(), nullable=False, comment="drawn once: which record this is"),
        sa.Column("chain_height", BIGINT, nullable=False),
        sa.Column("chain_hash", sa.LargeBinary(), nullable=False),
        sa.CheckConstraint("id = 1", name=op.f("ck_control_head_id")),
        sa.CheckConstraint("length(record_id) = 32", name=op.f("ck_control_head_record_id")),
        sa.CheckConstraint("chain_height >= 0", name=op.f("ck_control_head_chain_height")),
        sa.CheckConstraint("length(chain_hash) = 32", name=op.f("ck_control_head_chain_hash")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_control_head")),
    )
    op.create_table(
        "control_log",
        sa.Column(
            "chain_height", BIGINT, autoincrement=False, nullable=False, comment="from 1, without holes"
        ),
        sa.Column("kind", sa.Text(), nullable=False, comment="the table whose row is sealed"),
        sa.Column("subject", sa.Text(), nullable=False, comment="its primary key, a JSON array"),
        sa.Column("sealed", sa.Text(), nullable=False, comment="the row as it was written, canonical JSON"),
        sa.Column("recorded_at", MOMENT, nullable=False),
        sa.Column("chain_hash", sa.LargeBinary(), nullable=False),
        sa.CheckConstraint("chain_height >= 1", name=op.f("ck_control_log_chain_height")),
        sa.CheckConstraint("length(kind) BETWEEN 1 AND 64", name=op.f("ck_control_log_kind")),
        sa.CheckConstraint("length(chain_hash) = 32", name=op.f("ck_control_log_chain_hash")),
        sa.PrimaryKeyConstraint("chain_height", name=op.f("pk_control_log")),
        sa.UniqueConstraint("kind", "subject", name=op.f("uq_control_log_kind_subject")),
    )
    op.create_table(
        "checkpoints",
        sa.Column("sequence", BIGINT, autoincrement=False, nullable=False, comment="from 1, without holes"),
        sa.Column("made_at", MOMENT, nullable=False),
        sa.Column("value", sa.LargeBinary(), nullable=False, comment="as it was published, signed"),
        sa.CheckConstraint("sequence >= 1", name=op.f("ck_checkpoints_sequence")),
        sa.PrimaryKeyConstraint("sequence", name=op.f("pk_checkpoints")),
    )
    sqlite = op.get_context().dialect.name == "sqlite"
    for table in ("control_log", "checkpoints"):
        for verb in ("UPDATE", "DELETE"):
            op.execute(
                f"CREATE TRIGGER append_only_{table}_{verb.lower()} BEFORE {verb} ON {table} "
                + (
                    f"BEGIN SELECT RAISE(ABORT, '{table} is append-only'); END"
                    if sqlite
                    else "FOR EACH ROW EXECUTE FUNCTION refuse_change()"
                )
            )
    if not op.get_context().as_sql:
        adopt(op.get_bind())
    elif context.get_starting_revision_argument() in (None, "base"):
        record_id = secrets.token_bytes(32)
        binary = "X'{}'" if sqlite else "'\\x{}'"
        values = (binary.format(value.hex()) for value in (record_id, genesis(record_id)))
        op.execute("INSERT INTO control_head VALUES (1, {}, 0, {})".format(*values))  # noqa: S608  # our own bytes
    else:
        raise UsageError(
            "what revisions before 0007 recorded is sealed row by row, which no SQL script can do: run"
            " `streamer db upgrade`, or make the script from 0007 on"
        )


def downgrade() -> None:
    """Drop them, the seals with them."""
    op.drop_table("checkpoints")
    op.drop_table("control_log")
    op.drop_table("control_head")
