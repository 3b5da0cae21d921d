"""An OpenTelemetry collector on loopback: it takes OTLP over HTTP, in protobuf, and keeps what came."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.faults.site import wait_until
from tests.services.loopback import Asked, Loopback

SOON = {
    "OTEL_BSP_SCHEDULE_DELAY": "50",
    "OTEL_BLRP_SCHEDULE_DELAY": "50",
    "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment.name=test",
}
"""Environment of a service that exports at once."""


@dataclass(frozen=True)
class Told:
    """A span, or an event (which has no kind, times nor links); ids are hexadecimal, parent ``""`` for a root."""

    name: str
    trace: str
    id: str
    parent: str
    kind: str
    attributes: dict[str, Any]
    links: tuple[str, ...]
    began: int
    ended: int
    failed: bool
    service: str

    def __getitem__(self, attribute: str) -> Any:
        return self.attributes[attribute]


class Collector(Loopback):
    """Serves on a free loopback port. A context manager.

    Parameters
    ----------
    silent : take every request and answer none.

    Attributes
    ----------
    spans, events : what came.
    raw : all bytes that came, in one.
    """

    def __init__(self, *, silent: bool = False) -> None:
        super().__init__()
        self.spans: list[Told] = []
        self.events: list[Told] = []
        self.raw = b""
        self.silent = silent
        self.asked = 0
        self._lock = threading.Lock()

    @property
    def environment(self) -> dict[str, str]:
        """What makes a service export to it, at once."""
        return {"OTEL_EXPORTER_OTLP_ENDPOINT": self.address} | SOON

    def respond(self, asked: Asked, body: bytes) -> None:
        self.asked += 1
        if self.silent:
            self.stopping.wait()
            asked.close_connection = True
            return
        self.take(asked.path, body)
        asked.answer(b"", content_type="application/x-protobuf")

    def of_trace(self, trace: str, *names: str, when: Callable[[], bool] = lambda: True) -> dict[str, Told]:
        """The spans of a trace by name, once all of these have come; of spans with one name any."""

        def found() -> dict[str, Told]:
            return {one.name: one for one in tuple(self.spans) if one.trace == trace}

        wait_until(lambda: set(names) <= set(found()) and when(), f"the spans {names} of {trace} came")
        return found()

    def take(self, path: str, body: bytes) -> None:
        """Keep what a request brings."""
        with self._lock:
            self.raw += body
            if path == "/v1/traces":
                for of_resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                    service = _attributes(of_resource.resource.attributes)["service.name"]
                    self.spans += [
                        _span(one, service) for scope in of_resource.scope_spans for one in scope.spans
                    ]
            elif path == "/v1/logs":
                for of_resource in ExportLogsServiceRequest.FromString(body).resource_logs:
                    service = _attributes(of_resource.resource.attributes)["service.name"]
                    self.events += [
                        _event(one, service) for scope in of_resource.scope_logs for one in scope.log_records
                    ]
            else:
                raise AssertionError(path)


def _span(one: Any, service: str) -> Told:
    return Told(
        name=one.name, trace=one.trace_id.hex(), id=one.span_id.hex(),
        parent=one.parent_span_id.hex(),
        kind=("unspecified", "internal", "server", "client", "producer", "consumer")[one.kind],
        attributes=_attributes(one.attributes),
        links=tuple(link.span_id.hex() for link in one.links), began=one.start_time_unix_nano,
        ended=one.end_time_unix_nano, failed=one.status.code == 2, service=service,
    )  # fmt: skip


def _event(one: Any, service: str) -> Told:
    return Told(
        one.event_name, one.trace_id.hex(), "", one.span_id.hex(), "", _attributes(one.attributes), (), 0, 0,
        failed=False, service=service,
    )  # fmt: skip


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    found = getattr(value, kind)
    return [_value(one) for one in found.values] if kind == "array_value" else found
