"""Candidate policies, and what they made of batches that other policies decided; append-only."""

import sqlalchemy as sa

from streamer.store.db.schema import types as db

candidate_policies = db.table(
    "candidate_policies",
    db.identity_column(),
    db.required("gate", sa.Text, sa.ForeignKey("gates.name")),
    db.optional("settings", db.Facts, comment="by their flat names; NULL: no candidate from here on"),
    db.optional("state", sa.Text, comment="NULL: it has no threshold, and scores alone"),
    db.optional("threshold", db.REAL),
    db.optional("rule", db.Rule, must=db.SIZED_RULE, comment="NULL: ship what is above the threshold"),
    db.required("guarantee", sa.Text),
    db.required("by", sa.Text, must=db.Characters(200)),
    db.required("reason", sa.Text, must=db.Characters(2000)),
    db.required("at", db.UtcDateTime),
    db.check("stopped", "settings IS NOT NULL OR state IS NULL"),
    *db.finite_cut(),
    sa.Index("ix_candidate_policies_gate_id", "gate", "id"),
    sealed=True,
)

candidate_decisions = db.table(
    "candidate_decisions",
    db.key("batch", db.BIGINT, sa.ForeignKey("batches.id")),
    db.required("candidate", db.BIGINT, sa.ForeignKey("candidate_policies.id")),
    db.optional("scores", db.DOCUMENT, comment="in event order; NULL: it has none"),
    db.optional("shipped", db.DOCUMENT, comment="what it would have shipped; NULL: it decided nothing"),
    db.optional("why", sa.Text, comment="why it has no scores", must=db.Characters(64)),
    db.optional("signals", sa.LargeBinary, comment="of what its unit may ship, by the candidate's list"),
    db.optional("budget_count", db.REAL, comment="as in decisions"),
    db.optional("budget_groups", sa.Integer),
    db.check("scored", "(scores IS NULL) = (why IS NOT NULL)"),
    db.check("shipped", "shipped IS NULL OR scores IS NOT NULL"),
    no_evidence="what a candidate policy, never acted on, made of batches; its scores and signals are sealed when it is adopted",
)
"""One for each decision that was made while its gate had a candidate; no log covers them."""

candidate_prompts = db.table(
    "candidate_prompts",
    db.key("candidate", db.BIGINT, sa.ForeignKey("candidate_policies.id")),
    db.key("place", sa.Integer, comment="from 0, the oldest"),
    db.required("batch", db.BIGINT, sa.ForeignKey("batches.id")),
    db.required("signals", sa.LargeBinary),
    db.required("bad", sa.Boolean),
    db.optional("segment", sa.Text),
    no_evidence="what a candidate policy compares batches with; its sealed rule has their digest",
)
"""What a candidate of all signals compares batches with; its rule, which is sealed, has their digest."""
