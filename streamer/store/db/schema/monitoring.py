"""Where the watching of each gate stands: state that moves on. What has ended is history, and stays. Beside it, append-only, how
often decisions are drawn where that differs from the settings.
"""

import sqlalchemy as sa

from streamer.gates.settings import UNITS
from streamer.store.db.schema.types import (
    BIGINT,
    REAL,
    UtcDateTime,
    check,
    identity_column,
    one_of,
    required,
    sized_text,
    table,
    within_unit_interval,
)

_FOLLOWS = "the state of monitoring, which follows from decisions and labels; alerts are sealed"

monitor_gates = table(
    "monitor_gates",
    sa.Column("gate", sa.Text, sa.ForeignKey("gates.name"), primary_key=True),
    required("step", BIGINT, comment="how often it was written; who writes names what he read"),
    required("read_batch", BIGINT, comment="read with labels up to this batch"),
    required("seen_batch", BIGINT, comment="read without labels up to this batch"),
    required("bet_batch", BIGINT, comment="given to the alarms on labels up to this batch"),
    required("seen_label", BIGINT),
    sa.Column("read_through", UtcDateTime, comment="every decision before this moment is read"),
    required("unwatched", BIGINT, comment="decisions that no audit sample could take"),
    required("late", BIGINT, comment="labels that came after their decision was read"),
    required("marks", sa.Text, comment="how far the record reached, and when; JSON"),
    sa.Column("drift_run", BIGINT, comment="the calibration run that drift is looked for against"),
    required("drift_policy", sa.Integer),
    required("updated_at", UtcDateTime),
    sa.Column("service", sa.Text, comment="what was decided while the gate was open; exact, JSON"),
    sa.Column("tally", sa.Text, comment="the bets that the verdict rests on; exact, JSON"),
    check("step", "step >= 1"),
    check("places", "read_batch >= 0 AND seen_batch >= 0 AND seen_label >= 0"),
    check("bet_batch", "bet_batch >= 0"),
    check("counts", "unwatched >= 0 AND late >= 0"),
    changes=None,
    no_evidence=_FOLLOWS,
)

monitor_sequences = table(
    "monitor_sequences",
    sa.Column("gate", sa.Text, sa.ForeignKey("gates.name"), primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False, comment="from 1"),
    required("unit", sa.Text),
    required("scorer", sa.Text),
    required("severity_kind", sa.Text),
    required("loss", sa.Text, comment="of claims; any under other units"),
    required("budget", REAL, comment="alpha over the attempts"),
    required("delta", REAL, comment="chance that a bound ever fails"),
    required("period_days", REAL),
    sa.Column("judge_kind", sa.Text),
    required("since_policy", sa.Integer),
    required("first_batch", BIGINT),
    required("last_batch", BIGINT),
    required("began_at", UtcDateTime),
    required("read_at", UtcDateTime, comment="when its newest decision was made"),
    required("decisions", BIGINT),
    required("labelled", BIGINT, comment="drawn decisions whose loss is known"),
    required("overdue", BIGINT),
    sa.Column("exposure", REAL),
    required("exposure_lower", REAL),
    required("exposure_upper", REAL),
    sa.Column("selective", REAL),
    required("selective_lower", REAL),
    required("selective_upper", REAL),
    required("state", sa.Text, comment="exact, JSON"),
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
    changes=(
            "last_batch", "read_at", "decisions", "labelled", "overdue", "exposure", "exposure_lower", "exposure_upper",
            "selective", "selective_lower", "selective_upper", "state", "ended",
        ),
until="ended",
no_evidence=_FOLLOWS,
)  # fmt: skip

monitor_alarms = table(
    "monitor_alarms",
    sa.Column("gate", sa.Text, sa.ForeignKey("gates.name"), primary_key=True),
    sa.Column("kind", sa.Text, primary_key=True),
    sa.Column(
        "statistic", sa.Text, primary_key=True, comment="the number that a drift alarm watches, or empty"
    ),
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False, comment="from 1"),
    required("about", sa.Text),
    required("delta", REAL, comment="chance that it is ever false"),
    required("evidence_ratio", REAL, comment="of what raises it; at most 1e300"),
    required("after_batch", BIGINT),
    required("after_policy", sa.Integer),
    sa.Column("run", BIGINT),
    required("state", sa.Text, comment="exact, JSON"),
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
    changes=(
            "evidence_ratio", "state", "raised_by", "raised_at", "alert_id", "closed_policy", "ended",
        ),
until="ended",
no_evidence=_FOLLOWS,
)  # fmt: skip


audit_rates = table(
    "audit_rates",
    identity_column(),
    required("gate", sa.Text, sa.ForeignKey("gates.name")),
    required("boosted", sa.Boolean, comment="else the gate's own audit probability holds"),
    required("since", UtcDateTime),
    required("until", UtcDateTime, comment="a raised rate ends by itself"),
    required("evidence", REAL, comment="of the risk alarm"),
    required("extra", BIGINT, comment="labels that raised rates asked for since midnight"),
    required("reason", sa.Text),
    check("evidence", "evidence >= 0 AND evidence <= 1e300"),
    check("extra", "extra >= 0"),
    sized_text("reason", 500),
    sa.Index("ix_audit_rates_gate_id", "gate", "id"),
    sealed=True,
)
