"""Case 11: workers whose clocks are a day off, both ways, and publishers who date their records as they like."""

import time
from pathlib import Path

import pytest
from confluent_kafka import Producer

from streamer import wiring
from tests.faults.matrix import Matrix
from tests.faults.site import Site, events, publish, wait_until
from tests.recorded import newest_decisions

DAY = 86_400
PROGRAM = str(Path(__file__).with_name("shifted_clock.py"))


@pytest.mark.long
def test_clocks_a_day_off_both_ways(site: Site, matrix: Matrix) -> None:
    topic = wiring.topics(site.settings).responses
    refused: list[object] = []

    def told(error: object, _message: object) -> None:
        refused.extend([error] if error is not None else [])

    publish(site, 0, 100)
    for number, off in enumerate((DAY, -DAY), start=1):
        worker = site.start_worker(program=(PROGRAM, str(off)))
        wait_until(lambda: site.decided() == 100 * number, "all batches are decided")  # noqa: B023
        wait_until(lambda: site.store.reports.outbox_pending() == 0, "and published")
        worker.wait_until_ready()
        assert worker.terminate() == 0
        decided = max(one.decided_at for one in newest_decisions(site.store, limit=200))
        if off > 0:
            assert decided.timestamp() - time.time() > DAY / 2, "its clock was not off"
        producer = Producer({"bootstrap.servers": site.settings.bootstrap_servers, "log_level": 0})
        for key, value in events(100 * number, 100):
            dated = int((time.time() + off * 300) * 1000)
            producer.produce(topic, value, key=key, timestamp=dated, on_delivery=told)
        assert producer.flush(30) == 0
        assert not refused, "the broker turned records away by their dates"
    site.start_worker()
    wait_until(lambda: site.decided() == 300, "all batches are decided")
    found = site.check()
    assert found.decisions == 300
    matrix.add("11 workers a day ahead and a day behind", found)
