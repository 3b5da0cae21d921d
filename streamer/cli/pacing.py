"""Keeps a publisher from outrunning a log with little retention: the embedded broker holds a few MiB per partition only."""

import time
from collections.abc import Callable

from streamer.errors import Unavailable

AHEAD_BYTES = 2 * 2**20
"""How much may be published and not yet recorded: less than half of what one partition of the mock broker keeps."""

_PATIENCE_SECONDS = 120.0


class Backpressure:
    """Blocks publishing while the worker is too far behind.

    Parameters
    ----------
    outcomes : how many records of this log have been recorded.
    sleep, clock : of the `time` module.
    """

    def __init__(
        self,
        outcomes: Callable[[], int],
        *,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._outcomes = outcomes
        self._sleep = sleep
        self._clock = clock
        self._before = outcomes()
        self._sizes: list[int] = []
        self._recorded = 0
        self._ahead = 0

    def sent(self, size: int) -> None:
        """Note a record of `size` bytes, and wait until there is room. Raises `Unavailable` when nothing moves."""
        self._sizes.append(size)
        self._ahead += size
        since = self._clock()
        while self._ahead > AHEAD_BYTES:
            recorded = min(self._outcomes() - self._before, len(self._sizes))
            if recorded > self._recorded:
                self._ahead -= sum(self._sizes[self._recorded : recorded])
                self._recorded, since = recorded, self._clock()
                continue
            if self._clock() - since > _PATIENCE_SECONDS:
                raise Unavailable(
                    f"the worker has recorded nothing for {_PATIENCE_SECONDS:.0f} s; see `streamer doctor`"
                )
            self._sleep(0.05)
