"""Read-only views for people and Grafana, and the guard that keeps append-only tables append-only."""

from __future__ import annotations

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

DECISIONS = """
CREATE VIEW v_decisions AS
SELECT b.gate, b.batch_id, b.attempt, d.decided_at, d.unit, d.mode, d.outcome, d.reason, d.selected,
       count(*) AS responses,
       sum(CASE WHEN r.action = 'ship' THEN 1 ELSE 0 END) AS shipped,
       max(r.score) AS best_score,
       avg(r.score) AS mean_score,
       d.policy_version, p.state AS policy_state, p.threshold AS lambda, g.alpha, g.method,
       d.scorer, d.encoder, d.embedding_source, d.sampled, d.sampling_probability, d.action_id,
       o.log_id, o.topic, o.partition, o."offset"
FROM decisions d
JOIN batches b ON b.id = d.batch
JOIN responses r ON r.batch = d.batch
JOIN policies p ON p.gate = d.gate AND p.version = d.policy_version
JOIN gate_revisions g ON g.gate = p.gate AND g.revision = p.gate_revision
JOIN outcomes o ON o.batch = d.batch AND o.kind = 'decision'
GROUP BY b.gate, b.batch_id, b.attempt, d.decided_at, d.unit, d.mode, d.outcome, d.reason, d.selected,
         d.policy_version, p.state, p.threshold, g.alpha, g.method, d.scorer, d.encoder, d.embedding_source,
         d.sampled, d.sampling_probability, d.action_id, o.log_id, o.topic, o.partition, o."offset"
"""

SEVERITIES = """
CREATE VIEW v_severities AS
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

LABEL_QUEUE = """
CREATE VIEW v_label_queue AS
SELECT b.gate, b.batch_id, b.attempt, r.response_id, g.severity_kind AS kind, d.decided_at, b.prompt, r.text,
       b."references", d.sampling_probability
FROM decisions d
JOIN batches b ON b.id = d.batch
JOIN responses r ON r.batch = d.batch AND r.drawn
JOIN gate_revisions g ON g.gate = d.gate
    AND g.revision = (SELECT max(newest.revision) FROM gate_revisions newest WHERE newest.gate = d.gate)
WHERE d.sampled AND b.erased_at IS NULL AND NOT EXISTS (
    SELECT 1 FROM label_revisions l
    WHERE l.gate = b.gate AND l.batch_id = b.batch_id AND l.attempt = b.attempt
      AND l.response_id = r.response_id AND l.kind = g.severity_kind
)
"""

# Each batch of the audit sample stands for 1 / probability of them; one with a drawn response still without a
# severity is pending and not in the means.
RISK = """
CREATE VIEW v_risk AS
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
           sum(CASE WHEN s.severity IS NULL THEN 1 ELSE 0 END) AS missing
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

VIEWS = (
    ("v_decisions", DECISIONS),
    ("v_severities", SEVERITIES),
    ("v_label_queue", LABEL_QUEUE),
    ("v_risk", RISK),
)

NEVER_CHANGED_OR_DELETED = (
    "gate_revisions",
    "policies",
    "policy_events",
    "label_revisions",
    "calibration_runs",
    "calibration_inputs",
    "calibration_candidates",
)
NEVER_CHANGED = ("decisions", "outcomes", "data_gaps")
"""Old ones may be deleted when the time to keep them is over."""


def upgrade() -> None:
    """Create views and guards."""
    for _, statement in VIEWS:
        op.execute(statement)
    guarded = [(table, "UPDATE") for table in (*NEVER_CHANGED_OR_DELETED, *NEVER_CHANGED)]
    guarded += [(table, "DELETE") for table in NEVER_CHANGED_OR_DELETED]
    if op.get_context().dialect.name == "sqlite":
        for table, verb in guarded:
            op.execute(
                f"CREATE TRIGGER append_only_{table}_{verb.lower()} BEFORE {verb} ON {table} BEGIN"
                f" SELECT RAISE(ABORT, '{table} is append-only'); END"
            )
        return
    op.execute(
        "CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE EXCEPTION '% is append-only', TG_TABLE_NAME"
        " USING ERRCODE = 'integrity_constraint_violation'; END $$"
    )
    for table, verb in guarded:
        op.execute(
            f"CREATE TRIGGER append_only_{table}_{verb.lower()} BEFORE {verb} ON {table}"
            " FOR EACH ROW EXECUTE FUNCTION refuse_change()"
        )


def downgrade() -> None:
    """Drop them."""
    sqlite = op.get_context().dialect.name == "sqlite"
    guarded = [(table, "UPDATE") for table in (*NEVER_CHANGED_OR_DELETED, *NEVER_CHANGED)]
    guarded += [(table, "DELETE") for table in NEVER_CHANGED_OR_DELETED]
    for table, verb in guarded:
        place = "" if sqlite else f" ON {table}"
        op.execute(f"DROP TRIGGER append_only_{table}_{verb.lower()}{place}")
    if not sqlite:
        op.execute("DROP FUNCTION refuse_change()")
    for view, _ in reversed(VIEWS):
        op.execute(f"DROP VIEW {view}")
