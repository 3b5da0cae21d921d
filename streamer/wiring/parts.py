"""Real parts from settings: clock, names and bounds, the store, the broker, a calibration."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from streamer.events.alerts import alert_message
from streamer.events.dead_letters import dead_letter_message
from streamer.events.desk import desk_message
from streamer.events.limits import RECORD_OVERHEAD_BYTES, Limits
from streamer.events.thresholds import threshold_event, threshold_message
from streamer.events.topic import every
from streamer.events.topics import Topics
from streamer.failpoints import from_environment
from streamer.gates.policy import Policy
from streamer.journal import OutboxMessage
from streamer.settings.settings import Settings, load_settings
from streamer.signing.policies import PolicySignature

if TYPE_CHECKING:
    from streamer.recalibration.run import Recalibration
    from streamer.store import Store
    from streamer.store.db.migrate import SchemaState
    from streamer.stream.connection import KafkaConnection
    from streamer.stream.publisher import Publisher
    from streamer.stream.tail import TailedRecord

T = TypeVar("T")

GATE_LOCK_SECONDS = 15.0
"""How long a command waits for another run of the same gate."""


def now() -> datetime:
    """Return the present time, with zone: the clock that real parts are given."""
    return datetime.now(UTC)


def topics(settings: Settings) -> Topics:
    """Return the names of the topics."""
    return Topics(settings.kafka.topic_prefix)


def limits(settings: Settings) -> Limits:
    """Return the bounds for what events may hold."""
    return Limits(**settings.events.model_dump())


def connection(settings: Settings) -> KafkaConnection:
    """Return how to reach the broker. Raises `UsageError` when none is configured."""
    from streamer.stream.connection import KafkaConnection
    from streamer.stream.embedded_broker import API_VERSION, is_embedded

    return KafkaConnection(
        settings.bootstrap_servers,
        properties={name: str(value) for name, value in settings.kafka.properties.items()},
        api_version=API_VERSION if is_embedded(settings.kafka.log_id) else None,
        insecure=settings.insecure,
    )


# -- the store ----------------------------------------------------------------------------------------------


def open_store(settings: Settings, *, publish: bool = True) -> Store:
    """Open the audit store; the caller closes it. `publish`: what it commits is to go to Kafka.

    Raises `UsageError` when it is not migrated.
    """
    from streamer.store import open_store as open_database
    from streamer.wiring.keys import label_keys, policy_keys

    named = topics(settings)

    def policy_message(policy: Policy, signature: PolicySignature | None) -> OutboxMessage:
        return threshold_message(threshold_event(policy, signature), topic=named.thresholds)

    return open_database(
        settings.database.url,
        insecure=settings.insecure,
        clock=now,
        policy_message=policy_message,
        dead_letter_message=partial(
            dead_letter_message, topic=named.dead_letters, max_bytes=limits(settings).max_output_bytes
        ),
        alert_message=partial(alert_message, topic=named.alerts),
        desk_message=partial(desk_message, topic=named.desk),
        policy_keys=policy_keys(settings),
        label_keys=label_keys(settings),
        publish=publish,
        failpoint=from_environment(),
    )


@contextmanager
def record(gate: str | None = None) -> Iterator[Store]:
    """Give the store of the settings that stand here. Raises `UsageError` also where there is no such `gate`."""
    with open_store(load_settings()) as store:
        if gate is not None:
            store.gates.get(gate)
        yield store


def when_available(
    call: Callable[[], T], report_status: Callable[[str, bool], None] = lambda _part, _up: None
) -> T:
    """Return what a call of the database returns, however long it is away: what starts a service may start before it."""
    from streamer.stream.backoff import until_available

    return cast("T", asyncio.run(until_available(None, call, part="database", report_status=report_status)))


def migrate(settings: Settings, *, lock_seconds: float | None = None) -> SchemaState:
    """Bring the database's schema up to date, creating it when there is none."""
    from streamer.store import migrate as migrate_database
    from streamer.store.db.migrate import LOCK_SECONDS

    return migrate_database(
        settings.database.url,
        insecure=settings.insecure,
        lock_seconds=LOCK_SECONDS if lock_seconds is None else lock_seconds,
    )


def check_database(settings: Settings) -> str | None:
    """Say what is wrong with the database's schema; None when it is up to date."""
    from streamer.store import check

    return check(settings.database.url, insecure=settings.insecure)


# -- the broker ---------------------------------------------------------------------------------------------


def _topic_plans(settings: Settings) -> list[Any]:
    from streamer.stream.topics import TopicPlan

    named, bounds = topics(settings), limits(settings)
    return [
        TopicPlan(
            name=named.of(topic),
            partitions=1 if topic.one_partition else settings.kafka.partitions,
            # Kafka counts key, headers and the batch's own bytes too: the largest value must still pass.
            max_message_bytes=(
                bounds.max_value_bytes + RECORD_OVERHEAD_BYTES if topic.comes_in else bounds.max_output_bytes
            ),
            compacted=topic.compacted,
            settings={"retention.ms": "-1", "retention.bytes": "-1"} if topic.kept_forever else {},
            replication=settings.kafka.replication_factor,
        )
        for topic in every().values()
    ]


def create_topics(settings: Settings) -> list[str]:
    """Create the topics that are missing and return their names."""
    from streamer.stream import topics as stream_topics

    return stream_topics.create_topics(connection(settings), _topic_plans(settings))


def check_topics(settings: Settings) -> list[str]:
    """List, one line each, how topics differ from what they should be."""
    from streamer.stream import topics as stream_topics

    return [str(each) for each in stream_topics.check_topics(connection(settings), _topic_plans(settings))]


@contextmanager
def publisher(settings: Settings) -> Iterator[Publisher]:
    """Give a publisher that has delivered everything when the block ends."""
    from streamer.stream.publisher import Publisher

    with Publisher(connection(settings), max_request_size=limits(settings).max_output_bytes) as sending:
        yield sending


def publish_pending(settings: Settings) -> int:
    """Publish what commands left in the outbox, without waiting for a worker; returns how many messages.

    Raises `Unavailable` when the broker does not answer: a worker will do it.
    """
    with open_store(settings) as store:
        return publish_waiting(settings, store)


def publish_waiting(settings: Settings, store: Store) -> int:
    """The same with a store that is open; the broker is asked for only where something waits."""
    if not store.unpublished([], limit=1):
        return 0
    failpoint = from_environment()
    with publisher(settings) as sending:
        published = 0
        while batch := store.unpublished([], limit=500):
            failpoint("before_publish")
            overtaken = batch
            # Somebody may have published a newer policy between our reading and our publishing: then it goes out again,
            # so that the last message of a gate is that of its newest policy. A row is there before it is published, and
            # so the last to publish sees every newer one.
            while overtaken:
                for message in overtaken:
                    sending.send(message.topic, message.value, key=message.key, headers=message.headers)
                sending.flush()
                overtaken = store.newer(overtaken)
            failpoint("after_publish")
            store.mark_published(batch)
            failpoint("after_mark")
            published += len(batch)
        return published


def tail(
    settings: Settings,
    topic: str,
    *,
    from_beginning: bool = False,
    timeout_seconds: float | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> Iterator[TailedRecord]:
    """Yield the records of a topic as they come; ends after `timeout_seconds` without one (None: never), or at `stop`."""
    from streamer.stream.tail import Tail

    with Tail(connection(settings), topic, from_beginning=from_beginning) as followed:
        yield from followed.records(idle=timeout_seconds, stop=stop)


# -- calibration --------------------------------------------------------------------------------------------


def recalibrate(
    settings: Settings,
    gate: str,
    *,
    by: str,
    dry_run: bool = False,
    propose: bool = False,
    reason: str = "recalibrated",
    note: str = "",
) -> Recalibration:
    """Run one calibration now and put its threshold in force, or leave it as a proposal, or record nothing.

    `note` : what its guarantee says besides.

    Waits for a run of the same gate that is under way; raises `UsageError` when that takes too long.
    """
    from streamer.recalibration.one_gate import recalibrate_by_hand

    with open_store(settings) as store, ExitStack() as stack:
        store.gates.get(gate)  # there is none: reported at once, and nothing is locked
        if not dry_run:
            lease = stack.enter_context(store.leases.of_gate(gate, wait_seconds=GATE_LOCK_SECONDS))
            store = store.under(lease)
        return recalibrate_by_hand(
            store.calibration,
            store.policies,
            store.gates.get(gate),
            clock=now,
            by=by,
            reason=reason,
            dry_run=dry_run,
            propose=propose,
            note=note,
        )
