"""Calibration runs with the exact inputs they read and every candidate they found, and the encoders that decisions name;
append-only.
"""

import sqlalchemy as sa

from streamer.store.db.schema.types import (
    BIGINT,
    REAL,
    Facts,
    Heads,
    Rule,
    UtcDateTime,
    check,
    finite_cut,
    identity_column,
    one_of,
    required,
    sized_rule,
    sized_text,
    table,
    within_unit_interval,
)

calibration_runs = table(
    "calibration_runs",
    identity_column(),
    required("gate", sa.Text),
    required("gate_revision", sa.Integer, comment="the settings calibrated for"),
    required("method", sa.Text, comment="the one that decides"),
    required("alpha", REAL, comment="the budget used: alpha / attempts"),
    required("seed", BIGINT),
    required("older_than", UtcDateTime, comment="batches decided before this moment"),
    required("groups", sa.Integer),
    required("items", sa.Integer),
    required("missing", sa.Integer, comment="items without a label: severity 1"),
    required("state", sa.Text),
    sa.Column("threshold", REAL),
    required("guarantee", sa.Text),
    required("requested_by", sa.Text),
    required("started_at", UtcDateTime),
    required("finished_at", UtcDateTime),
    sa.Column("newer_than", UtcDateTime, comment="when since_version came into force"),
    sa.Column("since_version", sa.Integer, comment="only batches decided under this policy or a later one"),
    required(
        "severities",
        sa.Text,
        default="'mean'",
        comment="of several labels of a response: their mean, or the highest ever given",
    ),
    required("outcome", sa.Text, comment="what became of it at once"),
    required("why", sa.Text, default="''", comment="why that became of it"),
    required("labels_through", BIGINT, comment="the newest label revision that it could read"),
    required(
        "age_cut", Facts, comment="from which age on draws counted, and what that was chosen from; JSON"
    ),
    sa.Column("suffix", Facts, comment="the newest groups beside older ones; JSON; NULL: not compared"),
    required("history", Facts, comment="the cuts that undrawn prompts fixed; JSON"),
    required("heads", Heads, comment="how long the logs were when it began to read"),
    sa.Column("held_until", UtcDateTime, comment="a looser threshold waits until then, and is tested again"),
    sa.Column(
        "burst_key",
        sa.LargeBinary,
        comment="of the hashes that name bursts; no log covers it; NULL: erased, or none",
    ),
    sa.ForeignKeyConstraint(["gate", "gate_revision"], ["gate_revisions.gate", "gate_revisions.revision"]),
    sized_text("method", 64),
    check("alpha", "alpha > 0 AND alpha < 1"),
    check("seed", "seed >= 0"),
    check("counts", "groups >= 0 AND items >= groups AND missing BETWEEN 0 AND items"),
    *finite_cut(),
    check("since_version", "since_version >= 1"),
    one_of("severities", ("mean", "highest")),
    one_of("outcome", ("applied", "proposed", "unchanged")),
    check("labels_through", "labels_through >= 0"),
    sized_text("age_cut", 10_000, least=2),
    sized_text("suffix", 10_000, least=2),
    sized_text("history", 10_000, least=2),
    sealed=True,
    erased=("burst_key",),
    no_evidence={
        "burst_key": "of the hashes that name bursts: nobody else shall test a question against them"
    },
)

calibration_inputs = table(
    "calibration_inputs",
    sa.Column("run", BIGINT, sa.ForeignKey("calibration_runs.id"), primary_key=True, autoincrement=False),
    sa.Column("batch", BIGINT, sa.ForeignKey("batches.id"), primary_key=True, autoincrement=False),
    sa.Column("response_id", sa.Text, primary_key=True),
    required("score", REAL),
    sa.Column("severity", REAL, comment="NULL: no label by then, counted as 1"),
    required("probability", REAL, comment="of the batch being drawn for the audit"),
    required("draws", sa.Integer, default="1", comment="responses drawn from the batch at most"),
    sa.Column("segment", sa.Text),
    sa.Column(
        "bad", sa.Boolean, comment="what its prompt counted as by the method full; NULL: another method"
    ),
    sa.Column("burst", sa.Text, comment="the same for batches that count once; NULL: no other is like it"),
    required("spare", sa.Boolean, default=sa.false(), comment="another batch of its burst counts"),
    sized_text("burst", 64),
    within_unit_interval("score"),
    within_unit_interval("severity"),
    check("probability", "probability > 0 AND probability <= 1"),
    check("draws", "draws >= 1"),
    sized_text("segment", 200, least=0),
)

calibration_candidates = table(
    "calibration_candidates",
    sa.Column("run", BIGINT, sa.ForeignKey("calibration_runs.id"), primary_key=True, autoincrement=False),
    sa.Column("method", sa.Text, primary_key=True),
    required("decides", sa.Boolean),
    required("state", sa.Text),
    sa.Column("threshold", REAL),
    sa.Column("rule", Rule, comment="how the threshold is to be read; NULL: ship iff the score is above it"),
    required("guarantee", sa.Text),
    sized_text("method", 64),
    *finite_cut(),
    sized_rule(),
)
sa.Index(
    "uq_calibration_candidates_one_decides",
    calibration_candidates.c.run,
    unique=True,
    postgresql_where=calibration_candidates.c.decides,
    sqlite_where=calibration_candidates.c.decides,
)

proposal_rejections = table(
    "proposal_rejections",
    sa.Column("run", BIGINT, sa.ForeignKey("calibration_runs.id"), primary_key=True, autoincrement=False),
    required("rejected_at", UtcDateTime),
    required("rejected_by", sa.Text),
    required("reason", sa.Text),
    sized_text("rejected_by", 200),
    sized_text("reason", 2000),
    sealed=True,
)


encoders = table(
    "encoders",
    sa.Column("id", sa.Text, primary_key=True, comment="name@hash, as decisions name it"),
    sa.Column("revision", sa.Text, primary_key=True, comment="where the weights came from"),
    sa.Column("weight_hash", sa.Text, primary_key=True, comment="SHA-256 of the weights, hex"),
    required("dimension", sa.Integer),
    required("first_seen_at", UtcDateTime),
    sized_text("id", 200),
    sized_text("revision", 200),
    check("weight_hash", "length(weight_hash) = 64"),
    check("dimension", "dimension >= 1"),
    sealed=True,
)
