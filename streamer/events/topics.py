"""The names of the topics."""

import re
from dataclasses import dataclass

from streamer.events.topic import Topic, every

HTTP_LOG = "http"
"""The log of requests that came by HTTP: no broker has it, and the database alone says how far it goes."""

HTTP, HTTP_LATE, HTTP_LABELS = "http", "http.late", "http.labels"
"""Its topics, one partition an instance: batches; those that were not decided when their senders stopped to wait; severities."""

_PREFIX = re.compile(r"[A-Za-z0-9._-]{0,200}")


@dataclass(frozen=True, slots=True)
class Topics:
    """Topic names: a prefix (a setting) and a fixed last part.

    The prefix has 0 to 200 of letters, digits, '.', '_' and '-', and usually ends in a dot. Raises
    `ValueError` when it has characters that Kafka refuses in topic names.
    """

    prefix: str = "streamer."

    def __post_init__(self) -> None:
        if _PREFIX.fullmatch(self.prefix) is None:
            raise ValueError(
                f"a topic prefix has at most 200 of letters, digits, '.', '_' and '-', not {self.prefix!r}"
            )

    @property
    def responses(self) -> str:
        """In: batches of responses to be decided."""
        return self.prefix + "responses"

    @property
    def labels(self) -> str:
        """In: severities."""
        return self.prefix + "labels"

    @property
    def actions(self) -> str:
        """Out: one decision per batch."""
        return self.prefix + "actions"

    @property
    def desk(self) -> str:
        """Out: what people made of held batches."""
        return self.prefix + "desk"

    @property
    def thresholds(self) -> str:
        """Out, compacted by gate: the newest policy of each gate."""
        return self.prefix + "thresholds"

    @property
    def dead_letters(self) -> str:
        """Out: messages that were refused, as they came, and why."""
        return self.prefix + "dead-letters"

    @property
    def alerts(self) -> str:
        """Out: alarms."""
        return self.prefix + "alerts"

    @property
    def checkpoints(self) -> str:
        """Out: heads of the audit chain."""
        return self.prefix + "checkpoints"

    def of(self, topic: Topic) -> str:
        """The name of a topic."""
        return self.prefix + topic.name

    def all(self) -> tuple[str, ...]:
        """Every topic, inputs first."""
        return tuple(map(self.of, every().values()))
