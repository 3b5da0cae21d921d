"""CloudEvents 1.0 in Kafka's binary mode: the context of an event travels in headers, its data is the value.

The time is an argument and never read from a clock here: headers are stored beside the value, so that a
republication is identical to the last byte.

A W3C trace context is carried on under its own names `traceparent` and `tracestate`: the input's as it came, or that of the
span that a tracing worker kept of the input. It is a link to the request that the decision is about; a worker decides many
batches at once. A malformed trace context is left out.
"""

import base64
import binascii
import re
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

import msgspec

from streamer.errors import BadMessage
from streamer.events import codes
from streamer.events.codec import screen
from streamer.events.excerpts import excerpt
from streamer.events.json_structure import check_structure
from streamer.events.limits import DEFAULT_LIMITS, Limits
from streamer.journal import Headers, Record

CONTENT_TYPE: Final = "application/json"

_TRACE: Final = frozenset({"traceparent", "tracestate", "ce_traceparent", "ce_tracestate"})
_TRACEPARENT = re.compile(rb"[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_TRACESTATE = re.compile(rb"[\x20-\x7e]{1,512}")


def rfc3339(time: datetime) -> str:
    """Write a time with zone as RFC 3339 in UTC: ``2026-11-20T12:00:00.123456Z``, always with microseconds.

    Raises `ValueError` when the time has no zone.
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
    """Make the headers of one event whose value is JSON, in a fixed order.

    `type` is the kind and version, for example ``streamer.actions.v1``; `source`, a URI reference,
    the context in which it happened at `time` (with zone); (`source`, `id`) is unique. `subject` is
    what it is about, for example the batch id; `dataschema` the URI of the value's JSON Schema. Of
    the input's headers, `trace`, `traceparent` and `tracestate` are carried on. Raises `ValueError`
    when an attribute is empty or the time has no zone.
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


_MARK: Final = b'"specversion"'
_TRACE_MARK: Final = b'"traceparent"'
_JSON: Final = re.compile(r"[\w.+-]+/([\w.-]+\+)?json\s*(;.*)?", re.IGNORECASE | re.ASCII)


class _Envelope(msgspec.Struct, gc=False):
    """What is looked at of an envelope; `schema` is a field of events, and of no envelope."""

    specversion: Any = msgspec.UNSET
    schema: Any = msgspec.UNSET
    id: Any = msgspec.UNSET
    source: Any = msgspec.UNSET
    type: Any = msgspec.UNSET
    datacontenttype: Any = None
    data: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    data_base64: Any = msgspec.UNSET
    traceparent: Any = None
    tracestate: Any = None


_decoder = msgspec.json.Decoder(_Envelope)


def data_of(value: bytes | None, limits: Limits = DEFAULT_LIMITS) -> bytes | None:
    """Return the event inside an envelope; what is no envelope comes back as it is.

    Raises `BadMessage` for an envelope that is not as CloudEvents 1.0 has it, or whose data is not
    JSON.
    """
    if value is None or _MARK not in value:
        return value
    try:
        envelope = _decoder.decode(screen(value, limits))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return value  # whoever reads it says what is wrong
    if envelope.specversion is msgspec.UNSET or envelope.schema is not msgspec.UNSET:
        return value
    if envelope.specversion != "1.0":
        raise _wrong(f"its specversion is {_shown(envelope.specversion)}, this release reads 1.0")
    for name in ("id", "source", "type"):
        if not isinstance(found := getattr(envelope, name), str) or not found:
            raise _wrong(f"it needs {name}, a string that is not empty", codes.INVALID_FIELD)
    kind = envelope.datacontenttype
    if kind is not None and not (isinstance(kind, str) and _JSON.fullmatch(kind)):
        raise _wrong(f"its datacontenttype is {_shown(kind)}, events are JSON")
    check_structure(value, limits.max_depth + 1)
    packed = envelope.data_base64
    if (envelope.data is msgspec.UNSET) == (packed is msgspec.UNSET):
        raise _wrong("it needs the event in data, or in data_base64, and not in both", codes.INVALID_FIELD)
    if isinstance(envelope.data, msgspec.Raw):
        return bytes(envelope.data)
    try:
        return base64.b64decode(packed, validate=True)
    except (TypeError, ValueError, binascii.Error):
        raise _wrong("its data_base64 is not base64", codes.INVALID_FIELD) from None


def traced(record: Record) -> Record:
    """Return a record with the trace of its envelope as headers, where its own headers bring none."""
    value = record.value
    if value is None or _TRACE_MARK not in value or _MARK not in value or trace_context(record.headers):
        return record
    try:
        envelope = _decoder.decode(value)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return record
    if envelope.specversion is msgspec.UNSET or envelope.schema is not msgspec.UNSET:
        return record
    try:
        found = tuple(
            (name, text.encode("ascii"))
            for name, text in (("traceparent", envelope.traceparent), ("tracestate", envelope.tracestate))
            if isinstance(text, str)
        )
    except UnicodeEncodeError:
        return record
    return replace(record, headers=(*record.headers, *trace_context(found)))


def _wrong(detail: str, code: str = codes.WRONG_SCHEMA) -> BadMessage:
    return BadMessage(code, f"a CloudEvents envelope: {detail}")


def _shown(found: object) -> str:
    return excerpt(found) if isinstance(found, str) else "no string"
