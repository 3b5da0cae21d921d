"""The catalogue keeps Prometheus' naming rules, and what happens is counted where it says."""

import re
import shutil
import subprocess
from dataclasses import replace
from datetime import UTC, datetime
from typing import Literal

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics_families
from prometheus_client.parser import text_string_to_metric_families

from streamer.events import codes
from streamer.gates.batch_key import BatchKey
from streamer.gates.policy import Policy
from streamer.gates.settings import GateSettings
from streamer.journal import (
    BatchDecision,
    DataGap,
    DeadLetter,
    LabelRevision,
    OutboxMessage,
    Partition,
    Record,
    Redelivery,
    ScoredResponse,
)
from streamer.telemetry.catalogue import CATALOGUE, PARTS, STAGES
from streamer.telemetry.metrics import HOLD_REASONS, Metrics, RequestMetrics
from streamer.telemetry.recalibrator_metrics import RecalibratorMetrics
from tests.made import a_decision, a_policy
from tests.unit.recalibration.test_schedule import status

NOW = datetime(2026, 11, 20, tzinfo=UTC)
TOPIC = Partition("log", "streamer.responses", 0)
RECORD = Record(TOPIC, 41, None, b"{}", (), 0)
MESSAGE = OutboxMessage("streamer.actions", None, b"{}", ())
BASE_UNITS = ("_seconds", "_bytes", "_ratio", "_total", "_records", "_info")
UNITLESS = {
    "monitored_decisions",
    "monitored_labels", "budget_verdict", "open_prompts", "open_labelled_answers",
    "overdue_labels",
    "late_labels",
    "extra_labels_today",
    "alarm_raised", "alerts_undelivered", "desk_waiting",
    "policy_version", "policy_state", "response_score", "outbox_pending", "part_reachable", "recalibrator_leader",
    "relay_lane_stuck",
    "calibration_groups", "calibration_new_groups", "calibration_wanted_groups", "proposal_pending", "labels_pending",
    "labels_unread",
}  # fmt: skip


def policy(**changes: object) -> Policy:
    fields = {"version": 7, "state": "cut", "threshold": 0.83}
    return a_policy(GateSettings(encoder="e@1", alpha=0.1), **fields | changes)


def decision(**changes: object) -> BatchDecision:
    answers = (
        ScoredResponse("a", "x", 0.9, 0.9, "ship", True),
        ScoredResponse("b", "", None, None, "abstain", False),
    )
    fields = {
        "record": RECORD,
        "prompt": "secret prompt",
        "mode": "enforce",
        "outcome": "ship",
        "selected": "a",
    }
    fields |= {"responses": answers, "sampled": True, "sampling_probability": 1.0, "action": MESSAGE}
    return a_decision(policy(), **fields | changes)


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"streamer_{name}", labels)


@pytest.mark.parametrize("metric", CATALOGUE, ids=lambda metric: metric.name)
def test_names_follow_the_rules_of_prometheus(metric) -> None:
    assert re.fullmatch(r"streamer_[a-z][a-z0-9_]*", metric.name)
    assert (metric.type == "counter") == metric.name.endswith("_total")
    assert not re.search(r"milli|micro|minutes|percent|gauge|counter|histogram", metric.name)
    bare = metric.name.removeprefix("streamer_")
    assert metric.name.endswith(BASE_UNITS) or bare in UNITLESS or bare == "audit_log_leaves"
    assert all(re.fullmatch(r"[a-z]+", label) for label in metric.labels)
    assert metric.help.endswith(".")
    assert bool(metric.buckets) == (metric.type == "histogram")
    assert list(metric.buckets) == sorted(set(metric.buckets))


def test_a_console_has_its_requests_alone() -> None:
    metrics = RequestMetrics()
    metrics.observe_request("/gate/{gate}", 200, 0.1)
    families = {f.name for f in text_string_to_metric_families(metrics.exposition().decode())}
    own = [metric for metric in CATALOGUE if "console" in metric.services]
    assert families == {metric.name.removesuffix("_total") for metric in own}


@pytest.mark.parametrize("service", ["worker", "endpoint"])
def test_the_exposition_holds_the_catalogue_and_nothing_else(service: Literal["worker", "endpoint"]) -> None:
    metrics = Metrics(encoder="e@1", service=service)
    metrics.observe_policy(policy())
    metrics.lag("t", 0, 1)
    metrics.set_log_leaves("t", 0, 1)
    families = {f.name: f for f in text_string_to_metric_families(metrics.exposition().decode())}
    own = [metric for metric in CATALOGUE if {"worker", service} & {*metric.services}]
    assert set(families) == {metric.name.removesuffix("_total") for metric in own}
    for metric in own:
        family = families[metric.name.removesuffix("_total")]
        assert family.documentation == metric.help
        assert family.type == ("gauge" if metric.type == "info" else metric.type)
        for sample in family.samples:
            assert set(sample.labels) - {"le"} == set(metric.labels)


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool: Debian package prometheus")
def test_promtool_accepts_the_exposition() -> None:
    metrics = Metrics(encoder="e@1", service="endpoint")
    metrics.observe_policy(policy())
    metrics.expect_requests("/v1/gates/{gate}")
    result = subprocess.run(
        ["promtool", "check", "metrics"], input=metrics.exposition(), capture_output=True,
        timeout=240, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr.decode()


def test_counters_start_at_zero() -> None:
    metrics = Metrics()
    metrics.observe_policy(policy())
    for reason in HOLD_REASONS:
        assert value(metrics, "batches_total", gate="g", action="abstain", reason=reason) == 0
    assert value(metrics, "batches_total", gate="g", action="ship", reason="scored") == 0
    assert value(metrics, "duplicates_total", gate="g") == 0
    assert value(metrics, "labels_total", gate="g", kind="human") == 0
    for code in codes.MEANINGS:
        assert value(metrics, "dead_letters_total", code=code) == 0
    for stage in STAGES:
        assert value(metrics, "stage_duration_seconds_count", stage=stage) == 0
    for part in PARTS:
        assert value(metrics, "part_reachable", part=part) == 0
    assert value(metrics, "encoded_texts_total") == 0


def test_a_policy_is_shown_with_its_state() -> None:
    metrics = Metrics()
    metrics.observe_policy(policy())
    assert value(metrics, "policy_lambda_ratio", gate="g") == 0.83
    assert value(metrics, "policy_state", gate="g", state="cut") == 1
    metrics.observe_policy(policy(version=8, state="closed", threshold=None))
    assert value(metrics, "policy_version", gate="g") == 8
    assert value(metrics, "policy_lambda_ratio", gate="g") is None
    assert [value(metrics, "policy_state", gate="g", state=s) for s in ("closed", "cut", "open")] == [1, 0, 0]
    assert value(metrics, "policy_activated_timestamp_seconds", gate="g") == NOW.timestamp()


def test_outcomes_are_counted_as_what_they_became() -> None:
    metrics = Metrics()
    metrics.observe_policy(policy())
    label = LabelRevision(
        key=BatchKey("g", "b", 1), response_id="a", severity=0.0, raw_severity=None, kind="human", labeller="l",
        labelled_at=NOW,
    )  # fmt: skip
    odd = LabelRevision(
        key=BatchKey("g", "b", 1), response_id="a", severity=0.0, raw_severity=None, kind="whatever-i-like",
        labeller="l", labelled_at=NOW,
    )  # fmt: skip
    metrics.committed(
        [
            decision(), decision(),
            Redelivery(record=RECORD, key=BatchKey("g", "b", 1), content_hash=b""),
            DeadLetter(record=RECORD, code="not_json", detail="", message=MESSAGE), label, odd,
        ],
        ["decision", "duplicate", "conflict", "dead_letter", "label", "label"],
    )  # fmt: skip
    assert value(metrics, "batches_total", gate="g", action="ship", reason="scored") == 1
    assert value(metrics, "responses_total", gate="g", action="abstain") == 1
    assert value(metrics, "response_score_count", gate="g") == 1
    assert value(metrics, "audit_sampled_batches_total", gate="g") == 1
    assert value(metrics, "duplicates_total", gate="g") == 1
    assert value(metrics, "dead_letters_total", code="conflicting_content") == 1
    assert value(metrics, "dead_letters_total", code="not_json") == 1
    assert value(metrics, "labels_total", gate="g", kind="human") == 1
    assert value(metrics, "labels_total", gate="g", kind="other") == 1
    assert b"whatever-i-like" not in metrics.exposition()
    assert b"secret prompt" not in metrics.exposition()


def test_the_stream_is_observed() -> None:
    metrics = Metrics()
    metrics.stage("commit", 0.01)
    metrics.acknowledged(-1.0, ())
    metrics.lag("t", 3, 17)
    metrics.part("database", True)
    metrics.part("unheard-of", True)
    metrics.reset("because")
    metrics.gap(DataGap(TOPIC, 1, 5))
    metrics.parked(MESSAGE, "too large")
    assert value(metrics, "stage_duration_seconds_sum", stage="commit") == 0.01
    assert value(metrics, "end_to_end_latency_seconds_sum") == 0
    assert value(metrics, "consumer_lag_records", topic="t", partition="3") == 17
    assert value(metrics, "part_reachable", part="database") == 1
    assert value(metrics, "part_reachable", part="unheard-of") is None
    found = [value(metrics, f"{n}_total") for n in ("reader_resets", "data_gaps", "outbox_parked")]
    assert found == [1, 1, 1]
    metrics.released("t", 3)
    assert value(metrics, "consumer_lag_records", topic="t", partition="3") is None


def test_the_encoder_counts_for_itself() -> None:
    metrics = Metrics()
    metrics.watch_encoder(lambda: 5, lambda: 2)
    assert value(metrics, "encoded_texts_total") == 5
    assert value(metrics, "encoder_cache_hits_total") == 2


def test_a_threshold_that_is_held_waits_for_its_time_and_for_no_person() -> None:
    metrics = RecalibratorMetrics()
    pending, until = "streamer_proposal_pending", "streamer_proposal_held_until_timestamp_seconds"
    for held, waits in ((NOW, 0.0), (None, 1.0)):
        metrics.show(replace(status(), proposed=True, held_until=held))
        assert metrics.registry.get_sample_value(pending, {"gate": "g"}) == waits
        shown = metrics.registry.get_sample_value(until, {"gate": "g"})
        assert shown == (None if held is None else held.timestamp())


def test_open_metrics_lead_to_a_trace_that_is_kept() -> None:
    trace, span = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    metrics = Metrics(service="endpoint")
    metrics.acknowledged(0.3, (("traceparent", f"00-{trace}-{span}-01".encode()),))
    for headers in ((), (("traceparent", f"00-{trace}-{span}-00".encode()),), (("traceparent", b"garbage"),)):
        metrics.acknowledged(3.0, headers)
    families = {f.name: f for f in open_metrics_families(metrics.open_metrics().decode())}
    plain = {f.name: f for f in text_string_to_metric_families(metrics.exposition().decode())}
    assert set(families) == set(plain)
    found = {
        sample.labels["le"]: (sample.exemplar.labels, sample.exemplar.value)
        for sample in families["streamer_end_to_end_latency_seconds"].samples
        if sample.exemplar
    }
    assert found == {"0.5": ({"trace_id": trace, "span_id": span}, 0.3)}
    assert b"trace_id" not in metrics.exposition()
