"""What a person who watches is told is what the services export, and is missing where they say nothing."""

from collections.abc import Callable

import pytest

from streamer.telemetry.live_numbers import LiveNumbers, Samples, ShownInterval, live_numbers

WORKER = """
streamer_policy_version{gate="a"} 7
streamer_policy_version{gate="b"} 1
streamer_policy_state{gate="a",state="cut"} 1
streamer_policy_state{gate="a",state="closed"} 0
streamer_policy_lambda_ratio{gate="a"} 0.83
streamer_policy_alpha_ratio{gate="a"} 0.1
streamer_policy_activated_timestamp_seconds{gate="a"} 1000
streamer_batches_total{gate="a",action="ship",reason="scored"} 30
streamer_batches_total{gate="a",action="mixed",reason="scored"} 10
streamer_batches_total{gate="a",action="abstain",reason="scored"} 50
streamer_batches_total{gate="a",action="abstain",reason="closed"} 10
streamer_batches_total{gate="b",action="abstain",reason="closed"} 0
streamer_end_to_end_latency_seconds_count 100
streamer_end_to_end_latency_seconds_sum 5
streamer_consumer_lag_records{topic="r",partition="0"} 3
streamer_consumer_lag_records{topic="r",partition="1"} 4
streamer_outbox_pending 2
streamer_dead_letters_total{code="not_json"} 1
streamer_part_reachable{part="broker"} 0
streamer_part_reachable{part="database"} 1
"""

RECALIBRATOR = """
streamer_exposure_risk_ratio{gate="a"} 0.005
streamer_exposure_risk_lower_ratio{gate="a"} 0.004
streamer_exposure_risk_upper_ratio{gate="a"} 0.007
streamer_open_exposure_risk_ratio{gate="a",over="policy"} 0.05
streamer_open_exposure_risk_lower_ratio{gate="a",over="policy"} 0.04
streamer_open_exposure_risk_upper_ratio{gate="a",over="policy"} 0.07
streamer_open_exposure_risk_ratio{gate="a",over="period"} 0.06
streamer_open_exposure_risk_lower_ratio{gate="a",over="period"} 0.05
streamer_open_exposure_risk_upper_ratio{gate="a",over="period"} 0.08
streamer_open_selective_risk_ratio{gate="a",over="policy"} 0.1
streamer_budget_verdict{gate="a"} 0
streamer_labels_pending{gate="a"} 12
streamer_alarm_raised{gate="a",alarm="risk"} 1
streamer_alarm_raised{gate="a",alarm="draws"} 0
streamer_outbox_pending 2
"""


@pytest.fixture
def read() -> Callable[..., LiveNumbers]:
    def read(
        worker: str = WORKER, recalibrator: str = RECALIBRATOR, before: str | None = None
    ) -> LiveNumbers:
        return live_numbers(
            Samples(worker),
            Samples(recalibrator),
            before=None if before is None else Samples(before),
            seconds=2.0,
        )

    return read


def test_each_number_is_what_is_exported(read: Callable[..., LiveNumbers]) -> None:
    numbers = read()
    gate = numbers.gates[0]
    assert (gate.gate, gate.version, gate.state, gate.threshold, gate.alpha) == ("a", 7, "cut", 0.83, 0.1)
    assert (gate.batches, gate.served_ratio) == (100, 0.4)
    wanted = ShownInterval(lower=0.04, estimate=0.05, upper=0.07)
    assert gate.exposure == wanted, "a closed phase thins nothing out"
    assert gate.verdict == 0
    before_it = read(recalibrator=RECALIBRATOR.replace('over="policy"', 'over="before"')).gates[0]
    assert before_it.exposure == ShownInterval(lower=0.05, estimate=0.06, upper=0.08)
    assert gate.labels_pending == 12
    assert gate.alarms == ("risk",)
    assert (numbers.lag, numbers.outbox, numbers.dead_letters, numbers.away) == (7, 2, 1, ("broker",))


def test_what_nobody_exports_is_missing_and_not_zero(read: Callable[..., LiveNumbers]) -> None:
    numbers = read(recalibrator="")
    assert [gate.exposure for gate in numbers.gates] == [None, None]
    assert numbers.gates[0].labels_pending is None
    assert numbers.gates[1].served_ratio is None
    assert numbers.batches_per_second is None
    assert read().gates[0].selective is None, "an estimate without its bounds is not shown"


def test_rates_are_between_two_looks(read: Callable[..., LiveNumbers]) -> None:
    before = WORKER.replace('reason="scored"} 50', 'reason="scored"} 20').replace(
        "_count 100\nstreamer_end_to_end_latency_seconds_sum 5",
        "_count 70\nstreamer_end_to_end_latency_seconds_sum 2",
    )
    numbers = read(before=before)
    assert numbers.batches_per_second == 15
    assert numbers.latency_seconds == pytest.approx(0.1)
    assert read(before=WORKER).latency_seconds is None


def test_a_worker_that_was_started_anew_has_no_negative_rate(read: Callable[..., LiveNumbers]) -> None:
    assert read(worker=WORKER.replace("} 50", "} 5"), before=WORKER).batches_per_second is None


def test_a_text_that_is_no_exposition_is_refused() -> None:
    with pytest.raises(ValueError, match="could not convert"):
        Samples("nonsense{")
