"""Publishing from a command: every record acknowledged by all replicas, in order per key."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass

from kafka import KafkaProducer
from kafka.errors import (
    AuthorizationError,
    ClusterAuthorizationFailedError,
    InvalidTopicError,
    KafkaError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
    UnknownTopicOrPartitionError,
)
from kafka.producer.future import FutureRecordMetadata

from streamer.errors import Unavailable, UsageError
from streamer.journal import Headers
from streamer.stream.connection import KafkaConnection
from streamer.stream.topics import missing_topics

_WINDOW = 500
"""Messages between two looks at what the broker has acknowledged."""
_ACKNOWLEDGE_EVERY = 0.5
"""Seconds after which the next message looks as well, so that a slow publisher hears of trouble in time."""


@dataclass(eq=False)
class Publisher:
    """Publishes to any topic; a context manager that has delivered everything when its block ends
    without error.

    A message has at most `max_request_size` bytes, and an acknowledgement may take `timeout`
    seconds. Raises `UsageError` when a message is too large, a topic does not exist or its name is
    invalid, or the broker does not permit us to write there; `Unavailable` when the broker did not
    answer in time: what was under way may or may not be there.
    """

    connection: KafkaConnection
    _: KW_ONLY
    max_request_size: int
    timeout: float = 30.0

    def __post_init__(self) -> None:
        self._producer: KafkaProducer | None = None
        self._underway: list[FutureRecordMetadata] = []
        self._topics: set[str] = set()
        self._looked_at = time.monotonic()

    def send(
        self, topic: str, value: bytes | None, *, key: bytes | None = None, headers: Headers = ()
    ) -> None:
        """Send one message; now and then it waits until all of those before are acknowledged.

        The key chooses the partition (murmur2, as every Kafka client does).
        """
        self._topics.add(topic)
        with self._explained(topic):
            self._underway.append(self._open().send(topic, value, key=key, headers=list(headers)))
        if len(self._underway) >= _WINDOW or time.monotonic() - self._looked_at > _ACKNOWLEDGE_EVERY:
            self.flush()

    def flush(self) -> None:
        """Wait until the broker has acknowledged everything that was sent."""
        if not self._underway:
            return
        with self._explained("the topic"):
            self._open().flush(timeout=self.timeout)
            for future in self._underway:
                future.get(timeout=self.timeout)
        self._underway.clear()
        self._topics.clear()
        self._looked_at = time.monotonic()

    def _open(self) -> KafkaProducer:
        if self._producer is None:
            arguments = self.connection.for_kafka_python(KafkaProducer)
            milliseconds = int(self.timeout * 1000)
            self._producer = KafkaProducer(
                **{"bootstrap_timeout_ms": 5000, "max_block_ms": milliseconds} | arguments,
                acks="all",
                enable_idempotence=True,
                max_request_size=self.max_request_size,
                delivery_timeout_ms=milliseconds,
                request_timeout_ms=min(10_000, milliseconds),
            )
        return self._producer

    @contextmanager
    def _explained(self, topic: str) -> Iterator[None]:
        try:
            yield
        except MessageSizeTooLargeError as error:
            raise UsageError(f"a message is larger than {topic} takes: {error}") from error
        except InvalidTopicError as error:
            raise UsageError(f"{topic!r} is no valid topic name") from error
        except AuthorizationError as error:
            raise UsageError(f"the broker does not permit us to write to {topic}") from error
        except (KafkaError, OSError) as error:
            # An idempotent producer that may write to no topic at all is refused before it names one.
            if ClusterAuthorizationFailedError.__name__ in str(error):
                raise UsageError(f"the broker does not permit us to write to {topic}") from error
            if isinstance(error, (KafkaTimeoutError, UnknownTopicOrPartitionError)) and (
                missing := missing_topics(self.connection, sorted(self._topics))
            ):
                raise UsageError(
                    f"the topic {', '.join(missing)} does not exist; `streamer topics create` makes what is missing"
                ) from error
            raise Unavailable(f"the broker did not take it: {type(error).__name__}: {error}") from error

    def __enter__(self) -> "Publisher":
        return self

    def __exit__(self, _kind: object, error: object, _trace: object) -> None:
        try:
            if error is None:
                self.flush()
        finally:
            if self._producer is not None:
                self._producer.close(timeout=5)
