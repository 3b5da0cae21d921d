"""Where the components of a worker report what they do: metrics, health, failpoints, traces."""

from dataclasses import dataclass, field

from streamer.failpoints import Failpoint, disarmed
from streamer.stream.latency import LatencyLedger
from streamer.stream.observer import SilentObserver, StreamObserver
from streamer.tracing import NO_TRACING, Tracing


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """Shared by all components of a worker.

    Attributes
    ----------
    observer : of what was done, how long it took, and whether database and broker answer.
    failpoint : called with the name of each step passed (`streamer.failpoints.POINTS`).
    ledger : from which record each unpublished action came.
    tracing : told what was recorded, dropped and published.
    """

    observer: StreamObserver = field(default_factory=SilentObserver)
    failpoint: Failpoint = disarmed
    ledger: LatencyLedger = field(default_factory=LatencyLedger)
    tracing: Tracing = NO_TRACING
