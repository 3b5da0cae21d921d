"""The catalogue: every metric, its labels and its meaning, as one literal. docs/metrics.md is generated from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

PREFIX = "streamer_"

MetricType = Literal["counter", "gauge", "histogram", "info"]

SCORE_BUCKETS = tuple(round(step * 0.05, 2) for step in range(1, 21))
"""Linear on [0, 1], the range of scores."""

STAGE_BUCKETS = (
    0.0001,
    0.00025,
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
)
"""From 100 microseconds (a gate's arithmetic) to 10 seconds (a long group on a slow encoder)."""

LATENCY_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)

STAGES = ("score", "commit", "publish", "lease")
"""Stages of a group of records: score and gate it, write its transaction, publish its actions; and taking partitions."""

PARTS = ("broker", "database")
"""What a service depends on and may have to wait for."""

ENCODER_PART = "encoder"
"""What a worker depends on, too, whose encoder is asked for at an endpoint."""

JUDGE_PART = "judge"
"""What a worker depends on, too, that asks a judge for scores."""

JUDGE_RESULTS = ("marked", "remembered", "failed", "not_asked")
"""What became of an answer that a judge was to mark for a gate's score."""

SERVICES = ("worker", "endpoint", "recalibrator")
"""The processes that serve metrics. The endpoint is `streamer serve`, which serves what a worker does, too."""

EXPECTED_STATUSES = (200, 429, 500, 503)
"""Those of a route's answers that are counted from zero on."""

RUN_OUTCOMES = ("applied", "proposed", "unchanged", "failed")
"""The outcome of a calibration run of the recalibrator."""

ALARMS: tuple[Literal["risk", "selective", "draws", "drift_scores", "drift_cloud"], ...] = (
    "risk",
    "selective",
    "draws",
    "drift_scores",
    "drift_cloud",
)
"""What the recalibrator's watch raises alarms on."""

RISK_GAUGES = (
    "exposure_risk_ratio",
    "exposure_risk_lower_ratio",
    "exposure_risk_upper_ratio",
    "exposure_budget_ratio",
    "selective_risk_ratio",
    "selective_risk_lower_ratio",
    "selective_risk_upper_ratio",
    "monitored_decisions",
    "monitored_labels",
    "overdue_labels",
    "late_labels",
    "risk_read_through_timestamp_seconds",
    "budget_used_ratio",
    "budget_used_lower_ratio",
    "budget_used_upper_ratio",
    "budget_remaining_seconds",
    "budget_remaining_soonest_seconds",
    "audit_probability_ratio",
    "extra_labels_today",
    "budget_verdict",
    "label_lag_seconds",
)
"""The gauges of a gate's risk in service; each is absent until something is known."""

STRETCHES: tuple[Literal["policy", "period", "before"], ...] = ("policy", "period", "before")
"""What figures over open time are about: the policy in force, the budget period, and that period before this policy."""

OPEN_GAUGES = (
    "open_prompts",
    "open_labelled_answers",
    "open_served_ratio",
    "open_selective_risk_ratio",
    "open_selective_risk_lower_ratio",
    "open_selective_risk_upper_ratio",
    "open_exposure_risk_ratio",
    "open_exposure_risk_lower_ratio",
    "open_exposure_risk_upper_ratio",
)
"""The gauges of what was decided while a gate was open, by stretch; each is absent until something is known."""

RUN_BUCKETS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricDefinition:
    """One metric of the catalogue.

    Attributes
    ----------
    name : with prefix and unit; a counter's ends in ``_total``.
    labels : names of its labels; their values come from closed sets, or are names of existing gates.
    help : one sentence for people, also the HELP line.
    buckets : upper bounds of a histogram's buckets, in the metric's unit.
    services : of `SERVICES`, those that serve it.
    """

    name: str
    type: MetricType
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    services: tuple[str, ...] = ("worker",)


def _metric(
    type_: MetricType,
    name: str,
    labels: str,
    help_: str,
    buckets: tuple[float, ...] = (),
    *,
    services: str = "worker",
) -> MetricDefinition:
    return MetricDefinition(
        name=PREFIX + name,
        type=type_,
        help=help_,
        labels=tuple(labels.split()),
        buckets=buckets,
        services=tuple(services.split()),
    )


CATALOGUE: tuple[MetricDefinition, ...] = (
    _metric(
        "counter", "batches_total", "gate action reason",
        "Batches decided, by what was decided (ship, mixed, abstain, regenerate, escalate) and why.",
    ),
    _metric("counter", "responses_total", "gate action", "Responses of decided batches, by action."),
    _metric("counter", "dead_letters_total", "code", "Messages refused and dead-lettered, by error code."),
    _metric(
        "counter", "duplicates_total", "gate",
        "Batches delivered again with the same content; the stored action was enqueued again.",
    ),
    _metric("counter", "labels_total", "gate kind",
        "Severities received on the labels topic; the kind is the one that controls the gate, or `other`.",
    ),
    _metric(
        "counter", "audit_sampled_batches_total", "gate", "Batches drawn for labelling by the audit sample."
    ),
    _metric(
        "histogram", "response_score", "gate",
        "Scores Q of responses, from 0 (alone) to 1 (all agree); responses that were not scored are not in it.",
        SCORE_BUCKETS,
    ),
    _metric(
        "histogram", "end_to_end_latency_seconds", "",
        "From the input record's timestamp until the broker acknowledged its action.",
        LATENCY_BUCKETS,
    ),
    _metric(
        "histogram", "stage_duration_seconds", "stage",
        "Time that one group took in a stage: score (and gate), commit, publish; or that taking partitions took: lease.",
        STAGE_BUCKETS,
    ),
    _metric("gauge", "policy_version", "gate", "Version of the policy that the worker decides with."),
    _metric(
        "gauge", "policy_state", "gate state",
        "1 for the threshold's present state (closed, cut, open), 0 for the others.",
    ),
    _metric(
        "gauge", "policy_lambda_ratio", "gate",
        "Threshold lambda on the score; absent while the gate is closed or open.",
    ),
    _metric("gauge", "policy_alpha_ratio", "gate", "Budget alpha on exposure risk."),
    _metric(
        "gauge", "policy_activated_timestamp_seconds", "gate", "When the present policy became valid (Unix time)."
    ),
    _metric(
        "counter", "policy_events_rejected_total", "",
        "Messages on the thresholds topic that were not a valid announcement and changed nothing.",
    ),
    _metric(
        "counter", "policies_refused_total", "gate reason",
        "Policies in the record that this worker does not obey: unsigned, unknown_key, bad_signature (changed, or of "
        "another version or database) or unreadable. It continues with the last good one.",
    ),
    _metric("counter", "encoded_texts_total", "", "Texts that went through the encoder."),
    _metric("counter", "encoder_cache_hits_total", "", "Texts whose vector was still in the encoder's cache."),
    _metric(
        "counter", "encoder_tokens_total", "",
        "Tokens of texts that an encoder's endpoint has counted; 0 for an encoder that runs in the worker.",
    ),
    _metric(
        "counter", "encoder_cost_total", "",
        "What those tokens cost by `encoder.price_per_million`, in the price list's currency; 0 without a price.",
    ),
    _metric(
        "gauge", "desk_waiting", "gate",
        "Held batches that wait for a person at the desk; every worker shows the same number.",
    ),
    _metric(
        "gauge", "desk_oldest_seconds", "gate",
        "Since the oldest of them was held, 0 when none waits; every worker shows the same number.",
    ),
    _metric(
        "counter", "desk_outcomes_total", "gate outcome",
        "Batches that were released or rejected by a person, or expired at their deadline, as the record has it: every worker "
        "shows the same number.",
    ),
    _metric(
        "counter", "judge_answers_total", "result",
        "Answers of gates with the scorer judge: marked, remembered (judged before by this process), failed, or not_asked "
        "(no time, no budget, or the judge is unavailable).",
    ),
    _metric("counter", "judge_tokens_total", "", "Tokens that the judge of gates' scores has counted."),
    _metric(
        "counter", "judge_cost_total", "",
        "What it cost by `judge.price_per_million_input` and `_output`, in the price list's currency; 0 without prices.",
    ),
    _metric("gauge", "outbox_pending", "", "Messages committed to the database and not yet published."),
    _metric(
        "counter", "outbox_parked_total", "",
        "Messages that the broker refused permanently; parked with their error, for a person to look at.",
    ),
    _metric(
        "gauge", "relay_lane_stuck", "topic partition",
        "1 while messages for the topic, or for one partition of it, cannot be published, 0 once they can; `all`"
        " partitions where the topic itself is missing or forbidden. Other topics and partitions are not delayed.",
    ),
    _metric(
        "gauge", "consumer_lag_records", "topic partition",
        "Records on the partition after the last committed one.",
    ),
    _metric("counter", "data_gaps_total", "", "Times that the broker had deleted records before they were read."),
    _metric(
        "gauge", "audit_chain_height", "topic partition",
        "Entries in the partition's hash chain of the record.",
    ),
    _metric(
        "gauge", "audit_unwitnessed_seconds", "witness",
        "How long the oldest checkpoint has waited that a configured witness (file, http, time_stamp) lacks; 0: it has all.",
    ),
    _metric(
        "counter", "audit_witness_failures_total", "witness", "Times that a witness did not take a checkpoint; it is sent again."
    ),
    _metric(
        "gauge", "part_reachable", "part", "1 while the broker, the database, the encoder's endpoint or the judge answers, 0 while it does not.",
        services="worker recalibrator",
    ),
    _metric(
        "counter", "reader_resets_total", "",
        "Times that the reader was set back because a record that was due had not arrived.",
    ),
    _metric(
        "info", "build_info", "version python encoder", "1, with the versions that run as labels.",
        services="worker recalibrator",
    ),
    _metric(
        "counter", "http_requests_total", "route status",
        "Requests answered, by the route's template and HTTP status; `none` for unknown addresses, and where nothing"
        " of an answer was sent.",
        services="endpoint",
    ),
    _metric(
        "histogram", "http_request_duration_seconds", "route",
        "From a request's head to the end of its answer, whatever its status.", LATENCY_BUCKETS,
        services="endpoint",
    ),
    _metric(
        "gauge", "recalibrator_leader", "",
        "1 in the recalibrator that leads, 0 in a standby; gauges of gates are served by the leader alone.",
        services="recalibrator",
    ),
    _metric(
        "gauge", "recalibrator_round_timestamp_seconds", "",
        "When the recalibrator last finished a round over all gates, or saw that another one leads (Unix time).",
        services="recalibrator",
    ),
    _metric(
        "counter", "calibration_runs_total", "gate method outcome",
        "Runs of the recalibrator, by the method that decides and by outcome: applied, proposed, unchanged or "
        "failed.",
        services="recalibrator",
    ),
    _metric(
        "histogram", "calibration_duration_seconds", "",
        "Time that one run took, from reading the audit sample to its outcome.",
        RUN_BUCKETS, services="recalibrator",
    ),
    _metric(
        "gauge", "calibration_last_run_timestamp_seconds", "gate",
        "When the gate's newest calibration run ended, whether the service or a person ran it (Unix time).",
        services="recalibrator",
    ),
    _metric(
        "gauge", "calibration_groups", "gate", "Groups that the gate's newest calibration run read.",
        services="recalibrator",
    ),
    _metric(
        "gauge", "calibration_new_groups", "gate",
        "Groups that were labelled, or got a higher label, since the gate's newest calibration run; at most 10000 of "
        "each are counted.",
        services="recalibrator",
    ),
    _metric(
        "gauge", "calibration_wanted_groups", "gate",
        "New groups that trigger the next run; absent where labels trigger none.",
        services="recalibrator",
    ),
    _metric(
        "gauge", "calibration_lambda_ratio", "gate method",
        "Lambda by each calibrator in the gate's newest run; absent where that one holds or ships everything.",
        services="recalibrator",
    ),
    _metric(
        "gauge", "proposal_pending", "gate", "1 while a run's threshold or a learned score waits for a person to put it in force.",
        services="recalibrator",
    ),
    _metric(
        "gauge", "proposal_held_until_timestamp_seconds", "gate",
        "When a looser threshold that waits for one label lag is tested again; absent where none waits.",
        services="recalibrator",
    ),
    _metric(
        "gauge", "labels_pending", "gate", "Drawn responses that wait for a severity of the gate's kind.",
        services="recalibrator",
    ),
    _metric(
        "gauge", "labels_unread", "gate",
        "Labels that are recorded and not read: by labellers that the gate does not read, or without a valid signature.",
        services="recalibrator",
    ),
    _metric(
        "gauge", "exposure_risk_ratio", "gate",
        "Severity that shipped, averaged over all decisions of the budget period that were read, held ones and those of "
        "a closed gate counting 0; estimated from the audit sample, overdue labels at 1. Verdicts rest on "
        "streamer_open_exposure_risk_ratio.",
        services="recalibrator",
    ),
    _metric(
        "gauge", "exposure_risk_lower_ratio", "gate",
        "Lower bound of exposure risk; it and the upper one hold together at all times, up to the gate's monitor_delta.",
        services="recalibrator",
    ),
    _metric(
        "gauge", "exposure_risk_upper_ratio", "gate", "Upper bound of exposure risk.", services="recalibrator",
    ),
    _metric(
        "gauge", "exposure_budget_ratio", "gate",
        "The budget that exposure risk is compared with: alpha over the attempts that a prompt may have.",
        services="recalibrator",
    ),
    _metric(
        "gauge", "selective_risk_ratio", "gate",
        "The same severity averaged over what shipped.",
        services="recalibrator",
    ),
    _metric(
        "gauge", "selective_risk_lower_ratio", "gate", "Lower bound of selective risk.", services="recalibrator",
    ),
    _metric(
        "gauge", "selective_risk_upper_ratio", "gate", "Upper bound of selective risk.", services="recalibrator",
    ),
    _metric(
        "gauge", "monitored_decisions", "gate", "Decisions that the present interval has read.",
        services="recalibrator",
    ),
    _metric(
        "gauge", "monitored_labels", "gate",
        "Of these the drawn ones whose loss is known, by labels or because nothing shipped.",
        services="recalibrator",
    ),
    _metric(
        "gauge", "overdue_labels", "gate",
        "Of these the drawn ones whose label was missing at the deadline; each widens the interval.",
        services="recalibrator",
    ),
    _metric(
        "gauge", "late_labels", "gate", "Labels that came after their decision was read, ever; they are left out.",
        services="recalibrator",
    ),
    _metric(
        "gauge", "risk_read_through_timestamp_seconds", "gate",
        "Every decision before this moment has been read (Unix time); it stops where a drawn decision waits for its label.",
        services="recalibrator",
    ),
    _metric(
        "gauge", "budget_used_ratio", "gate", "Share of the period's budget that is used; above 1 it is overspent.",
        services="recalibrator",
    ),
    _metric(
        "gauge", "budget_used_lower_ratio", "gate", "Lower bound of the share that is used.", services="recalibrator",
    ),
    _metric(
        "gauge", "budget_used_upper_ratio", "gate", "Upper bound of the share that is used.", services="recalibrator",
    ),
    _metric(
        "gauge", "budget_remaining_seconds", "gate",
        "How long the rest of the budget lasts at the rate so far, from the newest decision read; +Inf while nothing is used.",
        services="recalibrator",
    ),
    _metric(
        "gauge", "budget_remaining_soonest_seconds", "gate", "The same at the upper bound of what is used.",
        services="recalibrator",
    ),
    _metric(
        "gauge", "audit_probability_ratio", "gate",
        "Probability with which decisions are drawn for labelling at present; raised while the risk alarm gathers evidence.",
        services="recalibrator",
    ),
    _metric(
        "gauge", "extra_labels_today", "gate",
        "Labels asked for today (UTC) beyond the gate's own audit probability; at audit_boost_most it is no longer raised.",
        services="recalibrator",
    ),
    _metric(
        "gauge", "budget_verdict", "gate",
        "Whether the budget is kept while the gate is open: 1 kept, 0 not known yet, -1 broken. Kept as long as reading reaches to "
        "within label_lag_seconds of now.",
        services="recalibrator",
    ),
    _metric(
        "gauge", "label_lag_seconds", "gate",
        "How long labels of drawn answers take: 95 % quantile; the monitor deadline while too few are known.",
        services="recalibrator",
    ),
    _metric(
        "gauge", "open_prompts", "gate over",
        "Prompts decided while the gate was open, over policy (that in force), period, or before (the period before that policy).",
        services="recalibrator",
    ),
    _metric(
        "gauge", "open_labelled_answers", "gate over", "Of these the shipped answers with a label.",
        services="recalibrator",
    ),
    _metric(
        "gauge", "open_served_ratio", "gate over", "Share of these prompts of which something shipped; counted of all, so exact.",
        services="recalibrator",
    ),
    _metric(
        "gauge", "open_selective_risk_ratio", "gate over", "Error rate among their shipped answers.",
        services="recalibrator",
    ),
    _metric(
        "gauge", "open_selective_risk_lower_ratio", "gate over", "Its lower bound, which holds at all times.",
        services="recalibrator",
    ),
    _metric(
        "gauge", "open_selective_risk_upper_ratio", "gate over", "Its upper bound, which holds at all times.",
        services="recalibrator",
    ),
    _metric(
        "gauge", "open_exposure_risk_ratio", "gate over",
        "Average harm per prompt decided while the gate was open, held prompts counting 0.",
        services="recalibrator",
    ),
    _metric(
        "gauge", "open_exposure_risk_lower_ratio", "gate over", "Its lower bound, which holds at all times.",
        services="recalibrator",
    ),
    _metric(
        "gauge", "open_exposure_risk_upper_ratio", "gate over", "Its upper bound, which holds at all times.",
        services="recalibrator",
    ),
    _metric(
        "gauge", "alarm_raised", "gate alarm",
        "1 while an alarm (risk, selective, draws, drift_scores, drift_cloud) is raised, 0 while it is not.",
        services="recalibrator",
    ),
    _metric(
        "gauge", "alarm_evidence_ratio", "gate alarm",
        "The present evidence over what raises the alarm; 1 or more has raised it.",
        services="recalibrator",
    ),
    _metric(
        "gauge", "alarm_raised_timestamp_seconds", "gate alarm", "When the alarm was raised (Unix time).",
        services="recalibrator",
    ),
    _metric(
        "counter", "alerts_total", "gate kind",
        "Alerts on record, from all processes; the leading recalibrator counts them in the database.",
        services="recalibrator",
    ),
)  # fmt: skip
