"""The services that other tests stand on: they hold what they were given, through stops and crashes."""

import time

import pytest
import sqlalchemy as sa
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import TopicAlreadyExistsError, UnknownTopicOrPartitionError

from tests.services.kafka import KafkaBroker
from tests.services.postgres import PostgresServer


def _produce(broker: KafkaBroker, topic: str, values: list[bytes]) -> None:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, acks="all")
    try:
        for sent in [producer.send(topic, value, partition=0) for value in values]:
            sent.get(timeout=240)
    finally:
        producer.close(timeout=10)


def _consume(broker: KafkaBroker, topic: str, count: int) -> list[tuple[int, bytes]]:
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap, enable_auto_commit=False)
    try:
        partition = TopicPartition(topic, 0)
        consumer.assign([partition])
        consumer.seek_to_beginning(partition)
        found: list[tuple[int, bytes]] = []
        deadline = time.monotonic() + 240
        while len(found) < count and time.monotonic() < deadline:
            for records in consumer.poll(timeout_ms=500).values():
                found += [(record.offset, record.value) for record in records]
        return found
    finally:
        consumer.close()


class TestKafka:
    def test_what_is_produced_is_consumed_in_order(
        self, kafka_broker: KafkaBroker, topic_prefix: str
    ) -> None:
        topic = kafka_broker.create_topic(f"{topic_prefix}events")
        values = [f"event {number}".encode() for number in range(100)]
        _produce(kafka_broker, topic, values)
        assert _consume(kafka_broker, topic, 100) == list(enumerate(values))

    def test_a_topic_has_the_partitions_and_configuration_that_were_asked_for(
        self, kafka_broker: KafkaBroker, topic_prefix: str
    ) -> None:
        topic = kafka_broker.create_topic(f"{topic_prefix}events", 3, cleanup_policy="compact")
        admin = kafka_broker.admin()
        try:
            (described,) = admin.describe_topics([topic])
            assert len(described["partitions"]) == 3
            assert admin.describe_cluster()["cluster_id"] == kafka_broker.cluster_id
            configs = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
        finally:
            admin.close()
        assert configs["topic"][topic]["cleanup.policy"]["value"] == "compact"

    def test_topics_are_not_made_by_accident(self, kafka_broker: KafkaBroker, topic_prefix: str) -> None:
        topic = kafka_broker.create_topic(f"{topic_prefix}events")
        with pytest.raises(TopicAlreadyExistsError):
            kafka_broker.create_topic(topic)
        with pytest.raises(UnknownTopicOrPartitionError):
            kafka_broker.delete_topics([f"{topic_prefix}misspelt"])

    @pytest.mark.slow
    @pytest.mark.expected_errors(r"^kafka\.")
    def test_records_survive_a_stop_and_a_kill(self, own_kafka_broker: KafkaBroker) -> None:
        topic = own_kafka_broker.create_topic("events")
        bootstrap = own_kafka_broker.bootstrap
        _produce(own_kafka_broker, topic, [b"before the stop"])
        own_kafka_broker.restart()
        _produce(own_kafka_broker, topic, [b"before the kill"])
        own_kafka_broker.kill()
        assert not own_kafka_broker.running
        own_kafka_broker.start()
        assert own_kafka_broker.bootstrap == bootstrap
        assert _consume(own_kafka_broker, topic, 2) == [(0, b"before the stop"), (1, b"before the kill")]

    @pytest.mark.expected_errors(r"^kafka\.")
    def test_a_paused_broker_goes_on_where_it_was(self, own_kafka_broker: KafkaBroker) -> None:
        topic = own_kafka_broker.create_topic("events")
        own_kafka_broker.pause()
        assert own_kafka_broker.running
        own_kafka_broker.resume()
        _produce(own_kafka_broker, topic, [b"after the pause"])
        assert _consume(own_kafka_broker, topic, 1) == [(0, b"after the pause")]


def _rows(url: str, statement: str) -> list[tuple[object, ...]]:
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    with engine.begin() as connection:
        result = connection.execute(sa.text(statement))
        return [tuple(row) for row in result] if result.returns_rows else []


class TestDatabases:
    def test_each_test_gets_an_empty_database(self, database_url: str) -> None:
        _rows(database_url, "CREATE TABLE kept (number integer)")
        _rows(database_url, "INSERT INTO kept VALUES (1)")
        assert _rows(database_url, "SELECT number FROM kept") == [(1,)]

    def test_and_the_next_one_another(self, database_url: str) -> None:
        with pytest.raises(sa.exc.DBAPIError, match="kept"):
            _rows(database_url, "SELECT number FROM kept")


class TestPostgreSQL:
    def test_committed_rows_survive_a_crash_and_a_restart(self, own_postgres_server: PostgresServer) -> None:
        url = own_postgres_server.create_database()
        _rows(url, "CREATE TABLE kept (number integer)")
        engine = sa.create_engine(url)
        cut_off = engine.connect()
        cut_off.execute(sa.text("INSERT INTO kept VALUES (1)"))  # never committed
        _rows(url, "INSERT INTO kept VALUES (2)")

        own_postgres_server.crash()

        assert not own_postgres_server.running
        with pytest.raises(sa.exc.OperationalError):
            cut_off.execute(sa.text("SELECT 1"))
        cut_off.invalidate()
        engine.dispose()
        own_postgres_server.start()
        assert _rows(url, "SELECT number FROM kept") == [(2,)]
        own_postgres_server.restart()
        assert _rows(url, "SELECT number FROM kept") == [(2,)]

    def test_a_dropped_database_cuts_its_sessions(self, postgres_server: PostgresServer) -> None:
        url = postgres_server.create_database()
        engine = sa.create_engine(url)
        session = engine.connect()
        session.execute(sa.text("SELECT 1"))
        postgres_server.drop_database(url)
        with pytest.raises(sa.exc.OperationalError):
            session.execute(sa.text("SELECT 1"))
        session.invalidate()
        engine.dispose()
