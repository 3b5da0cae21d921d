"""Candidate policies, and what they made of batches that other policies decided; append-only."""

import sqlalchemy as sa

from streamer.store.db.schema.types import (
    BIGINT,
    DOCUMENT,
    REAL,
    Facts,
    Rule,
    UtcDateTime,
    check,
    finite_cut,
    identity_column,
    required,
    sized_rule,
    sized_text,
    table,
)

candidate_policies = table(
    "candidate_policies",
    identity_column(),
    required("gate", sa.Text, sa.ForeignKey("gates.name")),
    sa.Column("settings", Facts, comment="by their flat names; NULL: no candidate from here on"),
    sa.Column("state", sa.Text, comment="NULL: it has no threshold, and scores alone"),
    sa.Column("threshold", REAL),
    sa.Column("rule", Rule, comment="NULL: ship what is above the threshold"),
    required("guarantee", sa.Text),
    required("by", sa.Text),
    required("reason", sa.Text),
    required("at", UtcDateTime),
    check("stopped", "settings IS NOT NULL OR state IS NULL"),
    *finite_cut(),
    sized_rule(),
    sized_text("by", 200),
    sized_text("reason", 2000),
    sa.Index("ix_candidate_policies_gate_id", "gate", "id"),
    sealed=True,
)

candidate_decisions = table(
    "candidate_decisions",
    sa.Column("batch", BIGINT, sa.ForeignKey("batches.id"), primary_key=True, autoincrement=False),
    required("candidate", BIGINT, sa.ForeignKey("candidate_policies.id")),
    sa.Column("scores", DOCUMENT, comment="in event order; NULL: it has none"),
    sa.Column("shipped", DOCUMENT, comment="what it would have shipped; NULL: it decided nothing"),
    sa.Column("why", sa.Text, comment="why it has no scores"),
    sa.Column("signals", sa.LargeBinary, comment="of what its unit may ship, by the candidate's list"),
    sa.Column("budget_count", REAL, comment="as in decisions"),
    sa.Column("budget_groups", sa.Integer),
    check("scored", "(scores IS NULL) = (why IS NOT NULL)"),
    check("shipped", "shipped IS NULL OR scores IS NOT NULL"),
    sized_text("why", 64),
    no_evidence="what a candidate policy, never acted on, made of batches; its scores and signals are sealed when it is adopted",
)
"""One for each decision that was made while its gate had a candidate; no log covers them."""

candidate_prompts = table(
    "candidate_prompts",
    sa.Column(
        "candidate", BIGINT, sa.ForeignKey("candidate_policies.id"), primary_key=True, autoincrement=False
    ),
    sa.Column("place", sa.Integer, primary_key=True, autoincrement=False, comment="from 0, the oldest"),
    required("batch", BIGINT, sa.ForeignKey("batches.id")),
    required("signals", sa.LargeBinary),
    required("bad", sa.Boolean),
    sa.Column("segment", sa.Text),
    no_evidence="what a candidate policy compares batches with; its sealed rule has their digest",
)
"""What a candidate of all signals compares batches with; its rule, which is sealed, has their digest."""
