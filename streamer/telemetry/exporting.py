"""Where traces go, as OpenTelemetry's own environment variables say. Without them, or without the extra: nowhere, and at no cost.

Nothing here stops a process or a decision: what is wrong is logged, and there are no traces.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import EntryPoint, entry_points, version
from typing import Any, Final

import structlog

from streamer.extras import PackageMissing, needed_by
from streamer.tracing import NO_TRACING, Tracing

log = structlog.get_logger(__name__)

_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_GROUP: Final = "opentelemetry_{}_exporter"
_LAST_SECONDS: Final = 2.0
"""What the last spans may take at the end."""


@contextmanager
def tracing(service: str, environment: Mapping[str, str]) -> Iterator[Tracing]:
    """Give the tracing that the process's environment asks for, as ``streamer-SERVICE`` unless the
    environment has a name; at the end what waits is exported, for at most two seconds.

    It is asked for by an endpoint (`OTEL_EXPORTER_OTLP_ENDPOINT` or
    `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`) or by `OTEL_TRACES_EXPORTER`. The SDK's own default, an
    exporter to this machine without being asked, is not ours. Exporters, samplers and processors
    read the environment for themselves.
    """
    exporter = _wanted(environment)
    if exporter is None:
        yield NO_TRACING
        return
    try:
        with needed_by(f"OpenTelemetry, which the environment asks for (OTEL_TRACES_EXPORTER={exporter}),"):
            found, close = _provided(service, exporter, environment)
    except PackageMissing as missing:
        log.warning("telemetry.no_traces", reason=str(missing))
        yield NO_TRACING
        return
    except Exception as error:
        # Others' variables, read by others' code: whatever they make of it, decisions go on.
        log.warning("telemetry.no_traces", reason=f"{type(error).__name__}: {error}")
        yield NO_TRACING
        return
    log.info("telemetry.traces", exporter=exporter)
    try:
        yield found
    finally:
        closing = threading.Thread(target=close, name="telemetry-last-spans", daemon=True)
        closing.start()
        closing.join(_LAST_SECONDS)
        if closing.is_alive():
            log.warning("telemetry.last_traces_lost", seconds=_LAST_SECONDS)


def _wanted(environment: Mapping[str, str]) -> str | None:
    """The name of the exporter of traces; None where there is to be none."""
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return None
    named = environment.get("OTEL_TRACES_EXPORTER", "").strip().lower()
    if not named and any(environment.get(name, "").strip() for name in _ENDPOINTS):
        named = "otlp"
    return None if named in ("", "none") else named


def _provided(
    service: str, exporter: str, environment: Mapping[str, str]
) -> tuple[Tracing, Callable[[], None]]:
    """Make providers of spans and of events, and what closes them."""
    from opentelemetry.sdk.resources import SERVICE_NAME, OTELResourceDetector, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    from streamer.telemetry.traces import Traces

    own = version("conformal-streamer")
    resource = Resource.create({"service.version": own})
    if SERVICE_NAME not in OTELResourceDetector().detect().attributes:
        resource = resource.merge(Resource({SERVICE_NAME: f"streamer-{service}"}))
    to = _exporter("traces", exporter, environment)
    emit, close_events = _events(_wanted_events(exporter, environment), resource, own, environment)
    spans = TracerProvider(resource=resource, shutdown_on_exit=False)
    spans.add_span_processor(BatchSpanProcessor(to))

    def close() -> None:
        spans.shutdown()
        close_events()

    return Traces(spans.get_tracer("streamer", own), emit), close


def _wanted_events(exporter: str, environment: Mapping[str, str]) -> str:
    """The name of the exporter of events; that of traces where nothing else is said and it can do both."""
    named = environment.get("OTEL_LOGS_EXPORTER", "").strip().lower()
    if named:
        return named
    general, of_traces, of_logs = (
        environment.get(f"OTEL_EXPORTER_OTLP_{signal}ENDPOINT", "").strip()
        for signal in ("", "TRACES_", "LOGS_")
    )
    if exporter == "otlp" and of_traces and not (general or of_logs):
        return "none"
    return exporter if _found("logs", exporter, environment) is not None else "none"


def _events(
    exporter: str, resource: Any, own: str, environment: Mapping[str, str]
) -> tuple[Callable[..., None] | None, Callable[[], None]]:
    """What emits an event, and what closes that. To OpenTelemetry an event is a record of a log."""
    if exporter == "none":
        return None, _nothing
    from opentelemetry._logs import SeverityNumber
    from opentelemetry.sdk._logs import LoggerProvider
    from opentelemetry.sdk._logs.export import BatchLogRecordProcessor

    to = _exporter("logs", exporter, environment)
    events = LoggerProvider(resource=resource, shutdown_on_exit=False)
    events.add_log_record_processor(BatchLogRecordProcessor(to))
    logger = events.get_logger("streamer", own)

    def emit(name: str, attributes: Mapping[str, Any], context: Any) -> None:
        logger.emit(
            event_name=name, attributes=dict(attributes), context=context, severity_number=SeverityNumber.INFO
        )

    return emit, events.shutdown


def _exporter(signal: str, name: str, environment: Mapping[str, str]) -> Any:
    found = _found(signal, name, environment)
    if found is None:
        known = ", ".join(sorted(one.name for one in entry_points(group=_GROUP.format(signal))))
        raise LookupError(f"no exporter of {signal} for {name!r} is installed; those that are: {known}")
    return found.load()()


def _found(signal: str, name: str, environment: Mapping[str, str]) -> EntryPoint | None:
    """An exporter by its name, as every package registers its own."""
    if name == "otlp":
        protocol = environment.get(f"OTEL_EXPORTER_OTLP_{signal.upper()}_PROTOCOL") or environment.get(
            "OTEL_EXPORTER_OTLP_PROTOCOL"
        )
        name = f"otlp_proto_{(protocol or 'http/protobuf').strip().partition('/')[0]}"
    return next(iter(entry_points(group=_GROUP.format(signal), name=name)), None)


def _nothing() -> None:
    """There is nothing to close."""
