"""What the parts of a store share."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from streamer.events.alerts import AlertsV1
from streamer.events.desk import DeskV1
from streamer.journal import Headers, OutboxMessage
from streamer.store.db.engine import Database
from streamer.store.labels.read_labels import ReadLabels
from streamer.store.log.resolve_outcomes import DeadLetterMessage
from streamer.store.policies.policy_writer import PolicyWriter

AlertMessage = Callable[[AlertsV1], OutboxMessage]


class DeskMessage(Protocol):
    """Makes the message of an outcome."""

    def __call__(self, event: DeskV1, /, *, key: bytes | None, trace: Headers) -> OutboxMessage:
        """Return the message; `key` is that of the action, `trace` are its headers."""
        ...


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
