"""Beside Kafka: actions go out as a worker's do, and batches that came either way are one namespace."""

import json
from collections.abc import Callable

import pytest
from kafka import KafkaProducer

from streamer import wiring
from streamer.events.desk import decode_desk
from streamer.gates.batch_key import BatchKey
from streamer.settings.settings import load_settings
from streamer.store.desk.release_desk import Release
from streamer.stream.connection import KafkaConnection
from streamer.stream.tail import TailedRecord
from tests.faults.endpoint import GATE, Site, batch, held
from tests.faults.site import wait_until
from tests.faults.worker_process import WorkerProcess
from tests.integration.stream.running import all_records
from tests.services.kafka import KafkaBroker


def published_on(broker: KafkaBroker, topic: str) -> list[TailedRecord]:
    return all_records(KafkaConnection(broker.bootstrap), topic)


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
    published = [record.value for record in published_on(kafka_broker, actions)]
    assert told["b-http"] in published
    assert set(published) <= set(told.values())
    site.check()


def test_what_becomes_of_held_batches_is_published_whichever_way_they_came(
    kafka_broker: KafkaBroker, topic_prefix: str, migrated_sqlite_url: str, new_site: Callable[..., Site]
) -> None:
    site = new_site(migrated_sqlite_url, hold_action="escalate", desk_deadline_seconds=600.0)
    site.gate("hasty", hold_action="escalate", desk_deadline_seconds=1.0)
    site.with_kafka(kafka_broker, topic_prefix)
    assert site.serve(kafka=True).ask(batch("b-http", score=0.1)).json()["action"] == "escalate"
    own = {"STREAMER_DATABASE_URL": site.url, "STREAMER_ENCODER_NAME": "none"}
    worker = WorkerProcess(site.settings | own, site.folder / "worker.log")
    settings = load_settings(
        kafka={"bootstrap_servers": kafka_broker.bootstrap, "topic_prefix": topic_prefix},
        database={"url": site.url},
    )
    try:
        worker.wait_until_ready()
        producer = KafkaProducer(bootstrap_servers=kafka_broker.bootstrap, acks="all")
        event = {"schema": "streamer.responses.v1", "gate": "hasty"} | batch("b-kafka", score=0.1)
        responses = f"{topic_prefix}responses"
        producer.send(responses, json.dumps(event).encode(), key=b"customer-7").get(timeout=240)
        producer.close()
        with wiring.open_store(settings) as store:
            key = BatchKey(GATE, "b-http", 1)
            store.desk.decide(key, Release(response_id="a", text="Better."), by="account:ana", remark="")
        waiting = "SELECT count(*) FROM outbox WHERE published_at IS NULL AND topic LIKE '%.desk'"
        outcomes = "SELECT count(*) FROM desk_outcomes"
        wait_until(
            lambda: site.rows(outcomes) == [(2,)] and site.rows(waiting) == [(0,)], "both are published"
        )
    finally:
        worker.close()
    found = {}
    for record in published_on(kafka_broker, f"{topic_prefix}desk"):
        one = decode_desk(record.value)
        found[one.batch_id] = (one.action, one.reason, one.text, record.key)
    assert found == {
        "b-http": ("released", "person", "Better.", b"b-http"),
        "b-kafka": ("rejected", "deadline_passed", None, b"customer-7"),
    }
