"""A record that was backed up and restored, with work that goes on: nothing false is reported, and what was lost is named."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from streamer import wiring
from streamer.gates.batch_key import BatchKey
from streamer.store.desk.release_desk import Reject, Release
from tests.integration.audit.history import Scribe, event, label_event, settings_for, verify
from tests.integration.audit.kept_log import KeepingScribe, KeptLog, Site, Topics
from tests.recorded import ledgers_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.services.postgres import PostgresServer


@dataclass
class Database:
    """A database that can be backed up and restored, as operations.md says."""

    folder: Path
    server: PostgresServer | None
    url: str = ""
    made: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.url = self._new()
        wiring.migrate(settings_for(self.url, self.folder))

    def back_up(self) -> None:
        if self.server is not None:
            self.server.dump(self.url, self.folder / "backup")
            return
        with (
            closing(sqlite3.connect(self.url.removeprefix("sqlite:///"))) as source,
            closing(sqlite3.connect(self.folder / "backup")) as target,
        ):
            source.backup(target)

    def restore(self) -> None:
        """Put the backup in the database's place."""
        self.url = self._new()
        if self.server is not None:
            self.server.restore(self.url, self.folder / "backup")
        else:
            (self.folder / "backup").rename(self.url.removeprefix("sqlite:///"))
        assert wiring.check_database(settings_for(self.url, self.folder)) is None

    def _new(self) -> str:
        number = len(self.made)
        url = f"sqlite:///{self.folder / f'record-{number}.db'}"
        self.made.append(url if self.server is None else self.server.create_database())
        return self.made[-1]


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    server = request.getfixturevalue("postgres_server") if request.param == "postgresql" else None
    made = Database(tmp_path, server)
    yield made
    for url in made.made if server is not None else ():
        server.drop_database(url)


@dataclass
class Life:
    """A record over what happens to its database; the topics and the receipts stay."""

    database: Database
    topics: Topics = field(default_factory=dict)
    receipts: list[bytes] = field(default_factory=list)
    checkpoints: str = "."

    def site(self) -> Site:
        folder = self.database.folder / self.checkpoints
        folder.mkdir(exist_ok=True)
        settings = settings_for(self.database.url, folder)
        return Site(folder, settings, KeptLog(self.topics), self.receipts)

    def go_on(self, first: int, *, checkpoint: bool = True, publish: bool = True) -> None:
        """Eight batches, labels, a run, two that wait at the desk, and what becomes of them."""
        settings = self.site().settings
        with wiring.open_store(settings) as store:
            scribe = KeepingScribe(store, settings, self.topics)
            if not store.gates.list():
                scribe.gate("best", unit="best", alpha=0.3, pending="worst")
                scribe.gate("desk", hold_action="escalate", desk_deadline_seconds=86_400.0)
                scribe.checkpoint()
            scribe.send(*(event("best", n) for n in range(first, first + 8)), b"rubbish")
            scribe.send(
                *(
                    label_event("best", n, response=f"r{i}")
                    for n in range(first, first + 8)
                    for i in range(4)
                ),
                topic="labels",
            )
            scribe.recalibrate("best")
            scribe.send(*(event("desk", n) for n in range(first, first + 2)))
            self.at_the_desk(scribe, first)
            if checkpoint:
                scribe.checkpoint()
            if publish:
                self.receipts += scribe.publish()

    def at_the_desk(self, scribe: Scribe, first: int) -> None:
        acts = (Release(response_id="r3", text="Better."), Reject())
        for number, act in enumerate(acts, first):
            scribe.store.desk.decide(BatchKey("desk", f"batch-{number}", 1), act, by="account:ana")

    def read_again(self, first: int) -> None:
        """Decide what the topic has behind the backup's end, as a worker does, and publish it."""
        settings = self.site().settings
        with wiring.open_store(settings) as store:
            scribe = KeepingScribe(store, settings, self.topics)
            for name in ("labels", "responses"):
                place = getattr(scribe.topics, name)
                reached = next(
                    (one.next_offset for one in ledgers_of(store) if one.partition.topic == place), 0
                )
                values = [
                    one.value for offset, one in sorted(self.topics[place, 0].items()) if offset >= reached
                ]
                scribe.deliver([value for value in values if value is not None], topic=name)
            self.at_the_desk(scribe, first)
            self.receipts += scribe.publish()


def test_where_nothing_was_lost_nothing_is_reported(database: Database) -> None:
    life = Life(database)
    life.go_on(0)
    life.go_on(
        20, publish=False
    )  # it waits in the backup, and is published by the record that is lost, and again
    database.back_up()
    settings = life.site().settings
    with wiring.open_store(settings) as store:
        life.receipts += KeepingScribe(store, settings, life.topics).publish()
    database.restore()
    assert life.site().faults() == ([], [], [])
    life.go_on(40)
    assert life.site().faults() == ([], [], [])
    assert len(life.receipts) > 36, "what waited was published twice"
    assert (
        verify(life.site().settings, receipts=(life.receipts, "kept")).counts["events with a receipt"] == 40
    )


def test_what_was_lost_is_named(database: Database) -> None:
    life = Life(database)
    life.go_on(0)
    database.back_up()
    life.go_on(20)
    lost = {
        BatchKey(gate, f"batch-{n}", 1)
        for gate, count in (("best", 8), ("desk", 2))
        for n in range(20, 20 + count)
    }
    database.restore()

    def named(details: list[str], words: str) -> set[BatchKey]:
        return {key for key in lost if any(str(key) in one and words in one for one in details)}

    # Before a worker has read the topic again.
    by_receipts, by_log, alone = life.site().faults()
    assert named(by_log, "was published, and no decision is recorded") == lost
    assert sum("no outcome at the desk is recorded" in one for one in by_log) == 2
    assert any("the tail was cut off" in one for one in by_receipts)
    assert any("the newest were cut off" in one for one in alone), (
        "the checkpoint that was made after the backup"
    )

    # Afterwards: decided again, at another moment, and by the policy of the backup.
    life.read_again(20)
    by_receipts, by_log, alone = life.site().faults()
    assert named(by_log, "that was published is another one than on record") == lost
    assert not named(by_log, "no decision is recorded")
    assert any("was made of another history" in one for one in by_receipts)
    assert any("the newest were cut off" in one for one in alone)

    # Against a file of checkpoints that begins with those of the backup, and what was published since, all is in order.
    since = len(life.receipts)
    life.checkpoints = "new"
    settings = life.site().settings
    with wiring.open_store(settings) as store:
        wiring.checkpointer(settings, store).keep_up(store.heads.newest())
    life.go_on(40)
    site = Site(life.site().directory, settings, KeptLog({}), life.receipts[since:])
    by_receipts, _, alone = site.faults()
    assert (by_receipts, alone) == ([], [])
