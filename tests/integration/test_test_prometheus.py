"""The Prometheus of the tests scrapes what it is told to and evaluates what it is asked."""

import time

import pytest

from streamer.telemetry.http import TelemetryServer
from streamer.telemetry.metrics import Metrics
from tests.services.prometheus import Prometheus


def test_it_scrapes_a_service_and_refuses_nonsense(prometheus: Prometheus) -> None:
    metrics = Metrics()
    metrics.acknowledged(0.3, (("traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),))
    with TelemetryServer(
        metrics.exposition, alive=list, ready=list, open_metrics=metrics.open_metrics
    ) as service:
        prometheus.start({"worker": [f"127.0.0.1:{service.port}"]}, every_seconds=0.2)
        metrics.set_outbox_pending(7)
        deadline = time.monotonic() + 120
        while prometheus.value("streamer_outbox_pending") != 7:
            assert time.monotonic() < deadline, prometheus.log_tail()
            time.sleep(0.1)
        assert prometheus.value('streamer_end_to_end_latency_seconds_bucket{le="0.5"}') == 1
        assert prometheus.value("streamer_no_such_metric") is None
        assert prometheus.value("1 + 1") == 2
        with pytest.raises(ValueError, match="parse error"):
            prometheus.query("sum(")
