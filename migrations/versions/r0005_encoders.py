"""What the encoders that decisions name were, to the last weight."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table and its guard."""
    op.create_table(
        "encoders",
        sa.Column("id", sa.Text(), nullable=False, comment="name@hash, as decisions name it"),
        sa.Column("revision", sa.Text(), nullable=False, comment="where the weights came from"),
        sa.Column("weight_hash", sa.Text(), nullable=False, comment="SHA-256 of the weights, hex"),
        sa.Column("dimension", sa.Integer(), nullable=False),
        sa.Column("first_seen_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("length(id) BETWEEN 1 AND 200", name=op.f("ck_encoders_id")),
        sa.CheckConstraint("length(revision) BETWEEN 1 AND 200", name=op.f("ck_encoders_revision")),
        sa.CheckConstraint("length(weight_hash) = 64", name=op.f("ck_encoders_weight_hash")),
        sa.CheckConstraint("dimension >= 1", name=op.f("ck_encoders_dimension")),
        sa.PrimaryKeyConstraint("id", "revision", "weight_hash", name=op.f("pk_encoders")),
    )
    if op.get_context().dialect.name == "sqlite":
        for verb in ("UPDATE", "DELETE"):
            op.execute(
                f"CREATE TRIGGER append_only_encoders_{verb.lower()} BEFORE {verb} ON encoders BEGIN"
                " SELECT RAISE(ABORT, 'encoders is append-only'); END"
            )
        return
    for verb in ("UPDATE", "DELETE"):
        op.execute(
            f"CREATE TRIGGER append_only_encoders_{verb.lower()} BEFORE {verb} ON encoders"
            " FOR EACH ROW EXECUTE FUNCTION refuse_change()"
        )


def downgrade() -> None:
    """Drop it, its guard with it."""
    op.drop_table("encoders")
