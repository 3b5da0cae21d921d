"""Work that several threads begin at one moment."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any


def at_once(work: Callable[[Any], Any], *many: Any) -> list[Any]:
    """What `work` makes of each, in a thread of its own; raises what one of them raises, once all have ended."""
    start = Barrier(len(many))

    def begin(one: Any) -> Any:
        start.wait(240)
        return work(one)

    with ThreadPoolExecutor(len(many)) as pool:
        return list(pool.map(begin, many))
