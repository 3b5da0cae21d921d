"""Beside Kafka: actions go out as a worker's do, and batches that came either way are one namespace."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from kafka import KafkaConsumer, KafkaProducer

from tests.faults.endpoint import GATE, batch, held
from tests.faults.site import wait_until
from tests.faults.worker_process import WorkerProcess

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.faults.endpoint import Site
    from tests.services.kafka import KafkaBroker


@pytest.mark.postgres
def test_a_gate_is_fed_both_ways_at_once(
    kafka_broker: KafkaBroker, topic_prefix: str, migrated_postgres_url: str, new_site: Callable[..., Site]
) -> None:
    site = new_site(migrated_postgres_url)
    site.with_kafka(kafka_broker, topic_prefix)
    responses, actions = (f"{topic_prefix}{name}" for name in ("responses", "actions"))
    endpoint = site.serve(kafka=True)
    told = {"b-http": endpoint.ask(batch("b-http")).content}
    own = {"STREAMER_DATABASE_URL": site.url, "STREAMER_ENCODER_NAME": "none"}
    worker = WorkerProcess(site.settings | own, site.folder / "worker.log")
    try:
        worker.wait_until_ready()
        producer = KafkaProducer(bootstrap_servers=kafka_broker.bootstrap, acks="all")
        for name in ("b-kafka", "b-http"):
            event = {"schema": "streamer.responses.v1", "gate": GATE} | batch(name)
            producer.send(responses, json.dumps(event).encode()).get(timeout=240)
        producer.close()
        wait_until(lambda: len(site.outcomes(responses)) == 2, "the worker has both")
    finally:
        worker.close()
    assert sorted(site.outcomes(responses)) == ["decision", "duplicate"]
    again = endpoint.ask(batch("b-kafka"))
    assert again.headers["idempotent-replayed"] == "true"
    told["b-kafka"] = again.content
    held(endpoint.ask(batch("b-kafka", prompt="Who?")), 409, "conflicting_content")
    assert site.recorded() == told
    waiting = "SELECT count(*) FROM pending_messages WHERE source_log_id = 'http'"
    wait_until(lambda: site.rows(waiting) == [(0,)], "the relay has published")
    consumer = KafkaConsumer(
        actions,
        bootstrap_servers=kafka_broker.bootstrap,
        auto_offset_reset="earliest",
        consumer_timeout_ms=3000,
    )
    published = [record.value for record in consumer]
    consumer.close()
    assert told["b-http"] in published
    assert set(published) <= set(told.values())
    site.check()
