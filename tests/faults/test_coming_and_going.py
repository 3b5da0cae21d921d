"""Case 6: workers join and leave while one stays; run for long, it must not grow, nor may what only waits in SQL.

``STREAMER_TEST_SOAK_MINUTES=30`` is the soak; from then on the slope of its resident memory is asserted. Open files
and the outbox are asserted always.
"""

import math
import random
import time

import numpy as np
import psycopg
import pytest

from streamer.stream.ending import WorkerExit
from tests.faults.matrix import LONG, Matrix
from tests.faults.site import GATE, Site, wait_until
from tests.faults.traffic import Traffic
from tests.faults.worker_process import WorkerProcess
from tests.machine import ASKED

SOAK_MINUTES = float(ASKED.get("STREAMER_TEST_SOAK_MINUTES", "0"))
SECONDS = SOAK_MINUTES * 60 or (60 if LONG else 8)
EVERY = 20.0 if SOAK_MINUTES else 5.0 if LONG else 2.0
RATE = 40 if SOAK_MINUTES else 120
LARGEST_SLOPE = 1.0
"""MiB a minute, over the last two thirds of a soak of half an hour or more."""
MOST_MORE_FILES = 16
"""Files open at the end beyond those of the first third: connections that come and go with brokers and partitions."""


@pytest.mark.long
@pytest.mark.timeout(SECONDS * 1.5 + 300)
def test_workers_join_and_leave_while_one_stays(site: Site, matrix: Matrix) -> None:
    rng = random.Random(6)
    survivor = site.start_worker()
    others: list[WorkerProcess] = []
    memory: list[tuple[float, int]] = []
    files: list[tuple[float, int]] = []
    began = time.monotonic()
    turn = began + 1
    with Traffic(site, seed=6, rate=RATE) as traffic:
        while (now := time.monotonic()) < began + SECONDS:
            assert not survivor.ended, survivor.log_tail()
            if now >= turn:
                turn = now + EVERY
                if len(others) < 2 and (not others or rng.random() < 0.5):
                    others.append(site.start_worker())
                else:
                    _leave(others.pop(0), rng)
            memory.append((now - began, survivor.resident_bytes()))
            files.append((now - began, survivor.open_files()))
            if SOAK_MINUTES and len(memory) % 120 == 0:
                print(
                    f"{(now - began) / 60:.1f} min: {memory[-1][1] / 2**20:.1f} MiB, {files[-1][1]} files",
                    flush=True,
                )
            time.sleep(0.5)
    stopped = time.monotonic()
    wait_until(
        lambda: site.recorded() == traffic.total, "every record has an outcome", 120, progress=site.recorded
    )
    seconds = time.monotonic() - stopped
    found = site.check()
    assert set(site.store.reports.decided_batches(GATE)) == traffic.batches
    named = f"6 workers joined and left every {EVERY:g} s for {SECONDS:g} s"
    matrix.add(named, found, seconds=seconds)
    slope = _slope(memory)
    print(
        f"\nresident memory of the one that stayed: {memory[-1][1] / 2**20:.1f} MiB at the end, most "
        f"{max(size for _, size in memory) / 2**20:.1f} MiB, slope {slope:+.3f} MiB/min over the last two thirds of "
        f"{SECONDS / 60:g} min; {found}"
    )
    early = max(count for seconds, count in files if seconds <= SECONDS / 3)
    print(f"open files of the one that stayed: at most {early} in the first third, {files[-1][1]} at the end")
    for table, rows, size in _sizes(site):
        print(f"{table}: {rows} rows, {size / 2**20:.1f} MiB")
    if SOAK_MINUTES >= 30:
        assert slope < LARGEST_SLOPE
    assert files[-1][1] <= early + MOST_MORE_FILES
    for worker in (survivor, *others):
        _drain(worker)


def _sizes(site: Site) -> list[tuple[str, int, int]]:
    """Rows and bytes (indexes included) of the ten largest tables."""
    with psycopg.connect(
        site.settings.database.url.replace("postgresql+psycopg", "postgresql", 1)
    ) as connection:
        connection.execute("ANALYZE")
        return [
            (str(name), int(rows), int(size))
            for name, rows, size in connection.execute(
                "SELECT relname, reltuples, pg_total_relation_size(oid) FROM pg_class"
                " WHERE relkind = 'r' AND relnamespace = 'streamer'::regnamespace"
                " ORDER BY pg_total_relation_size(oid) DESC LIMIT 10"
            )
        ]


def _leave(worker: WorkerProcess, rng: random.Random) -> None:
    assert not worker.ended, worker.log_tail()
    if rng.random() < 0.3:
        worker.kill()
    else:
        _drain(worker)


def _drain(worker: WorkerProcess) -> None:
    """End a worker; on a machine with ten times the load that it can do, a stop may need its deadline."""
    status = worker.terminate(240)
    if status == WorkerExit.STOP_OVERDUE and SOAK_MINUTES:
        print(f"\na stop was overdue:\n{worker.log_tail(6000)}", flush=True)
        return
    assert status == WorkerExit.DRAINED, worker.log_tail()


def _slope(memory: list[tuple[float, int]]) -> float:
    """MiB a minute, by least squares, without the first third: caches and pools fill in it."""
    late = [(seconds / 60, size / 2**20) for seconds, size in memory if seconds > SECONDS / 3]
    if len(late) < 2:
        return math.nan  # a machine so busy that it had no time to look
    return float(np.polyfit(*zip(*late, strict=True), 1)[0])
