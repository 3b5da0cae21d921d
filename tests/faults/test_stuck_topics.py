"""Case 20: a topic, or one partition of it, that takes no messages while the others do."""

import json
import math
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
EVERY = 0.02
WITHIN = 1.2
"""Actions may take so much longer than without the fault."""
MOST_ROUNDS = 10
"""Other tests take the processor for seconds, whichever round that hits; a worker that waits for the topic is slow in each."""

# Refusals are what these tests are about, and no reason to halt.
MANY_REFUSALS = {
    "STREAMER_WORKER_DEAD_LETTER_MAX_RATIO": "1",
    "STREAMER_WORKER_DEAD_LETTER_MAX_RUN": "100000",
}


class Pace:
    """How long a handful of actions take, from the first event to the last acknowledgement."""

    def __init__(self, site: Site, numbers: Iterator[int]) -> None:
        self._site = site
        self._numbers = numbers
        self._topics = wiring.topics(site.settings)
        self._connection = wiring.connection(site.settings)

    def published(self) -> int:
        """Actions on the topic, as far as its partitions can be asked."""
        bounds = log_bounds(self._connection, [self._topics.actions])
        return sum(end for _, end in bounds.values())

    def measure(self, *, rounds: int = 3, enough: float = 0.0) -> float:
        """Seconds, the least of some rounds, or the first that is enough: what else this machine does only adds."""
        least = math.inf
        for _ in range(rounds):
            least = min(least, self._once())
            if least <= enough:
                break
        return least

    def _once(self) -> float:
        before = self.published()
        with wiring.publisher(self._site.settings) as publisher:
            began = time.monotonic()
            for number in (next(self._numbers) for _ in range(ACTIONS)):
                publisher.send(self._topics.responses, event(number), key=str(number).encode())
                publisher.flush()
                time.sleep(EVERY)
            wait_until(lambda: self.published() >= before + ACTIONS, "all are published", 180)
            return time.monotonic() - began


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
        found: list[str] = json.load(answer).get("stuck", [])
        return found


def test_actions_keep_their_pace_without_a_topic_for_dead_letters(
    site: Site, kafka_broker: KafkaBroker, matrix: Matrix
) -> None:
    dead_letters = wiring.topics(site.settings).dead_letters
    worker = site.start_worker(**MANY_REFUSALS)
    worker.wait_until_ready()
    pace = Pace(site, iter(range(100_000)))
    pace.measure(rounds=1)
    healthy = pace.measure()
    kafka_broker.delete_topics([dead_letters])
    found = {}
    waiting = 0
    for count in (1, 1156):
        refuse(site, count - waiting)
        waiting = count
        found[count] = pace.measure(rounds=MOST_ROUNDS, enough=WITHIN * healthy)
        print(f"{count} dead letters wait: {found[count]:.2f} s, without {healthy:.2f} s")
    wait_until(lambda: site.store.reports.outbox_pending() == waiting, "the dead letters alone wait")
    wait_until(lambda: len(stuck(worker)) == 1, "the worker is ready and names the topic")
    assert dead_letters in stuck(worker)[0]
    gauge = f'streamer_relay_lane_stuck{{partition="all",topic="{dead_letters}"}}'
    assert worker.metrics()[gauge] == 1

    kafka_broker.create_topic(dead_letters, 4)
    back = time.monotonic()
    wait_until(lambda: site.store.reports.outbox_pending() == 0, "the topic is there again")
    recovered = time.monotonic() - back
    matrix.add("20 the topic of dead letters deleted, 1,156 waiting", site.check(), seconds=recovered)
    assert not stuck(worker)
    assert worker.metrics()[gauge] == 0

    # The worker's producer knows the topic now, and its partitions' leader.
    kafka_broker.delete_topics([dead_letters])
    refuse(site, 1)
    found[0] = pace.measure(rounds=MOST_ROUNDS, enough=WITHIN * healthy)
    print(f"deleted under the producer: {found[0]:.2f} s, without {healthy:.2f} s")
    assert all(seconds <= WITHIN * healthy for seconds in found.values()), (healthy, found)
    assert worker.terminate() == 0
