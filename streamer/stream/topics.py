"""Topics as the product needs them: made, checked, measured. Calls block."""

import contextlib
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import (
    AuthorizationError,
    KafkaError,
    NoError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
    for_code,
)

from streamer.errors import Unavailable, UsageError
from streamer.stream.connection import KafkaConnection


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPlan:
    """How a topic should be configured: `max_message_bytes` is its largest record's,
    `replication` -1 leaves the replicas to the broker, `settings` are further topic properties,
    by Kafka's names."""

    name: str
    partitions: int
    max_message_bytes: int
    compacted: bool = False
    replication: int = -1
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def properties(self) -> dict[str, str]:
        """All topic properties, by Kafka's names."""
        return {
            **self.settings,
            "cleanup.policy": "compact" if self.compacted else "delete",
            # Dated by the broker: a publisher or a worker whose clock is ahead is not turned away, and what one dates
            # back is not taken by retention before it is read.
            "message.timestamp.type": "LogAppendTime",
            "max.message.bytes": str(self.max_message_bytes),
        }


@dataclass(frozen=True, slots=True)
class TopicDifference:
    """One difference between a topic and its plan."""

    topic: str
    what: str
    is_: str
    should_be: str

    def __str__(self) -> str:
        return f"{self.topic}: {self.what} is {self.is_}, should be {self.should_be}"


def cluster_id(connection: KafkaConnection) -> str:
    """The cluster's own id; raises `Unavailable` when no broker answers."""
    with _admin(connection) as admin:
        return str(admin.describe_cluster()["cluster_id"])


def create_topics(connection: KafkaConnection, plans: Sequence[TopicPlan]) -> list[str]:
    """Make the topics that do not exist and return their names; those that exist are left as they are.

    Raises `UsageError` when the broker refuses a topic (its name, its replication, our rights); the
    message has its reason. Raises `Unavailable` when no broker answers.
    """
    created: list[str] = []
    with _admin(connection) as admin:
        for plan in plans:
            request = {
                plan.name: {
                    "num_partitions": plan.partitions,
                    "replication_factor": plan.replication,
                    "configs": plan.properties,
                }
            }
            # Its own errors quote request and response whole.
            (answer,) = admin.create_topics(request, timeout_ms=20_000, raise_errors=False)["topics"]
            error = for_code(answer["error_code"])
            if error is TopicAlreadyExistsError:
                continue
            if error is not NoError:
                if error.retriable:
                    raise error(answer["error_message"])
                why = answer["error_message"] or error.description
                raise UsageError(f"the broker refuses the topic {plan.name}: {error.__name__}: {why}")
            admin.wait_for_topics([plan.name])
            created.append(plan.name)
    return created


def check_topics(connection: KafkaConnection, plans: Sequence[TopicPlan]) -> list[TopicDifference]:
    """What differs from the plans; empty when nothing does.

    More partitions than planned is no difference (they are only ever added), a larger message limit neither.
    Raises `Unavailable` when no broker answers.
    """
    with _admin(connection) as admin:
        existing = set(admin.list_topics())
        differences: list[TopicDifference] = []
        for plan in plans:
            if plan.name not in existing:
                differences.append(TopicDifference(plan.name, "the topic", "missing", "there"))
                continue
            differences += _differences(admin, plan)
        return differences


def missing_topics(connection: KafkaConnection, names: Sequence[str]) -> list[str]:
    """Which of these topics do not exist. Raises `Unavailable` when no broker answers."""
    with _admin(connection) as admin:
        existing = set(admin.list_topics())
    return [name for name in names if name not in existing]


def topic_id(connection: KafkaConnection, topic: str) -> str | None:
    """The broker's id of a topic; None for a missing one, or where the broker knows no ids. Raises `Unavailable`."""
    with _admin(connection) as admin:
        (described,) = admin.describe_topics([topic])
    found = described.get("topic_id")
    return None if not found or described["error_code"] or not uuid.UUID(str(found)).int else str(found)


def _differences(admin: KafkaAdminClient, plan: TopicPlan) -> Iterator[TopicDifference]:
    (description,) = admin.describe_topics([plan.name])
    partitions = description["partitions"]
    if len(partitions) < plan.partitions:
        yield TopicDifference(
            plan.name, "the number of partitions", str(len(partitions)), str(plan.partitions)
        )
    replicas = min((len(one["replica_nodes"]) for one in partitions), default=0)
    if 0 < plan.replication != replicas:
        yield TopicDifference(plan.name, "replication", str(replicas), str(plan.replication))
    have = _topic_properties(admin, plan.name)
    for name, wanted in plan.properties.items():
        value = have.get(name)
        enough = (
            name == "max.message.bytes"
            and value is not None
            and value.isdigit()
            and int(value) >= int(wanted)
        )
        if value != wanted and not enough:
            yield TopicDifference(plan.name, name, str(value), wanted)


def _topic_properties(admin: KafkaAdminClient, topic: str) -> dict[str, str]:
    answer: Any = admin.describe_configs(
        [ConfigResource(ConfigResourceType.TOPIC, topic)], config_filter="all"
    )
    return {name: str(entry["value"]) for name, entry in answer["topic"][topic].items()}


def log_bounds(connection: KafkaConnection, topics: Sequence[str]) -> dict[tuple[str, int], tuple[int, int]]:
    """Earliest and end offset of each partition of `topics`, by (topic, partition); missing topics are left out.

    An end offset is one past the last record. Raises `Unavailable` when no broker answers.
    """
    with _consumer(connection) as consumer:
        partitions = [
            TopicPartition(topic, number)
            for topic in topics
            for number in sorted(consumer.partitions_for_topic(topic) or ())
        ]
        if not partitions:
            return {}
        earliest = consumer.beginning_offsets(partitions)
        end = consumer.end_offsets(partitions)
        return {(one.topic, one.partition): (earliest[one], end[one]) for one in partitions}


@contextlib.contextmanager
def _admin(connection: KafkaConnection) -> Iterator[KafkaAdminClient]:
    with _reachable():
        admin = KafkaAdminClient(
            **{"bootstrap_timeout_ms": 5000} | connection.for_kafka_python(KafkaAdminClient)
        )
        try:
            yield admin
        finally:
            admin.close()


@contextlib.contextmanager
def _consumer(connection: KafkaConnection) -> Iterator[KafkaConsumer]:
    with _reachable():
        consumer = KafkaConsumer(**connection.for_kafka_python(KafkaConsumer), enable_auto_commit=False)
        try:
            yield consumer
        finally:
            consumer.close(autocommit=False)


@contextlib.contextmanager
def _reachable() -> Iterator[None]:
    try:
        yield
    except UnknownTopicOrPartitionError as error:
        raise UsageError(f"no such topic: {error}") from error
    except AuthorizationError as error:
        raise UsageError(f"the broker does not permit it: {type(error).__name__}") from error
    except (KafkaError, OSError) as error:
        raise Unavailable(f"the broker does not answer: {type(error).__name__}: {error}") from error
