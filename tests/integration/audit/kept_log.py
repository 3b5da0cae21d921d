"""A record with all that its witnesses have: its topics, the receipts of what was published, and checkpoints."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from streamer import wiring
from streamer.audit.logged import LogReport, compare_with_log
from streamer.events.receipts import receipt_line
from streamer.journal import DataGap, OutboxMessage, Partition
from streamer.settings.settings import Settings
from streamer.store import Store
from streamer.stream.tail import TailedRecord
from streamer_verify.command import complete_lines
from streamer_verify.verifier import Verifier
from tests.integration.audit.alone import verify_bundle
from tests.integration.audit.history import KEYS, LOG, Scribe, export, settings_for, verify

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


class FaultFoundError(BaseException):
    """`audit verify` names something; nothing that reads the record takes this for a row that cannot be read."""


@contextmanager
def _until_a_fault(seen: set[str]) -> Iterator[None]:
    """End a verification at the first thing that it names but by a receipt, which goes into `seen` alone."""
    remember = Verifier.fault

    def fault(_self: Verifier, check: str, place: str, detail: str) -> None:
        seen.add("receipt" if check == "receipt" else "verify")
        if check != "receipt":
            raise FaultFoundError(f"{place}: {detail}")

    Verifier.fault = fault  # type: ignore[method-assign]
    try:
        yield
    except FaultFoundError:
        pass
    finally:
        Verifier.fault = remember  # type: ignore[method-assign]


@dataclass(frozen=True)
class Site:
    """A record with everything that its witnesses have."""

    directory: Path
    settings: Settings
    log: KeptLog
    receipts: list[bytes]

    def copy(self, directory: Path) -> Site:
        for name in ("record.db", "checkpoints.jsonl"):
            shutil.copy(self.directory / name, directory)
        settings = settings_for(f"sqlite:///{directory / 'record.db'}", directory)
        return Site(directory, settings, self.log, self.receipts)

    def compared(self, store: Store | None = None) -> LogReport:
        """What `--log` finds."""
        with wiring.open_store(self.settings) if store is None else nullcontext(store) as opened:
            return compare_with_log(opened.evidence.logged, self.log, topics=wiring.topics(self.settings))

    def named_by(self, store: Store | None = None) -> str:
        """Who names what does not fit: `verify` with the checkpoints alone, or else `receipts`, `log`, both, or `nobody`.

        `store` : open on the record.
        """
        seen: set[str] = set()
        with wiring.open_store(self.settings) if store is None else nullcontext(store) as opened:
            with _until_a_fault(seen):
                verify(self.settings, store=opened, receipts=(self.receipts, "what was kept"))
            if "verify" in seen:
                return "verify"
            found = ["receipts"] if seen else []
            found += ["log"] if self.compared(opened).faults else []
            return ", ".join(found) or "nobody"

    def alone(self, receipts: Sequence[bytes] | None = None, store: Store | None = None) -> Verifier:
        """What the one file finds in a bundle that is exported now, with the checkpoints; JavaScript's agrees with it."""
        shutil.rmtree(self.directory / "bundle", ignore_errors=True)
        export(self.settings, self.directory / "bundle", store=store)
        outside = complete_lines((self.directory / "checkpoints.jsonl").read_bytes())
        return verify_bundle(self.directory / "bundle", KEYS, outside, receipts)

    def faults(self) -> tuple[list[str], list[str], list[str]]:
        """What `audit verify` finds with receipts, what `--log` adds, and what the one file finds."""
        report = verify(self.settings, receipts=(self.receipts, "what was kept"))
        return (
            [one.detail for one in report.faults],
            [one.detail for one in self.compared().faults],
            [one["detail"] for one in self.alone(self.receipts).faults],
        )
