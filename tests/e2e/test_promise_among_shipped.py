"""A gate that promises an error rate among what ships, from its creation by command to decisions that can be verified."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamer import wiring
from streamer_verify.bundle import Bundle
from streamer_verify.command import verify_bundle
from tests.faults.site import Site, empty_site, wait_until
from tests.faults.test_recalibration_killed import label
from tests.services.kafka import KafkaBroker

NAME = "among"
ALPHA = 0.25
"""At 0.2 the walk would stop at its first cut for one draw of the audit sample in fifty: 29 of 1,500, and none here."""


@pytest.fixture
def site(
    kafka_broker: KafkaBroker, migrated_postgres_url: str, topic_prefix: str, tmp_path: Path
) -> Iterator[Site]:
    """A site on the shared Kafka and PostgreSQL, without a gate."""
    with (
        ExitStack() as stack,
        empty_site(kafka_broker, migrated_postgres_url, topic_prefix, tmp_path, stack) as one,
    ):
        yield one


def is_bad(number: int) -> bool:
    """A third of the batches disagree, and of these most are wrong; of those that agree a few are."""
    return number % 20 == 1 if number % 3 else number % 5 != 0


def event(number: int) -> bytes:
    rng = np.random.default_rng(number)
    spread = 0.35 if number % 3 else 1.5
    centre = rng.normal(size=16)
    content: dict[str, Any] = {
        "schema": "streamer.responses.v1",
        "gate": NAME,
        "batch_id": f"batch-{number}",
        "prompt": f"question {number}",
        "embedding_encoder": "made-up",
        "responses": [
            {
                "id": f"r{i}",
                "text": f"answer {i} of {number}",
                "embedding": (centre + spread * rng.normal(size=16)).round(4).tolist(),
            }
            for i in range(4)
        ],
    }
    return json.dumps(content).encode()


def publish(one: Site, first: int, count: int) -> None:
    topics = wiring.topics(one.settings)
    with wiring.publisher(one.settings) as publisher:
        for number in range(first, first + count):
            publisher.send(topics.responses, event(number), key=str(number).encode())
    wait_until(lambda: one.store.reports.decided_and_shipped(NAME)[0] == first + count, "all is decided")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("promise", "method"),
    [("among-shipped", "selective"), ("among-shipped-on-average", "selective-mean")],
)
def test_from_its_creation_to_decisions_that_can_be_verified(
    site: Site,
    promise: str,
    method: str,
) -> None:
    site.command(
        *("gate", "create", NAME, "--promise", promise, "--alpha", str(ALPHA), "--unit", "best", "--mode", "enforce"),
        *("--encoder", "external:made-up", "--dimension", "16", "--embeddings", "accept", "--audit-probability", "0.5"),
        *("--recalibrate", "propose", "--pending", "worst"),
    )  # fmt: skip
    assert site.store.gates.get(NAME).settings.method == method
    worker = site.start_worker()
    publish(site, 0, 400)
    assert site.store.reports.decided_and_shipped(NAME)[1] == 0, "it begins closed"

    before = site.recorded()
    with wiring.publisher(site.settings) as publisher:
        for number in range(400):
            for response in range(4):
                key, value = label(number, response, float(is_bad(number)), gate=NAME)
                publisher.send(wiring.topics(site.settings).labels, value, key=key)
    wait_until(lambda: site.recorded() == before + 1600, "every label has an outcome")

    said = site.command("recalibrate", NAME, "--by", "ana", "--reason", "labels came")
    policy = site.store.policies.newest(NAME)
    assert policy.state == "cut", said.stdout + said.stderr
    assert policy.settings.method == method
    told = " ".join(site.command("threshold", "show", NAME, "--explain").stdout.split())
    assert f"Basis: method {method} " in told, told
    assert ("selective risk" if method == "selective" else "On average over calibrations") in told, told

    shown = f'streamer_policy_version{{gate="{NAME}"}}'
    wait_until(lambda: worker.metrics().get(shown) == policy.version, "the worker takes the threshold up")
    publish(site, 400, 200)
    shipped = [number for number, outcome in decisions(site).items() if outcome == "ship" and number >= 400]
    assert len(shipped) > 60
    # Which answers were drawn is chance, and so is whether this run is among the many that keep the promise;
    # a few ship everything.
    assert np.mean([is_bad(number) for number in shipped]) <= np.mean([is_bad(n) for n in range(400, 600)])

    keys = site.directory / "key.pem"
    site.command("audit", "keygen", "--out", str(keys))
    signing = {
        "STREAMER_AUDIT_PRIVATE_KEY_FILE": str(keys),
        "STREAMER_AUDIT_CHECKPOINT_FILE": str(site.directory / "kept.jsonl"),
    }
    site.command("audit", "checkpoint", **signing)
    site.command("audit", "verify", **signing)
    bundle = site.directory / "bundle"
    site.command("audit", "export", "--salts", "--out", str(bundle), **signing)
    verifier = verify_bundle(Bundle(bundle), [], None)
    assert verifier.faults == []
    assert verifier.counts["actions derived again"] == 600
    site.check()


def decisions(one: Site) -> dict[int, str]:
    """The outcome of each batch, by its number."""
    with one.store.evidence.snapshot() as snapshot:
        return {
            int(line["facts"]["batch"][1].removeprefix("batch-")): line["facts"]["outcome"]
            for line in snapshot.outcomes({})
            if line["kind"] == "decision"
        }
