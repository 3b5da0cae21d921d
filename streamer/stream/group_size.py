"""How many records make one group: as many as can be decided and committed in about a second."""

from __future__ import annotations

_FIRST = 16
_TARGET_SECONDS = 1.0


class GroupSize:
    """Grows and shrinks the bound on a group with the time that groups take.

    What a record costs spans four orders of magnitude (a score in the event; a hundred long texts for an
    encoder on CPU). A fixed bound would either waste transactions or make a group last for minutes, and with it
    every action in it, a new threshold's arrival and a drain.

    Parameters
    ----------
    most : the bound is never above this, >= 1.
    target_seconds : what a full group should take at most.
    """

    def __init__(self, most: int, *, target_seconds: float = _TARGET_SECONDS) -> None:
        self._most = most
        self._target_seconds = target_seconds
        self._bound = min(_FIRST, most)

    @property
    def bound(self) -> int:
        """The most records of the next group, in 1..most."""
        return self._bound

    def observe(self, records: int, seconds: float) -> None:
        """Learn what a group of `records` took.

        A group that took too long halves the bound; a full one that took less than half the target doubles it.
        Small groups say nothing about larger ones.
        """
        if seconds > self._target_seconds:
            self._bound = max(1, min(self._bound, records) // 2)
        elif records >= self._bound and seconds < self._target_seconds / 2:
            self._bound = min(self._most, self._bound * 2)
