"""Nobody outruns a log that forgets."""

import pytest

from streamer.cli.publish import AHEAD_BYTES, Backpressure
from streamer.errors import Unavailable


class Worker:
    """Records one thing each time that somebody waits for it."""

    def __init__(self, speed: int) -> None:
        self.recorded = 100
        self.speed = speed
        self.now = 0.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.recorded += self.speed


def test_what_is_underway_stays_bounded() -> None:
    worker = Worker(speed=3)
    pace = Backpressure(lambda: worker.recorded, sleep=worker.sleep, clock=lambda: worker.now)
    size = AHEAD_BYTES // 10
    for sent in range(1, 101):
        pace.sent(size)
        assert (sent - (worker.recorded - 100)) * size <= AHEAD_BYTES


def test_a_worker_that_stands_still_is_told() -> None:
    worker = Worker(speed=0)
    pace = Backpressure(lambda: worker.recorded, sleep=worker.sleep, clock=lambda: worker.now)
    pace.sent(AHEAD_BYTES)
    with pytest.raises(Unavailable, match="streamer doctor"):
        pace.sent(1)
