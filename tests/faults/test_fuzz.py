"""Case 17: messages that are nearly right, by the thousand: each has exactly one outcome, and none stops a worker.

The decoder, the decider and the commit work together here, on both databases, through the worker's own group commit.
`make faults` tries a hundred thousand.
"""

from contextlib import closing

import pytest
from confluent_kafka import Producer

from streamer import wiring
from streamer.errors import BadMessage
from streamer.events import codes
from streamer.events.responses import decode_responses, encode_responses
from tests.faults.hostile_messages import Publisher
from tests.faults.laboratory import GROUP, RULES, Laboratory
from tests.faults.matrix import LONG, Matrix
from tests.faults.site import GATE, Site, wait_until

COUNT = 50_000 if LONG else 2_000
"""Messages for each database."""
SENT = 20_000 if LONG else 600
"""Messages through a real worker."""


@pytest.mark.expected_errors(r"scoring_failed|encoding_failed")
@pytest.mark.timeout(120 + COUNT / 50)
@pytest.mark.parametrize("keep_texts", [True, False], ids=["texts", "no-texts"])
def test_every_message_has_one_outcome_and_no_fault_is_ours(
    migrated_database_url: str, keep_texts: bool
) -> None:
    count = COUNT if keep_texts else COUNT // 10
    laboratory = Laboratory(migrated_database_url, keep_texts=keep_texts)
    with closing(laboratory.store):
        slowest = laboratory.take(Publisher([*RULES, "nobody"], seed=17).messages(count))
        became = laboratory.check()
    faults = laboratory.faults
    assert not faults, f"{len(faults)} records that the decoder should have refused by name: {faults[:10]}"
    print(f"\n{count} messages, the slowest {GROUP} in {slowest:.2f} s: {dict(became.most_common())}")
    assert became["decision"] > count / 10, "the publisher leaves nothing that is right"
    assert became["label"] > count / 50
    assert len(became) > 12, "the publisher's faults are all alike"
    if count > 1000:
        assert became["duplicate"]
        assert became["conflict"]


def test_what_is_read_can_be_written_and_read_again() -> None:
    for message in Publisher(["bot"], seed=2).messages(COUNT // 4):
        try:
            event = decode_responses(message.value)
        except BadMessage:
            continue
        assert decode_responses(encode_responses(event)) == event


def test_a_real_worker_meets_a_hostile_publisher(site: Site, matrix: Matrix) -> None:
    named = wiring.topics(site.settings)
    largest = wiring.limits(site.settings).max_value_bytes
    # The cap for refusals is there to stop exactly this.
    worker = site.start_worker(
        STREAMER_WORKER_DEAD_LETTER_MAX_RUN="1000000", STREAMER_WORKER_DEAD_LETTER_MAX_RATIO="1"
    )
    producer = Producer({"bootstrap.servers": site.settings.bootstrap_servers, "log_level": 0})
    sent = 0
    for number, message in enumerate(Publisher([GATE, GATE, "nobody"], seed=3).messages(SENT)):
        if message.value is None or len(message.value) <= largest:
            producer.produce(
                named.labels if message.label else named.responses,
                message.value,
                key=b"%d" % (number % 64) if message.key == b"k" else message.key,
                headers=list(message.headers),
            )
            producer.poll(0)
            sent += 1
    assert producer.flush(60) == 0
    wait_until(
        lambda: worker.ended or site.recorded() == sent,
        "every record has an outcome",
        300,
        progress=site.recorded,
    )
    assert not worker.ended, worker.log_tail()
    found = site.check()
    assert found.decisions > SENT / 20
    assert found.labels > SENT / 50
    assert codes.INTERNAL_ERROR not in site.store.dead_letters.counts()
    matrix.add("17 a hostile publisher", found)
    assert worker.terminate() == 0
