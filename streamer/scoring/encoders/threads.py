"""How many threads an encoder takes."""

from __future__ import annotations

import os

from streamer.errors import UsageError

_MOST_THREADS = 32


def encoder_threads(wanted: int | None) -> int:
    """`wanted`, or as many as this process may use, at most 32.

    Raises
    ------
    UsageError : `wanted` is below 1.
    """
    if wanted is not None:
        if wanted < 1:
            raise UsageError(f"an encoder needs at least 1 thread, not {wanted}")
        return wanted
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cpus, _MOST_THREADS)
