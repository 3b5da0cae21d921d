"""A real Prometheus scrapes two workers and two recalibrators, loads the rules, and is asked every expression."""

import itertools
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import Any

import pytest

from streamer.gates.settings import GateSettings
from streamer.telemetry.catalogue import CATALOGUE, OPEN_GAUGES, PARTS, RUN_OUTCOMES, STAGES, STRETCHES
from streamer.telemetry.http import TelemetryServer
from streamer.telemetry.metrics import Metrics
from streamer.telemetry.recalibrator_metrics import RecalibratorMetrics
from tests import promql
from tests.made import a_policy
from tests.services.prometheus import Prometheus

GATES = ("support-bot", "search.v2")
ALARMS = ("risk", "selective", "missing", "early", "draws", "drift_scores", "drift_cloud")
LED = {
    "audit_probability_ratio": 0.2, "extra_labels_today": 40, "exposure_budget_ratio": 0.05, "exposure_risk_ratio": 0.03, "exposure_risk_lower_ratio": 0.02, "exposure_risk_upper_ratio": 0.045,
    "selective_risk_ratio": 0.08, "selective_risk_lower_ratio": 0.06, "selective_risk_upper_ratio": 0.11,
    "budget_used_ratio": 0.4, "budget_used_lower_ratio": 0.3, "budget_used_upper_ratio": 0.5,
    "budget_remaining_seconds": 1.2e6, "budget_remaining_soonest_seconds": 9e5,
    "budget_verdict": 1, "label_lag_seconds": 7200,
    "monitored_decisions": 9000, "monitored_labels": 800, "overdue_labels": 9, "late_labels": 2,
    "calibration_groups": 700, "calibration_new_groups": 40, "calibration_wanted_groups": 100,
    "proposal_pending": 0, "labels_pending": 12, "labels_unread": 3,
}  # fmt: skip
"""What a leading recalibrator shows of a gate where all is well."""


class Installation:
    """Four services that serve metrics, and traffic that moves them."""

    def __init__(self, stack: ExitStack) -> None:
        encoder = "all-MiniLM-L6-v2@53aa5117"
        self.workers = [Metrics(encoder=encoder), Metrics(encoder=encoder, service="endpoint")]
        self.leader, self.waiting = RecalibratorMetrics(), RecalibratorMetrics()
        self._draw = random.Random(7)
        for worker in self.workers:
            worker.watch_encoder(
                lambda: round(10 * time.monotonic()),
                lambda: round(90 * time.monotonic()),
                lambda: round(30 * time.monotonic()),
                time.monotonic,
            )
            self.policies(worker, version=7)
        self.leader.set_leader(True)
        self.lead(self.leader)
        # One that led before and still shows what it knew must not be mixed in.
        for gate in GATES:
            self.waiting.of("exposure_risk_ratio").labels(gate).set(0.9)
        services = (*self.workers, self.leader, self.waiting)
        servers = [
            stack.enter_context(TelemetryServer(each.exposition, alive=dict, ready=dict)) for each in services
        ]
        addresses = [server.url.removeprefix("http://") for server in servers]
        self.targets = {"streamer-worker": addresses[:2], "streamer-recalibrator": addresses[2:]}
        self._stop = threading.Event()
        thread = threading.Thread(target=self._traffic)
        thread.start()
        stack.callback(thread.join)
        stack.callback(self._stop.set)

    def policies(self, worker: Metrics, *, version: int) -> None:
        for gate in GATES:
            worker.observe_policy(
                a_policy(
                    GateSettings(encoder="all-MiniLM-L6-v2@53aa5117", alpha=0.05), gate=gate, version=version,
                    state="cut", threshold=0.83, valid_from=datetime.now(UTC),
                )
            )  # fmt: skip

    def lead(self, metrics: RecalibratorMetrics) -> None:
        for gate in GATES:
            for name, value in LED.items():
                metrics.of(name).labels(gate).set(value)
            for name in ("calibration_last_run_timestamp_seconds", "risk_read_through_timestamp_seconds"):
                metrics.of(name).labels(gate).set(time.time() - 3600)
            for name, over in itertools.product(OPEN_GAUGES, STRETCHES):
                metrics.of(name).labels(gate, over).set(0.02)
            for method in ("mean", "crc", "bb"):
                metrics.of("calibration_lambda_ratio").labels(gate, method).set(0.8)
            for outcome in RUN_OUTCOMES:
                metrics.of("calibration_runs_total").labels(gate, "mean", outcome)
            for alarm in ALARMS:
                metrics.of("alarm_raised").labels(gate, alarm).set(0)
                metrics.of("alarm_evidence_ratio").labels(gate, alarm).set(0.2)
                metrics.of("alerts_total").labels(gate, alarm)

    def _traffic(self) -> None:
        while not self._stop.wait(0.1):
            self.leader.set_round(datetime.now(UTC))
            self.leader.of("audit_unsigned_seconds").set(0.5)
            self.leader.set_unwitnessed("witness.example/w1", 60.0, failed=True)
            self.leader.count_run(GATES[0], "mean", "applied", self._draw.uniform(0.2, 3))
            for number, worker in enumerate(self.workers):
                self._work(worker, number)

    def _work(self, worker: Metrics, number: int) -> None:
        # What the product counts one by one is counted here by the same metrics, without the events behind it.
        of: dict[str, Any] = worker._of
        for gate in GATES:
            for action, reason in (("ship", "scored"), ("abstain", "scored"), ("abstain", "closed")):
                of["batches_total"].labels(gate, action, reason).inc(self._draw.randrange(1, 9))
                of["responses_total"].labels(gate, action).inc(10)
            of["response_score"].labels(gate).observe(self._draw.betavariate(5, 2))
            of["audit_sampled_batches_total"].labels(gate).inc()
            of["labels_total"].labels(gate, "human").inc()
        worker.acknowledged(self._draw.expovariate(2), ())
        for stage in STAGES:
            worker.stage(stage, self._draw.expovariate(20))
        if number:
            worker.cached_replies(GATES[0])(1)
            for status in (200, 503):
                worker.observe_request("/v1/gates/{gate}/decisions", status, self._draw.expovariate(20))
        for part in PARTS:
            worker.part(part, True)
        worker.set_outbox_pending(self._draw.randrange(5))
        worker.set_desk_queues({GATES[0]: (self._draw.randrange(5), 60.0)})
        worker.set_desk_outcomes({(GATES[0], "released"): 3})
        worker.lag("streamer.responses", number, self._draw.randrange(3))
        worker.set_log_leaves("streamer.responses", number, round(50 * time.monotonic()))


@pytest.fixture
def installation() -> Iterator[Installation]:
    with ExitStack() as stack:
        yield Installation(stack)


def wait(condition: Callable[[], bool], what: object, seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not in time: {what}"
        time.sleep(0.2)


def test_every_expression_has_data_and_alerts_come_as_they_should(
    prometheus: Prometheus, installation: Installation
) -> None:
    itself = {"prometheus": [prometheus.url.removeprefix("http://")]}
    prometheus.start(installation.targets | itself, rules=promql.RULE_FILES, every_seconds=0.5)
    wait(lambda: bool(prometheus.query("job:streamer_end_to_end_latency_seconds:p99_rate5m > 0")), "traffic")
    wait(lambda: bool(prometheus.query("gate:streamer_batches_shipped:ratio_rate1h > 0")), "a served share")
    empty = {
        f"{each.place}: {each.text}": each.text
        for each in promql.expressions("|".join(GATES), interval="4s")
        if each.place not in promql.empty_while_all_is_well()
    }

    def all_have_had_data() -> bool:
        for place, text in list(empty.items()):
            if prometheus.query(text):
                del empty[place]
        return not empty

    # A rate needs two scrapes in four seconds, which a busy machine may miss now and then.
    wait(all_have_had_data, empty)
    # A scrape every half second may miss on a busy machine, and what is pending for it ends with the next one.
    wait(
        lambda: pending_or_firing(prometheus) == {"StreamerDeadMansSwitch"},
        "no alert but the dead man's switch",
    )

    # The words of every panel's legend are labels of what comes back.
    for each in promql.panels("|".join(GATES), interval="4s"):
        for series in prometheus.query(each.text):
            for label in promql.legend_labels(each.legend):
                assert label in series["metric"], f"{each.place}: no label {label}"

    # One series a gate, whatever number of services show it, and the leader's figures alone.
    assert prometheus.value('max by (gate) (streamer_policy_version{gate="support-bot"})') == 7
    assert prometheus.value('gate:streamer_exposure_risk_ratio:leader{gate="support-bot"}') == 0.03

    # A new policy is marked once, with its number; then an alarm.
    (mark, alarm) = (
        each.text.replace("4s", "8s")
        for each in promql.panels(GATES[0], interval="4s")
        if each.kind == "annotation" and each.place.startswith("streamer-risk")
    )
    start = time.time()
    for worker in installation.workers:
        installation.policies(worker, version=8)
    installation.leader.of("alarm_raised").labels(GATES[0], "risk").set(1)
    installation.leader.of("open_exposure_risk_lower_ratio").labels(GATES[0], "period").set(0.06)
    wait(lambda: prometheus.value(f'gate:streamer_policy_version:max{{gate="{GATES[0]}"}}') == 8, "version 8")
    wait(lambda: "StreamerRiskAlarm" in pending_or_firing(prometheus), "the alarm")
    time.sleep(8.5)
    (marked,) = prometheus.query_range(mark, start=start, end=time.time(), step=8)
    assert marked["metric"] == {"gate": GATES[0], "policy": "8"}
    assert len(marked["values"]) == 1
    (marked,) = prometheus.query_range(alarm, start=start, end=time.time(), step=8)
    assert len(marked["values"]) == 1
    assert pending_or_firing(prometheus) >= {"StreamerRiskAlarm", "StreamerBudgetBroken"}
    for found in prometheus.alerts():
        told = found["annotations"]
        assert "error" not in told["summary"] + told["description"]
        assert "<no value>" not in told["summary"] + told["description"]


def pending_or_firing(prometheus: Prometheus) -> set[str]:
    return {alert["labels"]["alertname"] for alert in prometheus.alerts()}


def test_the_filling_leaves_no_metric_of_the_rules_out() -> None:
    asked = {name for each in promql.expressions() for name in promql.metrics_used(each.text)}
    catalogued = {metric.name for metric in CATALOGUE}
    unasked = {
        name.removeprefix("streamer_")
        for name in catalogued
        if not any(one.startswith(name) for one in asked)
    }
    assert not unasked
