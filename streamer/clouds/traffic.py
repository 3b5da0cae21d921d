"""Simulated traffic without an end: batches at a steady rate, and their labels some time later. Pure."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count

from streamer.clouds.cloud import Cloud
from streamer.clouds.simulation import NOISE_SHARE, QUESTION_ID_PREFIX, RESPONSES_PER_CLOUD, simulate_clouds

_AT_A_TIME = 100


@dataclass(frozen=True, slots=True)
class Occurrence:
    """Something that is to be published, `at` seconds after the start: a batch, or the labels of one."""

    at: float
    cloud: Cloud
    labels: bool


def endless_clouds(
    *, seed: int, responses: int = RESPONSES_PER_CLOUD, noise: float = NOISE_SHARE
) -> Iterator[Cloud]:
    """Yield simulated clouds forever; no two have the same id, nor do clouds of two seeds."""
    for number, first in enumerate(count(seed)):
        made = simulate_clouds(seed=first, clouds=_AT_A_TIME, responses=responses, noise=noise)
        for place, cloud in enumerate(made, number * _AT_A_TIME):
            yield replace(cloud, question_id=f"{QUESTION_ID_PREFIX}{seed}-{place:04d}")


def occurrences(clouds: Iterator[Cloud], *, rate: float, label_after: float) -> Iterator[Occurrence]:
    """Yield in order of time when each batch is due, and its labels `label_after` >= 0 s later.

    Each cloud becomes one batch; when they end, the labels that are still due follow.
    """
    waiting: deque[Occurrence] = deque()
    for number, cloud in enumerate(clouds):
        at = number / rate
        while waiting and waiting[0].at <= at:
            yield waiting.popleft()
        yield Occurrence(at, cloud, labels=False)
        waiting.append(Occurrence(at + label_after, cloud, labels=True))
    yield from waiting
