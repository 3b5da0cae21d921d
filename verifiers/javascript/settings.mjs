// Made of the declarations in streamer/gates/declared.py by `python -m verifiers.generate`.

/** What a threshold is calibrated for, beside the parameters of its method and shape. */
export const CALIBRATED_FOR = [
  "unit", "loss", "least_kept", "scorer", "signals", "judged", "encoder", "upstream", "severity_kind", "alpha",
  "method", "shape", "segment_by", "group_by", "segment_fallback", "label_floor", "max_attempts"
];

/** The settings that every policy signature covers, and the later ones with the value that leaves them out. */
export const FIRST_SETTINGS = [
  "unit", "scorer", "encoder", "severity_kind", "alpha", "method", "eta", "draws", "delta", "rho", "shape", "width",
  "segment_by", "segment_fallback", "label_floor", "hold_action", "max_attempts", "mode", "audit_probability",
  "audit_draws", "label_deadline_seconds", "decision_deadline_seconds", "keep_texts", "recalibrate",
  "recalibrate_every_seconds", "recalibrate_after_groups", "max_lambda_step", "max_ship_rate_step", "least_groups",
  "on_alarm", "monitor_delta", "alarm_delta", "alarm_tolerance", "monitor_deadline_seconds", "budget_period_days",
  "drift_delta", "judge_kind"
];
export const LATER_SETTINGS = {
  "loss": "any", "least_kept": 0.0, "left_out": "drop", "model": null, "signals": null, "judged": "whole@1",
  "embeddings": "refuse", "dimension": null, "upstream": null, "labellers": null, "signed_labels": false,
  "parameters": null, "group_by": null, "desk_deadline_seconds": null, "audit_boost": null, "audit_boost_most": 400,
  "pending": "age", "window": null, "two_people": false, "on_selective_alarm": "report", "on_missing": "report",
  "early": "none", "alarm_false_every": null
};

/** Those that are written as floats. */
export const FLOATS = new Set([
  "alarm_delta", "alarm_tolerance", "alpha", "audit_boost", "audit_probability", "budget_period_days",
  "decision_deadline_seconds", "delta", "desk_deadline_seconds", "drift_delta", "eta", "label_deadline_seconds",
  "label_floor", "least_kept", "max_lambda_step", "max_ship_rate_step", "monitor_deadline_seconds", "monitor_delta",
  "recalibrate_every_seconds", "rho", "width"
]);

/** The signals that say, by 1, why an encoder did not read a batch. */
export const UNREAD = [26, 27, 28];
