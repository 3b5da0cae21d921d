"""Gates of every promise, and one that another package scores, on Kafka and PostgreSQL, from publishing to verifying."""

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import msgspec
import pytest

from streamer import wiring
from streamer.events.actions import call_to_execute, decode_action
from streamer.events.responses import decode_responses
from streamer.gates.batch_key import BatchKey
from streamer.scoring.encoders.encoder import Encoder
from streamer.store.log.resolve_outcomes import stored_decisions
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


def called(number: int) -> bytes:
    """What a fine batch calls is the same, in other words; some say it as a text."""
    sums = ("12.50", "7", "8e2") if is_lost(number) else ("12.50", "12.5", "125e-1")
    call = '{"name": "pay", "arguments": %s}'
    written = (
        f'"calls": [{call % f"""{{"sum": {sums[0]}}}"""}]',
        f'"calls": [{call % json.dumps(f"""{{"sum": {sums[1]}}}""")}]',
        f'"text": {json.dumps("<think>?</think>" + call % f"""{{"sum": {sums[2]}}}""")}',
    )
    responses = ", ".join(f'{{"id": "r{i}", {one}}}' for i, one in enumerate(written))
    return a_batch("calls", number, ()).replace(b'"responses": []', f'"responses": [{responses}]'.encode())


def test_of_calls_that_alone_is_executed_which_was_scored(site: Site) -> None:
    site.command(
        *("gate", "create", "calls", "--judged", "call", "--method", "mean", "--alpha", "0.2", "--mode", "enforce"),
        *("--audit-probability", "1", "--recalibrate", "propose"),
    )  # fmt: skip
    worker = site.start_worker()
    publish(site, "calls", called, range(60))
    publish_labels(site, "calls", is_lost, range(60), 3)
    site.command("recalibrate", "calls", "--by", "ana")
    taken_up(site, worker, "calls")
    publish(site, "calls", called, range(60, 66))
    decided = {
        BatchKey("calls", f"batch-{number}", 1): decode_responses(called(number)) for number in range(60, 66)
    }
    with site.store._database.reading() as connection:
        found = {
            key: decode_action(one.value) for key, (_, one) in stored_decisions(connection, decided).items()
        }
    for number, (key, batch) in enumerate(decided.items(), 60):
        action = found[key]
        assert (action.action == "ship") == (not is_lost(number))
        if is_lost(number):
            with pytest.raises(ValueError, match="lets no call"):
                call_to_execute(batch, action)
            continue
        assert call_to_execute(batch, action) == '{"arguments":{"sum":12.5},"name":"pay"}'
        with pytest.raises(ValueError, match="another batch"):
            call_to_execute(decode_responses(called(number + 1)), action)
        with pytest.raises(ValueError, match="lets no call"):
            call_to_execute(batch, msgspec.structs.replace(action, enforced=False))
        with pytest.raises(ValueError, match="not the one that was scored"):
            call_to_execute(decode_responses(called(number).replace(b"12.50", b"12.51")), action)
    verified(site)
