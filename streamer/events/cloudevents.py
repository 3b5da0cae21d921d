"""CloudEvents 1.0 in Kafka's binary mode: the context of an event travels in headers, its data is the value.

The time is an argument and never read from a clock here: headers are stored beside the value, so that a
republication is identical to the last byte.

A W3C trace context is carried on under its own names `traceparent` and `tracestate`: the input's as it came, or that of the
span that a tracing worker kept of the input. It is a link to the request that the decision is about; a worker decides many
batches at once. A malformed trace context is left out.
"""

import re
from datetime import datetime
from typing import Final

from streamer.journal import Headers

CONTENT_TYPE: Final = "application/json"

_TRACE: Final = frozenset({"traceparent", "tracestate", "ce_traceparent", "ce_tracestate"})
_TRACEPARENT = re.compile(rb"[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_TRACESTATE = re.compile(rb"[\x20-\x7e]{1,512}")


def rfc3339(time: datetime) -> str:
    """Write a time with zone as RFC 3339 in UTC: ``2026-11-20T12:00:00.123456Z``, always with microseconds.

    Raises
    ------
    ValueError
        When the time has no zone.
    """
    offset = time.utcoffset()
    if offset is None:
        raise ValueError("the time of an event needs a time zone")
    utc = time.replace(tzinfo=None) - offset
    return utc.isoformat(timespec="microseconds") + "Z"


def headers(
    *,
    type: str,  # noqa: A002 - CloudEvents' own name
    source: str,
    subject: str,
    time: datetime,
    id: str,  # noqa: A002 - CloudEvents' own name
    dataschema: str,
    trace: Headers = (),
) -> Headers:
    """Make the headers of one event whose value is JSON.

    Parameters
    ----------
    type : str
        The kind and version of the event, for example ``streamer.actions.v1``.
    source : str
        URI reference of the context in which it happened; (source, id) is unique.
    subject : str
        What it is about, for example the batch id.
    time : datetime
        When it happened, with zone.
    id : str
        Its identity within the source.
    dataschema : str
        URI of the JSON Schema of the value.
    trace : Headers
        Headers, the input's; of these `traceparent` and `tracestate` are carried on.

    Returns
    -------
    Headers
        In a fixed order.

    Raises
    ------
    ValueError
        When an attribute is empty or the time has no zone.
    """
    attributes = (
        ("ce_specversion", "1.0"),
        ("ce_id", id),
        ("ce_type", type),
        ("ce_source", source),
        ("ce_subject", subject),
        ("ce_time", rfc3339(time)),
        ("ce_dataschema", dataschema),
        ("content-type", CONTENT_TYPE),
    )
    for name, text in attributes:
        if not text:
            raise ValueError(f"{name} must not be empty")
    return tuple([(name, text.encode()) for name, text in attributes]) + trace_context(trace)


def trace_context(received: Headers) -> Headers:
    """Pick `traceparent` and, if there is one, `tracestate` from the headers of a record; nothing if malformed.

    Where there are none, those of the extension Distributed Tracing are picked: `ce_traceparent` and `ce_tracestate`.
    """
    found = {name: text for name, text in received if name in _TRACE and text is not None}
    if not found:
        return ()
    prefix = "" if "traceparent" in found else "ce_"
    parent, state = found.get(f"{prefix}traceparent"), found.get(f"{prefix}tracestate")
    if parent is None or _TRACEPARENT.fullmatch(parent) is None:
        return ()
    if state is None or _TRACESTATE.fullmatch(state) is None:
        return (("traceparent", parent),)
    return (("traceparent", parent), ("tracestate", state))


def exemplar(received: Headers) -> dict[str, str] | None:
    """Return what leads from a measurement to the trace that came with it: the ids, where whoever began it keeps it."""
    for name, text in trace_context(received):
        if name == "traceparent" and text is not None:
            _, trace_id, span_id, flags = text.decode().split("-")
            if int(flags, 16) & 1:
                return {"trace_id": trace_id, "span_id": span_id}
    return None
