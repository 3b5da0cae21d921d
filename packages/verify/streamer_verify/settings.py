"""What a gate's settings are, and what a leaf has of a decision's columns.

Tables made of streamer/gates/declared.py and streamer/store/db/schema/decisions.py by `python -m verifiers.generate`.
"""
# fmt: off

from __future__ import annotations

from typing import Any

FORM = """
unit best|response|batch|claim, loss text, least_kept share, left_out drop|mark, scorer text, model text?,
signals text?, judged text, encoder text, embeddings refuse|accept, dimension count?, upstream text?,
severity_kind text, labellers json:names?, signed_labels bool, alpha inner, method text, eta above, draws
some, delta inner, rho share, shape text, width above, parameters json:numbers?, segment_by text?, group_by
text?, segment_fallback closed|pooled, label_floor share?, hold_action abstain|regenerate|escalate,
desk_deadline_seconds seconds?, max_attempts count, mode shadow|enforce, audit_probability share, audit_draws
count, audit_boost number?, audit_boost_most count, label_deadline_seconds seconds, pending
age|worst|labelled-only, window count?, decision_deadline_seconds seconds?, keep_texts bool, two_people bool,
recalibrate manual|propose|auto, recalibrate_every_seconds seconds?, recalibrate_after_groups count?,
max_lambda_step share, max_ship_rate_step share, least_groups count, on_alarm report|close, on_selective_alarm
report|close, on_missing report|close, early none|judge|drift|signals, monitor_delta inner, alarm_delta inner,
alarm_false_every count?, alarm_tolerance number, monitor_deadline_seconds seconds, budget_period_days above,
drift_delta inner, judge_kind text?
"""
"""What each looks like in a row of `gate_revisions`, in the words of `forms`."""

DECIDED = """
decided_at time, unit best|response|batch|claim, mode shadow|enforce, outcome
ship|mixed|abstain|regenerate|escalate, reason text, selected text?, policy count, cut_state?
closed|cut|open|full, cut_threshold? cut:cut_state, segment? text, burst? text, scorer text, encoder text,
embedding_source encoder|event|none, sampled bool, sampling_probability share, action_id text, timestamp_ms?
whole, deadline_ms? whole, audit_rate? count, extra_draw? bool, newest_seen? count, signals? hex, budget?
[number;count]
"""
"""What the facts of a decision are that are columns of it, in the same words."""

CALIBRATED_FOR = (
    "unit", "loss", "least_kept", "scorer", "signals", "judged", "encoder", "upstream", "severity_kind",
    "alpha", "method", "shape", "segment_by", "group_by", "segment_fallback", "label_floor", "max_attempts",
    "eta", "draws", "delta", "rho", "width",
)
"""What a threshold is calibrated for, with the parameters that have a column."""

SIGNED_SETTINGS = (
    "unit", "scorer", "encoder", "severity_kind", "alpha", "method", "eta", "draws", "delta", "rho", "shape",
    "width", "segment_by", "segment_fallback", "label_floor", "hold_action", "max_attempts", "mode",
    "audit_probability", "audit_draws", "label_deadline_seconds", "decision_deadline_seconds", "keep_texts",
    "recalibrate", "recalibrate_every_seconds", "recalibrate_after_groups", "max_lambda_step",
    "max_ship_rate_step", "least_groups", "on_alarm", "monitor_delta", "alarm_delta", "alarm_tolerance",
    "monitor_deadline_seconds", "budget_period_days", "drift_delta", "judge_kind",
)
"""The settings that every signature of a policy covers."""

SIGNED_IF_OTHER: dict[str, Any] = {
    "loss": "any", "least_kept": 0.0, "left_out": "drop", "model": None, "signals": None, "judged": "whole@1",
    "embeddings": "refuse", "dimension": None, "upstream": None, "labellers": None, "signed_labels": False,
    "parameters": None, "group_by": None, "desk_deadline_seconds": None, "audit_boost": None,
    "audit_boost_most": 400, "pending": "age", "window": None, "two_people": False, "on_selective_alarm":
    "report", "on_missing": "report", "early": "none", "alarm_false_every": None,
}
"""Those that it covers where they have another value."""

SIGNED_AS_FLOATS = frozenset((
    "alarm_delta", "alarm_tolerance", "alpha", "audit_boost", "audit_probability", "budget_period_days",
    "decision_deadline_seconds", "delta", "desk_deadline_seconds", "drift_delta", "eta",
    "label_deadline_seconds", "label_floor", "least_kept", "max_lambda_step", "max_ship_rate_step",
    "monitor_deadline_seconds", "monitor_delta", "recalibrate_every_seconds", "rho", "width",
))

UNREAD = 26, 29
"""The columns of a row of signals that say, by 1, why the encoder did not read a batch."""
