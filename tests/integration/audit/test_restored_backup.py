"""A record that was backed up and restored, with work that goes on: nothing false is reported, and what was lost is named."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from streamer import wiring
from streamer.audit import signing
from streamer.audit.witnesses import read_witness, send
from streamer.cli import main
from streamer.gates.batch_key import BatchKey
from streamer.signing.notes import Restoration, read_verifier_key
from streamer.store.desk.release_desk import Reject, Release
from streamer_verify.bundle import Bundle
from streamer_verify.command import complete_lines
from tests.integration.audit.alone import by_one_file, verify_bundle
from tests.integration.audit.history import KEYS, PRIVATE, Scribe, event, settings_for, verify
from tests.integration.audit.kept_log import KeepingScribe, KeptLog, Site, Topics
from tests.recorded import ledgers_of
from tests.services.postgres import PostgresServer
from tests.services.witness import StrictWitness


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
            scribe.send(*scribe.drawn_labels("best", range(first, first + 8)), topic="labels")
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


def test_where_nothing_was_lost_nothing_is_reported(database: Database):
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


def test_what_was_lost_is_named(database: Database):
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


def _signed_on(
    life: Life, witness: StrictWitness, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> dict[str, Any]:
    """Run `audit restored` as an operator does, and give the witness the new key."""
    environment = {
        "DATABASE_URL": life.database.url,
        "AUDIT_PRIVATE_KEY": PRIVATE,
        "AUDIT_CHECKPOINT_FILE": str(life.site().directory / "checkpoints.jsonl"),
        "AUDIT_WITNESSES": json.dumps([witness.address]),
    }
    for name, value in environment.items():
        monkeypatch.setenv(f"STREAMER_{name}", value)
    assert main(["audit", "restored", "--reason", "a disk broke", "--by", "ana", "--json"]) == 1
    printed = capsys.readouterr()
    assert "does not know this record" in printed.err
    said: dict[str, Any] = json.loads(printed.out)
    witness.log = read_verifier_key(said["verifier_key"])
    assert main(["audit", "checkpoint"]) == 0
    assert main(["audit", "restored", "--reason", "once more"]) == 2, "nothing else was lost"
    capsys.readouterr()
    return said


def test_what_a_restored_backup_has_not_is_given_up_on_record(
    database: Database, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    life = Life(database)
    life.go_on(0)
    with StrictWitness() as witness:

        def cosign() -> bytes:
            """Have the witness cosign the newest; returns what it keeps."""
            with wiring.open_store(life.site().settings) as store:
                witness.log = signing.Signer(PRIVATE).verifier_key(store.heads.origin())
                assert send([read_witness(witness.address)], store.heads) == {witness.key.name: None}
            assert witness.newest is not None
            return witness.newest

        kept = [cosign()]
        database.back_up()
        for first in (20, 30):
            life.go_on(first)
            kept.append(cosign())
        database.restore()
        assert any("the newest were cut off" in one for one in life.site().faults()[2])
        said = _signed_on(life, witness, monkeypatch, capsys)
        record = said["origin"].split("/")[1]
        assert (said["kept"], said["given_up"], said["made"], said["size"]) == (
            2, [[f"streamer/{record}", 4]], True, 3,
        )  # fmt: skip
        life.read_again(20)
        life.receipts.clear()
        database.back_up()
        life.go_on(50)
        life.receipts.clear()
        kept.append(cosign())

        def everybody_agrees(*given_up: str) -> None:
            """All verifiers go on, and say what was given up, whoever's checkpoints they are given."""
            assert life.site().faults()[::2] == ([], [])
            folder = life.site().directory
            file = complete_lines((folder / "checkpoints.jsonl").read_bytes())
            for outside in (file, *([one] for one in kept)):
                report = verify(life.site().settings, outside=outside)
                alone = verify_bundle(folder / "bundle", KEYS, outside)
                assert (report.faults, alone.faults) == ((), [])
                for notes in (report.notes, alone.notes.values()):
                    assert sorted(one.partition(":")[0] for one in notes if "restored" in one) == sorted(
                        given_up
                    )

        first_loss = f"heads 3 to 4 of streamer/{record}"
        everybody_agrees(first_loss)
        # The same backup's end is lost again, of a log that has another origin now.
        before = said
        database.restore()
        assert any("the newest were cut off" in one for one in life.site().faults()[2])
        said = _signed_on(life, witness, monkeypatch, capsys)
        assert said["given_up"] == [[before["origin"], said["size"]]]
        assert said["kept"] == said["size"] - 1
        life.go_on(60)
        life.receipts.clear()
        kept.append(cosign())
        everybody_agrees(first_loss, f"heads {said['kept'] + 1} to {said['size']} of {before['origin']}")


def test_nothing_is_given_up_without_the_key(tmp_path: Path):
    """Who can write the database writes such a row, too; without the key of checkpoints it is a forgery and excuses nothing."""
    database = Database(tmp_path, None)
    life = Life(database)
    life.go_on(0)
    database.back_up()
    life.go_on(20)
    database.restore()
    settings = life.site().settings
    stranger = signing.Signer(signing.generate_keys()[0])
    with wiring.open_store(settings) as store:

        def make(record_id: str, number: int) -> tuple[Restoration, str]:
            lost = json.dumps([[f"streamer/{record_id}", 9]])
            made = Restoration(number, wiring.now(), "ana", "-", f"streamer/{record_id}/0", 2, lost)
            return made, stranger.sign(made.statement(record_id))

        store.heads.restore(make, now=wiring.now())
    _, _, alone = life.site().faults()
    report = verify(settings)
    for details in (alone, [one.detail for one in report.faults]):
        assert any("signature is not good" in one for one in details)
        assert any("the newest were cut off" in one for one in details)
    bundle = Bundle(life.site().directory / "bundle")
    assert not any("restored" in one for one in by_one_file(bundle, KEYS, None).notes.values())
