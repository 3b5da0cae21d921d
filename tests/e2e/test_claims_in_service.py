"""A gate of claims on Kafka and PostgreSQL, from labels by claim to mixed answers, verified."""

from contextlib import ExitStack
from pathlib import Path

import pytest
import sqlalchemy as sa

from streamer import wiring
from streamer.events.actions import decode_action, text_to_show
from streamer.events.responses import decode_responses
from streamer.store.db.schema import batches, decisions
from streamer_verify.bundle import Bundle
from streamer_verify.command import verify_bundle
from tests.e2e.test_gates_in_service import publish, taken_up
from tests.faults.site import Site, empty_site, wait_until
from tests.faults.test_recalibration_killed import label
from tests.made import a_batch
from tests.services.kafka import KafkaBroker

NAME = "notes"
BEFORE, AFTER = 40, 8
RIGHT, WRONG = "The depot in Bern opens at {0}.", "Parcels weigh {0} stones."


def is_wrong(number: int) -> bool:
    return number % 4 == 0


def event(number: int) -> bytes:
    """Every other answer repeats the first sentence; the second one only where it is right."""
    right, wrong = RIGHT.format(number % 7), WRONG.format(number)
    other = "Nobody can say." if is_wrong(number) else wrong
    return a_batch(NAME, number, [f"{right} {wrong}", f"{right} {other}", f"{other} {right}"])


def recorded(one: Site) -> dict[int, bytes]:
    query = sa.select(batches.c.batch_id, decisions.c.action_value).join(
        decisions, decisions.c.batch == batches.c.id
    )
    with one.store._database.reading() as connection:
        rows = connection.execute(query).all()
    return {int(row.batch_id.split("-")[1]): row.action_value for row in rows}


@pytest.mark.slow
def test_from_its_creation_to_mixed_answers_that_can_be_verified(
    kafka_broker: KafkaBroker, migrated_postgres_url: str, topic_prefix: str, tmp_path: Path
) -> None:
    with (
        ExitStack() as stack,
        empty_site(kafka_broker, migrated_postgres_url, topic_prefix, tmp_path, stack) as site,
    ):
        site.command(
            *("gate", "create", NAME, "--unit", "claim", "--alpha", "0.1", "--mode", "enforce"),
            *("--audit-probability", "1", "--recalibrate", "propose"),
        )
        worker = site.start_worker()
        publish(site, NAME, event, range(BEFORE))
        assert {decode_action(one).reason for one in recorded(site).values()} == {"no_threshold"}
        with wiring.publisher(site.settings) as publisher:
            for number in range(BEFORE):
                for claim, wrong in (("c00", False), ("c01", is_wrong(number))):
                    key, value = label(number, 0, float(wrong), gate=NAME, response_id=claim)
                    publisher.send(wiring.topics(site.settings).labels, value, key=key)
        wait_until(lambda: site.recorded() == 3 * BEFORE, "every label has an outcome")
        said = site.command("recalibrate", NAME, "--by", "ana", "--reason", "labels came")
        assert f"{2 * BEFORE} of {2 * BEFORE} claims labelled" in " ".join(said.stdout.split())
        policy = site.store.policies.newest(NAME)
        assert policy.state == "cut", said.stdout + said.stderr
        assert "prompts that get a wrong claim is at most 10 %" in policy.guarantee
        taken_up(site, worker, NAME)
        worker.kill()
        dying = site.start_worker(STREAMER_FAILPOINTS="in_transaction=kill@3")
        with wiring.publisher(site.settings) as publisher:
            for number in range(BEFORE, BEFORE + AFTER):
                publisher.send(wiring.topics(site.settings).responses, event(number), key=b"k")
        dying.wait_until_killed()
        site.start_worker()
        wait_until(lambda: len(recorded(site)) == BEFORE + AFTER, "another worker decides the rest")
        first = recorded(site)
        for number in range(BEFORE, BEFORE + AFTER):
            action, batch = decode_action(first[number]), decode_responses(event(number))
            assert [one.id for one in action.responses] == ["c00", "c01"]
            if is_wrong(number):
                assert (action.action, action.parts) == ("mixed", ((0, len(RIGHT) - 1),))
                assert text_to_show(batch, action) == RIGHT.format(number % 7) + " "
            else:
                assert action.action == "ship"
                assert text_to_show(batch, action) == batch.responses[0].text
        before = site.recorded()
        with wiring.publisher(site.settings) as publisher:
            publisher.send(wiring.topics(site.settings).responses, event(BEFORE), key=b"k")
        wait_until(lambda: site.recorded() == before + 1, "the repeat has an outcome")
        assert recorded(site) == first

        site.command("audit", "verify")
        bundle = site.directory / "bundle"
        site.command("audit", "export", "--salts", "--out", str(bundle))
        verifier = verify_bundle(Bundle(bundle), [], None)
        assert verifier.faults == []
        assert verifier.counts["texts put together again from claims"] == BEFORE + AFTER
        assert verifier.counts["calibrations derived again"] == 1
        assert not any("derived again" in note for note in verifier.notes.values()), verifier.notes
        site.check()
