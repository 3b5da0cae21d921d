"""The names of the topics."""

import re
from dataclasses import dataclass, field, fields

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
    responses: str = field(init=False, repr=False)
    labels: str = field(init=False, repr=False)
    actions: str = field(init=False, repr=False)
    desk: str = field(init=False, repr=False)
    thresholds: str = field(init=False, repr=False)
    dead_letters: str = field(init=False, repr=False)
    alerts: str = field(init=False, repr=False)
    checkpoints: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if _PREFIX.fullmatch(self.prefix) is None:
            raise ValueError(
                f"a topic prefix has at most 200 of letters, digits, '.', '_' and '-', not {self.prefix!r}"
            )
        for one in fields(self)[1:]:
            object.__setattr__(self, one.name, self.prefix + one.name.replace("_", "-"))

    def of(self, topic: Topic) -> str:
        """The name of a topic."""
        return self.prefix + topic.name

    def all(self) -> tuple[str, ...]:
        """Every topic, inputs first."""
        return tuple(map(self.of, every().values()))
