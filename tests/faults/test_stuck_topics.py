"""Case 20: a topic, or one partition of it, that takes no messages while the others do."""

import itertools
import json
import time
import urllib.request
from collections.abc import Iterator

from streamer import wiring
from streamer.stream.topics import log_bounds
from tests.faults.matrix import Matrix
from tests.faults.site import Site, event, wait_until
from tests.faults.worker_process import WorkerProcess
from tests.services.kafka import KafkaBroker

ACTIONS = 50

# Refusals are what these tests are about, and no reason to halt.
MANY_REFUSALS = {
    "STREAMER_WORKER_DEAD_LETTER_MAX_RATIO": "1",
    "STREAMER_WORKER_DEAD_LETTER_MAX_RUN": "100000",
}


def act(site: Site, numbers: Iterator[int]) -> None:
    """Publish events, and wait until each has its action on the topic; `test_relay` counts how far they fall behind."""
    topics, connection = wiring.topics(site.settings), wiring.connection(site.settings)

    def published() -> int:
        return sum(end for _, end in log_bounds(connection, [topics.actions]).values())

    before = published()
    with wiring.publisher(site.settings) as publisher:
        for number in itertools.islice(numbers, ACTIONS):
            publisher.send(topics.responses, event(number), key=str(number).encode())
    wait_until(lambda: published() >= before + ACTIONS, "all are published", 180)


def refuse(site: Site, count: int) -> None:
    """Publish what nobody can read, and wait until each has its dead letter."""
    before = sum(site.store.dead_letters.counts().values())
    with wiring.publisher(site.settings) as publisher:
        for number in range(count):
            publisher.send(wiring.topics(site.settings).responses, b"{", key=f"bad-{number}".encode())
    wait_until(lambda: sum(site.store.dead_letters.counts().values()) == before + count, "refused")


def stuck(worker: WorkerProcess) -> list[str]:
    """What `/readyz` of a ready worker names."""
    with urllib.request.urlopen(f"{worker.url}/readyz", timeout=240) as answer:
        return json.load(answer).get("stuck", [])


def test_actions_go_out_without_a_topic_for_dead_letters(
    site: Site, kafka_broker: KafkaBroker, matrix: Matrix
) -> None:
    dead_letters = wiring.topics(site.settings).dead_letters
    worker = site.start_worker(**MANY_REFUSALS)
    worker.wait_until_ready()
    numbers = itertools.count()
    act(site, numbers)
    kafka_broker.delete_topics([dead_letters])
    waiting = 0
    for count in (1, 1156):
        refuse(site, count - waiting)
        waiting = count
        act(site, numbers)
    wait_until(lambda: site.store.reports.outbox_pending() == waiting, "the dead letters alone wait")
    wait_until(lambda: len(stuck(worker)) == 1, "the worker is ready and names the topic")
    assert dead_letters in stuck(worker)[0]
    gauge = f'streamer_relay_lane_stuck{{partition="all",topic="{dead_letters}"}}'
    wait_until(lambda: worker.metrics()[gauge] == 1, "so does its gauge")

    kafka_broker.create_topic(dead_letters, 4)
    back = time.monotonic()
    wait_until(lambda: site.store.reports.outbox_pending() == 0, "the topic is there again")
    recovered = time.monotonic() - back
    matrix.add("20 the topic of dead letters deleted, 1,156 waiting", site.check(), seconds=recovered)
    wait_until(lambda: (stuck(worker), worker.metrics()[gauge]) == ([], 0), "nothing is stuck any more")

    # The worker's producer knows the topic now, and its partitions' leader.
    kafka_broker.delete_topics([dead_letters])
    refuse(site, 1)
    act(site, numbers)
    assert worker.terminate() == 0
