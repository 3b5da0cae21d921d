"""Policies change and strangers write to the thresholds topic while events flow."""

import json
import random

import pytest

from streamer import wiring
from tests.faults import oracle
from tests.faults.matrix import Matrix
from tests.faults.site import GATE, Site, wait_until
from tests.faults.traffic import Traffic


@pytest.mark.long
def test_each_decision_follows_a_policy_that_exists(site: Site, matrix: Matrix) -> None:
    named = wiring.topics(site.settings)
    wiring.publish_pending(site.settings)
    (genuine, *_) = oracle.read_all(wiring.connection(site.settings), named.thresholds)
    rng = random.Random(7)
    workers = [site.start_worker(), site.start_worker()]
    with Traffic(site, seed=7, rate=40) as traffic:
        wait_until(lambda: site.decided() > 100, "the first batches are decided")
        for command in (
            ("gate", "set", GATE, "--mode", "shadow"),
            ("gate", "set", GATE, "--alpha", "0.9"),
            ("recalibrate", GATE),
        ):
            _write_rubbish(site, genuine.value or b"", rng)
            site.command(*command)
        before = site.store.policies.newest(GATE).version
        site.command("gate", "set", GATE, "--audit-probability", "0.9")
        newest = site.store.policies.newest(GATE).version
        assert newest == before + 1

        def in_force() -> bool:
            return all(
                worker.metrics().get(f'streamer_policy_version{{gate="{GATE}"}}') == newest
                for worker in workers
            )

        wait_until(in_force, "both workers have the newest policy")
    wait_until(
        lambda: site.recorded() == traffic.total, "every record has an outcome", 60, progress=site.recorded
    )
    matrix.add("12 rubbish, forgeries and replays on the thresholds topic", site.check())
    assert set(site.store.reports.decided_batches(GATE)) == traffic.batches
    published = oracle.read_all(wiring.connection(site.settings), named.actions)
    versions = {json.loads(record.value or b"")["policy"]["version"] for record in published}
    assert 2 in versions
    assert newest in versions
    assert len(versions) >= 4, "the changes came too fast to be in traffic"
    assert max(versions) == newest
    rejected = [worker.metrics()["streamer_policy_events_rejected_total"] for worker in workers]
    assert min(rejected) > 100
    assert [worker.terminate() for worker in workers] == [0, 0]


def _write_rubbish(site: Site, genuine: bytes, rng: random.Random) -> None:
    event = json.loads(genuine)
    forged = event | {"version": 10_000, "lambda": -1.0}
    strange: list[tuple[bytes | None, bytes | None]] = [
        (GATE.encode(), json.dumps(forged).encode()),
        (GATE.encode(), json.dumps(event | {"lambda": "NaN"}).encode()),
        (GATE.encode(), json.dumps(event | {"lambda": float("nan")}).encode()),
        (GATE.encode(), json.dumps(event | {"version": 10**40}).encode()),
        (b"another gate", json.dumps(forged).encode()),
        (b"nobody", json.dumps(forged | {"gate": "nobody"}).encode()),
        (GATE.encode(), None),
        (GATE.encode(), b""),
        (GATE.encode(), b"\xff\x00" * 1000),
        (None, b"[" * 100_000),
    ]
    with wiring.publisher(site.settings) as publisher:
        for _ in range(5):
            for key, value in rng.sample(strange, len(strange)):
                publisher.send(wiring.topics(site.settings).thresholds, value, key=key or b"k")
