"""What becomes of batches that nobody at the desk decides about: at their deadline they are rejected, by one process at a time."""

from collections.abc import Callable
from typing import Protocol

import structlog

log = structlog.get_logger(__name__)


class Desk(Protocol):
    """What waits for people."""

    def overdue(self) -> bool:
        """Whether anything waits whose deadline has passed. Blocks; may raise `Unavailable`."""
        ...

    def expire(self) -> int:
        """Reject some of that, and return how many. Blocks; may raise `Unavailable` and `LeaseLost`."""
        ...


class DeskLease(Protocol):
    """The right to reject."""

    def held(self) -> bool:
        """Take it if it is free, and report whether it is ours now."""
        ...

    def release(self) -> None:
        """Let another one have it."""
        ...


class DeskClerk:
    """Rejects what is overdue.

    Parameters
    ----------
    desk : asked what is overdue.
    lease : makes the lease of one burst of work, and the same desk for whoever holds it.
    """

    def __init__(self, desk: Desk, *, lease: Callable[[], tuple[DeskLease, Desk]]) -> None:
        self._desk = desk
        self._lease = lease

    def run(self) -> int:
        """Reject everything that is overdue, unless another process is at it; returns how much it was."""
        if not self._desk.overdue():
            return 0
        lease, desk = self._lease()
        rejected = 0
        try:
            while lease.held() and (count := desk.expire()):
                rejected += count
        finally:
            lease.release()
        if rejected:
            log.info("desk.deadlines_passed", rejected=rejected)
        return rejected
