"""The catalogue: every metric, its labels and its meaning, as one literal. docs/metrics.md is generated from it."""

from dataclasses import dataclass
from functools import partial
from typing import Literal, get_args

PREFIX = "streamer_"

MetricType = Literal["counter", "gauge", "histogram", "info"]

SCORE_BUCKETS = tuple(round(step * 0.05, 2) for step in range(1, 21))
"""Linear on [0, 1], the range of scores."""

STAGE_BUCKETS = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
)  # fmt: skip
"""From 100 microseconds (a gate's arithmetic) to 10 seconds (a long group on a slow encoder)."""

LATENCY_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)

STAGES = ("score", "commit", "publish", "lease")
"""Stages of a group of records: score and gate it, write its transaction, publish its actions; and taking partitions."""

PARTS = ("broker", "database")
"""What a service depends on and may have to wait for."""

MODEL_PARTS = ("encoder", "judge")
"""What a worker depends on, too, whose encoder is asked for at an endpoint, or that asks a judge for scores."""

JUDGE_RESULTS = ("marked", "remembered", "failed", "not_asked")
"""What became of an answer that a judge was to mark for a gate's score."""

SERVICES = ("worker", "endpoint", "recalibrator", "console")
"""The processes that serve metrics. The endpoint is `streamer serve`, which serves what a worker does, too."""

EXPECTED_STATUSES = (200, 429, 500, 503)
"""Those of a route's answers that are counted from zero on."""

RUN_OUTCOMES = ("applied", "proposed", "unchanged", "failed")
"""The outcome of a calibration run of the recalibrator."""

RISK_GAUGES = (
    "exposure_risk_ratio", "exposure_risk_lower_ratio", "exposure_risk_upper_ratio", "exposure_budget_ratio",
    "selective_risk_ratio", "selective_risk_lower_ratio", "selective_risk_upper_ratio",
    "monitored_decisions", "monitored_labels", "overdue_labels", "late_labels", "risk_read_through_timestamp_seconds",
    "budget_used_ratio", "budget_used_lower_ratio", "budget_used_upper_ratio", "budget_remaining_seconds",
    "budget_remaining_soonest_seconds", "audit_probability_ratio", "extra_labels_today", "budget_verdict", "label_lag_seconds",
)  # fmt: skip
"""The gauges of a gate's risk in service; each is absent until something is known."""

STRETCHES: tuple[Literal["policy", "period", "before"], ...] = ("policy", "period", "before")
"""What figures over open time are about: the policy in force, the budget period, and that period before this policy."""

OPEN_GAUGES = (
    "open_prompts", "open_labelled_answers", "open_served_ratio",
    "open_selective_risk_ratio", "open_selective_risk_lower_ratio", "open_selective_risk_upper_ratio",
    "open_exposure_risk_ratio", "open_exposure_risk_lower_ratio", "open_exposure_risk_upper_ratio",
)  # fmt: skip
"""The gauges of what was decided while a gate was open, by stretch; each is absent until something is known."""

ALARM_GAUGES = ("alarm_raised", "alarm_evidence_ratio", "alarm_raised_timestamp_seconds")

RUN_BUCKETS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricDefinition:
    """One metric of the catalogue: its name with prefix and unit (a counter's ends in
    ``_total``), a sentence for people that is also the HELP line, the names of its labels, whose
    values come from closed sets or are names of existing gates, a histogram's upper bounds of
    buckets in the metric's unit, and those of `SERVICES` that serve it."""

    name: str
    type: MetricType
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    services: tuple[str, ...] = ("worker",)


def _metric(
    type_: MetricType, name: str, labels: str, services: str, help_: str, buckets: tuple[float, ...] = ()
) -> MetricDefinition:
    return MetricDefinition(
        name=PREFIX + name,
        type=type_,
        help=help_,
        labels=tuple(labels.split()),
        buckets=buckets,
        services=tuple(services.split()),
    )


_counter, _gauge, _histogram, _info = (partial(_metric, kind) for kind in get_args(MetricType))

CATALOGUE: tuple[MetricDefinition, ...] = (
    _counter("batches_total", "gate action reason", "worker",
        "Batches decided, by what was decided (ship, mixed, abstain, regenerate, escalate) and why."),
    _counter("batches_not_read_total", "gate rule", "worker",
        "Batches with an answer that the encoder did not read, held or not, by rule: cut (too long), unread (characters that it "
        "does not know), twin (two with one vector). One batch may count under several."),
    _counter("responses_total", "gate action", "worker", "Responses of decided batches, by action."),
    _counter("dead_letters_total", "code", "worker", "Messages refused and dead-lettered, by error code."),
    _counter("duplicates_total", "gate", "worker",
        "Batches delivered again with the same content; the stored action was enqueued again."),
    _counter("labels_total", "gate kind", "worker",
        "Severities received on the labels topic; the kind is the one that controls the gate, or `other`."),
    _counter("audit_sampled_batches_total", "gate", "worker",
        "Batches drawn for labelling by the audit sample."),
    _histogram("response_score", "gate", "worker",
        "Scores Q of responses, from 0 (alone) to 1 (all agree); responses that were not scored are not in it.", SCORE_BUCKETS),
    _histogram("end_to_end_latency_seconds", "", "worker",
        "From the input record's timestamp until the broker acknowledged its action.", LATENCY_BUCKETS),
    _histogram("stage_duration_seconds", "stage", "worker",
        "Time that one group took in a stage: score (and gate), commit, publish; or that taking partitions took: "
        "lease.", STAGE_BUCKETS),
    _gauge("policy_version", "gate", "worker", "Version of the policy that the worker decides with."),
    _gauge("policy_state", "gate state", "worker",
        "1 for the threshold's present state (closed, cut, open), 0 for the others."),
    _gauge("policy_lambda_ratio", "gate", "worker",
        "Threshold lambda on the score; absent while the gate is closed or open."),
    _gauge("policy_alpha_ratio", "gate", "worker", "Budget alpha on exposure risk."),
    _gauge("policy_activated_timestamp_seconds", "gate", "worker",
        "When the present policy became valid (Unix time)."),
    _counter("policy_events_rejected_total", "", "worker",
        "Messages on the thresholds topic that were not a valid announcement and changed nothing."),
    _counter("policies_refused_total", "gate reason", "worker",
        "Policies in the record that this worker does not obey: unsigned, unknown_key, bad_signature (changed, or of "
        "another version or database) or unreadable. It continues with the last good one."),
    _counter("encoded_texts_total", "", "worker", "Texts that went through the encoder."),
    _counter("encoder_cache_hits_total", "", "worker",
        "Texts whose vector was still in the encoder's cache."),
    _counter("encoder_tokens_total", "", "worker",
        "Tokens of texts that an encoder's endpoint has counted; 0 for an encoder that runs in the worker."),
    _counter("encoder_cost_total", "", "worker",
        "What those tokens cost by `encoder.price_per_million`, in the price list's currency; 0 without a price."),
    _gauge("desk_waiting", "gate", "worker",
        "Held batches that wait for a person at the desk; every worker shows the same number."),
    _gauge("desk_oldest_seconds", "gate", "worker",
        "Since the oldest of them was held, 0 when none waits; every worker shows the same number."),
    _counter("desk_outcomes_total", "gate outcome", "worker",
        "Batches that were released or rejected by a person, or expired at their deadline, as the record has it: every "
        "worker shows the same number."),
    _counter("judge_answers_total", "result", "worker",
        "Answers of gates with the scorer judge: marked, remembered (judged before by this process), failed, or not_asked "
        "(no time, no budget, or the judge is unavailable)."),
    _counter("judge_tokens_total", "", "worker", "Tokens that the judge of gates' scores has counted."),
    _counter("judge_cost_total", "", "worker",
        "What it cost by `judge.price_per_million_input` and `_output`, in the price list's currency; 0 without prices."),
    _gauge("outbox_pending", "", "worker", "Messages committed to the database and not yet published."),
    _counter("outbox_parked_total", "", "worker",
        "Messages that the broker refused permanently; parked with their error, for a person to look at."),
    _gauge("relay_lane_stuck", "topic partition", "worker",
        "1 while messages for the topic, or for one partition of it, cannot be published, 0 once they can; `all` "
        "partitions where the topic itself is missing or forbidden. Other topics and partitions are not delayed."),
    _gauge("consumer_lag_records", "topic partition", "worker",
        "Records on the partition after the last committed one."),
    _counter("data_gaps_total", "", "worker",
        "Times that the broker had deleted records before they were read."),
    _gauge("audit_log_leaves", "topic partition", "worker",
        "Entries in the partition's Merkle log of the record."),
    _gauge("audit_unsigned_seconds", "", "recalibrator",
        "How long what is committed may have waited to be signed; 0: a checkpoint covers it. Of a recalibrator with a key to sign "
        "with, or `streamer audit sign`, also of one that stands by."),
    _gauge("audit_unwitnessed_seconds", "witness", "recalibrator",
        "How long the oldest head has waited that a witness has not cosigned; 0: it has cosigned all. Of the process that signs."),
    _counter("audit_witness_failures_total", "witness", "recalibrator",
        "Times that a witness did not cosign a checkpoint; it is asked again."),
    _gauge("part_reachable", "part", "worker recalibrator",
        "1 while the broker, the database, the encoder's endpoint or the judge answers, 0 while it does not."),
    _counter("reader_resets_total", "", "worker",
        "Times that the reader was set back because a record that was due had not arrived."),
    _info("build_info", "version python encoder", "worker recalibrator console",
        "1, with the versions that run as labels."),
    _counter("http_requests_total", "route status", "endpoint console",
        "Requests answered, by the route's template and HTTP status; `none` for unknown addresses, and where nothing of "
        "an answer was sent."),
    _histogram("http_request_duration_seconds", "route", "endpoint console",
        "From a request's head to the end of its answer, whatever its status.", LATENCY_BUCKETS),
    _counter("upstream_cached_replies_total", "gate", "endpoint",
        "Replies of the gate's upstream to one of several requests for a batch that a cache had answered: no samples of their own."),
    _gauge("recalibrator_leader", "", "recalibrator",
        "1 in the recalibrator that leads, 0 in a standby; gauges of gates are served by the leader alone."),
    _gauge("recalibrator_round_timestamp_seconds", "", "recalibrator",
        "When the recalibrator last finished a round over all gates, or saw that another one leads (Unix time)."),
    _counter("calibration_runs_total", "gate method outcome", "recalibrator",
        "Runs of the recalibrator, by the method that decides and by outcome: applied, proposed, unchanged or failed."),
    _histogram("calibration_duration_seconds", "", "recalibrator",
        "Time that one run took, from reading the audit sample to its outcome.", RUN_BUCKETS),
    _gauge("calibration_last_run_timestamp_seconds", "gate", "recalibrator",
        "When the gate's newest calibration run ended, whether the service or a person ran it (Unix time)."),
    _gauge("calibration_groups", "gate", "recalibrator",
        "Groups that the gate's newest calibration run read."),
    _gauge("calibration_new_groups", "gate", "recalibrator",
        "Groups that were labelled, or got a higher label, since the gate's newest calibration run; at most 10000 of each "
        "are counted."),
    _gauge("calibration_wanted_groups", "gate", "recalibrator",
        "New groups that trigger the next run; absent where labels trigger none."),
    _gauge("calibration_lambda_ratio", "gate method", "recalibrator",
        "Lambda by each calibrator in the gate's newest run; absent where that one holds or ships everything."),
    _gauge("proposal_pending", "gate", "recalibrator",
        "1 while a run's threshold waits for a person to put it in force."),
    _gauge("proposal_held_until_timestamp_seconds", "gate", "recalibrator",
        "When a looser threshold that waits for one label lag is tested again; absent where none waits."),
    _gauge("labels_pending", "gate", "recalibrator",
        "Drawn responses that wait for a severity of the gate's kind."),
    _gauge("labels_unread", "gate", "recalibrator",
        "Labels that are recorded and not read: by labellers that the gate does not read, or without a valid signature."),
    _gauge("exposure_risk_ratio", "gate", "recalibrator",
        "Severity that shipped, averaged over all decisions of the budget period that were read, held ones and those of a "
        "closed gate counting 0; estimated from the audit sample, overdue labels at 1. Verdicts rest on "
        "streamer_open_exposure_risk_ratio."),
    _gauge("exposure_risk_lower_ratio", "gate", "recalibrator",
        "Lower bound of exposure risk; it and the upper one hold together at all times, up to the gate's monitor_delta."),
    _gauge("exposure_risk_upper_ratio", "gate", "recalibrator", "Upper bound of exposure risk."),
    _gauge("exposure_budget_ratio", "gate", "recalibrator",
        "The budget that exposure risk is compared with: alpha over the attempts that a prompt may have."),
    _gauge("selective_risk_ratio", "gate", "recalibrator", "The same severity averaged over what shipped."),
    _gauge("selective_risk_lower_ratio", "gate", "recalibrator", "Lower bound of selective risk."),
    _gauge("selective_risk_upper_ratio", "gate", "recalibrator", "Upper bound of selective risk."),
    _gauge("monitored_decisions", "gate", "recalibrator", "Decisions that the present interval has read."),
    _gauge("monitored_labels", "gate", "recalibrator",
        "Of these the drawn ones whose loss is known, by labels or because nothing shipped."),
    _gauge("overdue_labels", "gate", "recalibrator",
        "Of these the drawn ones whose label was missing at the deadline; each widens the interval."),
    _gauge("late_labels", "gate", "recalibrator",
        "Labels that came, or changed, after their decision was read, ever; they are left out."),
    _gauge("risk_read_through_timestamp_seconds", "gate", "recalibrator",
        "Every decision before this moment has been read (Unix time); it stops where a drawn decision waits for its label."),
    _gauge("budget_used_ratio", "gate", "recalibrator",
        "Share of the period's budget that is used, by the labels that are there; above 1 it is overspent."),
    _gauge("budget_used_lower_ratio", "gate", "recalibrator", "Lower bound of the share that is used."),
    _gauge("budget_used_upper_ratio", "gate", "recalibrator",
        "Upper bound of the share that is used; what shipped and has not been read counts as wrong."),
    _gauge("budget_remaining_seconds", "gate", "recalibrator",
        "How long the budget lasts at the rate so far; +Inf while none is used, absent while closed or broken."),
    _gauge("budget_remaining_soonest_seconds", "gate", "recalibrator",
        "The same at the upper bound of what is used."),
    _gauge("audit_probability_ratio", "gate", "recalibrator",
        "Probability with which decisions are drawn for labelling at present; raised while the risk alarm gathers evidence."),
    _gauge("extra_labels_today", "gate", "recalibrator",
        "Labels asked for today (UTC) beyond the gate's own audit probability; at audit_boost_most it is no longer raised."),
    _gauge("budget_verdict", "gate", "recalibrator",
        "Whether the budget is kept while the gate is open: 1 kept, 0 not known yet, -1 broken, also while an alarm on it that "
        "nobody has acknowledged stands."),
    _gauge("label_lag_seconds", "gate", "recalibrator",
        "How long labels of drawn answers take: 95 % quantile; the monitor deadline while too few are known."),
    _gauge("open_prompts", "gate over", "recalibrator",
        "Prompts decided while the gate was open, over policy (that in force), period, or before (the period before that "
        "policy)."),
    _gauge("open_labelled_answers", "gate over", "recalibrator",
        "Of these the shipped answers with a label."),
    _gauge("open_served_ratio", "gate over", "recalibrator",
        "Share of these prompts of which something shipped; counted of all, so exact."),
    _gauge("open_selective_risk_ratio", "gate over", "recalibrator",
        "Error rate among their shipped answers; of claims the loss of a prompt that gets something."),
    _gauge("open_selective_risk_lower_ratio", "gate over", "recalibrator",
        "Its lower bound, which holds at all times."),
    _gauge("open_selective_risk_upper_ratio", "gate over", "recalibrator",
        "Its upper bound, which holds at all times."),
    _gauge("open_exposure_risk_ratio", "gate over", "recalibrator",
        "Average harm per prompt decided while the gate was open, held prompts counting 0."),
    _gauge("open_exposure_risk_lower_ratio", "gate over", "recalibrator",
        "Its lower bound, which holds at all times."),
    _gauge("open_exposure_risk_upper_ratio", "gate over", "recalibrator",
        "Its upper bound, which holds at all times."),
    _gauge("alarm_raised", "gate alarm", "recalibrator",
        "1 while an alarm (risk, selective, missing, early, draws, drift_scores, drift_cloud) is raised, 0 while it is not."),
    _gauge("alarm_evidence_ratio", "gate alarm", "recalibrator",
        "The present evidence over what raises the alarm; 1 or more has raised it."),
    _gauge("alarm_raised_timestamp_seconds", "gate alarm", "recalibrator",
        "When the alarm was raised (Unix time)."),
    _counter("alerts_total", "gate kind", "recalibrator",
        "Alerts on record, from all processes; the leading recalibrator counts them in the database."),
    _gauge("alerts_undelivered", "channel", "recalibrator",
        "Alerts that a channel (webhook, mail) has not taken yet, of which at most 50 are counted."),
)  # fmt: skip
