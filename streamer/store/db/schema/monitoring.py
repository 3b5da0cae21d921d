"""Where the watching of each gate stands: state that moves on. What has ended is history, and stays. Beside it, append-only, how
often decisions are drawn where that differs from the settings.
"""

import sqlalchemy as sa

from streamer.gates.settings import UNITS
from streamer.store.db.schema import types as db

_FOLLOWS = "the state of monitoring, which follows from decisions and labels; alerts are sealed"

monitor_gates = db.table(
    "monitor_gates",
    db.key("gate", sa.Text, sa.ForeignKey("gates.name")),
    db.required(
        "step", db.BIGINT, comment="how often it was written; who writes names what he read", must="{} >= 1"
    ),
    db.required("read_batch", db.BIGINT, comment="read with labels up to this batch"),
    db.required("seen_batch", db.BIGINT, comment="read without labels up to this batch"),
    db.required(
        "bet_batch", db.BIGINT, comment="given to the alarms on labels up to this batch", must="{} >= 0"
    ),
    db.required("seen_label", db.BIGINT),
    db.optional("read_through", db.UtcDateTime, comment="every decision before this moment is read"),
    db.required("unwatched", db.BIGINT, comment="decisions that no audit sample could take"),
    db.required("late", db.BIGINT, comment="labels that came after their decision was read"),
    db.required("marks", sa.Text, comment="how far the record reached, and when; JSON"),
    db.optional("drift_run", db.BIGINT, comment="the calibration run that drift is looked for against"),
    db.required("drift_policy", sa.Integer),
    db.required("updated_at", db.UtcDateTime),
    db.optional("service", sa.Text, comment="what was decided while the gate was open; exact, JSON"),
    db.optional("tally", sa.Text, comment="the bets that the verdict rests on; exact, JSON"),
    db.check("places", "read_batch >= 0 AND seen_batch >= 0 AND seen_label >= 0"),
    db.check("counts", "unwatched >= 0 AND late >= 0"),
    changes=None,
    no_evidence=_FOLLOWS,
)

monitor_sequences = db.table(
    "monitor_sequences",
    db.key("gate", sa.Text, sa.ForeignKey("gates.name")),
    db.key("number", sa.Integer, comment="from 1", must="{} >= 1"),
    db.required("unit", sa.Text, must=db.one_of(UNITS)),
    db.required("scorer", sa.Text),
    db.required("severity_kind", sa.Text),
    db.required("loss", sa.Text, comment="of claims; any under other units"),
    db.required("budget", db.REAL, comment="alpha over the attempts"),
    db.required("delta", db.REAL, comment="chance that a bound ever fails"),
    db.required("period_days", db.REAL),
    db.optional("judge_kind", sa.Text),
    db.required("since_policy", sa.Integer),
    db.required("first_batch", db.BIGINT),
    db.required("last_batch", db.BIGINT),
    db.required("began_at", db.UtcDateTime),
    db.required("read_at", db.UtcDateTime, comment="when its newest decision was made"),
    db.required("decisions", db.BIGINT),
    db.required("labelled", db.BIGINT, comment="drawn decisions whose loss is known"),
    db.required("overdue", db.BIGINT),
    db.optional("exposure", db.REAL, must=db.UNIT_INTERVAL),
    db.required("exposure_lower", db.REAL, must=db.UNIT_INTERVAL),
    db.required("exposure_upper", db.REAL, must=db.UNIT_INTERVAL),
    db.optional("selective", db.REAL, must=db.UNIT_INTERVAL),
    db.required("selective_lower", db.REAL, must=db.UNIT_INTERVAL),
    db.required("selective_upper", db.REAL, must=db.UNIT_INTERVAL),
    db.required("state", sa.Text, comment="exact, JSON"),
    db.optional("ended", sa.Text, comment="why it reads no more; NULL while it does"),
    db.check("counts", "decisions >= 0 AND labelled >= 0 AND overdue >= 0"),
    changes=(
            "last_batch", "read_at", "decisions", "labelled", "overdue", "exposure", "exposure_lower", "exposure_upper",
            "selective", "selective_lower", "selective_upper", "state", "ended",
        ),
until="ended",
no_evidence=_FOLLOWS,
)  # fmt: skip

monitor_alarms = db.table(
    "monitor_alarms",
    db.key("gate", sa.Text, sa.ForeignKey("gates.name")),
    db.key("kind", sa.Text, must=db.Characters(64)),
    db.key("statistic", sa.Text, comment="the number that a drift alarm watches, or empty", must=db.Characters(64, least=0)),
    db.key("number", sa.Integer, comment="from 1", must="{} >= 1"),
    db.required("about", sa.Text),
    db.required("delta", db.REAL, comment="chance that it is ever false", must="{} > 0 AND {} < 1"),
    db.required("evidence_ratio", db.REAL, comment="of what raises it; at most 1e300", must="{} >= 0 AND {} <= 1e300"),
    db.required("after_batch", db.BIGINT),
    db.required("after_policy", sa.Integer),
    db.optional("run", db.BIGINT),
    db.required("state", sa.Text, comment="exact, JSON"),
    db.optional("raised_by", db.BIGINT, comment="the batch"),
    db.optional("raised_at", db.UtcDateTime),
    db.optional("alert_id", sa.Text),
    db.optional("closed_policy", sa.Integer, comment="the policy by which it closed the gate"),
    db.optional("ended", sa.Text, comment="why it reads no more; NULL while it does, or stands raised"),
    db.check("raised", "(raised_by IS NULL) = (raised_at IS NULL)"),
    changes=(
            "evidence_ratio", "state", "raised_by", "raised_at", "alert_id", "closed_policy", "ended",
        ),
until="ended",
no_evidence=_FOLLOWS,
)  # fmt: skip


audit_rates = db.table(
    "audit_rates",
    db.identity_column(),
    db.required("gate", sa.Text, sa.ForeignKey("gates.name")),
    db.required("boosted", sa.Boolean, comment="else the gate's own audit probability holds"),
    db.required("since", db.UtcDateTime),
    db.required("until", db.UtcDateTime, comment="a raised rate ends by itself"),
    db.required("evidence", db.REAL, comment="of the risk alarm", must="{} >= 0 AND {} <= 1e300"),
    db.required(
        "extra", db.BIGINT, comment="labels that raised rates asked for since midnight", must="{} >= 0"
    ),
    db.required("reason", sa.Text, must=db.Characters(500)),
    sa.Index("ix_audit_rates_gate_id", "gate", "id"),
    sealed=True,
)
