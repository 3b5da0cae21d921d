"""Whether a worker is alive and ready, and why not."""

import time
from collections.abc import Callable, Collection, Sequence

from streamer.journal import Outcome, OutcomeKind, Partition
from streamer.stream.hooks import StreamObserver

PROGRESS_WITHIN = 30.0
"""Seconds: a worker that has lag and committed nothing for so long is not ready."""


class WorkerHealth:
    """What `/healthz` and `/readyz` show; also an observer that passes everything on to `observer`.
    Written on the worker's event loop, read from any thread.

    `dependencies` must have answered before it is ready, and it is not ready while one of the
    `essential` topics takes no messages. The worker sets `joined`, whether the group has assigned
    partitions (`unjoined` is said while it has not), `refusal`, why the group refuses it, and
    `log_id`, empty before it is known. `stopping` is why the worker ends; empty while it does not.
    """

    def __init__(
        self,
        observer: StreamObserver,
        *,
        dependencies: Collection[str] = ("database", "broker"),
        essential: Collection[str] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._next = observer
        # What says nothing of the worker's health is passed on as it is.
        self.stage, self.acknowledged, self.parked = observer.stage, observer.acknowledged, observer.parked
        self.gap, self.reset = observer.gap, observer.reset
        self._essential = frozenset(essential)
        self._stuck: dict[tuple[str, int | None], str] = {}
        self._clock = clock
        self._parts: dict[str, bool | None] = dict.fromkeys(dependencies)
        self._lag: dict[tuple[str, int], int] = {}
        self._progress_at = clock()
        self.joined: Callable[[], bool] = lambda: False
        self.unjoined = "the consumer group has not assigned partitions yet"
        self.refusal: Callable[[], str] = str
        self.stopping = ""
        self.log_id = ""

    @property
    def alive(self) -> bool:
        """False once the worker has decided to end."""
        return not self.stopping

    def reachable(self, *parts: str) -> bool:
        """Whether none of these failed to answer when it was last asked."""
        return all(self._parts.get(part) is not False for part in parts)

    def unready(self) -> list[str]:
        """Why the worker is not ready, one reason a line; empty when it is."""
        if self.stopping:
            return [self.stopping]
        reasons = [
            f"the {part} has not answered yet" if reachable is None else f"the {part} does not answer"
            for part, reachable in tuple(self._parts.items())
            if not reachable
        ]
        if not self.joined():
            reasons.append(self.refusal() or self.unjoined)
        waiting = sum(tuple(self._lag.values()))
        silent = self._clock() - self._progress_at
        if waiting and silent > PROGRESS_WITHIN:
            reasons.append(f"{waiting} records wait and none was recorded for {silent:.0f} s")
        return reasons + [
            line
            for topic, partition, line in self._stuck_lanes()
            if partition is None and topic in self._essential
        ]

    def stuck(self) -> list[str]:
        """The topics and partitions that messages cannot be published to, a line each; the others' go out."""
        return [line for _, _, line in self._stuck_lanes()]

    def _stuck_lanes(self) -> list[tuple[str, int | None, str]]:
        return [
            (
                topic,
                partition,
                f"messages wait for topic {topic}{'' if partition is None else f', partition {partition}'}: {reason}",
            )
            for (topic, partition), reason in tuple(self._stuck.items())
        ]

    def reads(self, partition: Partition) -> bool:
        """Whether the worker has this partition now, as far as its lag was ever reported."""
        return partition.log_id == self.log_id and (partition.topic, partition.number) in self._lag

    def committed(self, outcomes: Sequence[Outcome], kinds: Sequence[OutcomeKind]) -> None:
        """Progress was made."""
        self._progress_at = self._clock()
        self._next.committed(outcomes, kinds)

    def lag(self, topic: str, partition: int, records: int) -> None:
        """Remember what waits; without lag there is no progress to miss."""
        self._lag[topic, partition] = records
        if not sum(self._lag.values()):
            self._progress_at = self._clock()
        self._next.lag(topic, partition, records)

    def released(self, topic: str, partition: int) -> None:
        """Forget a partition's lag."""
        self._lag.pop((topic, partition), None)
        self._next.released(topic, partition)

    def part(self, part: str, reachable: bool) -> None:
        """Remember whether a dependency answers."""
        self._parts[part] = reachable
        self._next.part(part, reachable)

    def lane(self, topic: str, partition: int | None, stuck: str | None) -> None:
        """Remember which topics and partitions are stuck, and why."""
        if stuck is None:
            self._stuck.pop((topic, partition), None)
        else:
            self._stuck[topic, partition] = stuck
        self._next.lane(topic, partition, stuck)
