"""What was asked, what was answered, and what was decided about it."""

import sqlalchemy as sa

from streamer.calibration.threshold import THRESHOLD_STATES
from streamer.gates.settings import HOLD_ACTIONS, MODES, UNITS
from streamer.scoring.reading import RULES
from streamer.store.db.schema.types import (
    BIGINT,
    DOCUMENT,
    REAL,
    HeaderPairs,
    UtcDateTime,
    check,
    digest,
    identity_column,
    one_of,
    required,
    sized_text,
    table,
    within_unit_interval,
)

ONLY_ON_SQLITE = "uq_decisions_action_id"
"""SQLite cannot drop it without a copy of the table. PostgreSQL does without: an action's id follows from gate, batch and
attempt, which are unique, and one index less is written with every decision."""

batches = table(
    "batches",
    identity_column(),
    required("gate", sa.Text, sa.ForeignKey("gates.name")),
    required("batch_id", sa.Text),
    required("attempt", sa.Integer),
    sa.Column("created_at", UtcDateTime, comment="as the publisher said"),
    sa.Column("prompt", sa.Text, comment="NULL once erased"),
    sa.Column("references", DOCUMENT),
    sa.Column("metadata", DOCUMENT, comment="NULL once erased"),
    sa.Column("content_hash", sa.LargeBinary, comment="tells a duplicate from a conflict; NULL once erased"),
    sa.Column("salt", sa.LargeBinary, comment="key of content_mac; NULL once erased"),
    required("content_mac", sa.LargeBinary, comment="what the leaf holds of the texts"),
    sa.Column("erased_at", UtcDateTime),
    sa.UniqueConstraint("gate", "batch_id", "attempt"),
    sa.UniqueConstraint("id", "gate"),
    sized_text("batch_id", 200),
    check("attempt", "attempt >= 1"),
    digest("content_hash"),
    digest("salt"),
    digest("content_mac"),
    check(
        "erased",
        "(erased_at IS NULL AND prompt IS NOT NULL AND metadata IS NOT NULL AND content_hash IS NOT NULL"
        " AND salt IS NOT NULL)"
        ' OR (erased_at IS NOT NULL AND prompt IS NULL AND "references" IS NULL AND metadata IS NULL'
        " AND content_hash IS NULL AND salt IS NULL)",
    ),
    erased=("prompt", "references", "metadata", "content_hash", "salt", "erased_at"),
)

responses = table(
    "responses",
    sa.Column("batch", BIGINT, sa.ForeignKey("batches.id"), primary_key=True, autoincrement=False),
    sa.Column(
        "position", sa.Integer, primary_key=True, autoincrement=False, comment="from 0, the event's order"
    ),
    required("response_id", sa.Text),
    sa.Column("text", sa.Text, comment="NULL once erased"),
    sa.Column("score", REAL, comment="NULL when the batch was not scored"),
    sa.Column("uniform", REAL, comment="the random number of a gate that ships by chance"),
    sa.Column("raw_energy", REAL),
    sa.Column("not_read", sa.Text, comment="why the encoder did not read it; NULL: it did, or was not asked"),
    required("action", sa.Text),
    required("drawn", sa.Boolean, comment="the audit sample asks for its severity"),
    sa.UniqueConstraint("batch", "response_id"),
    check("position", "position >= 0"),
    sized_text("response_id", 200),
    within_unit_interval("score"),
    check("uniform", "uniform > 0 AND uniform < 1"),
    check("raw_energy", "raw_energy >= -1e300 AND raw_energy <= 1e300"),
    one_of("not_read", RULES),
    one_of("action", ("ship", *HOLD_ACTIONS)),
    check("shipped_has_score", "action <> 'ship' OR score IS NOT NULL"),
    erased=("text",),
    prunable=True,
    monthly=True,
)

decisions = table(
    "decisions",
    sa.Column("batch", BIGINT, primary_key=True, autoincrement=False),
    required("gate", sa.Text),
    required("policy_version", sa.Integer),
    required("unit", sa.Text),
    required("mode", sa.Text),
    required("outcome", sa.Text),
    required("reason", sa.Text),
    sa.Column("selected", sa.Text),
    sa.Column("cut_state", sa.Text, comment="what cut this batch, where not all share the policy's cut"),
    sa.Column("cut_threshold", REAL),
    sa.Column("segment", sa.Text),
    sa.Column("burst", sa.Text, comment="as in calibration_inputs of its policy's run; NULL: it names none"),
    required("scorer", sa.Text),
    required("encoder", sa.Text),
    required("embedding_source", sa.Text),
    required("sampled", sa.Boolean),
    required("sampling_probability", REAL),
    required("action_id", sa.Text),
    required("decided_at", UtcDateTime),
    required("action_topic", sa.Text),
    sa.Column("action_key", sa.LargeBinary),
    sa.Column("action_value", sa.LargeBinary),
    required("action_headers", HeaderPairs),
    sa.Column("cloud", DOCUMENT, comment="numbers of the embeddings, for drift; no log covers them"),
    sa.Column(
        "timestamp_ms", BIGINT, comment="of its record in Kafka, where the gate has a decision deadline"
    ),
    sa.Column("deadline_ms", BIGINT, comment="when its sender stopped to wait; NULL: it named no moment"),
    sa.Column(
        "audit_rate",
        BIGINT,
        comment="the audit rate that raised the probability above the gate's own; NULL: nothing",
    ),
    required(
        "extra_draw",
        sa.Boolean,
        default=sa.false(),
        comment="the gate's own probability would not have drawn it; calibration does not read it",
    ),
    sa.Column(
        "newest_seen",
        sa.Integer,
        comment="the gate's newest policy, which its worker refused; NULL: it refused none",
    ),
    sa.Column("signals", sa.LargeBinary, comment="of what its unit may ship: float32, little-endian"),
    sa.Column(
        "budget_count",
        REAL,
        comment="with a budget of budget_count / (budget_groups + 1) it would have shipped; NULL: not known",
    ),
    sa.Column("budget_groups", sa.Integer, comment="calibration prompts that it was compared with"),
    sa.ForeignKeyConstraint(["batch", "gate"], ["batches.id", "batches.gate"]),
    sa.ForeignKeyConstraint(["gate", "policy_version"], ["policies.gate", "policies.version"]),
    sa.ForeignKeyConstraint(["batch", "selected"], ["responses.batch", "responses.response_id"]),
    one_of("unit", UNITS),
    one_of("mode", MODES),
    one_of("outcome", ("ship", "mixed", *HOLD_ACTIONS)),
    check("mixed_is_in_parts", "outcome <> 'mixed' OR unit IN ('response', 'claim')"),
    check("selected", "(unit = 'best' AND outcome = 'ship') = (selected IS NOT NULL)"),
    sized_text("reason", 64),
    check("shipped_is_scored", "outcome NOT IN ('ship', 'mixed') OR reason = 'scored'"),
    one_of("cut_state", THRESHOLD_STATES),
    check("cut_threshold", "cut_threshold >= -1e300 AND cut_threshold <= 1e300"),
    sized_text("segment", 200, least=0),
    sized_text("burst", 64),
    one_of("embedding_source", ("encoder", "event", "none")),
    within_unit_interval("sampling_probability"),
    check("sampled_had_a_chance", "NOT sampled OR sampling_probability > 0"),
    check(
        "budget",
        "(budget_count IS NULL) = (budget_groups IS NULL) AND budget_count >= 1 AND budget_groups >= 0",
    ),
    sized_text("action_id", 64),
    sa.UniqueConstraint("action_id", name=ONLY_ON_SQLITE).ddl_if(dialect="sqlite"),
    sa.Index("ix_decisions_gate_decided_at", "gate", "decided_at"),
    sa.Index("ix_decisions_gate_batch", "gate", "batch"),
    prunable=True,
    no_evidence={"cloud": "numbers of the embeddings, for drift"},
    monthly=True,
)
carried_scores = table(
    "carried_scores",
    sa.Column("batch", BIGINT, sa.ForeignKey("batches.id"), autoincrement=False),
    sa.Column("scorer", sa.Text),
    sa.Column("response_id", sa.Text),
    required("score", REAL),
    sa.PrimaryKeyConstraint("scorer", "batch", "response_id"),
    sized_text("scorer", 64),
    within_unit_interval("score"),
    sealed=True,
)
"""What the scorer of an adopted candidate policy made of batches that were decided by another one: calibration reads it in
place of theirs."""

carried_signals = table(
    "carried_signals",
    sa.Column("list", sa.Text, comment="SHA-256 of the list of signals, in hexadecimal"),
    sa.Column("batch", BIGINT, sa.ForeignKey("batches.id"), autoincrement=False),
    required("signals", sa.LargeBinary),
    sa.PrimaryKeyConstraint("list", "batch"),
    sized_text("list", 64),
    sealed=True,
)
"""Their rows by the list of signals of an adopted candidate policy."""

SAMPLED: sa.ColumnElement[bool] = sa.literal_column("decisions.sampled")
EXTRA_DRAW: sa.ColumnElement[bool] = sa.literal_column("decisions.extra_draw")
"""Conditions as the partial indexes below have them: of a column SQLAlchemy makes `sampled = 1` on SQLite, which uses none."""

sa.Index(
    "ix_decisions_extra_draw",
    decisions.c.audit_rate,
    postgresql_where=decisions.c.extra_draw,
    sqlite_where=decisions.c.extra_draw,
)
sa.Index(
    "ix_decisions_sampled",
    decisions.c.gate,
    decisions.c.decided_at,
    postgresql_where=decisions.c.sampled,
    sqlite_where=decisions.c.sampled,
)
