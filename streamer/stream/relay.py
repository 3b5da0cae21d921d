"""Publishes the outbox to Kafka: every message exactly as stored, at least once, in order by key."""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import KW_ONLY, dataclass
from datetime import datetime, timedelta

from streamer.journal import Journal, Lease, OutboxMessage, OutcomeKind, Partition, Slice
from streamer.stream.backoff import until_available
from streamer.stream.connection import KafkaConnection
from streamer.stream.hooks import Hooks
from streamer.stream.relay_lane import RelayLane, RelayLimits

_LEFT_BEHIND = timedelta(seconds=5)
"""A row of no partition that waited so long was left behind by the command that wrote it."""


@dataclass(eq=False)
class Relay:
    """Publishes what waits for the partitions that this worker leases: a lane for each topic.

    A lane has a producer, a pace and a back-off of its own, and inside it each partition of the
    topic does: whatever happens to one of them, the others continue. A lane begins when its topic
    has a message and ends when it had none for a while. The journal is called in `executor`;
    `sources` are the partitions leased now. Of the failpoints of `hooks` ``before_publish``,
    ``after_publish`` and ``after_mark`` are passed.

    Rows of no partition are policies and alerts. The command that wrote one publishes it at once;
    should it fail, one worker of the group (`takes_ownerless`) does it, after `_LEFT_BEHIND`. Two
    publishers at a time could leave an older policy as the last one on the compacted topic.
    """

    connection: KafkaConnection
    journal: Journal
    _: KW_ONLY
    executor: Executor
    sources: Callable[[], Mapping[Partition, Lease]]
    takes_ownerless: Callable[[], bool]
    limits: RelayLimits
    hooks: Hooks

    def __post_init__(self) -> None:
        self._wake = asyncio.Event()
        self._offered: deque[tuple[Sequence[OutboxMessage], Sequence[Lease]]] = deque()
        self._lanes: dict[str, tuple[RelayLane, asyncio.Task[None]]] = {}
        self._finishing = False

    def offer(self, messages: Sequence[OutboxMessage], leases: Sequence[Lease]) -> None:
        """Take what was put into the queue just now, so that it need not be read; from any thread, before `wake`.

        `messages`: all that one transaction put there under these leases, or none.
        """
        self._offered.append((messages, leases))

    def commit(
        self, slices: Sequence[Slice], *, now: datetime, firm: bool = False
    ) -> list[list[OutcomeKind]]:
        """Commit to the journal, and `offer` what it puts into the queue."""
        leases = [one.lease for one in slices]
        return self.journal.commit(
            slices, now=now, firm=firm, queued=lambda messages: self.offer(messages, leases)
        )

    def wake(self) -> None:
        """There is something to publish: what was offered, and where nothing was, something to read."""
        by_topic: dict[str, list[OutboxMessage]] = {}
        known = bool(self._offered)
        sources = self.sources()
        while self._offered:
            messages, leases = self._offered.popleft()
            # A commit may succeed after its partitions were revoked. The lanes have forgotten what came before it by then.
            known &= bool(messages) and all(sources.get(lease.partition) == lease for lease in leases)
            for message in messages:
                by_topic.setdefault(message.topic, []).append(message)
        for topic, (lane, _) in self._lanes.items():
            if not known:
                lane.wake()
            elif topic in by_topic:
                lane.offer(by_topic[topic])
        if not self._lanes.keys() >= by_topic.keys() or not self._lanes:
            self._wake.set()

    def finish(self) -> None:
        """Let `run` return once no lane finds anything that it can publish."""
        self._finishing = True
        for lane, _ in self._lanes.values():
            lane.finish()
        self._wake.set()

    async def run(self) -> None:
        """Publish until cancelled or finished; what may succeed is retried forever."""
        waking = asyncio.create_task(self._wake.wait())
        try:
            while True:
                finishing = self._finishing
                for topic in await self._topics():
                    if topic not in self._lanes:
                        self._begin(topic)
                tasks = [task for _, task in self._lanes.values()]
                if finishing:
                    await asyncio.gather(*tasks)
                    return
                await asyncio.wait(
                    [waking, *tasks], timeout=self.limits.idle_poll, return_when=asyncio.FIRST_COMPLETED
                )
                if waking.done():
                    self._wake.clear()
                    waking = asyncio.create_task(self._wake.wait())
                for topic, (_, task) in list(self._lanes.items()):
                    if task.done():
                        del self._lanes[topic]
                        task.result()
        finally:
            waking.cancel()
            tasks = [task for _, task in self._lanes.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(waking, *tasks, return_exceptions=True)

    def _begin(self, topic: str) -> None:
        lane = RelayLane(
            topic,
            self.connection,
            self.journal,
            executor=self.executor,
            sources=self.sources,
            read=self._read,
            limits=self.limits,
            hooks=self.hooks,
        )
        if self._finishing:
            lane.finish()
        self._lanes[topic] = lane, asyncio.create_task(lane.run(), name=f"stream-relay-{topic}")

    async def _topics(self) -> Sequence[str]:
        found = await until_available(
            self.executor,
            lambda: self.journal.unpublished_topics(sorted(self.sources()), ownerless=self._ownerless()),
            part="database",
            report_status=self.hooks.observer.part,
        )
        return found or []

    def _read(
        self, topic: str, sources: Sequence[Partition], after: int, max_bytes: int
    ) -> list[OutboxMessage]:
        return self.journal.unpublished(
            sources,
            limit=self.limits.batch,
            ownerless=self._ownerless(),
            topic=topic,
            after=after,
            max_bytes=max_bytes,
        )

    def _ownerless(self) -> timedelta | None:
        return _LEFT_BEHIND if self.takes_ownerless() else None
