"""The compacted thresholds topic, read whole and then followed. It notifies; the authority is SQL."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor

import structlog
from aiokafka import AIOKafkaConsumer
from aiokafka.errors import KafkaError

from streamer.stream.backoff import Backoff, until_available
from streamer.stream.closing import closed_within
from streamer.stream.connection import KafkaConnection
from streamer.stream.header_names import accept_any_record

log = structlog.get_logger(__name__)


class ThresholdFollower:
    """Reads every partition of the topic from its beginning, in no group, and survives outages.

    Parameters
    ----------
    on_message : called in `executor` with (key, value) of each record, in order within a partition; after an
        outage records may come again. `Unavailable` makes it be called again with the same record; any other
        error is logged and the record passed.
    """

    def __init__(
        self,
        connection: KafkaConnection,
        topic: str,
        on_message: Callable[[bytes | None, bytes | None], None],
        *,
        executor: Executor,
        report_status: Callable[[str, bool], None],
    ) -> None:
        self._connection = connection
        self._topic = topic
        self._on_message = on_message
        self._executor = executor
        self._report_status = report_status

    async def run(self) -> None:
        """Follow until cancelled."""
        backoff = Backoff(last=10.0)
        while True:
            try:
                await self._follow(backoff)
            except (KafkaError, OSError, TimeoutError) as error:
                log.warning(
                    "stream.threshold_follower_lost_broker", error=f"{type(error).__name__}: {error}"[:300]
                )
            await asyncio.sleep(backoff.next_delay())

    async def _follow(self, backoff: Backoff) -> None:
        accept_any_record()
        consumer = AIOKafkaConsumer(
            self._topic,
            **self._connection.for_aiokafka(AIOKafkaConsumer),
            group_id=None,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
        )
        try:
            await consumer.start()
            async for record in consumer:
                backoff.reset()
                await self._handle(record.key, record.value)
        finally:
            await closed_within(consumer, 5)

    async def _handle(self, key: bytes | None, value: bytes | None) -> None:
        try:
            await until_available(
                self._executor,
                lambda: self._on_message(key, value),
                part="database",
                report_status=self._report_status,
            )
        except Exception:
            log.exception("stream.threshold_message_failed", topic=self._topic)
