"""What the parts of a worker say as they go, to whoever measures, watches or breaks it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from streamer.failpoints import disarmed
from streamer.stream.latency import LatencyLedger
from streamer.stream.observer import SilentObserver

if TYPE_CHECKING:
    from collections.abc import Callable

    from streamer.failpoints import Failpoint
    from streamer.stream.observer import StreamObserver


def _nobody(_part: str, _answers: bool) -> None:
    """Tell nobody."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reports:
    """Where a worker's parts report to; all of one worker share one.

    Attributes
    ----------
    observer : told what was done and how long it took.
    tell : told whether a part, like ``broker`` or ``database``, answers.
    failpoint : called with the name of each step passed (`streamer.failpoints.POINTS`).
    ledger : from which record each unpublished action came.
    """

    observer: StreamObserver = field(default_factory=SilentObserver)
    tell: Callable[[str, bool], None] = _nobody
    failpoint: Failpoint = disarmed
    ledger: LatencyLedger = field(default_factory=LatencyLedger)
