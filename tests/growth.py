"""How work grows with what it is about, whatever machine does it."""

import time
from collections.abc import Callable

TIMES = 16
ROUNDS = 20


def grows_in_proportion(work: Callable[[int], object], most: int) -> bool:
    """Whether `work` of the size `most` takes about as long as that of a sixteenth of it does sixteen times.

    Quadratic work takes 16 times as long; 4 is the limit. Both are measured in turn, by the processor time of this
    thread, and one round of many suffices: what else the machine does only ever adds to one of them.
    """

    def seconds(size: int, times: int) -> float:
        began = time.thread_time()
        for _ in range(times):
            work(size)
        return time.thread_time() - began

    return any(seconds(most, 1) < 4 * seconds(most // TIMES, TIMES) for _ in range(ROUNDS))
