"""Judgements that are a gate's scores, beside those that are labels."""

from __future__ import annotations

from alembic import op

revision = "0040"
down_revision = "0038"
branch_labels = None
depends_on = None

_COLUMNS = {
    "for_score": "it gave a score, and no label",
    "remembered": "the judge had marked the same answer to the same prompt before, and was not asked again",
}


def upgrade() -> None:
    """Add two columns. What is there was asked for labels."""
    sqlite = op.get_context().dialect.name == "sqlite"
    for name, comment in _COLUMNS.items():
        op.execute(
            f"ALTER TABLE judgements ADD COLUMN {name} BOOLEAN DEFAULT {0 if sqlite else 'false'} NOT NULL"
        )
        if not sqlite:
            op.execute(f"COMMENT ON COLUMN judgements.{name} IS '{comment}'")
    refuse = (
        "BEGIN SELECT RAISE(ABORT, 'judgements is append-only'); END"
        if sqlite
        else "FOR EACH ROW EXECUTE FUNCTION refuse_change()"
    )
    op.execute(
        f"CREATE TRIGGER append_only_judgements_score BEFORE UPDATE OF {', '.join(_COLUMNS)} ON judgements {refuse}"
    )


def downgrade() -> None:
    """Drop them: which judgement was of a score is not known any more."""
    op.execute(
        "DROP TRIGGER IF EXISTS append_only_judgements_score"
        + ("" if op.get_context().dialect.name == "sqlite" else " ON judgements")
    )
    for name in _COLUMNS:
        op.execute(f"ALTER TABLE judgements DROP COLUMN {name}")
