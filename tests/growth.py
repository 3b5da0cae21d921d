"""How work grows with what it is about, whatever machine does it."""

import time
from collections.abc import Callable

TIMES = 16
SECONDS = 2.0
"""Processor time for which it is tried again: nothing else makes what lasts so long four times as long."""


def grows_in_proportion(work: Callable[[int], object], most: int) -> bool:
    """Whether `work` of the size `most` takes about as long as sixteen times that of a sixteenth of it.

    Quadratic work takes 16 times as long; 4 is the limit. Both are measured in turn, by the processor time
    of this thread, and one round of many suffices.
    """

    def seconds(size: int, times: int) -> float:
        began = time.thread_time()
        for _ in range(times):
            work(size)
        return time.thread_time() - began

    spent: list[float] = []
    while len(spent) < 2 or sum(spent) < SECONDS:
        spent.append(seconds(most, 1))
        if spent[-1] < 4 * seconds(most // TIMES, TIMES):
            return True
    return False
