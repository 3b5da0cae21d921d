"""Calibration runs with the exact inputs they read and every candidate they found, and the encoders that decisions name;
append-only.
"""

import sqlalchemy as sa

from streamer.store.db.schema import types as db

_FACTS = db.Characters(10_000, least=2)

calibration_runs = db.table(
    "calibration_runs",
    db.identity_column(),
    db.required("gate", sa.Text),
    db.required("gate_revision", sa.Integer, comment="the settings calibrated for"),
    db.required("method", sa.Text, comment="the one that decides", must=db.Characters(64)),
    db.required("alpha", db.REAL, comment="the budget used: alpha / attempts", must="{} > 0 AND {} < 1"),
    db.required("seed", db.BIGINT, must="{} >= 0"),
    db.required("older_than", db.UtcDateTime, comment="batches decided before this moment"),
    db.required("groups", sa.Integer),
    db.required("items", sa.Integer),
    db.required("missing", sa.Integer, comment="items without a label: severity 1"),
    db.required("state", sa.Text),
    db.optional("threshold", db.REAL),
    db.required("guarantee", sa.Text),
    db.required("requested_by", sa.Text),
    db.required("started_at", db.UtcDateTime),
    db.required("finished_at", db.UtcDateTime),
    db.optional("newer_than", db.UtcDateTime, comment="when since_version came into force"),
    db.optional(
        "since_version",
        sa.Integer,
        comment="only batches decided under this policy or a later one",
        must="{} >= 1",
    ),
    db.required(
        "severities",
        sa.Text,
        default="'mean'",
        comment="of several labels of a response: their mean, or the highest ever given",
        must=db.one_of(("mean", "highest")),
    ),
    db.required(
        "outcome",
        sa.Text,
        comment="what became of it at once",
        must=db.one_of(("applied", "proposed", "unchanged")),
    ),
    db.required("why", sa.Text, default="''", comment="why that became of it"),
    db.required(
        "labels_through", db.BIGINT, comment="the newest label revision that it could read", must="{} >= 0"
    ),
    db.required(
        "age_cut",
        db.Facts,
        comment="from which age on draws counted, and what that was chosen from; JSON",
        must=_FACTS,
    ),
    db.optional(
        "suffix",
        db.Facts,
        comment="the newest groups beside older ones; JSON; NULL: not compared",
        must=_FACTS,
    ),
    db.required("history", db.Facts, comment="the cuts that undrawn prompts fixed; JSON", must=_FACTS),
    db.required("heads", db.Heads, comment="how long the logs were when it began to read"),
    db.optional(
        "held_until", db.UtcDateTime, comment="a looser threshold waits until then, and is tested again"
    ),
    db.optional(
        "burst_key",
        sa.LargeBinary,
        comment="of the hashes that name bursts; no log covers it; NULL: erased, or none",
    ),
    sa.ForeignKeyConstraint(["gate", "gate_revision"], ["gate_revisions.gate", "gate_revisions.revision"]),
    db.check("counts", "groups >= 0 AND items >= groups AND missing BETWEEN 0 AND items"),
    *db.finite_cut(),
    sealed=True,
    erased=("burst_key",),
    no_evidence={
        "burst_key": "of the hashes that name bursts: nobody else shall test a question against them"
    },
)

calibration_inputs = db.table(
    "calibration_inputs",
    db.key("run", db.BIGINT, sa.ForeignKey("calibration_runs.id")),
    db.key("batch", db.BIGINT, sa.ForeignKey("batches.id")),
    db.key("response_id", sa.Text),
    db.required("score", db.REAL, must=db.UNIT_INTERVAL),
    db.optional("severity", db.REAL, comment="NULL: no label by then, counted as 1", must=db.UNIT_INTERVAL),
    db.required(
        "probability", db.REAL, comment="of the batch being drawn for the audit", must="{} > 0 AND {} <= 1"
    ),
    db.required(
        "draws", sa.Integer, default="1", comment="responses drawn from the batch at most", must="{} >= 1"
    ),
    db.optional("segment", sa.Text, must=db.Characters(200, least=0)),
    db.optional(
        "bad", sa.Boolean, comment="what its prompt counted as by the method full; NULL: another method"
    ),
    db.optional(
        "burst",
        sa.Text,
        comment="the same for batches that count once; NULL: no other is like it",
        must=db.Characters(64),
    ),
    db.required("spare", sa.Boolean, default=sa.false(), comment="another batch of its burst counts"),
)

calibration_candidates = db.table(
    "calibration_candidates",
    db.key("run", db.BIGINT, sa.ForeignKey("calibration_runs.id")),
    db.key("method", sa.Text, must=db.Characters(64)),
    db.required("decides", sa.Boolean),
    db.required("state", sa.Text),
    db.optional("threshold", db.REAL),
    db.optional(
        "rule",
        db.Rule,
        must=db.SIZED_RULE,
        comment="how the threshold is to be read; NULL: ship iff the score is above it",
    ),
    db.required("guarantee", sa.Text),
    *db.finite_cut(),
)
sa.Index(
    "uq_calibration_candidates_one_decides",
    calibration_candidates.c.run,
    unique=True,
    postgresql_where=calibration_candidates.c.decides,
    sqlite_where=calibration_candidates.c.decides,
)

proposal_rejections = db.table(
    "proposal_rejections",
    db.key("run", db.BIGINT, sa.ForeignKey("calibration_runs.id")),
    db.required("rejected_at", db.UtcDateTime),
    db.required("rejected_by", sa.Text, must=db.Characters(200)),
    db.required("reason", sa.Text, must=db.Characters(2000)),
    sealed=True,
)


encoders = db.table(
    "encoders",
    db.key("id", sa.Text, comment="name@hash, as decisions name it", must=db.Characters(200)),
    db.key("revision", sa.Text, comment="where the weights came from", must=db.Characters(200)),
    db.key("weight_hash", sa.Text, comment="SHA-256 of the weights, hex", must="length({}) = 64"),
    db.required("dimension", sa.Integer, must="{} >= 1"),
    db.required("first_seen_at", db.UtcDateTime),
    sealed=True,
)
