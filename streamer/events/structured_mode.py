"""CloudEvents 1.0 in structured mode: an envelope in JSON around the event, as some gateways and brokers send it."""

import base64
import binascii
import re
from dataclasses import replace
from typing import Any, Final

import msgspec

from streamer.errors import BadMessage
from streamer.events import codes
from streamer.events.cloudevents import trace_context
from streamer.events.codec import screen
from streamer.events.excerpts import excerpt
from streamer.events.json_structure import check_structure
from streamer.events.limits import DEFAULT_LIMITS, Limits
from streamer.journal import Record

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

    Raises
    ------
    BadMessage
        For an envelope that is not as CloudEvents 1.0 has it, or whose data is not JSON.
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
