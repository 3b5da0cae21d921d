"""The view of decisions shows what cut each batch: its own, its segment's, or else the policy's."""

from __future__ import annotations

from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

DECISIONS = """
VIEW v_decisions AS
SELECT b.gate, b.batch_id, b.attempt, d.decided_at, d.unit, d.mode, d.outcome, d.reason, d.selected,
       count(*) AS responses,
       sum(CASE WHEN r.action = 'ship' THEN 1 ELSE 0 END) AS shipped,
       max(r.score) AS best_score,
       avg(r.score) AS mean_score,
       d.policy_version, {state} AS policy_state, {threshold} AS lambda, g.alpha, g.method,
       d.scorer, d.encoder, d.embedding_source, d.sampled, d.sampling_probability, d.action_id,
       o.log_id, o.topic, o.partition, o."offset"{more}
FROM decisions d
JOIN batches b ON b.id = d.batch
JOIN responses r ON r.batch = d.batch
JOIN policies p ON p.gate = d.gate AND p.version = d.policy_version
JOIN gate_revisions g ON g.gate = p.gate AND g.revision = p.gate_revision
JOIN outcomes o ON o.batch = d.batch AND o.kind = 'decision'
GROUP BY b.gate, b.batch_id, b.attempt, d.decided_at, d.unit, d.mode, d.outcome, d.reason, d.selected,
         d.policy_version, p.state, p.threshold, g.alpha, g.method, d.scorer, d.encoder, d.embedding_source,
         d.sampled, d.sampling_probability, d.action_id, o.log_id, o.topic, o.partition, o."offset"{own}
"""

THRESHOLD = "CASE WHEN d.cut_state IS NULL THEN p.threshold ELSE d.cut_threshold END"


def upgrade() -> None:
    """Show the cut of the batch, its segment, and the shape of the gate."""
    sqlite = op.get_context().dialect.name == "sqlite"
    if sqlite:
        op.execute("DROP VIEW v_decisions")
    op.execute(
        ("CREATE" if sqlite else "CREATE OR REPLACE")
        + DECISIONS.format(
            state="coalesce(d.cut_state, p.state)",
            threshold=THRESHOLD,
            more=", d.segment, g.shape",
            own=", d.cut_state, d.cut_threshold, d.segment, g.shape",
        )
    )


def downgrade() -> None:
    """Show the policy's cut again."""
    # A view can gain columns in place, and not lose them.
    op.execute("DROP VIEW v_decisions")
    op.execute("CREATE" + DECISIONS.format(state="p.state", threshold="p.threshold", more="", own=""))
