"""Cases 13 and 14: labels that are wrong, many, strange or dated ahead; calibration killed at each step, and twice at once."""

import json
import subprocess
import sys
from typing import Any

import pytest

from streamer import wiring
from tests.faults import oracle
from tests.faults.matrix import Matrix
from tests.faults.site import GATE, Site, publish, wait_until
from tests.made import a_label

# Where a run is killed, and whether its policy is there then. Its first transaction takes the gate's lease.
STEPS = {
    "in_transaction=kill": False,
    "after_transaction=kill": False,
    "in_transaction=kill@2": False,
    "after_transaction=kill@2": True,
    "before_publish=kill": True,
    "after_publish=kill": True,
    "after_mark=kill": True,
}
BATCHES = 80


def label(number: int, response: int, severity: float, **changes: Any) -> tuple[bytes, bytes]:
    content = a_label(GATE, f"batch-{number}", f"r{response}", severity, **changes)
    return f"batch-{number}".encode(), json.dumps(content).encode()


def severity_of(number: int, response: int) -> float:
    return float((number * 7 + response * 3) % 3 == 0)


def tell(site: Site, labels: list[tuple[bytes, bytes]]) -> None:
    """Publish labels and wait until each has its outcome."""
    before = site.recorded()
    with wiring.publisher(site.settings) as publisher:
        for key, value in labels:
            publisher.send(wiring.topics(site.settings).labels, value, key=key)
    wait_until(lambda: site.recorded() == before + len(labels), "every label has an outcome")


def calibrated(site: Site) -> tuple[str, float]:
    """State and threshold that a dry run finds now; with these labels it is always a cut."""
    done = site.command("recalibrate", GATE, "--dry-run", "--json")
    decided = json.loads(done.stdout)["decided"]
    return decided["state"], decided["lambda"]


def all_labels(**changes: Any) -> list[tuple[bytes, bytes]]:
    return [label(n, r, severity_of(n, r), **changes) for n in range(BATCHES) for r in range(4)]


@pytest.fixture
def labelled(site: Site) -> Site:
    """A site with a worker, and as many labelled batches as a budget of a fifth needs."""
    site.command("gate", "set", GATE, "--alpha", "0.2")
    site.start_worker()
    publish(site, 0, BATCHES)
    wait_until(lambda: site.decided() == BATCHES, "all batches are decided")
    tell(site, all_labels())
    return site


@pytest.mark.long
def test_labels_from_anybody(labelled: Site, matrix: Matrix) -> None:
    site = labelled
    honest = calibrated(site)
    assert honest[0] == "cut"
    worst = [label(n, r, 1.0, labelled_at="2026-02-01T00:00:00Z") for n in range(BATCHES) for r in range(4)]
    tell(site, worst)
    flipped = calibrated(site)
    assert flipped[0] == "cut"
    assert flipped[1] > honest[1], "worse labels ship less, never more"
    # The same labeller takes it back; a date far ahead wins nothing over the correction that comes after it.
    tell(site, [label(n, 0, 0.0, labelled_at="2999-01-01T00:00:00Z") for n in range(BATCHES)])
    tell(site, all_labels(labelled_at="2998-01-01T00:00:00Z"))
    assert calibrated(site) == honest
    # A flood of one label is one label; what belongs to nothing is told or refused, and changes nothing.
    tell(site, [label(1, 1, severity_of(1, 1), labelled_at="2998-01-01T00:00:00Z")] * 2000)
    tell(site, [label(1, 1, 1.0, kind="rumour"), label(10_000, 0, 1.0), label(1, 9, 1.0)])
    tell(site, [label(1, 1, 1.0, gate="nobody"), label(1, 1, 2.0), label(1, 1, float("nan")), (b"k", b"{")])
    assert calibrated(site) == honest
    found = site.check()
    assert found.dead_letters == 4
    matrix.add("13 labels flipped, flooded, repeated, of nothing, dated ahead", found)


@pytest.mark.long
def test_calibration_killed_at_each_step_and_twice_at_once(labelled: Site, matrix: Matrix) -> None:
    site = labelled
    expected = calibrated(site)
    versions = [site.store.policies.newest(GATE).version]
    for step, committed in STEPS.items():
        site.command("recalibrate", GATE, status=-9, STREAMER_FAILPOINTS=step)
        newest = site.store.policies.newest(GATE)
        # A kill before the commit leaves nothing; after it the policy is there with its run and its inputs.
        assert newest.version == versions[-1] + committed, step
        if committed:
            versions.append(newest.version)
            assert (newest.state, newest.threshold) == expected
            assert newest.calibration_run is not None
            assert len(site.store.calibration.inputs(newest.calibration_run)) > 20
    both = [
        subprocess.Popen(
            [sys.executable, "-m", "streamer", "recalibrate", GATE], env=site.whole_environment(),
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=site.directory,
        )
        for _ in range(2)
    ]  # fmt: skip
    told = [one.communicate(timeout=240)[0] for one in both]
    assert [one.returncode for one in both] == [0, 0], told
    newest = site.store.policies.newest(GATE)
    assert newest.version == versions[-1] + 2, "two runs at once are two policies, one after the other"
    assert (newest.state, newest.threshold) == expected

    def published() -> set[int]:
        topic = wiring.topics(site.settings).thresholds
        records = oracle.read_all(wiring.connection(site.settings), topic)
        return {json.loads(one.value or b"")["version"] for one in records}

    wait_until(lambda: site.store.reports.outbox_pending() == 0, "the worker tells of what a kill left")
    assert published() >= {*versions[1:], newest.version - 1, newest.version}
    worker = site.workers[0]
    wait_until(
        lambda: worker.metrics()[f'streamer_policy_version{{gate="{GATE}"}}'] == newest.version,
        "the worker decides by the newest policy",
    )
    publish(site, BATCHES, 50)
    wait_until(lambda: site.decided() == BATCHES + 50, "and goes on")
    matrix.add(f"14 calibration killed at {len(STEPS)} steps, then two at once", site.check())
