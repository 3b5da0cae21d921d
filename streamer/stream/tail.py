"""Topics without a consumer group or stored offsets: followed for a command, or read as they are now, between their bounds."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from typing import NamedTuple

from kafka import KafkaConsumer, TopicPartition
from kafka.errors import AuthorizationError, KafkaError

from streamer.errors import Unavailable, UsageError
from streamer.journal import Headers
from streamer.stream.connection import KafkaConnection
from streamer.stream.header_names import accept_any_record
from streamer.stream.topics import cluster_id, log_bounds, topic_id

_POLL_MS = 200


class TailedRecord(NamedTuple):
    """One record of a followed topic."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int


@dataclass(eq=False)
class Tail:
    """A topic's records from a fixed point on, or `from_beginning`; a context manager. The point is
    when the context is entered: what is published after that is seen.

    Raises `UsageError` on entering, when the topic does not exist, then or later, when we may not
    read it; `Unavailable` when no broker answers.
    """

    connection: KafkaConnection
    topic: str
    _: KW_ONLY
    from_beginning: bool = False

    def __post_init__(self) -> None:
        self._consumer: KafkaConsumer | None = None

    def __enter__(self) -> "Tail":
        accept_any_record()
        try:
            with self._explained():
                self._consumer = consumer = KafkaConsumer(
                    **{"bootstrap_timeout_ms": 5000} | self.connection.for_kafka_python(KafkaConsumer),
                    group_id=None,
                    enable_auto_commit=False,
                    auto_offset_reset="earliest",
                    isolation_level="read_committed",
                )
                partitions = [
                    TopicPartition(self.topic, number)
                    for number in sorted(consumer.partitions_for_topic(self.topic) or ())
                ]
                if not partitions:
                    raise UsageError(f"the broker has no topic {self.topic}, or none that we may see")
                consumer.assign(partitions)
                # Both are fixed now rather than at the first poll.
                positions = (
                    consumer.beginning_offsets(partitions)
                    if self.from_beginning
                    else consumer.end_offsets(partitions)
                )
                for partition, offset in positions.items():
                    consumer.seek(partition, offset)
        except BaseException:
            self._close()
            raise
        return self

    def records(
        self,
        *,
        limit: int | None = None,
        idle: float | None = None,
        seconds: float | None = None,
        stop: Callable[[], bool] = lambda: False,
    ) -> Iterator[TailedRecord]:
        """Yield records in order within a partition; endless unless it is to end after `limit`
        of them, `idle` seconds without one, or `seconds`, or once `stop`, asked at least five
        times a second, is True."""
        began = last = time.monotonic()
        seen = 0
        while not stop() and (limit is None or seen < limit):
            now = time.monotonic()
            if (idle is not None and now - last > idle) or (seconds is not None and now - began > seconds):
                return
            with self._asking() as consumer:
                polled = consumer.poll(timeout_ms=_POLL_MS)
            for records in polled.values():
                for one in records:
                    yield TailedRecord(
                        one.topic,
                        one.partition,
                        one.offset,
                        one.key,
                        one.value,
                        tuple(one.headers),
                        one.timestamp,
                    )
                    last = time.monotonic()  # what the caller does with a record is no silence of the topic
                    seen += 1
                    if limit is not None and seen >= limit:
                        return

    def ends(self) -> dict[int, int]:
        """One past the last record of each partition that can be read: what an open transaction holds back is left out."""
        with self._asking() as consumer:
            ends = consumer.end_offsets(sorted(consumer.assignment()))
        return {partition.partition: end for partition, end in ends.items()}

    def passed(self, ends: Mapping[int, int]) -> bool:
        """Whether `records` has yielded everything before these offsets; for between two polls. Holes count as passed."""
        with self._asking() as consumer:
            at = {number: consumer.position(TopicPartition(self.topic, number), 1000) for number in ends}
        return all(at[number] is not None and at[number] >= end for number, end in ends.items())

    @contextmanager
    def _asking(self) -> Iterator[KafkaConsumer]:
        if self._consumer is None:
            raise RuntimeError("enter the context first")
        with self._explained():
            yield self._consumer

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except AuthorizationError as error:
            raise UsageError(f"the broker does not permit us to read {self.topic}") from error
        except (KafkaError, OSError) as error:
            raise Unavailable(f"the broker does not answer: {type(error).__name__}: {error}") from error

    def _close(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close(autocommit=False)

    def __exit__(self, *_: object) -> None:
        self._close()


_PATIENCE_SECONDS = 60.0
"""A broker that gives nothing for so long, though there is more, is unavailable."""


class KafkaLog:
    """Reads whole topics. `log_id` is the name by which the record knows the cluster; None: its
    own id. Raises `Unavailable` when no broker answers."""

    def __init__(self, connection: KafkaConnection, *, log_id: str | None = None) -> None:
        self._connection = connection
        self.id = log_id or cluster_id(connection)

    def topic_id(self, topic: str) -> str | None:
        """The broker's id of a topic, which a recreated one does not keep; None where it gives none."""
        return topic_id(self._connection, topic)

    def bounds(self, topic: str) -> dict[int, tuple[int, int]]:
        """Earliest and end offset of each partition; empty for a topic that does not exist."""
        return {number: ends for (_, number), ends in log_bounds(self._connection, [topic]).items()}

    def read(self, topic: str, ends: Mapping[int, int]) -> Iterator[TailedRecord]:
        """Yield what is committed, in order within a partition, up to these end offsets.

        Raises `Unavailable` when the broker does not give all of it: what was not read must not
        pass for what is not there.
        """
        bounds = self.bounds(topic)
        wanted = {number: end for number, end in ends.items() if end > bounds.get(number, (end, end))[0]}
        if not wanted:
            return
        with Tail(self._connection, topic, from_beginning=True) as tail:
            readable = tail.ends()
            wanted = {number: min(end, readable.get(number, end)) for number, end in wanted.items()}
            for record in tail.records(idle=_PATIENCE_SECONDS, stop=lambda: tail.passed(wanted)):
                if record.offset < wanted.get(record.partition, 0):
                    yield record
            if not tail.passed(wanted):
                raise Unavailable(f"the broker gave nothing of {topic} for {_PATIENCE_SECONDS:g} seconds")
