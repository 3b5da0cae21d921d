"""The threads of an encoder: how many, and passes that run on them."""

import os
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, as_completed
from typing import TypeVar

from streamer.errors import UsageError

Progress = Callable[[int], None] | None
"""Called with how many texts have been done; None: nobody is told."""

Pass = TypeVar("Pass")

_MOST_THREADS = 32


def encoder_threads(wanted: int | None) -> int:
    """`wanted`, or as many as this process may use, at most 32. Raises `UsageError` if `wanted` is
    below 1.
    """
    if wanted is not None:
        if wanted < 1:
            raise UsageError(f"an encoder needs at least 1 thread, not {wanted}")
        return wanted
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cpus, _MOST_THREADS)


def run_passes(
    pool: Executor | None,
    run: Callable[[Pass], int],
    passes: Iterable[Pass],
    progress: Progress,
) -> None:
    """Run each pass in `pool`, or here without one, and tell `progress`, from the calling thread, how many texts it did.

    Whatever a pass or `progress` raises, an interrupt too, calls off the passes that have not begun.
    """
    futures = [] if pool is None else [pool.submit(run, one) for one in passes]
    try:
        for done in map(run, passes) if pool is None else (one.result() for one in as_completed(futures)):
            if progress is not None:
                progress(done)
    except BaseException:
        for future in futures:
            future.cancel()
        raise
