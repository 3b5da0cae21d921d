"""What was asked, what was answered, and what was decided about it."""

import sqlalchemy as sa

from streamer.calibration.threshold import THRESHOLD_STATES
from streamer.gates.settings import HOLD_ACTIONS, MODES, UNITS
from streamer.scoring.unread_answers import RULES
from streamer.store.db.schema import types as db

ONLY_ON_SQLITE = "uq_decisions_action_id"
"""SQLite cannot drop it without a copy of the table. PostgreSQL does without: an action's id follows from gate, batch and
attempt, which are unique, and one index less is written with every decision."""

batches = db.table(
    "batches",
    db.identity_column(),
    db.required("gate", sa.Text, sa.ForeignKey("gates.name")),
    db.required("batch_id", sa.Text, must=db.Characters(200)),
    db.required("attempt", sa.Integer, must="{} >= 1"),
    db.optional("created_at", db.UtcDateTime, comment="as the publisher said"),
    db.optional("prompt", sa.Text, comment="NULL once erased"),
    db.optional("references", db.DOCUMENT),
    db.optional("metadata", db.DOCUMENT, comment="NULL once erased"),
    db.optional(
        "content_hash",
        sa.LargeBinary,
        comment="tells a duplicate from a conflict; NULL once erased",
        must=db.HASH,
    ),
    db.optional("salt", sa.LargeBinary, comment="key of content_mac; NULL once erased", must=db.HASH),
    db.required("content_mac", sa.LargeBinary, comment="what the leaf holds of the texts", must=db.HASH),
    db.optional("erased_at", db.UtcDateTime),
    sa.UniqueConstraint("gate", "batch_id", "attempt"),
    sa.UniqueConstraint("id", "gate"),
    db.check(
        "erased",
        "(erased_at IS NULL AND prompt IS NOT NULL AND metadata IS NOT NULL AND content_hash IS NOT NULL"
        " AND salt IS NOT NULL)"
        ' OR (erased_at IS NOT NULL AND prompt IS NULL AND "references" IS NULL AND metadata IS NULL'
        " AND content_hash IS NULL AND salt IS NULL)",
    ),
    erased=("prompt", "references", "metadata", "content_hash", "salt", "erased_at"),
)

responses = db.table(
    "responses",
    db.key("batch", db.BIGINT, sa.ForeignKey("batches.id")),
    db.key("position", sa.Integer, comment="from 0, the event's order", must="{} >= 0"),
    db.required("response_id", sa.Text, must=db.Characters(200)),
    db.optional("text", sa.Text, comment="NULL once erased"),
    db.optional("score", db.REAL, comment="NULL when the batch was not scored", must=db.UNIT_INTERVAL),
    db.optional(
        "uniform",
        db.REAL,
        comment="the random number of a gate that ships by chance",
        must="{} > 0 AND {} < 1",
    ),
    db.optional("raw_energy", db.REAL, must=db.FINITE),
    db.optional(
        "not_read",
        sa.Text,
        comment="why the encoder did not read it; NULL: it did, or was not asked",
        must=db.one_of(RULES),
    ),
    db.required("action", sa.Text, must=db.one_of(("ship", *HOLD_ACTIONS))),
    db.required("drawn", sa.Boolean, comment="the audit sample asks for its severity"),
    sa.UniqueConstraint("batch", "response_id"),
    db.check("shipped_has_score", "action <> 'ship' OR score IS NOT NULL"),
    erased=("text",),
    prunable=True,
    monthly=True,
)

_ALWAYS, _IF_SAID = db.Sealed(always=True), db.Sealed()

decisions = db.table(
    "decisions",
    db.key("batch", db.BIGINT),
    db.required("gate", sa.Text, of="key.gate"),
    db.required("decided_at", db.UtcDateTime, leaf=_ALWAYS, shown=True),
    db.required("unit", sa.Text, must=db.one_of(UNITS), leaf=_ALWAYS, shown=True),
    db.required("mode", sa.Text, must=db.one_of(MODES), leaf=_ALWAYS, shown=True),
    db.required(
        "outcome", sa.Text, must=db.one_of(("ship", "mixed", *HOLD_ACTIONS)), leaf=_ALWAYS, shown=True
    ),
    db.required("reason", sa.Text, must=db.Characters(64), leaf=_ALWAYS, shown=True),
    db.optional("selected", sa.Text, leaf=_ALWAYS, shown=True, comment="the id of the response that ships"),
    db.required(
        "policy_version",
        sa.Integer,
        of="policy.version",
        leaf=db.Sealed(name="policy", always=True),
        shown=True,
    ),
    db.optional(
        "cut_state",
        sa.Text,
        comment="what cut this batch, where not all share the policy's cut: under `transductive` and `segments`",
        must=db.one_of(THRESHOLD_STATES),
        of=lambda made: made.cut and made.cut.state,
        leaf=_IF_SAID,
    ),
    db.optional(
        "cut_threshold",
        db.REAL,
        must=db.FINITE,
        of=lambda made: made.cut and made.cut.threshold,
        leaf=db.Sealed(form="cut:cut_state"),
    ),
    db.optional("segment", sa.Text, must=db.Characters(200, least=0), leaf=_IF_SAID, shown=True),
    db.optional(
        "burst",
        sa.Text,
        comment="as in calibration_inputs of its policy's run; NULL: it names none",
        must=db.Characters(64),
        leaf=_IF_SAID,
    ),
    db.required("scorer", sa.Text, leaf=_ALWAYS, shown=True),
    db.required("encoder", sa.Text, leaf=_ALWAYS, shown=True),
    db.required(
        "embedding_source",
        sa.Text,
        must=db.one_of(("encoder", "event", "none")),
        leaf=_ALWAYS,
        shown=True,
    ),
    db.required("sampled", sa.Boolean, leaf=_ALWAYS, shown=True),
    db.required(
        "sampling_probability",
        db.REAL,
        must=db.UNIT_INTERVAL,
        leaf=_ALWAYS,
        shown=True,
    ),
    db.required("action_id", sa.Text, must=db.Characters(64), leaf=_ALWAYS, shown=True),
    db.required("action_topic", sa.Text, of="action.topic"),
    db.optional("action_key", sa.LargeBinary, of="action.key"),
    db.optional("action_value", sa.LargeBinary, of="action.value"),
    db.required("action_headers", db.HeaderPairs, of="action.headers"),
    db.optional("cloud", db.DOCUMENT, comment="numbers of the embeddings, for drift; no log covers them"),
    db.optional(
        "timestamp_ms",
        db.BIGINT,
        comment="of its record in Kafka, where the gate has a decision deadline",
        of=lambda made: (
            made.record.timestamp_ms if made.policy.settings.decision_deadline_seconds is not None else None
        ),
        leaf=_IF_SAID,
    ),
    db.optional(
        "deadline_ms",
        db.BIGINT,
        comment="when its sender stopped to wait; NULL: it named no moment",
        of="record.deadline_ms",
        leaf=_IF_SAID,
    ),
    db.optional(
        "audit_rate",
        db.BIGINT,
        comment="the audit rate that raised the probability above the gate's own; NULL: nothing",
        leaf=db.Sealed(beside="extra_draw", form="count"),
    ),
    db.required(
        "extra_draw",
        sa.Boolean,
        default=sa.false(),
        comment="the gate's own probability would not have drawn it; calibration does not read it",
        leaf=db.Sealed(beside="audit_rate"),
    ),
    db.optional(
        "newest_seen",
        sa.Integer,
        comment="the gate's newest policy, which its worker refused; NULL: it refused none",
        of=lambda made: made.newest_seen if made.newest_seen > made.policy.version else None,
        leaf=_IF_SAID,
    ),
    db.optional(
        "signals",
        sa.LargeBinary,
        comment="of what its unit may ship: float32, little-endian",
        leaf=_IF_SAID,
    ),
    db.optional(
        "budget_count",
        db.REAL,
        comment="with a budget of budget_count / (budget_groups + 1) it would have shipped; NULL: not known",
        of=lambda made: made.needed and float(made.needed.count),
        leaf=db.Sealed(name="budget"),
    ),
    db.optional(
        "budget_groups",
        sa.Integer,
        comment="calibration prompts that it was compared with",
        of=lambda made: made.needed and made.needed.groups,
        leaf=db.Sealed(name="budget"),
    ),
    sa.ForeignKeyConstraint(["batch", "gate"], ["batches.id", "batches.gate"]),
    sa.ForeignKeyConstraint(["gate", "policy_version"], ["policies.gate", "policies.version"]),
    sa.ForeignKeyConstraint(["batch", "selected"], ["responses.batch", "responses.response_id"]),
    db.check("mixed_is_in_parts", "outcome <> 'mixed' OR unit IN ('response', 'claim')"),
    db.check("selected", "(unit = 'best' AND outcome = 'ship') = (selected IS NOT NULL)"),
    db.check("shipped_is_scored", "outcome NOT IN ('ship', 'mixed') OR reason = 'scored'"),
    db.check("sampled_had_a_chance", "NOT sampled OR sampling_probability > 0"),
    db.check(
        "budget",
        "(budget_count IS NULL) = (budget_groups IS NULL) AND budget_count >= 1 AND budget_groups >= 0",
    ),
    sa.UniqueConstraint("action_id", name=ONLY_ON_SQLITE).ddl_if(dialect="sqlite"),
    sa.Index("ix_decisions_gate_decided_at", "gate", "decided_at"),
    sa.Index("ix_decisions_gate_batch", "gate", "batch"),
    prunable=True,
    no_evidence={"cloud": "numbers of the embeddings, for drift"},
    monthly=True,
)
carried_scores = db.table(
    "carried_scores",
    db.optional("batch", db.BIGINT, sa.ForeignKey("batches.id"), autoincrement=False),
    db.optional("scorer", sa.Text, must=db.Characters(64)),
    db.optional("response_id", sa.Text),
    db.required("score", db.REAL, must=db.UNIT_INTERVAL),
    sa.PrimaryKeyConstraint("scorer", "batch", "response_id"),
    sealed=True,
)
"""What the scorer of an adopted candidate policy made of batches that were decided by another one: calibration reads it in
place of theirs."""

carried_signals = db.table(
    "carried_signals",
    db.optional(
        "list", sa.Text, comment="SHA-256 of the list of signals, in hexadecimal", must=db.Characters(64)
    ),
    db.optional("batch", db.BIGINT, sa.ForeignKey("batches.id"), autoincrement=False),
    db.required("signals", sa.LargeBinary),
    sa.PrimaryKeyConstraint("list", "batch"),
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
