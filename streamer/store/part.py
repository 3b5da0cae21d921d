"""What the parts of a store share."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from streamer.events.alerts import AlertsV1
from streamer.journal import OutboxMessage
from streamer.store.db.engine import Database
from streamer.store.labels.read_labels import ReadLabels
from streamer.store.log.resolve_outcomes import DeadLetterMessage
from streamer.store.policies.policy_writer import PolicyWriter

AlertMessage = Callable[[AlertsV1], OutboxMessage]


DeskMessage = Callable[..., OutboxMessage]
"""Makes the message of a `DeskV1`, with the `key` of its action, whose headers are `trace`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """What every part of one store gets; `streamer.store.store.open_store` says what each is."""

    database: Database
    clock: Callable[[], datetime]
    writer: PolicyWriter
    read: ReadLabels
    dead_letter_message: DeadLetterMessage
    alert_message: AlertMessage
    desk_message: DeskMessage
    publish: bool


class Part:
    """A part of a store, by subject."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._database, self._clock = shared.database, shared.clock
        self._writer, self._read = shared.writer, shared.read

    @contextmanager
    def _labels_of(self, gate: str | None) -> Iterator[tuple[sa.Connection, sa.FromClause]]:
        """A transaction that reads at one moment, and the labels of a gate that are read, of all when None."""
        with self._database.reading(snapshot=True) as connection:
            yield connection, self._read.table(connection, gate)
