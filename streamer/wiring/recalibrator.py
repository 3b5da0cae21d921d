"""The recalibrator from settings: schedule, runs, the watch over the risk in service, metrics and health."""

import signal
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial

import structlog

from streamer.failpoints import from_environment
from streamer.recalibration.gate_status import GateStatus
from streamer.recalibration.one_gate import recalibrate_by_rule, tighten_by_rule
from streamer.recalibration.runner import GateWork
from streamer.recalibration.service import Recalibrator, Timing, Watch
from streamer.risk.rounds.watch import RiskWatch
from streamer.settings.settings import Settings
from streamer.store import Store
from streamer.stream.ending import StopDeadline
from streamer.stream.handshake import shake_hands
from streamer.telemetry.http import TelemetryServer
from streamer.telemetry.recalibrator_metrics import RecalibratorMetrics, RiskMetrics
from streamer.wiring.alerting import Delivery, channels
from streamer.wiring.audit import signing
from streamer.wiring.parts import connection, now, open_store, publish_waiting, when_available
from streamer.wiring.process import settle_memory, tracing

log = structlog.get_logger(__name__)

GATE_LOCK_SECONDS = 1.0
"""How long the service waits for a run that somebody started by hand; then the gate's turn comes again later."""

BROKER_SECONDS = 2.0
BROKER_ASKED_EVERY_SECONDS = 15.0


def watch(store: Store, metrics: RecalibratorMetrics, *, stopping: Callable[[], bool]) -> Watch:
    """Return what watches the risk in service, with the metrics that it serves."""
    return RiskWatch(
        store.monitoring, alerts=store.alerts, observer=RiskMetrics(metrics.of), stopping=stopping
    )


class _Announcements:
    """Publishes what waits, and now and then asks whether the broker is there at all."""

    def __init__(self, settings: Settings, store: Store) -> None:
        self._settings = settings
        self._store = store
        self._connection = connection(settings)
        self._asked = float("-inf")

    def __call__(self) -> None:
        waiting = bool(self._store.unpublished([], limit=1))
        if not waiting and time.monotonic() - self._asked < BROKER_ASKED_EVERY_SECONDS:
            return
        # Client libraries retry for a long time; a round must not.
        shake_hands(self._connection, seconds=BROKER_SECONDS)
        self._asked = time.monotonic()
        if waiting:
            publish_waiting(self._settings, self._store)


def run_recalibrator(
    settings: Settings, *, announce: Callable[[Mapping[str, object]], None], kafka: bool = True
) -> int:
    """Run one recalibrator until SIGTERM or Ctrl-C, and return the process's exit status.

    `kafka` : publish policies and alerts; without it they wait in the outbox for a broker. `announce` gets the addresses once
    they are known, before the service is ready.
    """
    metrics = RecalibratorMetrics()
    stop = threading.Event()
    failpoint = from_environment()
    sent_to = channels(settings, clock=now)
    with ExitStack() as stack:
        traces = stack.enter_context(tracing("recalibrator"))
        store = stack.enter_context(when_available(partial(open_store, settings)))

        def recalibrate(status: GateStatus) -> str:
            gate = status.gate.gate
            with (
                store.leases.of_gate(gate, wait_seconds=GATE_LOCK_SECONDS) as lease,
                traces.calibration(gate) as ended,
            ):
                calibrating = leading.under(lease)
                done = recalibrate_by_rule(
                    calibrating.calibration,
                    calibrating.policies,
                    status.gate,
                    clock=now,
                    failpoint=failpoint,
                    raise_alert=leading.alerts.raise_,
                )
                ended(done.outcome)
            log.info("recalibrator.decided", gate=gate, outcome=done.outcome, why=done.why)
            return done.outcome

        def look(status: GateStatus) -> str | None:
            with store.leases.of_gate(status.gate.gate, wait_seconds=GATE_LOCK_SECONDS) as lease:
                calibrating = leading.under(lease)
                done = tighten_by_rule(calibrating.calibration, calibrating.policies, status.gate, clock=now)
                return None if done is None else done.outcome

        leadership = store.leases.leadership()
        stack.callback(leadership.release)
        leading = store.under(leadership)
        service = Recalibrator(
            statuses=leading.recalibration_status,
            leadership=leadership,
            work=GateWork(recalibrate, look),
            raise_alert=leading.alerts.raise_,
            publish=_Announcements(settings, leading) if kafka else lambda: None,
            watch=watch(leading, metrics, stopping=stop.is_set),
            observer=metrics,
            timing=Timing(now),
            stopping=stop.is_set,
        )

        def exposition() -> bytes:
            # Read now: a round that hangs cannot report that another one leads.
            metrics.show_lead(service.leads)
            return metrics.exposition()

        _serve(stack, settings, stop, announce, exposition, service.unready)
        settle_memory()
        if settings.audit.private_key is not None:
            sign = signing(stack, settings, store, metrics)
            signer = threading.Thread(target=sign, args=(stop,), name="streamer-signer", daemon=True)
            stack.callback(signer.join, 10.0)
            signer.start()
        for channel in sent_to:
            show = metrics.of("alerts_undelivered").labels(channel.name).set
            sending = Delivery(leading.alerts, channel, clock=now, monotonic=time.monotonic, show=show)
            beside = threading.Thread(
                target=partial(sending.run, stop, leads=lambda: service.leads),
                name=f"recalibrator-{channel.name}",
                daemon=True,
            )
            beside.start()
        service.run(stop)
    return 0


def run_signer(settings: Settings, *, announce: Callable[[Mapping[str, object]], None]) -> int:
    """Run what signs alone until SIGTERM or Ctrl-C, and return the process's exit status."""
    metrics, stop = RecalibratorMetrics(), threading.Event()
    with ExitStack() as stack:
        store = stack.enter_context(when_available(partial(open_store, settings)))
        sign = signing(stack, settings, store, metrics)
        _serve(stack, settings, stop, announce, metrics.exposition, list)
        sign(stop)
    return 0


def _serve(
    stack: ExitStack,
    settings: Settings,
    stop: threading.Event,
    announce: Callable[[Mapping[str, object]], None],
    exposition: Callable[[], bytes],
    unready: Callable[[], list[str]],
) -> None:
    """Serve metrics and health, announce where, and set `stop` at SIGTERM and Ctrl-C."""
    # Never called off: it also ends an interpreter that waits for a thread which does not come back.
    deadline = StopDeadline()
    http = stack.enter_context(
        TelemetryServer(
            exposition,
            alive=lambda: {"recalibrator": "stopping"} if stop.is_set() else {},
            ready=lambda: ["the recalibrator is stopping"] if stop.is_set() else unready(),
            **settings.http.model_dump(),
        )
    )

    def end(_number: int, _frame: object) -> None:
        stop.set()
        deadline.begin(124)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    announce({"http": http.url, "database": settings.database.url})
