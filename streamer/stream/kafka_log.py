"""The topics of a cluster as they are now: their bounds, and what they hold, read without a consumer group."""

from collections.abc import Iterator, Mapping

from streamer.errors import Unavailable
from streamer.stream.connection import KafkaConnection
from streamer.stream.tail import Tail, TailedRecord
from streamer.stream.topics import cluster_id, log_bounds, topic_id

_PATIENCE_SECONDS = 60.0
"""A broker that gives nothing for so long, though there is more, is unavailable."""


class KafkaLog:
    """Reads whole topics.

    Parameters
    ----------
    log_id : the name by which the record knows the cluster; None: its own id.

    Raises
    ------
    Unavailable
        When no broker answers.
    """

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

        Raises
        ------
        Unavailable
            When the broker does not give all of it: what was not read must not pass for what is not there.
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
