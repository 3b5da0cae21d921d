"""Cases 1 to 3: a worker killed at every step and at random moments, told to stop in the middle, frozen."""

import random
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from streamer.failpoints import POINTS, RUN_POINTS
from streamer.stream.ending import WorkerExit
from tests.faults.matrix import Matrix
from tests.faults.site import Site, publish, wait_until
from tests.faults.traffic import Traffic

RANDOM_KILLS = 50
WORKER_POINTS = [point for point in POINTS if point not in RUN_POINTS]


@pytest.mark.slow
def test_killed_at_each_failpoint(site: Site, matrix: Matrix) -> None:
    """All of them at once: as one dies at its point the others take over, and die at theirs."""
    with ThreadPoolExecutor(5) as pool:
        workers = [*pool.map(lambda one: site.start_worker(STREAMER_FAILPOINTS=f"{one}=kill"), WORKER_POINTS)]
    published = 0
    deadline = time.monotonic() + 120
    while not all(worker.ended for worker in workers):
        assert time.monotonic() < deadline, [
            one for one, w in zip(WORKER_POINTS, workers, strict=True) if not w.ended
        ]
        publish(site, published, 20)
        published += 20
        time.sleep(0.2)
    for point, worker in zip(WORKER_POINTS, workers, strict=True):
        worker.wait_until_killed()
        assert f'"point": "{point}"' in worker.log_tail(100_000)
    seconds = _recover(site, published)
    found = site.check()
    assert found.decisions == published
    assert found.duplicates == found.dead_letters == 0
    matrix.add(f"1 killed at each of {len(WORKER_POINTS)} failpoints, all at once", found, seconds=seconds)


def _recover(site: Site, decided: int) -> float:
    """Seconds until a new worker has decided everything; the start of its process is part of them."""
    began = time.monotonic()
    worker = site.start_worker()
    wait_until(lambda: site.decided() == decided, "a new worker decides what was left")
    wait_until(lambda: site.store.reports.outbox_pending() == 0, "and publishes it")
    seconds = time.monotonic() - began
    assert worker.terminate() == 0
    return seconds


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_killed_at_random_moments(site: Site, matrix: Matrix) -> None:
    rng = random.Random(1)
    slowest = 0.0
    with Traffic(site, seed=1, rate=50) as traffic:
        for _ in range(RANDOM_KILLS):
            before = site.recorded()
            worker = site.start_worker()
            began = time.monotonic()
            wait_until(lambda: site.recorded() > before, "it works")  # noqa: B023 - called at once
            slowest = max(slowest, time.monotonic() - began)
            time.sleep(rng.uniform(0, 1.5))
            worker.kill()
    began = time.monotonic()
    worker = site.start_worker()
    wait_until(
        lambda: site.recorded() == traffic.total, "every record has an outcome", 300, progress=site.recorded
    )
    slowest = max(slowest, time.monotonic() - began)
    matrix.add(f"1 killed at {RANDOM_KILLS} random moments under load", site.check(), seconds=slowest)
    assert worker.terminate() == 0


@pytest.mark.parametrize("point", [pytest.param("while_scoring", marks=pytest.mark.long), "in_transaction"])
def test_told_to_stop_in_the_middle(site: Site, matrix: Matrix, point: str) -> None:
    publish(site, 0, 300)
    # The first transaction takes the leases, the second one writes the first decisions.
    passing = 2 if point == "in_transaction" else 1
    worker = site.start_worker(STREAMER_FAILPOINTS=f"{point}=sleep:1.5@{passing}")
    worker.wait_for_log("failpoint.reached")
    assert site.decided() == 0
    assert worker.terminate() == WorkerExit.DRAINED
    drained = site.decided()
    assert drained > 0, "what was taken is decided before it ends"
    publish(site, 300, 100)
    began = time.monotonic()
    site.start_worker()
    wait_until(lambda: site.decided() == 400, "the next one goes on")
    seconds = time.monotonic() - began
    found = site.check()
    assert found.decisions == 400
    assert found.republished == 0, "a drain leaves nothing half published"
    matrix.add(f"2 SIGTERM {point.replace('_', ' ')}", found, seconds=seconds)


def test_told_to_stop_before_it_began(site: Site) -> None:
    publish(site, 0, 10)
    assert site.start_worker().terminate() == WorkerExit.DRAINED
    site.start_worker()
    wait_until(lambda: site.decided() == 10, "the next one decides")


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("point", ["while_scoring", "in_transaction"])
def test_frozen_past_the_session_timeout(site: Site, matrix: Matrix, point: str) -> None:
    with Traffic(site, seed=3, rate=120) as traffic:
        wait_until(lambda: traffic.total > 20, "there is work")
        passing = 1 if point == "while_scoring" else 2
        frozen = site.start_worker(STREAMER_FAILPOINTS=f"{point}=sleep:1@{passing}")
        frozen.wait_for_log("failpoint.reached")
        frozen.process.send_signal(signal.SIGSTOP)
        began = time.monotonic()
        other = site.start_worker()

        def taken_over() -> bool:
            # Frozen with its rows locked, it is PostgreSQL that ends its session, after half a minute. Until then
            # others get no lease, and end to be started anew.
            nonlocal other
            if other.ended:
                assert other.process.returncode == WorkerExit.LEASE_TIMEOUT, other.log_tail()
                other = site.start_worker()
            return site.recorded() > 50

        wait_until(taken_over, "the other one takes over", 120)
        seconds = time.monotonic() - began
        frozen.process.send_signal(signal.SIGCONT)
        time.sleep(3)
    wait_until(
        lambda: site.recorded() == traffic.total, "every record has an outcome", 60, progress=site.recorded
    )
    matrix.add(f"3 frozen {point.replace('_', ' ')} past the session timeout", site.check(), seconds=seconds)
    assert other.terminate() == WorkerExit.DRAINED
    # It commits as a zombie and is fenced, or hears of the group first and drops what it has.
    if not frozen.ended:
        assert frozen.terminate() == WorkerExit.DRAINED
    assert frozen.process.returncode in (WorkerExit.DRAINED, WorkerExit.FENCED), frozen.log_tail()
