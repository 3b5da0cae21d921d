"""Records that were refused: looked at, and sent again as they were."""

import builtins
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from streamer.errors import UsageError
from streamer.events.outgoing import TRUNCATED
from streamer.events.topics import HTTP_LOG
from streamer.journal import Headers, OutboxMessage
from streamer.store.audit import control
from streamer.store.db.schema import dead_letter_replays, dead_letters
from streamer.store.db.schema.types import Row, of_row
from streamer.store.log.outbox import enqueue
from streamer.store.part import Part


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredDeadLetter:
    """A refused record with its original bytes; `detail`, `key`, `value` and `headers` are None once erased."""

    id: int
    log_id: str
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    code: str
    detail: str | None
    key: bytes | None
    value: bytes | None
    headers: Headers | None
    at: datetime
    replayed_at: datetime | None
    replayed_by: str | None

    @property
    def truncated(self) -> str | None:
        """What the stored bytes lack; None for a record that is stored as it was sent."""
        return _truncated(self.headers)


class DeadLetters(Part):
    """The dead letters of all topics."""

    def list(self, *, code: str | None = None, limit: int = 50) -> builtins.list[StoredDeadLetter]:
        """Dead letters, the newest first; with `code`, only those of that error code."""
        query = sa.select(dead_letters).order_by(dead_letters.c.id.desc()).limit(limit)
        if code is not None:
            query = query.where(dead_letters.c.code == code)
        return [_letter(row) for row in self._database.mappings(query)]

    def get(self, identity: int) -> StoredDeadLetter:
        """One dead letter. Raises `UsageError` when there is none of this id."""
        return self._database.read(_one, identity)

    def counts(self, *, replayed: bool = True) -> dict[str, int]:
        """How many there are, by error code; without `replayed` those alone that were never sent again."""
        query = sa.select(dead_letters.c.code, sa.func.count().label("n")).group_by(dead_letters.c.code)
        if not replayed:
            query = query.where(dead_letters.c.replayed_at.is_(None))
        return {row.code: row.n for row in self._database.rows(query.order_by(dead_letters.c.code))}

    def never_replayed(self, code: str) -> builtins.list[int]:
        """Ids of this error code that were not sent again before and still have all bytes, the oldest first."""
        query = (
            sa.select(dead_letters.c.id, dead_letters.c.headers)
            .where(
                dead_letters.c.code == code,
                dead_letters.c.log_id != HTTP_LOG,
                dead_letters.c.replayed_at.is_(None),
                dead_letters.c.erased_at.is_(None),
            )
            .order_by(dead_letters.c.id)
        )
        return [row.id for row in self._database.rows(query) if _truncated(row.headers) is None]

    def replay(self, identities: Sequence[int], *, by: str) -> int:
        """Send the original bytes to their topic again (by the outbox) and note who did; all or none.

        Returns how many. Raises `UsageError` for one that does not exist or was erased.
        """
        now = self._clock()

        def work(connection: sa.Connection) -> int:
            wanted = sorted(set(identities))
            for identity in wanted:
                letter = _one(connection, identity)
                if letter.headers is None:
                    raise UsageError(f"dead letter {identity} was erased; there is nothing to send again")
                if letter.log_id == HTTP_LOG:
                    raise UsageError(
                        f"dead letter {identity} came by HTTP, and its sender was told; it is for the sender to ask again"
                    )
                if letter.truncated is not None:
                    raise UsageError(
                        f"dead letter {identity} is an excerpt ({letter.truncated}) and cannot be sent again; "
                        f"its record is in Kafka for as long as the topic keeps it, at {letter.topic}/"
                        f"{letter.partition}/{letter.offset}"
                    )
                enqueue(
                    connection, OutboxMessage(letter.topic, letter.key, letter.value, letter.headers), now
                )
                connection.execute(
                    sa.update(dead_letters)
                    .where(dead_letters.c.id == identity)
                    .values(replayed_at=now, replayed_by=by)
                )
            for identity in wanted:
                replay = {"dead_letter": identity, "at": now, "by": by}
                control.insert(connection, dead_letter_replays, replay, now=now)
            return len(wanted)

        return self._database.writing(work)


def _one(connection: sa.Connection, identity: int) -> StoredDeadLetter:
    query = sa.select(dead_letters).where(dead_letters.c.id == identity)
    row = connection.execute(query).mappings().one_or_none()
    if row is None:
        raise UsageError(
            f"there is no dead letter {identity}; `streamer dead-letters list` shows those there are"
        )
    return _letter(row)


def _letter(row: Row) -> StoredDeadLetter:
    return of_row(StoredDeadLetter, row, at=row["recorded_at"])


def _truncated(headers: Headers | None) -> str | None:
    for name, content in headers or ():
        if name == TRUNCATED:
            return (content or b"").decode("utf-8", "replace")
    return None
