"""A gate that sentence-transformers scored moves to CTranslate2 while batches come, by the steps of docs/operations.md."""

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
import sqlalchemy as sa

from streamer.store.db.schema import batches, decisions
from tests.e2e.test_gates_in_service import answered, is_lost, publish, publish_labels, taken_up
from tests.faults.site import Site, empty_site
from tests.services.kafka import KafkaBroker
from tests.services.service_forks import PRELOADED, ServiceForks

pytestmark = pytest.mark.encoder

BEFORE, AFTER = "all-MiniLM-L6-v2@53aa5117", "all-MiniLM-L6-v2@53aa5117+ctranslate2"
OLD, NEW = "towns", "towns-2"
LABELLED, EACH = 60, 24
ASKED = (
    "--alpha", "0.2", "--unit", "best", "--mode", "enforce", "--audit-probability", "1",
    "--recalibrate", "propose",
)  # fmt: skip


@pytest.fixture(scope="module")
def torch_forks() -> Iterator[ServiceForks]:
    """Forks of a process that has imported PyTorch, which takes ten seconds of processor time."""
    forks = ServiceForks(
        preloaded=[*PRELOADED, "sentence_transformers", "transformers.models.bert.modeling_bert"],
        environment={"JE_ARROW_MALLOC_CONF": "background_thread:false"},  # no thread in what is forked
    )
    yield forks
    forks.close()


@pytest.fixture
def site(
    kafka_broker: KafkaBroker, migrated_postgres_url: str, topic_prefix: str, tmp_path: Path
) -> Iterator[Site]:
    with (
        ExitStack() as stack,
        empty_site(kafka_broker, migrated_postgres_url, topic_prefix, tmp_path, stack) as one,
    ):
        one.environment["STREAMER_ENCODER_NAME"] = BEFORE
        yield one


def reasons(site: Site, gate: str, numbers: range) -> Counter[tuple[str, str, str]]:
    """How often these batches of a gate had which outcome, reason and encoder."""
    asked = (
        sa.select(decisions.c.outcome, decisions.c.reason, decisions.c.encoder)
        .join(batches, batches.c.id == decisions.c.batch)
        .where(batches.c.gate == gate, batches.c.batch_id.in_([f"batch-{number}" for number in numbers]))
    )
    with site.store._database.engine.connect() as connection:
        return Counter((row.outcome, row.reason, row.encoder) for row in connection.execute(asked))


def scored_again(site: Site, encoder: str, forks: ServiceForks, **beside: str) -> int:
    """How many batches of the record have the scores that this encoder gives, or one beside; the record holds."""
    said = site.command(
        "audit", "verify", "--rescore", "--json", STREAMER_ENCODER_NAME=encoder, forks=forks, **beside
    )
    found = json.loads(said.stdout)
    assert found["ok"], found["faults"]
    return found["counts"]["batches scored again"]


@pytest.mark.slow
def test_a_gate_moves_to_the_new_encoder_while_workers_are_replaced(
    site: Site, torch_forks: ServiceForks
) -> None:
    # The version before: a gate calibrated by sentence-transformers, in service.
    site.command("gate", "create", OLD, *ASKED, forks=torch_forks)
    first = site.start_worker(forks=torch_forks)
    sent = {OLD: 0, NEW: 0}

    def publish_next(gate: str, count: int) -> range:
        numbers = range(sent[gate], sent[gate] + count)
        publish(site, gate, partial(answered, gate), numbers)
        sent[gate] = numbers.stop
        return numbers

    def calibrate(gate: str, numbers: range) -> None:
        publish_labels(site, gate, is_lost, numbers, 3)
        said = site.command("recalibrate", gate, "--by", "ana", forks=torch_forks)
        assert site.store.policies.newest(gate).state == "full", said.stdout + said.stderr

    def right(numbers: range, encoder: str) -> Counter[tuple[str, str, str]]:
        lost = sum(map(is_lost, numbers))
        return Counter(
            {("ship", "scored", encoder): len(numbers) - lost, ("abstain", "scored", encoder): lost}
        )

    calibrate(OLD, publish_next(OLD, LABELLED))
    taken_up(site, first, OLD)
    assert reasons(site, OLD, numbers := publish_next(OLD, EACH)) == right(numbers, BEFORE)

    # A worker that was not told holds what the gate was not calibrated for.
    hasty = site.start_worker(STREAMER_ENCODER_NAME="all-MiniLM-L6-v2")
    held = ("abstain", "encoder_mismatch", "none")
    while held not in (found := reasons(site, OLD, numbers := publish_next(OLD, EACH))):
        assert found == right(numbers, BEFORE), "until it gets partitions"
    assert set(found) == {*right(numbers, BEFORE), held}
    assert hasty.terminate() == 0

    # 1: workers that run both encoders.
    both = site.start_worker(STREAMER_ENCODER_CANDIDATE="all-MiniLM-L6-v2", forks=torch_forks)
    both.wait_until_ready()
    assert reasons(site, OLD, numbers := publish_next(OLD, EACH)) == right(numbers, BEFORE)
    assert first.terminate() == 0
    assert reasons(site, OLD, numbers := publish_next(OLD, EACH)) == right(numbers, BEFORE)

    # 2: a gate for the new encoder, of both published, labelled and calibrated.
    site.command("gate", "create", NEW, "--encoder", "all-MiniLM-L6-v2", *ASKED, forks=torch_forks)
    assert site.store.gates.get(NEW).settings.encoder == AFTER
    unlabelled = publish_next(NEW, LABELLED)
    assert reasons(site, NEW, unlabelled) == {("abstain", "no_threshold", AFTER): LABELLED}
    assert reasons(site, OLD, numbers := publish_next(OLD, EACH)) == right(numbers, BEFORE)
    calibrate(NEW, unlabelled)
    taken_up(site, both, NEW)

    # 3: the switch. 4: workers of the new encoder alone.
    assert reasons(site, NEW, numbers := publish_next(NEW, EACH)) == right(numbers, AFTER)
    new = site.start_worker(STREAMER_ENCODER_NAME="all-MiniLM-L6-v2")
    new.wait_until_ready()
    assert reasons(site, NEW, numbers := publish_next(NEW, EACH)) == right(numbers, AFTER)
    assert both.terminate() == 0
    assert reasons(site, NEW, numbers := publish_next(NEW, EACH)) == right(numbers, AFTER)
    late = publish_next(OLD, EACH)
    assert reasons(site, OLD, late) == {held: EACH}

    assert site.store.reports.decided_and_shipped(OLD)[0] == sent[OLD]
    assert site.store.reports.decided_and_shipped(NEW)[0] == sent[NEW]
    site.check()
    found = reasons(site, OLD, range(sent[OLD]))
    scored = sum(count for (_, _, encoder), count in found.items() if encoder == BEFORE)
    assert 0 < scored < sent[OLD] - EACH, "what the hasty worker and the last one held has no score"
    assert scored_again(site, BEFORE, torch_forks) == scored
    both_at_hand = {"STREAMER_ENCODER_CANDIDATE": "all-MiniLM-L6-v2"}
    assert scored_again(site, BEFORE, torch_forks, **both_at_hand) == scored + sent[NEW]
