"""The audit store in one file: locked by somebody else, or on a full disk, while events flow."""

import resource
import sqlite3
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from tests.faults.matrix import Matrix
from tests.faults.site import Site, a_site, publish, wait_until
from tests.services.kafka import KafkaBroker


@pytest.fixture
def file_site(kafka_broker: KafkaBroker, topic_prefix: str, tmp_path: Path) -> Iterator[Site]:
    """A site on the shared Kafka and a SQLite file."""
    url = f"sqlite:///{tmp_path / 'audit.db'}"
    with ExitStack() as stack, a_site(kafka_broker, url, topic_prefix, tmp_path, stack) as one:
        yield one


def _goes_on(site: Site, worker: Any, decisions: int, matrix: Matrix, case: str) -> None:
    began = time.monotonic()
    wait_until(lambda: site.decided() == decisions, "what waited is decided")
    seconds = time.monotonic() - began
    worker.wait_until_ready()
    found = site.check()
    assert found.decisions == decisions
    matrix.add(case, found, seconds=seconds)
    assert worker.terminate() == 0


@pytest.mark.long
def test_a_file_that_another_process_locks_delays_and_loses_nothing(
    file_site: Site, matrix: Matrix, tmp_path: Path
) -> None:
    worker = file_site.start_worker()
    worker.wait_until_ready()
    publish(file_site, 0, 200)
    wait_until(lambda: file_site.decided() == 200, "the first batches are decided")
    with closing(sqlite3.connect(tmp_path / "audit.db", isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        publish(file_site, 200, 300)
        # A writer waits ten seconds before it says so.
        wait_until(lambda: "the database does not answer" in worker.unready(), "the worker says so")
        assert worker.process.poll() is None
        other.execute("ROLLBACK")
    _goes_on(file_site, worker, 500, matrix, "5 SQLite locked by another process")


@pytest.mark.long
def test_a_full_disk_delays_and_loses_nothing(file_site: Site, matrix: Matrix) -> None:
    worker = file_site.start_worker()
    worker.wait_until_ready()
    publish(file_site, 0, 100)
    wait_until(lambda: file_site.decided() == 100, "the first batches are decided")
    # To the process this is a disk that ends in the middle of the write-ahead log.
    resource.prlimit(worker.process.pid, resource.RLIMIT_FSIZE, (1_500_000, resource.RLIM_INFINITY))
    publish(file_site, 100, 1500)
    wait_until(lambda: "the database does not answer" in worker.unready(), "the worker says so")
    assert file_site.decided() < 1600
    assert worker.process.poll() is None
    resource.prlimit(worker.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
    _goes_on(file_site, worker, 1600, matrix, "5 SQLite's disk full, then not")
