"""Gates of every promise, and one that another package scores, on Kafka and PostgreSQL, from publishing to verifying."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from streamer import wiring
from streamer.scoring.encoders.encoder import Encoder
from streamer_verify.bundle import Bundle
from streamer_verify.command import verify_bundle
from streamer_verify.scores import check_scores
from streamer_verify.verifier import Verifier
from tests.faults.site import Site, empty_site, wait_until
from tests.faults.test_recalibration_killed import label
from tests.faults.worker_process import WorkerProcess
from tests.made import a_batch
from tests.packaging.test_scorer_package import EXAMPLE, Place
from tests.services.kafka import KafkaBroker


@pytest.fixture
def site(
    kafka_broker: KafkaBroker,
    migrated_postgres_url: str,
    topic_prefix: str,
    tmp_path: Path,
    real_encoder: Encoder,
) -> Iterator[Site]:
    """A site whose services run the packaged encoder."""
    with (
        ExitStack() as stack,
        empty_site(kafka_broker, migrated_postgres_url, topic_prefix, tmp_path, stack) as one,
    ):
        one.environment["STREAMER_ENCODER_NAME"] = real_encoder.identity.id.partition("@")[0]
        yield one


def publish(one: Site, gate: str, event: Callable[[int], bytes], numbers: range) -> None:
    with wiring.publisher(one.settings) as publisher:
        for number in numbers:
            publisher.send(wiring.topics(one.settings).responses, event(number), key=str(number).encode())
    wait_until(lambda: one.store.reports.decided_and_shipped(gate)[0] == numbers.stop, "all is decided")


def publish_labels(one: Site, gate: str, bad: Callable[[int], bool], numbers: range, answers: int) -> None:
    before = one.recorded()
    with wiring.publisher(one.settings) as publisher:
        for number in numbers:
            for response in range(answers):
                key, value = label(number, response, float(bad(number)), gate=gate)
                publisher.send(wiring.topics(one.settings).labels, value, key=key)
    wait_until(lambda: one.recorded() == before + answers * len(numbers), "every label has an outcome")


def taken_up(one: Site, worker: WorkerProcess, gate: str) -> None:
    shown = f'streamer_policy_version{{gate="{gate}"}}'
    version = one.store.policies.newest(gate).version
    wait_until(lambda: worker.metrics().get(shown) == version, "the worker takes the threshold up")


def verified(one: Site) -> Verifier:
    """The record and its bundle hold, with every score made again where there is its encoder; what the one file made again."""
    said = one.command("audit", "verify", "--rescore")
    assert "not scored again" not in said.stdout + said.stderr
    bundle, embeddings = one.directory / "bundle", one.directory / "embeddings.jsonl"
    one.command("audit", "export", "--salts", "--out", str(bundle))
    one.command("audit", "embed", str(bundle), "--out", str(embeddings))
    verifier = verify_bundle(Bundle(bundle), [], None)
    with embeddings.open("rb") as lines:
        check_scores(Bundle(bundle), verifier, lines)
    assert verifier.faults == []
    one.check()
    return verifier


GATES = {
    "shipped": ("selective-mean", "--promise", "among-shipped-on-average"),
    "prompt": ("mean", "--promise", "per-prompt"),
    "paper": ("crc", "--method", "crc"),
    "floor": ("selective", "--promise", "among-shipped"),
}
"""The method of each gate, and what asks for it; the last one gets a label floor from its history besides."""
BEFORE, AFTER = 120, 15
TOWNS = ("Paris", "Lyon", "Rome", "Oslo", "Bern", "Riga", "Kyiv", "Cairo", "Lima", "Quito")


def is_lost(number: int) -> bool:
    return number % 3 == 0


def answered(gate: str, number: int) -> bytes:
    """The answers of a fine batch agree; those of a lost one have nothing in common."""
    town = TOWNS[number % len(TOWNS)]
    lost = ("No idea at all.", "Perhaps 42 kilometres?", "Ask your doctor about it.")
    texts = lost if is_lost(number) else (f"It is {town}.", f"{town}.", f"The answer is {town}.")
    return a_batch(gate, number, texts)


@pytest.mark.slow
def test_each_promise_from_publishing_to_verifying(site: Site) -> None:
    for gate, (_, *asked) in GATES.items():
        site.command(
            *("gate", "create", gate, *asked, "--alpha", "0.2", "--unit", "best", "--mode", "enforce"),
            *("--audit-probability", "0.5", "--pending", "worst", "--recalibrate", "propose"),
        )  # fmt: skip
    worker = site.start_worker()
    for gate in GATES:
        publish(site, gate, partial(answered, gate), range(BEFORE))
        assert site.store.reports.decided_and_shipped(gate)[1] == 0, "it begins closed"
    assert "Label floor" in site.command("gate", "set", "floor", "--label-above", "0.5").stderr
    assert site.store.gates.get("floor").settings.label_floor is not None
    for gate in GATES:
        publish_labels(site, gate, is_lost, range(BEFORE), 3)
    for gate, (method, *_) in GATES.items():
        said = site.command("recalibrate", gate, "--by", "ana")
        assert site.store.policies.newest(gate).state == "cut", (gate, said.stdout + said.stderr)
        told = " ".join(site.command("threshold", "show", gate, "--explain").stdout.split())
        assert f"Basis: method {method} " in told, told
        assert method != "selective" or "selective risk" in told, told
        assert method != "selective-mean" or "On average over calibrations" in told, told
    numbers = range(BEFORE, BEFORE + AFTER)
    fine = sum(not is_lost(number) for number in numbers)
    for gate in GATES:
        taken_up(site, worker, gate)
        publish(site, gate, partial(answered, gate), numbers)
        shipped = site.store.reports.decided_and_shipped(gate)[1]
        # Of the upper half the walk ships what it can show.
        assert fine / 2 < shipped <= fine if gate == "floor" else shipped == fine, gate
    found = verified(site)
    assert found.counts["batches scored again"] == len(GATES) * (BEFORE + AFTER)
    assert "batches not scored again" not in found.counts


def worded(number: int) -> bytes:
    """The answers of a fine batch have words in common."""
    texts = ("here", "no idea") if number % 3 == 0 else ("surely here", "here")
    return a_batch("words", number, texts, prompt="Where?")


@pytest.mark.slow
def test_a_scorer_of_another_package_scores_in_service(site: Site, tmp_path: Path) -> None:
    gate = "words"
    place = Place(tmp_path)
    place.install(shutil.copytree(EXAMPLE, tmp_path / "source"))
    site.environment["PYTHONPATH"] = str(place.installed)
    site.command(
        *("gate", "create", gate, "--scorer", "common-words", "--promise", "among-shipped-on-average", "--alpha", "0.2"),
        *("--unit", "best", "--mode", "enforce", "--audit-probability", "1"),
    )  # fmt: skip
    assert site.store.gates.get(gate).settings.scorer.startswith("common-words@")
    worker = site.start_worker()
    publish(site, gate, worded, range(60))
    publish_labels(site, gate, lambda number: number % 3 == 0, range(60), 2)
    site.command("recalibrate", gate, "--by", "ana")
    taken_up(site, worker, gate)
    publish(site, gate, worded, range(60, 72))
    assert site.store.reports.decided_and_shipped(gate)[1] == 8, "what has words in common ships"
    verified(site)
