"""A Kafka broker inside this process, for trying and developing: librdkafka's mock cluster.

It speaks the real protocol on a loopback port, keeps about 5 MiB per partition in memory (older records
are dropped) and forgets everything at exit. Topics appear on first use with `PARTITIONS` partitions.
"""

import logging
import uuid
from collections.abc import Iterable
from typing import Any

from streamer import extras
from streamer.errors import Unavailable
from streamer.stream.connection import KafkaConnection

PARTITIONS = 4
"""Partitions of every topic; the mock cluster's fixed default."""

API_VERSION = (2, 3)
"""The protocol level to give kafka-python, which cannot detect it here."""

_LOG_ID_PREFIX = "embedded-"


def is_embedded(log_id: str | None) -> bool:
    """Report by a log's identity whether an `EmbeddedBroker` keeps it."""
    return log_id is not None and log_id.startswith(_LOG_ID_PREFIX)


class EmbeddedBroker:
    """The broker, from `start` to `stop`; also a context manager. May be started again after a
    stop: that is a new, empty log. Its `log_id`, ``embedded-<uuid4>``, is new at each start, so
    that stored progress never meets a foreign log."""

    def __init__(self) -> None:
        self._handle: Any = None
        self._bootstrap = ""
        self.log_id = ""

    @property
    def bootstrap(self) -> str:
        """``127.0.0.1:port``. Raises `RuntimeError` when the broker does not run."""
        if self._handle is None:
            raise RuntimeError("the embedded broker does not run")
        return self._bootstrap

    @property
    def connection(self) -> KafkaConnection:
        """How every client reaches it."""
        return KafkaConnection(self.bootstrap, api_version=API_VERSION)

    def start(self, topics: Iterable[str] = ()) -> None:
        """Start it and make `topics`. Does nothing when it runs.

        Raises `UsageError` when confluent-kafka is not installed; the message names the extra.
        Raises `Unavailable` when the broker did not answer within ten seconds.
        """
        if self._handle is not None:
            return
        with extras.needed_by("the embedded broker"):
            from confluent_kafka import KafkaException, Producer
        silent = logging.Logger("streamer.embedded_broker", logging.CRITICAL + 1)
        # The cluster lives as long as the client handle that made it; the handle itself sends nothing.
        handle = Producer(
            {"bootstrap.servers": "embedded", "test.mock.num.brokers": 1, "log_level": 0}, logger=silent
        )
        try:
            brokers = handle.list_topics(timeout=10).brokers.values()
            self._bootstrap = ",".join(f"{broker.host}:{broker.port}" for broker in brokers)
            for topic in topics:
                handle.list_topics(topic, timeout=10)
        except KafkaException as error:
            raise Unavailable(f"the embedded broker did not start: {error}") from error
        self._handle = handle
        self.log_id = f"{_LOG_ID_PREFIX}{uuid.uuid4()}"

    def stop(self) -> None:
        """Stop it; every record is gone. Does nothing when it does not run."""
        handle, self._handle = self._handle, None
        del handle  # the last reference: librdkafka closes the listeners and frees the logs

    def __enter__(self) -> "EmbeddedBroker":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
