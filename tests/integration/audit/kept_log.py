"""A record with all that its witnesses have: its topics, the receipts of what was published, and checkpoints."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from streamer import wiring
from streamer.audit.logged import compare_with_log
from streamer.audit.standalone.verify_bundle import complete_lines
from streamer.events.receipts import receipt_line
from streamer.journal import DataGap, Partition
from streamer.stream.tail import TailedRecord
from tests.integration.audit.alone import verify_bundle
from tests.integration.audit.attacker import breaking_in
from tests.integration.audit.history import KEYS, LOG, Scribe, export, settings_for, verify

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    import sqlalchemy as sa

    from streamer.audit.logged import LogReport
    from streamer.journal import OutboxMessage
    from streamer.settings.settings import Settings
    from streamer.store import Store

Topics = dict[tuple[str, int], dict[int, TailedRecord]]
"""Of each partition its records by offset, with holes where retention took some."""


class KeptLog:
    """The topics as they were."""

    def __init__(self, records: Mapping[tuple[str, int], Mapping[int, TailedRecord]]) -> None:
        self.id = LOG
        self._records = records

    def topic_id(self, topic: str) -> str | None:
        del topic
        return None

    def bounds(self, topic: str) -> dict[int, tuple[int, int]]:
        return {
            number: (min(kept, default=0), max(kept, default=-1) + 1)
            for (name, number), kept in self._records.items()
            if name == topic
        }

    def read(self, topic: str, ends: Mapping[int, int]) -> Iterator[TailedRecord]:
        for number, end in ends.items():
            yield from (one for offset, one in sorted(self._records[topic, number].items()) if offset < end)


class KeepingScribe(Scribe):
    """Writes a record, and keeps what its topics have."""

    def __init__(self, store: Store, settings: Settings, kept: Topics | None = None) -> None:
        super().__init__(store, settings)
        self.topics = wiring.topics(settings)
        self.kept: Topics = {} if kept is None else kept

    def send(self, *events: bytes, topic: str = "responses", partition: int = 0) -> None:
        """Deliver events that stay on their topic."""
        place = Partition(LOG, getattr(self.topics, topic), partition)
        first = self.store.lease([place])[place].next_offset
        self.deliver(events, topic=topic, partition=partition)
        kept = self.kept.setdefault((place.topic, partition), {})
        for offset, value in enumerate(events, first):
            kept[offset] = TailedRecord(place.topic, partition, offset, b"k", value, (), 0)

    def publish(self) -> list[bytes]:
        """Publish what waits, as the relay does; returns the receipts of it."""
        sources = [Partition(LOG, name, number) for name, number in self.kept]
        sent: list[OutboxMessage] = []
        while waiting := self.store.unpublished(sources, limit=500):
            for one in waiting:
                if one.topic in (self.topics.actions, self.topics.desk):
                    kept = self.kept.setdefault((one.topic, 0), {})
                    offset = len(kept)
                    kept[offset] = TailedRecord(one.topic, 0, offset, one.key, one.value, one.headers, 0)
                    sent.append(one)
            self.store.mark_published(waiting)
        receipts = [line for one in sent if (line := receipt_line(one.value, one.headers)) is not None]
        assert len(receipts) == len(sent)
        return receipts

    def lose(self, count: int) -> None:
        """Let retention take the next offsets of the second partition, and all before them, from its topic."""
        place = Partition(LOG, self.topics.responses, 1)
        lease = self.store.lease([place])[place]
        self.store.record_gap(lease, DataGap(place, lease.next_offset, lease.next_offset + count))
        self.kept[place.topic, 1] = {}


@dataclass(frozen=True)
class Site:
    """A record with everything that its witnesses have; `store` is open on it, where one is kept open."""

    directory: Path
    settings: Settings
    log: KeptLog
    receipts: list[bytes]
    store: Store | None = None

    def copy(self, directory: Path) -> Site:
        for name in ("record.db", "checkpoints.jsonl"):
            shutil.copy(self.directory / name, directory)
        settings = settings_for(f"sqlite:///{directory / 'record.db'}", directory)
        return Site(directory, settings, self.log, self.receipts)

    @contextmanager
    def workplace(self, directory: Path) -> Iterator[Site]:
        """A copy to be changed and put back as often as one likes, with one store open on it all the time."""
        copy = self.copy(directory)
        with wiring.open_store(copy.settings) as store:
            yield replace(copy, store=store)

    def put_back(self, copy: Site) -> None:
        """Make a copy what it was."""
        with (
            closing(sqlite3.connect(self.directory / "record.db")) as kept,
            closing(sqlite3.connect(copy.directory / "record.db")) as changed,
        ):
            kept.backup(changed)
        shutil.copy(self.directory / "checkpoints.jsonl", copy.directory)

    @contextmanager
    def broken_into(self) -> Iterator[sa.Connection]:
        """A connection on which nothing is refused."""
        url = self.settings.database.url
        with breaking_in(url if self.store is None else self.store._database) as connection:
            yield connection

    def compared(self) -> LogReport:
        """What `--log` finds."""
        with wiring.open_store(self.settings) if self.store is None else nullcontext(self.store) as opened:
            return compare_with_log(opened.evidence.logged, self.log, topics=wiring.topics(self.settings))

    def named_by(self) -> str:
        """Who names what does not fit: `verify` with the checkpoints alone, or else `receipts`, `log`, both, or `nobody`."""
        if verify(self.settings, store=self.store).faults:
            return "verify"
        found = []
        if verify(self.settings, store=self.store, receipts=(self.receipts, "what was kept")).faults:
            found.append("receipts")
        if self.compared().faults:
            found.append("log")
        return ", ".join(found) or "nobody"

    def faults(self) -> tuple[list[str], list[str], list[str]]:
        """What `audit verify` finds with receipts, what `--log` adds, and what the one file finds; JavaScript's agrees with it."""
        report = verify(self.settings, receipts=(self.receipts, "what was kept"))
        shutil.rmtree(self.directory / "bundle", ignore_errors=True)
        export(self.settings, self.directory / "bundle")
        outside = complete_lines((self.directory / "checkpoints.jsonl").read_bytes())
        alone = verify_bundle(self.directory / "bundle", KEYS, outside, self.receipts)
        return (
            [one.detail for one in report.faults],
            [one.detail for one in self.compared().faults],
            [one["detail"] for one in alone.faults],
        )
