"""Processes that compute side by side, and none of which outlives the one that started them."""

import multiprocessing
import os
import threading
from concurrent.futures import ProcessPoolExecutor


def side_processes(count: int) -> ProcessPoolExecutor:
    """Return `count` new interpreters that take work, and that end when this process does, however it ends.

    New ones, because an encoder's threads do not survive a fork.
    """
    return ProcessPoolExecutor(
        count, mp_context=multiprocessing.get_context("spawn"), initializer=_end_with_parent
    )


def _end_with_parent() -> None:
    # A worker of a pool whose owner was killed waits for work forever: it holds the other end of its queue itself.
    threading.Thread(target=_await_parent, daemon=True).start()


def _await_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
