"""Where the watching of each gate stands: state that moves on. What has ended is history, and stays."""

from __future__ import annotations

import sqlalchemy as sa

from streamer.gates.settings import UNITS
from streamer.store.db.schema.types import (
    BIGINT,
    REAL,
    UtcDateTime,
    check,
    metadata,
    one_of,
    sized_text,
    within_unit_interval,
)

monitor_gates = sa.Table(
    "monitor_gates",
    metadata,
    sa.Column("gate", sa.Text, sa.ForeignKey("gates.name"), primary_key=True),
    sa.Column(
        "step", BIGINT, nullable=False, comment="how often it was written; who writes names what he read"
    ),
    sa.Column("read_batch", BIGINT, nullable=False, comment="read with labels up to this batch"),
    sa.Column("seen_batch", BIGINT, nullable=False, comment="read without labels up to this batch"),
    sa.Column(
        "bet_batch",
        BIGINT,
        comment="given to the alarms on labels up to this batch; NULL: by an older version",
    ),
    sa.Column("seen_label", BIGINT, nullable=False),
    sa.Column("read_through", UtcDateTime, comment="every decision before this moment is read"),
    sa.Column("unwatched", BIGINT, nullable=False, comment="decisions that no audit sample could take"),
    sa.Column("late", BIGINT, nullable=False, comment="labels that came after their decision was read"),
    sa.Column("marks", sa.Text, nullable=False, comment="how far the record reached, and when; JSON"),
    sa.Column("drift_run", BIGINT, comment="the calibration run that drift is looked for against"),
    sa.Column("drift_policy", sa.Integer, nullable=False),
    sa.Column("updated_at", UtcDateTime, nullable=False),
    sa.Column("service", sa.Text, comment="what was decided while the gate was open; exact, JSON"),
    check("step", "step >= 1"),
    check("places", "read_batch >= 0 AND seen_batch >= 0 AND seen_label >= 0"),
    check("bet_batch", "bet_batch >= 0"),
    check("counts", "unwatched >= 0 AND late >= 0"),
)

monitor_sequences = sa.Table(
    "monitor_sequences",
    metadata,
    sa.Column("gate", sa.Text, sa.ForeignKey("gates.name"), primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False, comment="from 1"),
    sa.Column("unit", sa.Text, nullable=False),
    sa.Column("scorer", sa.Text, nullable=False),
    sa.Column("severity_kind", sa.Text, nullable=False),
    sa.Column("budget", REAL, nullable=False, comment="alpha over the attempts"),
    sa.Column("delta", REAL, nullable=False, comment="chance that a bound ever fails"),
    sa.Column("period_days", REAL, nullable=False),
    sa.Column("judge_kind", sa.Text),
    sa.Column("since_policy", sa.Integer, nullable=False),
    sa.Column("first_batch", BIGINT, nullable=False),
    sa.Column("last_batch", BIGINT, nullable=False),
    sa.Column("began_at", UtcDateTime, nullable=False),
    sa.Column("read_at", UtcDateTime, nullable=False, comment="when its newest decision was made"),
    sa.Column("decisions", BIGINT, nullable=False),
    sa.Column("labelled", BIGINT, nullable=False, comment="drawn decisions whose loss is known"),
    sa.Column("overdue", BIGINT, nullable=False),
    sa.Column("exposure", REAL),
    sa.Column("exposure_lower", REAL, nullable=False),
    sa.Column("exposure_upper", REAL, nullable=False),
    sa.Column("selective", REAL),
    sa.Column("selective_lower", REAL, nullable=False),
    sa.Column("selective_upper", REAL, nullable=False),
    sa.Column("state", sa.Text, nullable=False, comment="exact, JSON"),
    sa.Column("ended", sa.Text, comment="why it reads no more; NULL while it does"),
    one_of("unit", UNITS),
    check("number", "number >= 1"),
    check("counts", "decisions >= 0 AND labelled >= 0 AND overdue >= 0"),
    *(
        within_unit_interval(column)
        for column in (
            "exposure", "exposure_lower", "exposure_upper",
            "selective", "selective_lower", "selective_upper",
        )
    ),
)  # fmt: skip

monitor_alarms = sa.Table(
    "monitor_alarms",
    metadata,
    sa.Column("gate", sa.Text, sa.ForeignKey("gates.name"), primary_key=True),
    sa.Column("kind", sa.Text, primary_key=True),
    sa.Column(
        "statistic", sa.Text, primary_key=True, comment="the number that a drift alarm watches, or empty"
    ),
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False, comment="from 1"),
    sa.Column("about", sa.Text, nullable=False),
    sa.Column("delta", REAL, nullable=False, comment="chance that it is ever false"),
    sa.Column("evidence_ratio", REAL, nullable=False, comment="of what raises it; at most 1e300"),
    sa.Column("after_batch", BIGINT, nullable=False),
    sa.Column("after_policy", sa.Integer, nullable=False),
    sa.Column("run", BIGINT),
    sa.Column("state", sa.Text, nullable=False, comment="exact, JSON"),
    sa.Column("raised_by", BIGINT, comment="the batch"),
    sa.Column("raised_at", UtcDateTime),
    sa.Column("alert_id", sa.Text),
    sa.Column("closed_policy", sa.Integer, comment="the policy by which it closed the gate"),
    sa.Column("ended", sa.Text, comment="why it reads no more; NULL while it does, or stands raised"),
    sized_text("kind", 64),
    sized_text("statistic", 64, least=0),
    check("number", "number >= 1"),
    check("delta", "delta > 0 AND delta < 1"),
    check("evidence_ratio", "evidence_ratio >= 0 AND evidence_ratio <= 1e300"),
    check("raised", "(raised_by IS NULL) = (raised_at IS NULL)"),
)
