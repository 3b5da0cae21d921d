"""Whose labels a gate reads, and signatures of labels."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None

BIGINT = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
MOMENT = sa.DateTime(timezone=True)

_COMMENTS = {
    "labellers": "whose labels are read, as a JSON array; NULL: everybody''s",
    "signed_labels": "read only labels that their labeller has signed",
}

# No SQL can check a signature: of a gate that demands them the views know no label.
READ = "NOT g.signed_labels AND (g.labellers IS NULL OR l.labeller IN ({names}))"
NAMES = {
    "sqlite": "SELECT one.value FROM json_each(g.labellers) AS one",
    "postgresql": "SELECT json_array_elements_text(g.labellers::json)",
}

SEVERITIES = """
VIEW v_severities AS
SELECT gate, batch_id, attempt, response_id, kind, avg(severity) AS severity, count(*) AS labellers,
       max(effective_at) AS effective_at
FROM (
    SELECT l.gate, l.batch_id, l.attempt, l.response_id, l.kind, l.severity, l.effective_at,
           row_number() OVER (
               PARTITION BY l.gate, l.batch_id, l.attempt, l.response_id, l.kind, l.labeller
               ORDER BY l.effective_at DESC, l.id DESC
           ) AS recency
    FROM label_revisions l
    JOIN (SELECT gate, max(version) AS version FROM policies GROUP BY gate) newest ON newest.gate = l.gate
    JOIN policies p ON p.gate = newest.gate AND p.version = newest.version
    JOIN gate_revisions g ON g.gate = p.gate AND g.revision = p.gate_revision
    WHERE {read}
) AS latest
WHERE recency = 1
GROUP BY gate, batch_id, attempt, response_id, kind
"""


# What stood before.
ABOVE = "(g.label_floor IS NULL OR r.score > g.label_floor)"
ASKED = f"({ABOVE} AND (b.attempt = 1 OR r.action = 'ship'))"
LABEL_QUEUE = """
VIEW v_label_queue AS
SELECT b.gate, b.batch_id, b.attempt, r.response_id, g.severity_kind AS kind, d.decided_at, b.prompt, r.text,
       b."references", d.sampling_probability
FROM decisions d
JOIN batches b ON b.id = d.batch
JOIN responses r ON r.batch = d.batch AND r.drawn
JOIN gate_revisions g ON g.gate = d.gate
    AND g.revision = (SELECT max(newest.revision) FROM gate_revisions newest WHERE newest.gate = d.gate)
WHERE d.sampled AND b.erased_at IS NULL AND {asked} AND NOT EXISTS (
    SELECT 1 FROM label_revisions l
    WHERE l.gate = b.gate AND l.batch_id = b.batch_id AND l.attempt = b.attempt
      AND l.response_id = r.response_id AND l.kind = g.severity_kind
)
"""

SEVERITIES_OF_ALL = """
VIEW v_severities AS
SELECT gate, batch_id, attempt, response_id, kind, avg(severity) AS severity, count(*) AS labellers,
       max(effective_at) AS effective_at
FROM (
    SELECT gate, batch_id, attempt, response_id, kind, severity, effective_at,
           row_number() OVER (
               PARTITION BY gate, batch_id, attempt, response_id, kind, labeller
               ORDER BY effective_at DESC, id DESC
           ) AS recency
    FROM label_revisions
) AS latest
WHERE recency = 1
GROUP BY gate, batch_id, attempt, response_id, kind
"""


def upgrade() -> None:
    """Add columns and table; gates that are there read everybody's labels, signed or not."""
    sqlite = op.get_context().dialect.name == "sqlite"
    # A column brings its own CHECK, so that SQLite need not copy the table.
    op.execute(
        "ALTER TABLE gate_revisions ADD COLUMN labellers TEXT CONSTRAINT ck_gate_revisions_labellers"
        " CHECK (length(labellers) BETWEEN 5 AND 1000000)"
    )
    op.add_column(
        "gate_revisions",
        sa.Column(
            "signed_labels",
            sa.Boolean(),
            server_default=sa.false(),
            nullable=False,
            comment=_COMMENTS["signed_labels"],
        ),
    )
    if not sqlite:
        op.execute(f"COMMENT ON COLUMN gate_revisions.labellers IS '{_COMMENTS['labellers']}'")
    op.create_table(
        "label_signatures",
        sa.Column("id", BIGINT, sa.Identity(), nullable=False),
        sa.Column("label", BIGINT, nullable=False),
        sa.Column("signature", sa.Text(), nullable=False, comment="Ed25519, base64; good or not"),
        sa.Column("key_id", sa.Text(), nullable=False, comment="SHA-256 of the public key, in hexadecimal"),
        sa.Column("received_at", MOMENT, nullable=False),
        sa.Column("source", sa.Text(), nullable=False, comment="topic, file, judge, ..."),
        sa.CheckConstraint("length(signature) BETWEEN 1 AND 200", name=op.f("ck_label_signatures_signature")),
        sa.CheckConstraint("length(key_id) BETWEEN 1 AND 64", name=op.f("ck_label_signatures_key_id")),
        sa.CheckConstraint("length(source) BETWEEN 1 AND 64", name=op.f("ck_label_signatures_source")),
        sa.ForeignKeyConstraint(
            ["label"], ["label_revisions.id"], name=op.f("fk_label_signatures_label_label_revisions")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_label_signatures")),
        sa.UniqueConstraint(
            "label", "key_id", "signature", name=op.f("uq_label_signatures_label_key_id_signature")
        ),
        sqlite_autoincrement=True,
    )
    for verb in ("UPDATE", "DELETE"):
        name = f"append_only_label_signatures_{verb.lower()}"
        op.execute(
            f"CREATE TRIGGER {name} BEFORE {verb} ON label_signatures BEGIN"
            " SELECT RAISE(ABORT, 'label_signatures is append-only'); END"
            if sqlite
            else f"CREATE TRIGGER {name} BEFORE {verb} ON label_signatures"
            " FOR EACH ROW EXECUTE FUNCTION refuse_change()"
        )
    op.add_column(
        "outcomes",
        sa.Column("label_signature", BIGINT, nullable=True, comment="the signature that came with the label"),
    )
    read = READ.format(names=NAMES[op.get_context().dialect.name])
    queue = LABEL_QUEUE.format(asked=ASKED)
    labelled = "AND l.kind = g.severity_kind"
    _define("v_severities", SEVERITIES.format(read=read))
    _define("v_label_queue", queue.replace(labelled, f"{labelled} AND {read}"))


def downgrade() -> None:
    """Read everybody's labels again, and drop every signature."""
    _define("v_label_queue", LABEL_QUEUE.format(asked=ASKED))
    _define("v_severities", SEVERITIES_OF_ALL)
    op.drop_column("outcomes", "label_signature")
    op.drop_table("label_signatures")
    op.drop_column("gate_revisions", "signed_labels")
    op.execute("ALTER TABLE gate_revisions DROP COLUMN labellers")


def _define(name: str, definition: str) -> None:
    # Replacing keeps what roles were granted; SQLite has no such thing, and no roles.
    sqlite = op.get_context().dialect.name == "sqlite"
    if sqlite:
        op.execute(f"DROP VIEW {name}")
    op.execute(("CREATE" if sqlite else "CREATE OR REPLACE") + definition)
