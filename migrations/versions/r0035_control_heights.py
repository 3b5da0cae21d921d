"""How far the chains were when an outcome was recorded and when a run began to read; which newer policy a worker refused."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import context, op

revision = "0035"
down_revision = "0034"
branch_labels = None
depends_on = None

BIGINT = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

_COLUMNS = (
    (
        "outcomes",
        "control_height",
        BIGINT,
        "of the control chain then; NULL: it is older than this column",
    ),
    (
        "decisions",
        "newest_seen",
        sa.Integer(),
        "the gate's newest policy, which its worker refused; NULL: it refused none",
    ),
    (
        "calibration_runs",
        "heads",
        sa.Text(),
        "how high the chains were when it began to read; NULL: it is older than this column",
    ),
)


def upgrade() -> None:
    """Add the columns. What is there keeps its links, which do not cover them."""
    for table, name, kind, comment in _COLUMNS:
        if not _is_there(table, name):
            op.add_column(table, sa.Column(name, kind, comment=comment))


def downgrade() -> None:
    """Keep them: links cover them, and earlier versions write past them."""


def _is_there(table: str, name: str) -> bool:
    """Report whether a downgrade has left it."""
    if context.is_offline_mode():
        return False
    return name in {column["name"] for column in sa.inspect(op.get_bind()).get_columns(table)}
