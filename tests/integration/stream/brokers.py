"""The brokers that the stream is tested on, behind one face."""

from __future__ import annotations

import uuid
from contextlib import closing
from dataclasses import dataclass

from streamer.stream.connection import KafkaConnection
from streamer.stream.embedded_broker import EmbeddedBroker
from tests.services.kafka import KafkaBroker


@dataclass
class TestedBroker:
    """A broker with names that no other test uses."""

    __test__ = False

    connection: KafkaConnection
    log_id: str
    prefix: str
    kafka: KafkaBroker | None = None

    @classmethod
    def on(cls, broker: EmbeddedBroker | KafkaBroker) -> TestedBroker:
        prefix = f"t{uuid.uuid4().hex[:8]}."
        if hasattr(broker, "log_id"):
            return cls(broker.connection, broker.log_id, prefix)
        return cls(KafkaConnection(broker.bootstrap), broker.cluster_id, prefix, broker)

    def topic(self, name: str, partitions: int = 4, **config: object) -> str:
        """Make a topic; on the embedded broker it appears on first use, with four partitions."""
        full = self.prefix + name
        if self.kafka is not None:
            self.kafka.create_topic(full, partitions, **config)
        return full

    def delete_before(self, topic: str, offset: int) -> None:
        """Forget the records of the first partition before an offset."""
        from kafka import TopicPartition

        with closing(self.kafka.admin()) as admin:
            admin.delete_records({TopicPartition(topic, 0): offset})

    @property
    def group(self) -> str:
        return self.prefix + "workers"
