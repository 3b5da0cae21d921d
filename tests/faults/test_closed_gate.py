"""Case 21: a gate is closed while what was decided before waits to be committed."""

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import sqlalchemy as sa

from streamer import wiring
from streamer.store.db.schema import batches, decisions
from tests.faults.matrix import LONG, Matrix
from tests.faults.site import GATE, Site, wait_until
from tests.faults.traffic import Traffic
from tests.services.kafka import KafkaBroker

LOCKED_SECONDS = 60 if LONG else 4
"""How long the table stays locked after the gate was closed."""


@pytest.mark.slow
def test_nothing_is_shipped_once_a_gate_is_closed(site: Site, matrix: Matrix) -> None:
    workers = [site.start_worker() for _ in range(3)]
    for worker in workers:
        worker.wait_until_ready()
    with Traffic(site, seed=21, rate=120) as traffic:
        wait_until(lambda: site.decided() > 150, "the first batches are decided")
        with _locked(site, "decisions"):
            time.sleep(2)  # every worker has a group that it has decided and cannot commit
            open_version = site.store.policies.newest(GATE).version
            done = site.command("threshold", "close", GATE, "--reason", "incident", "--wait")
            assert "No ship waits to be published any more" in done.stderr
            assert re.search(r"queue +\d+ records of any gate: the closed policy", done.stdout), done.stdout
            shipped = _shipped(site)
            time.sleep(LOCKED_SECONDS)
        unlocked = time.monotonic()
        before = site.decided()
        wait_until(lambda: site.decided() > before + 150, "batches are decided again")
        working = time.monotonic() - unlocked
    wait_until(
        lambda: site.recorded() == traffic.total, "every record has an outcome", 120, progress=site.recorded
    )
    late = _shipped(site) - shipped
    assert not late, f"{len(late)} ships were committed after the gate was closed"
    assert {version for _, version in shipped} == {open_version}
    assert any("stream.decided_again" in worker.log_text() for worker in workers)
    matrix.add("21 closed while commits wait for a lock", site.check(), seconds=working)
    assert [worker.terminate() for worker in workers] == [0, 0, 0]


def test_a_gate_is_closed_where_nobody_can_be_told_for_want_of_the_topic(
    site: Site, kafka_broker: KafkaBroker
) -> None:
    topic = wiring.topics(site.settings).thresholds
    kafka_broker.delete_topics([topic])
    done = site.command("threshold", "close", GATE, "--reason", "incident")
    told = " ".join(done.stderr.split())
    assert f"the topic {topic} does not exist" in told
    assert "`streamer topics create`" in told
    assert "does not answer" not in told
    assert site.store.policies.newest(GATE).state == "closed"
    site.command("topics", "create")
    assert "It is recorded" not in site.command("threshold", "rollback", GATE, "--to", "2").stderr
    assert site.store.reports.outbox_pending() == 0, "what waited for the topic is published, too"


def _shipped(site: Site) -> set[tuple[str, int]]:
    """Every batch that ships something, with the policy that it was decided by."""
    query = (
        sa.select(batches.c.batch_id, decisions.c.policy_version)
        .join(decisions, decisions.c.batch == batches.c.id)
        .where(decisions.c.outcome.in_(("ship", "mixed")))
    )
    with site.store._database.reading() as connection:
        return {(row.batch_id, row.policy_version) for row in connection.execute(query)}


@contextmanager
def _locked(site: Site, table: str) -> Iterator[None]:
    """Another session holds a lock that readers do not notice and writers wait for."""
    with site.store._database.engine.connect() as connection:
        connection.exec_driver_sql("SET idle_in_transaction_session_timeout = 0")
        connection.exec_driver_sql(f"LOCK TABLE {table} IN SHARE ROW EXCLUSIVE MODE")
        yield
        connection.rollback()
        connection.invalidate()
