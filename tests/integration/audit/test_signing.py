"""What signs the record: when a head is appended, what goes to the topic and the file, and who of several processes does it."""

import json
import threading
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from streamer.audit import signing
from streamer.audit.checkpointing import Checkpointer, CheckpointFile, Leadership, Signing, said
from streamer.events.checkpoints import encode_checkpoint
from streamer.signing.merkle import leaf_hash, root_of
from streamer.signing.notes import origin_of
from streamer.store.db.engine import Database
from streamer_verify.command import complete_lines
from tests.faults.site import wait_until
from tests.integration.audit.history import PRIVATE, Scribe, event, scribing, verify
from tests.services.postgres import PostgresServer


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def scribe(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scribe]:
    url = f"sqlite:///{tmp_path / 'record.db'}"
    if request.param == "postgresql":
        server: PostgresServer = request.getfixturevalue("postgres_server")
        url = server.create_database()
    with scribing(tmp_path, url) as (_, _, scribe):
        scribe.gate("best", unit="best", alpha=0.3)
        yield scribe


class Clock:
    def __init__(self) -> None:
        self.now = datetime(2026, 11, 20, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


def checkpointer(scribe: Scribe, clock: Clock, file: Path | None = None) -> Checkpointer:
    return Checkpointer(
        scribe.store.heads, signer=signing.Signer(PRIVATE), topic="streamer.checkpoints",
        file=None if file is None else CheckpointFile(file), every=timedelta(minutes=5),
        clock=clock,
    )  # fmt: skip


def published(scribe: Scribe) -> list[int]:
    waiting = scribe.store.unpublished([], limit=500)
    return [
        said(one.value).size
        for one in waiting
        if one.topic == "streamer.checkpoints" and one.value is not None
    ]


def test_a_head_is_signed_when_something_happened_and_published_now_and_then(scribe: Scribe, tmp_path: Path):
    clock, file = Clock(), tmp_path / "deep" / "kept.jsonl"
    maker = checkpointer(scribe, clock, file)

    def after(seconds: float, *, number: int | None = None) -> tuple[int, int]:
        clock.now += timedelta(seconds=seconds)
        if number is not None:
            scribe.deliver([event("best", number)])
        signed = maker.run()
        kept = [said(line).size for line in complete_lines(file.read_bytes())]
        assert kept == published(scribe)
        assert kept[-1] == signed.published
        return signed.size, signed.published

    assert after(0) == (1, 1), "a gate's secrets are committed to at once"
    assert after(1) == (1, 1), "nothing has happened"
    assert after(1, number=1) == (2, 1)
    assert after(1, number=2) == (3, 1)
    assert after(300) == (4, 4), "what was signed is published when it is time, though nothing happened"
    assert after(300) == (4, 4)
    assert after(301, number=3) == (5, 5)
    scribe.gate("other", unit="best", alpha=0.3)
    assert after(1) == (6, 6)
    assert after(-86_400, number=4) == (7, 7), "a clock that was ahead holds nothing back"
    scribe.deliver([event("best", 5)])
    clock.now += timedelta(seconds=9)
    assert (maker.lacking(7), maker.lacking(6)) == (0.0, 9.0)
    heads = [scribe.store.heads.data(index) or b"" for index in range(7)]
    assert [json.loads(one)["index"] for one in heads] == list(range(7))
    assert scribe.store.heads.root(0, 7) == root_of(map(leaf_hash, heads))
    assert verify(scribe.settings, outside=complete_lines(file.read_bytes())).faults == ()


def test_two_that_sign_at_once_make_one_log(scribe: Scribe):
    """As a command beside the process that signs does: each leaf has its place once."""
    stop = threading.Event()

    def sign() -> None:
        maker = checkpointer(scribe, Clock())
        while not stop.is_set():
            maker.run()

    threads = [threading.Thread(target=sign) for _ in range(2)]
    for thread in threads:
        thread.start()
    for number in range(8):
        scribe.deliver([event("best", number)])
    stop.set()
    for thread in threads:
        thread.join()
    newest = checkpointer(scribe, Clock()).run(publish=True)
    heads = [scribe.store.heads.data(index) or b"" for index in range(newest.size)]
    assert scribe.store.heads.root(0, newest.size) == root_of(map(leaf_hash, heads))
    assert verify(scribe.settings).faults == ()


def test_one_process_signs_and_another_takes_over(scribe: Scribe):
    def process() -> tuple[Signing, Leadership]:
        lease = scribe.store.leases.of_signer()
        leading = Scribe(scribe.store.under(lease), scribe.settings)
        return Signing(checkpointer(leading, Clock()), lease, 600.0), lease

    (first, held), (second, other) = process(), process()
    first.round()
    second.round()
    assert (first.leads(), second.leads()) == (True, False)
    assert scribe.store.heads.newest().size == 1
    scribe.deliver([event("best", 1)])
    second.round()
    assert scribe.store.heads.newest().size == 1, "it stands by"
    first.round()
    assert scribe.store.heads.newest().size == 2
    held.release()  # type: ignore[attr-defined]
    scribe.deliver([event("best", 2)])
    second.round()
    assert (second.leads(), scribe.store.heads.newest().size) == (True, 3)
    first.round()
    assert not first.leads()
    assert (first.waiting(), second.waiting()) == (0.0, 0.0)
    other.release()  # type: ignore[attr-defined]


@pytest.mark.expected_errors("audit.signing_failed")
def test_what_cannot_be_signed_is_told_and_signed_later(scribe: Scribe, tmp_path: Path):
    stop = threading.Event()
    lease = scribe.store.leases.of_signer()
    clock = Clock()
    maker = checkpointer(scribe, clock)
    service = Signing(maker, lease, 0.02)
    clock.__class__.__call__ = lambda _: 1 / 0  # type: ignore[method-assign]
    thread = threading.Thread(target=service.run, args=(stop,))
    thread.start()
    try:
        wait_until(lambda: service.waiting() > 0.1, "it shows how long")
        assert not service.leads()
    finally:
        clock.__class__.__call__ = lambda self: self.now  # type: ignore[method-assign]
    try:
        wait_until(lambda: scribe.store.heads.newest().size == 1, "it is signed")
        wait_until(lambda: service.waiting() == 0.0, "nothing waits")
    finally:
        stop.set()
        thread.join()
        lease.release()


@pytest.mark.expected_errors("audit.checkpoint_file_of_another_record")
def test_a_file_of_another_record_or_history_is_left_alone(scribe: Scribe, tmp_path: Path):
    signer, file = signing.Signer(PRIVATE), tmp_path / "kept.jsonl"
    maker = checkpointer(scribe, Clock(), file)
    origin = origin_of(scribe.store.heads.standing()[0]["record"])
    for note, words in (
        (signer.checkpoint(origin_of("ef" * 32), 1, bytes(32)), "checkpoint 1 of another"),
        (signer.checkpoint(origin, 1, bytes(32)), "checkpoint 1 of another"),
        (signer.checkpoint(origin, 9, bytes(32)), "checkpoint 9 of another"),
    ):
        file.write_bytes(encode_checkpoint(note, Clock()()) + b"\n")
        before = file.read_bytes()
        scribe.deliver([event("best", file.stat().st_mtime_ns % 10_000)])
        kept_back = maker.keep_up(maker.run(publish=True))
        assert kept_back is not None
        assert words in kept_back
        assert file.read_bytes() == before


def test_no_writer_waits_for_what_signs(scribe: Scribe):
    """A head is read in a snapshot: what is recorded meanwhile goes on, and is in the next."""
    if scribe.settings.database.url.startswith("sqlite"):
        pytest.skip("SQLite has one writer at a time")
    maker = checkpointer(scribe, Clock())
    maker.run()
    database = Database(scribe.settings.database.url)
    with closing(database), database.engine.begin() as connection:
        connection.exec_driver_sql("SELECT 1 FROM signed_head FOR UPDATE")
        scribe.deliver([event("best", 1)])
        scribe.gate("other", unit="best", alpha=0.3)
    assert maker.run().size == 2
