"""What a worker does besides deciding: read policies that no event announced, show what only SQL knows, and reject what nobody
at the desk decides about by its deadline.
"""

import threading
from collections.abc import Callable, Mapping
from itertools import count
from typing import Protocol

import structlog

from streamer.errors import Unavailable
from streamer.journal import Partition

log = structlog.get_logger(__name__)


class RecordGauges(Protocol):
    """Figures that only SQL has."""

    def outbox_pending(self) -> int:
        """Messages that wait to be published."""

    def log_sizes(self) -> Mapping[Partition, int]:
        """Entries in each partition's Merkle log."""


class Housekeeping:
    """A thread that does a few small chores at once and repeats them every `every_seconds` until
    `close`; also a context manager.

    First comes `chore`, then `desk`, which rejects what has waited for a person past its deadline,
    and shows what waits; then `show` gets what `reports` says (outbox pending, chain heights); and
    after `policies_every` rounds `refresh_policies` reads all policies from SQL, in case the
    thresholds topic was unavailable or lost.
    """

    def __init__(
        self,
        *,
        refresh_policies: Callable[[], None],
        reports: RecordGauges,
        show: Callable[[int, Mapping[Partition, int]], None],
        chore: Callable[[], None] = lambda: None,
        desk: Callable[[], None] = lambda: None,
        every_seconds: float = 2.0,
        policies_every: int = 5,
    ) -> None:
        self._refresh_policies = refresh_policies
        self._reports = reports
        self._show = show
        self._chore = chore
        self._desk = desk
        self._every_seconds = every_seconds
        self._policies_every = policies_every
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="streamer-housekeeping", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        for number in count(1):
            self._round(number)
            if self._stopping.wait(self._every_seconds):
                return

    def _round(self, number: int) -> None:
        """Do each chore, whatever becomes of the others; where the database is unavailable, the rest comes with the next round."""
        chores = [self._chore, self._desk, self._show_figures]
        if number % self._policies_every == 0:
            chores.append(self._refresh_policies)
        for chore in chores:
            try:
                chore()
            except Unavailable:
                return  # the reader reports it already
            except Exception:
                log.exception("stream.housekeeping_failed")

    def _show_figures(self) -> None:
        self._show(self._reports.outbox_pending(), self._reports.log_sizes())

    def close(self) -> None:
        """Stop; waits for the round in progress."""
        self._stopping.set()
        self._thread.join()

    def __enter__(self) -> "Housekeeping":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Desk(Protocol):
    """What waits for people."""

    def overdue(self) -> bool:
        """Whether anything waits whose deadline has passed. Blocks; may raise `Unavailable`."""

    def expire(self) -> int:
        """Reject some of that, and return how many. Blocks; may raise `Unavailable` and `LeaseLost`."""


class DeskLease(Protocol):
    """The right to reject."""

    def held(self) -> bool:
        """Take it if it is free, and report whether it is ours now."""

    def release(self) -> None:
        """Let another one have it."""


class DeskClerk:
    """Rejects what is overdue. `lease` makes the lease of one burst of work, and the same desk
    for whoever holds it."""

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
