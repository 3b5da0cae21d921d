"""Which changes of a gate make its threshold meaningless: those of what it was calibrated for, and of nothing unread."""

from dataclasses import replace
from typing import Any

import pytest

from streamer.gates.declared import LEAST_ALPHA
from streamer.gates.setting_changes import calibrated_for_another, unread
from streamer.gates.settings import FLAT_NAMES, GateSettings

PLAIN = GateSettings(encoder="e@1", unit="response", dimension=8)
OTHER: dict[str, Any] = {
    "unit": "best", "encoder": "f@1", "severity_kind": "judge", "alpha": 0.2, "method": "crc", "eta": 2.0, "draws": 3,
    "delta": 0.2, "rho": 0.5, "shape": "quantile", "width": 0.2, "segment_by": "k",
    "segment_fallback": "pooled", "label_floor": 0.3, "hold_action": "escalate", "max_attempts": 2, "mode": "enforce",
    "audit_probability": 0.5, "audit_draws": 3, "label_deadline_seconds": 5.0, "decision_deadline_seconds": 9.0,
    "keep_texts": False, "recalibrate": "auto", "recalibrate_every_seconds": None, "recalibrate_after_groups": 7,
    "max_lambda_step": 0.2, "max_ship_rate_step": 0.2, "least_groups": 7, "on_alarm": "report", "monitor_delta": 0.2,
    "on_selective_alarm": "close", "on_missing": "close", "early": "drift", "alarm_false_every": None,
    "alarm_delta": 0.2, "alarm_tolerance": 0.3, "monitor_deadline_seconds": 5.0, "budget_period_days": 7.0,
    "drift_delta": 0.2, "judge_kind": "lexical", "embeddings": "accept", "dimension": 9,
    "labellers": ("ann",), "signed_labels": True, "pending": "worst", "window": 300,
    "audit_boost": None, "audit_boost_most": 7, "two_people": True, "upstream": "small@0badcafe", "group_by": "session", "judged": "raw@1",
}  # fmt: skip
OF_CLAIMS = {"loss": "mass:2", "least_kept": 0.5, "left_out": "mark"}
NEVER = {
    "hold_action", "mode", "audit_probability", "audit_draws", "label_deadline_seconds", "decision_deadline_seconds",
    "keep_texts", "recalibrate", "recalibrate_every_seconds", "recalibrate_after_groups", "max_lambda_step",
    "max_ship_rate_step", "least_groups", "on_alarm", "on_selective_alarm", "on_missing", "early", "alarm_false_every", "monitor_delta", "alarm_delta", "alarm_tolerance",
    "monitor_deadline_seconds", "budget_period_days", "drift_delta", "judge_kind", "embeddings", "dimension",
    "pending", "window", "audit_boost", "audit_boost_most", "two_people",
}  # fmt: skip
ONE_WAY = {"labellers", "signed_labels"}
"""Labels that are not read any more may be what the threshold rests on; that more are read concerns later runs."""
UNREAD_BY_MEAN = {
    "eta",
    "draws",
    "delta",
    "rho",
    "ship_above",
    "least_alike",
    "width",
    "segment_fallback",
    "dimension",
    "signals",
}


def test_every_setting_is_told_of() -> None:
    others = {"scorer", "signals", "model", "parameters", "desk_deadline_seconds", *OF_CLAIMS}
    assert set(OTHER) | others == set(FLAT_NAMES)


def test_a_gate_of_claims_is_calibrated_for_its_loss_and_says_what_it_cannot_have() -> None:
    claims = replace(PLAIN, unit="claim", scorer="support", encoder="none")
    assert {"unit", "scorer"} <= set(calibrated_for_another(PLAIN, claims))
    for name, other in OF_CLAIMS.items():
        wanted = [] if name == "left_out" else [name]
        assert calibrated_for_another(claims, replace(claims, **{name: other})) == wanted
        with pytest.raises(ValueError, match="go with the unit claim"):
            replace(PLAIN, **{name: other})
    refused = ("bb", "selective", "full")
    for changes in (*({"method": one} for one in refused), {"judge_kind": "x"}, {"loss": "mass:0"}):
        with pytest.raises(ValueError, match=next(iter(changes))):
            replace(claims, **changes)
    for name in ("mean", "age", "hb", "betting", "bernstein"):
        assert replace(claims, method=name).method == name
    with pytest.raises(ValueError, match="segment_by goes with the methods mean and"):
        replace(claims, method="hb", segment_by="k")
    with pytest.raises(ValueError, match="scorer must be support or support-learned with the unit claim"):
        replace(claims, scorer="external")
    with pytest.raises(ValueError, match="scorer support goes with the unit claim"):
        replace(claims, unit="best")


def test_a_desk_needs_what_is_escalated_and_texts_and_changes_no_threshold() -> None:
    held = replace(PLAIN, hold_action="escalate")
    assert calibrated_for_another(held, replace(held, desk_deadline_seconds=60.0)) == []
    for changes in (
        {"hold_action": "abstain"},
        {"keep_texts": False},
        {"desk_deadline_seconds": 0.5},
        {"desk_deadline_seconds": 31 * 86_400.0},
    ):
        with pytest.raises(ValueError, match="desk_deadline_seconds"):
            replace(held, **({"desk_deadline_seconds": 60.0} | changes))


@pytest.mark.parametrize("name", OTHER)
def test_a_change_counts_if_it_is_read(name: str) -> None:
    changed = replace(PLAIN, **{name: OTHER[name]})
    wanted = [] if name in NEVER | UNREAD_BY_MEAN else [name]
    assert calibrated_for_another(PLAIN, changed) == wanted
    assert calibrated_for_another(changed, PLAIN) == ([] if name in ONE_WAY else wanted)


def test_what_is_unread_follows_from_the_method_and_the_shape() -> None:
    assert unread(PLAIN) == UNREAD_BY_MEAN
    for changes, read in (
        ({"method": "rbwa"}, {"eta"}),
        ({"method": "bb"}, {"draws"}),
        ({"method": "hb"}, {"delta"}),
        ({"method": "selective"}, {"delta"}),
        ({"method": "age"}, {"rho"}),
        ({"shape": "ramp"}, {"width"}),
        ({"segment_by": "k"}, {"segment_fallback"}),
        ({"embeddings": "accept"}, {"dimension"}),
    ):
        assert unread(replace(PLAIN, **changes)) == UNREAD_BY_MEAN - read


def test_a_parameter_that_comes_into_use_counts_with_its_method() -> None:
    assert calibrated_for_another(PLAIN, replace(PLAIN, method="hb", delta=0.05)) == ["delta", "method"]
    assert calibrated_for_another(PLAIN, replace(PLAIN, method="hb")) == ["method"]


def test_a_budget_that_nobody_can_label_for_is_refused() -> None:
    assert GateSettings(encoder="e@1", alpha=LEAST_ALPHA).alpha == LEAST_ALPHA
    with pytest.raises(ValueError, match="alpha must be at least 1e-09 and less than 1"):
        GateSettings(encoder="e@1", alpha=1e-320)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"recalibrate": "often"}, "recalibrate must be one of manual, propose, auto"),
        (
            {"recalibrate_every_seconds": 0.0},
            "recalibrate_every_seconds must be above 0 and finite, or absent",
        ),
        ({"recalibrate_after_groups": 0}, "recalibrate_after_groups must be in 1"),
        ({"max_lambda_step": 0.0}, "max_lambda_step must be above 0 and at most 1"),
        ({"max_ship_rate_step": 1.5}, "max_ship_rate_step must be above 0 and at most 1"),
        ({"least_groups": 0}, "least_groups must be in 1"),
        ({"on_alarm": "ring"}, "on_alarm must be one of report, close"),
        ({"on_selective_alarm": "ring"}, "on_selective_alarm must be one of report, close"),
        ({"alarm_false_every": 0}, "alarm_false_every must be in 1"),
        ({"monitor_delta": 1.0}, "monitor_delta must be between 0 and 1"),
        ({"alarm_delta": 0.0}, "alarm_delta must be between 0 and 1"),
        ({"alarm_tolerance": -0.1}, "alarm_tolerance must be at least 0 and at most 10"),
        (
            {"monitor_deadline_seconds": float("nan")},
            "monitor_deadline_seconds must be at least 0 and finite",
        ),
        ({"budget_period_days": 0.0}, "budget_period_days must be above 0"),
        ({"drift_delta": float("nan")}, "drift_delta must be between 0 and 1"),
        ({"embeddings": "ask"}, "embeddings must be one of refuse, accept"),
        ({"embeddings": "accept"}, "dimension must be that of the embeddings of e@1"),
        ({"embeddings": "accept", "dimension": 1}, "dimension must be in 2..4096"),
        ({"dimension": 4097}, "dimension must be in 2..4096"),
        ({"encoder": "external:e", "dimension": 8}, "embeddings must be accept with the encoder external:e"),
        (
            {"encoder": "external:e", "embeddings": "accept"},
            "dimension must be that of the embeddings of external:e",
        ),
        (
            {"encoder": "external:", "embeddings": "accept", "dimension": 8},
            "encoder must be external: and a name",
        ),
        (
            {"encoder": "external:e f", "embeddings": "accept", "dimension": 8},
            "encoder must be external: and a name",
        ),
        (
            {"scorer": "external", "encoder": "none", "embeddings": "accept", "dimension": 8},
            "embeddings must be refuse",
        ),
        ({"judge_kind": "No!"}, "judge_kind must be like 'judge'"),
        ({"judge_kind": "human"}, "judge_kind must be another kind of label than the gate's own, human"),
    ],
)
def test_a_rule_out_of_range_is_refused(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        GateSettings(**{"encoder": "e@1"} | wrong)


def test_a_gate_takes_the_embeddings_of_its_encoder_and_of_no_other() -> None:
    refuses = GateSettings(encoder="e@12345678", dimension=8)
    accepts = replace(refuses, embeddings="accept")
    external = GateSettings(encoder="external:e@12345678", embeddings="accept", dimension=8)
    assert not refuses.accepts("e@12345678", 8)
    assert accepts.accepts("e@12345678", 8)
    assert external.accepts("e@12345678", 8)
    assert external.accepts("external:e@12345678", 8)
    for gate in (accepts, external):
        for named, dimension in (("e@12345678", 9), ("e", 8), ("E@12345678", 8), ("", 8), (None, 8)):
            assert not gate.accepts(named, dimension), (named, dimension)
    assert not accepts.accepts("external:e@12345678", 8)
