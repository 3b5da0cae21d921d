"""Forgetting: old texts are erased, old published messages deleted; decisions, scores, labels and leaves stay.

What is erased is what people wrote: prompts, responses, references, metadata, refused messages as they came, what a
judge was asked and said; and with them the content hash and the salts, so that nobody can test a guess against what
is left. The seals stay, and every Merkle log still verifies.
"""

import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import sqlalchemy as sa

from streamer.errors import UsageError
from streamer.store.audit import control
from streamer.store.db.engine import Database
from streamer.store.db.migrate import require_migrated
from streamer.store.db.schema import (
    batches,
    calibration_runs,
    dead_letters,
    decisions,
    desk_outcomes,
    desk_texts,
    erasures,
    judgements,
    outbox,
    pending_messages,
    policies,
    responses,
)
from streamer.store.db.schema.joins import BATCH, same
from streamer.store.db.schema.types import kept_of

SIX_MONTHS = timedelta(days=184)
"""Six months at their longest. Erasing earlier needs an explicit option."""

CHUNK = 500
"""Rows that one transaction erases."""


@dataclass(frozen=True, slots=True)
class Pruned:
    """How many of each were erased (or would be)."""

    batches: int = 0
    """Their prompt, references, metadata, content hash and the texts of their responses."""
    dead_letters: int = 0
    judgements: int = 0
    released: int = 0
    """Texts that people released at the desk, with their batches."""
    messages: int = 0
    """Published messages of the outbox, deleted."""
    parked: int = 0
    """Messages that could never be published; they stay as rows, emptied."""
    burst_keys: int = 0
    """Secrets of runs whose policies are not in force: nobody can test whose burst a hash is any more."""

    @property
    def total(self) -> int:
        """All of them."""
        return sum(getattr(self, field.name) for field in fields(self))


def prune(
    url: str,
    *,
    older_than: timedelta,
    now: datetime,
    by: str = "prune",
    reason: str = "old enough",
    sooner_than_six_months: bool = False,
    dry_run: bool = False,
    insecure: bool = False,
    chunk: int = CHUNK,
    progress: Callable[[str, int], None] = lambda _what, _count: None,
) -> Pruned:
    """Erase what is older than a time, in transactions of at most `chunk` rows; safe to stop and to repeat.

    On SQLite the freed bytes are overwritten. PostgreSQL gives them back at its next VACUUM.
    Age is by the decision, the refusal, the judgement or the publication. `progress` is called after each transaction with what
    was erased, and how many rows. Raises `UsageError` when the age is too small, the database is not migrated, or its user may
    not erase; `Unavailable` when the database is unavailable.
    """
    if older_than < SIX_MONTHS and not sooner_than_six_months:
        raise UsageError(
            f"what is younger than {SIX_MONTHS.days} days is kept: auditors may need it; to erase it all the same,"
            " say --sooner-than-six-months"
        )
    before = now - older_than
    database = Database(url, insecure=insecure)
    try:
        require_migrated(database)
        rule = _Rule(database, before, now, by=by, reason=reason, sooner=sooner_than_six_months)
        counts = dict.fromkeys((field.name for field in fields(Pruned)), 0)
        for name, table, old, erase in _parts(before, rule.at):
            if dry_run:
                with database.reading() as connection:
                    count = sa.select(sa.func.count()).select_from(old.subquery())
                    counts[name] += connection.scalar(count) or 0
                continue
            said = rule if name in _TEXTS else None
            for ids in _chunks(database, table, old, erase, chunk, said):
                counts[name] += ids
                progress(name, ids)
        if database.sqlite and not dry_run:
            _forget_the_log(database)
        return Pruned(**counts)
    finally:
        database.close()


_TEXTS = ("batches", "dead_letters", "judgements", "released")


class _Rule:
    """What allows texts to be erased, which goes on record with the first that is.

    `at` is when they are erased: later than any erasure before it, whatever the clock says. `is_recorded` says whether a
    transaction that recorded it has ended.
    """

    def __init__(
        self, database: Database, before: datetime, now: datetime, *, by: str, reason: str, sooner: bool
    ) -> None:
        with database.reading() as connection:
            last = connection.execute(sa.select(sa.func.max(erasures.c.at))).scalar()
        self.at = now if last is None else max(now, last + timedelta(microseconds=1))
        self.is_recorded = False
        said = {"by": by, "reason": reason, "before": before, "sooner": sooner}
        self._row = {"id": secrets.token_hex(8), "at": self.at, **said}

    def record(self, connection: sa.Connection) -> None:
        """Write and seal it, unless that is done."""
        if not self.is_recorded:
            control.insert(connection, erasures, self._row, now=self.at)


def _parts(
    before: datetime, now: datetime
) -> Iterator[tuple[str, sa.Table, sa.Select[Any], Callable[[Sequence[int]], list[sa.Executable]]]]:
    """What is erased: its name, the table, the ids that are old enough, and the statements that erase some."""
    of_batch, decided = decisions.c.batch == batches.c.id, decisions.c.decided_at
    released = sa.join(desk_texts, desk_outcomes, desk_outcomes.c.id == desk_texts.c.outcome)
    released = released.join(batches, same(batches, desk_outcomes, *BATCH)).join(decisions, of_batch)
    for name, table, source, moment in (
        ("batches", batches, sa.join(batches, decisions, of_batch), decided),
        ("dead_letters", dead_letters, dead_letters, dead_letters.c.recorded_at),
        ("judgements", judgements, judgements, judgements.c.judged_at),
        ("released", desk_texts, released, decided),
    ):
        old = sa.select(table.c.id).select_from(source)
        old = old.where(table.c.erased_at.is_(None), moment < before)
        yield name, table, old, partial(_texts_erased, table, now)
    yield (
        "messages",
        outbox,
        sa.select(outbox.c.id).where(outbox.c.published_at < before),
        lambda ids: [sa.delete(outbox).where(outbox.c.id.in_(ids))],
    )
    later = policies.alias()
    superseded = sa.exists().where(
        policies.c.gate == calibration_runs.c.gate, policies.c.calibration_run > calibration_runs.c.id
    ) & ~sa.exists().where(
        policies.c.calibration_run == calibration_runs.c.id,
        ~sa.exists().where(later.c.gate == policies.c.gate, later.c.version > policies.c.version),
    )
    yield (
        "burst_keys",
        calibration_runs,
        sa.select(calibration_runs.c.id).where(
            calibration_runs.c.burst_key.is_not(None), calibration_runs.c.finished_at < before, superseded
        ),
        partial(_texts_erased, calibration_runs, now),
    )
    for table in (outbox, pending_messages):
        yield (
            "parked",
            table,
            sa.select(table.c.id).where(
                table.c.parked_at < before, table.c.key.is_not(None) | table.c.value.is_not(None)
            ),
            partial(_emptied, table),
        )


def _texts_erased(table: sa.Table, now: datetime, ids: Sequence[int]) -> list[sa.Executable]:
    answers = [sa.update(responses).where(responses.c.batch.in_(ids)).values(text=None)]
    return [*(answers if table is batches else ()), erased(table, ids, now)]


def _emptied(table: sa.Table, ids: Sequence[int]) -> list[sa.Executable]:
    return [sa.update(table).where(table.c.id.in_(ids)).values(key=None, value=None, headers=())]


def erased(table: sa.Table, ids: Sequence[int], now: datetime) -> sa.Update:
    """Empty what erasures empty of these rows."""
    # sa.null(): a JSON column would write the JSON value null.
    nothing: dict[str, Any] = {name: sa.null() for name in kept_of(table).erased}
    if "erased_at" in nothing:
        nothing["erased_at"] = now
    return sa.update(table).where(table.c.id.in_(ids)).values(nothing)


def _chunks(
    database: Database,
    table: sa.Table,
    old: sa.Select[Any],
    erase: Callable[[Sequence[int]], list[sa.Executable]],
    chunk: int,
    rule: _Rule | None,
) -> Iterator[int]:
    """Erase chunk after chunk in the order of ids; yield how many each had. What allows it is recorded with the first."""
    last = 0
    while True:
        next_ids = old.where(table.c.id > last).order_by(table.c.id).limit(chunk)

        def work(connection: sa.Connection, query: sa.Select[Any] = next_ids) -> list[int]:
            overwriting(connection)
            ids = list(connection.scalars(query))
            if ids:
                if rule is not None:
                    rule.record(connection)
                for statement in erase(ids):
                    connection.execute(statement)
            return ids

        ids = database.writing(work)
        if not ids:
            return
        if rule is not None:
            rule.is_recorded = True
        yield len(ids)
        last = ids[-1]


def overwriting(connection: sa.Connection) -> None:
    """Have SQLite overwrite what this connection deletes."""
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql("PRAGMA secure_delete = ON")


def _forget_the_log(database: Database) -> None:
    """Empty SQLite's write-ahead log, which still has the pages as they were, as far as no reader needs it."""
    with database.errors(), database.engine.connect() as connection:
        driver: Any = connection.connection.dbapi_connection
        driver.execute("PRAGMA wal_checkpoint(TRUNCATE)")
