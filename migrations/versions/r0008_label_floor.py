"""Views know the label floor: what scores at or below it is never asked for, and its absence leaves nothing pending."""

from __future__ import annotations

from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

ABOVE = "(g.label_floor IS NULL OR r.score > g.label_floor)"

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
    """Put the floor into the views."""
    _define(ABOVE)


def downgrade() -> None:
    """Take it out again."""
    _define("r.score IS NOT NULL")


def _define(asked: str) -> None:
    # Replacing keeps what roles were granted; SQLite has no such thing, and no roles.
    sqlite = op.get_context().dialect.name == "sqlite"
    for name, definition in (("v_label_queue", LABEL_QUEUE), ("v_risk", RISK)):
        if sqlite:
            op.execute(f"DROP VIEW {name}")
        op.execute(("CREATE" if sqlite else "CREATE OR REPLACE") + definition.format(asked=asked))
