"""A gate that scores by a judge as the paper's G-Eval-CRC does, on Kafka and PostgreSQL: publish, label, calibrate, ship, verify."""

from contextlib import ExitStack
from pathlib import Path

import pytest

from streamer.gates.batch_key import BatchKey
from streamer_verify.bundle import Bundle
from streamer_verify.command import verify_bundle
from tests.e2e.test_gates_in_service import publish, publish_labels, taken_up
from tests.faults.site import empty_site
from tests.integration.judge.test_judge_scores import marking
from tests.made import a_batch
from tests.services.kafka import KafkaBroker
from tests.services.openai_server import OpenAIServer

NAME = "scored"
BEFORE, AFTER = 60, 12


def is_bad(number: int) -> bool:
    return number % 3 == 0


def event(number: int) -> bytes:
    """One prompt for all, so that a judge has four cases to mark, and remembers them."""
    texts = ("perhaps here", "no idea") if is_bad(number) else ("surely here", "perhaps there")
    return a_batch(NAME, number, texts, prompt="Where?")


@pytest.mark.slow
def test_from_its_creation_to_decisions_that_can_be_verified(
    kafka_broker: KafkaBroker,
    migrated_postgres_url: str,
    topic_prefix: str,
    tmp_path: Path,
) -> None:
    with (
        OpenAIServer(marking) as model,
        ExitStack() as stack,
        empty_site(kafka_broker, migrated_postgres_url, topic_prefix, tmp_path, stack) as site,
    ):
        site.environment |= {
            "STREAMER_JUDGE_BASE_URL": model.url,
            "STREAMER_JUDGE_MODEL": "grader",
            "STREAMER_JUDGE_SCORE_SECONDS": "240",
        }
        site.command(
            *("gate", "create", NAME, "--scorer", "judge", "--method", "bb", "--alpha", "0.2", "--unit", "best"),
            *("--mode", "enforce", "--audit-probability", "1", "--recalibrate", "propose"),
        )  # fmt: skip
        worker = site.start_worker()
        publish(site, NAME, event, range(BEFORE))
        publish_labels(site, NAME, is_bad, range(BEFORE), 1)
        said = site.command("recalibrate", NAME, "--by", "ana", "--reason", "labels came")
        policy = site.store.policies.newest(NAME)
        assert policy.state == "cut", said.stdout + said.stderr
        taken_up(site, worker, NAME)
        publish(site, NAME, event, range(BEFORE, BEFORE + AFTER))
        shipped = site.store.reports.decided_and_shipped(NAME)[1]
        assert shipped >= sum(not is_bad(n) for n in range(BEFORE, BEFORE + AFTER)), (
            "what is surely right ships"
        )

        calls = [one for one in model.requests if one.path.endswith("/chat/completions")]
        assert len(calls) == 4, "each answer is judged once"
        kept = site.store.judgements.of(BatchKey(NAME, f"batch-{BEFORE + 1}", 1))
        assert [one.mark for one in kept] == [90.0, 20.0]
        assert all(one.for_score and one.remembered and one.intact for one in kept)

        again = site.command(
            "audit", "verify", "--rescore"
        )  # without an encoder: none of these scores needs one
        assert "not scored again" not in again.stderr
        assert f"{2 * (BEFORE + AFTER)} marks read again" in again.stderr
        bundle = site.directory / "bundle"
        site.command("audit", "export", "--salts", "--out", str(bundle))
        verifier = verify_bundle(Bundle(bundle), [], None)
        assert verifier.faults == []
        assert verifier.counts["batches whose scores follow from recorded numbers"] == BEFORE + AFTER
        site.check()
