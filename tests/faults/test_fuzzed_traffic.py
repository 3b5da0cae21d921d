"""Messages that are nearly right, among good ones, through a real worker: each has an outcome, and none stops it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamer import wiring
from tests.faults.matrix import LONG
from tests.faults.site import GATE, event, wait_until
from tests.unit.events.mutations import EXAMPLES, mutations

if TYPE_CHECKING:
    from tests.faults.matrix import Matrix
    from tests.faults.site import Site

COUNT = 20_000 if LONG else 600


def test_messages_that_are_nearly_right(site: Site, matrix: Matrix) -> None:
    named = wiring.topics(site.settings)
    examples = [path.read_bytes() for path in sorted((EXAMPLES / "responses").rglob("*.json"))]
    examples += [event(number) for number in range(5)]
    labels = [path.read_bytes() for path in sorted((EXAMPLES / "labels").rglob("*.json"))]
    labels += [one.replace(b"support-bot", GATE.encode()) for one in labels]
    largest = wiring.limits(site.settings).max_value_bytes
    # The cap for refusals is there to stop exactly this.
    worker = site.start_worker(
        STREAMER_WORKER_DEAD_LETTER_MAX_RUN="1000000", STREAMER_WORKER_DEAD_LETTER_MAX_RATIO="1"
    )
    sent = 0
    with wiring.publisher(site.settings) as publisher:
        for topic, source, count in (
            (named.responses, examples, COUNT),
            (named.labels, labels, COUNT // 4),
        ):
            for number, value in enumerate(mutations(source, count, seed=3)):
                if value is None or len(value) <= largest:
                    publisher.send(topic, value, key=b"%d" % (number % 64))
                    sent += 1
    wait_until(lambda: site.recorded() == sent, "every record has an outcome", 300)
    assert not worker.ended, worker.log_tail()
    found = site.check()
    assert found.decisions > 5
    assert found.labels > 5
    matrix.add("8 messages that are nearly right", found)
    assert worker.terminate() == 0
