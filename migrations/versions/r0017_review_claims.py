"""Who is looking at which response, what was shown to whom, and later attempts asked for only where they count."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

BIGINT = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
MOMENT = sa.DateTime(timezone=True)

ABOVE = "(g.label_floor IS NULL OR r.score > g.label_floor)"
READ = f"({ABOVE} AND (b.attempt = 1 OR r.action = 'ship'))"
"""Calibration reads first attempts; of a later one that was held the loss is 0, whatever its severity."""

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

RISK = """
VIEW v_risk AS
SELECT gate, policy_version, unit, severity_kind,
       sum(CASE WHEN missing = 0 THEN 1 ELSE 0 END) AS labelled_batches,
       sum(CASE WHEN missing > 0 THEN 1 ELSE 0 END) AS pending_batches,
       sum(CASE WHEN missing = 0 THEN shipped / probability END)
           / sum(CASE WHEN missing = 0 THEN 1 / probability END) AS served_ratio,
       sum(CASE WHEN missing = 0 THEN harm / probability END)
           / sum(CASE WHEN missing = 0 THEN 1 / probability END) AS exposure_risk,
       sum(CASE WHEN missing = 0 THEN harm / probability END)
           / nullif(sum(CASE WHEN missing = 0 THEN shipped / probability END), 0) AS selective_risk
FROM (
    SELECT d.gate, d.policy_version, d.unit, g.severity_kind, d.batch, d.sampling_probability AS probability,
           avg(CASE WHEN r.action = 'ship' THEN 1.0 ELSE 0.0 END) AS shipped,
           avg(CASE WHEN r.action = 'ship' THEN s.severity ELSE 0.0 END) AS harm,
           sum(CASE WHEN s.severity IS NULL AND {asked} THEN 1 ELSE 0 END) AS missing
    FROM decisions d
    JOIN batches b ON b.id = d.batch
    JOIN responses r ON r.batch = d.batch AND r.drawn
    JOIN policies p ON p.gate = d.gate AND p.version = d.policy_version
    JOIN gate_revisions g ON g.gate = p.gate AND g.revision = p.gate_revision
    LEFT JOIN v_severities s ON s.gate = b.gate AND s.batch_id = b.batch_id AND s.attempt = b.attempt
        AND s.response_id = r.response_id AND s.kind = g.severity_kind
    WHERE d.sampled
    GROUP BY d.gate, d.policy_version, d.unit, g.severity_kind, d.batch, d.sampling_probability
) AS judged
GROUP BY gate, policy_version, unit, severity_kind
"""


def upgrade() -> None:
    """Create the tables, and ask for fewer labels."""
    _define(READ)
    op.create_table(
        "review_claims",
        sa.Column("batch", BIGINT, autoincrement=False, nullable=False),
        sa.Column("position", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("labeller", sa.Text(), nullable=False),
        sa.Column("holder", sa.Text(), nullable=False, comment="one open page of that labeller"),
        sa.Column("expires_at", MOMENT, nullable=False, comment="from then on it is anybody's"),
        sa.CheckConstraint("length(labeller) BETWEEN 1 AND 200", name=op.f("ck_review_claims_labeller")),
        sa.CheckConstraint("length(holder) BETWEEN 1 AND 64", name=op.f("ck_review_claims_holder")),
        sa.ForeignKeyConstraint(
            ["batch", "position"],
            ["responses.batch", "responses.position"],
            name=op.f("fk_review_claims_batch_position_responses"),
        ),
        sa.PrimaryKeyConstraint("batch", "position", name=op.f("pk_review_claims")),
    )
    op.create_table(
        "review_offers",
        sa.Column("token", sa.Text(), nullable=False, comment="what the page calls it; tells nothing"),
        sa.Column("batch", BIGINT, nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("labeller", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False, comment="of the severity that was asked for"),
        sa.Column("offered_at", MOMENT, nullable=False),
        sa.Column("skipped_at", MOMENT, nullable=True),
        sa.Column("marks", sa.Integer(), nullable=False, comment="how many severities came of it"),
        sa.Column(
            "mark",
            sa.Text(),
            nullable=True,
            comment="the page's name of the last one: a repeat is known by it",
        ),
        sa.Column("marked_at", MOMENT, nullable=True),
        sa.CheckConstraint("length(token) BETWEEN 1 AND 64", name=op.f("ck_review_offers_token")),
        sa.CheckConstraint("length(labeller) BETWEEN 1 AND 200", name=op.f("ck_review_offers_labeller")),
        sa.CheckConstraint("length(kind) BETWEEN 1 AND 64", name=op.f("ck_review_offers_kind")),
        sa.CheckConstraint("marks >= 0", name=op.f("ck_review_offers_marks")),
        sa.CheckConstraint("length(mark) BETWEEN 1 AND 64", name=op.f("ck_review_offers_mark")),
        sa.ForeignKeyConstraint(
            ["batch", "position"],
            ["responses.batch", "responses.position"],
            name=op.f("fk_review_offers_batch_position_responses"),
        ),
        sa.PrimaryKeyConstraint("token", name=op.f("pk_review_offers")),
        sa.UniqueConstraint(
            "batch",
            "position",
            "labeller",
            "kind",
            name=op.f("uq_review_offers_batch_position_labeller_kind"),
        ),
    )
    op.create_index("ix_review_offers_marked_at", "review_offers", ["labeller", "marked_at"])


def downgrade() -> None:
    """Drop them, and ask for all labels again."""
    _define(ABOVE)
    op.drop_table("review_offers")
    op.drop_table("review_claims")


def _define(asked: str) -> None:
    # Replacing keeps what roles were granted; SQLite has no such thing, and no roles.
    sqlite = op.get_context().dialect.name == "sqlite"
    for name, definition in (("v_label_queue", LABEL_QUEUE), ("v_risk", RISK)):
        if sqlite:
            op.execute(f"DROP VIEW {name}")
        op.execute(("CREATE" if sqlite else "CREATE OR REPLACE") + definition.format(asked=asked))
