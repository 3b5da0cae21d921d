"""A backup of PostgreSQL, restored: the record verifies, and a worker goes on exactly where the backup ends."""

import json
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from streamer import wiring
from streamer.settings.settings import load_settings
from tests.faults.site import GATE, Site, publish, wait_until
from tests.faults.worker_process import WorkerProcess
from tests.recorded import ledgers_of
from tests.services.postgres import PostgresServer


def test_a_worker_goes_on_where_the_backup_ends(
    site: Site, postgres_server: PostgresServer, tmp_path: Path
) -> None:
    key = site.directory / "key.pem"
    site.command("audit", "keygen", "--out", str(key))
    site.environment["STREAMER_AUDIT_PRIVATE_KEY_FILE"] = str(key)
    first = site.start_worker()
    publish(site, 0, 20)
    wait_until(lambda: site.decided() == 20, "twenty are decided")
    wait_until(lambda: site.store.reports.outbox_pending() == 0, "and published")
    site.command("audit", "checkpoint")
    postgres_server.dump(site.settings.database.url, tmp_path / "backup")
    before = _actions(site)
    # What comes after the backup is lost with the database, and is in Kafka still.
    publish(site, 20, 10)
    wait_until(lambda: site.decided() == 30, "ten more are decided")
    site.command("audit", "checkpoint")
    wait_until(lambda: site.store.reports.outbox_pending() == 0, "the checkpoint is on the topic")
    assert first.terminate() == 0
    restored_url = postgres_server.create_database()
    try:
        postgres_server.restore(restored_url, tmp_path / "backup")
        settings = load_settings(
            kafka=site.settings.kafka.model_dump(exclude_unset=True), database={"url": restored_url}
        )
        assert wiring.check_database(settings) is None
        site.environment["STREAMER_DATABASE_URL"] = restored_url

        def verified() -> tuple[list[str], list[str]]:
            """Faults and notes of `audit verify` against the checkpoints on the topic; the site's threshold is made up."""
            done = site.command("audit", "verify", "--json", "--checkpoints", "topic", status=3)
            said: dict[str, Any] = json.loads(done.stdout)
            faults = [one["detail"].partition(":")[0] for one in said["faults"]]
            return faults, [one for one in said["not_checked"] if "restored" in one]

        made_up = "its inputs cannot be calibrated"
        assert verified() == ([made_up, "it saw 2 heads, there are 1"], [])
        site.command("audit", "restored", "--reason", "a disk broke", "--by", "ana")
        with wiring.open_store(settings) as store:
            assert store.evidence.log_faults() == []
            publish(site, 30, 10)
            worker = WorkerProcess(site.environment, tmp_path / "restored.log")
            with closing(worker):
                wait_until(lambda: store.reports.decided_and_shipped(GATE)[0] == 40, "all forty are decided")
                wait_until(lambda: store.reports.outbox_pending() == 0, "and published")
                assert worker.terminate() == 0
            for ledger in ledgers_of(store):
                recorded = [o for begin, end in ledger.ranges for o in range(begin, end + 1)]
                assert recorded == list(range(ledger.next_offset)), "an offset is missing or is there twice"
                assert not ledger.gaps
            assert store.evidence.log_faults() == []
            site.command("audit", "checkpoint")
            wait_until(lambda: store.reports.outbox_pending() == 0, "the checkpoint is on the topic")
            faults, (note,) = verified()
            assert faults == [made_up]
            assert note.startswith("heads 2 to 2 of streamer/")
            assert note.endswith("and ana gave them up")
            again = _actions(replace(site, store=store, settings=settings))
            assert {key: again[key] for key in before} == before, "a decision of the backup has changed"
    finally:
        postgres_server.drop_database(restored_url)


def _actions(site: Site) -> dict[str, bytes]:
    """The stored action of each batch, as it was published."""
    with site.store._database.reading() as connection:
        rows = connection.exec_driver_sql("SELECT action_id, action_value FROM decisions").all()
    return {row.action_id: bytes(row.action_value) for row in rows}
