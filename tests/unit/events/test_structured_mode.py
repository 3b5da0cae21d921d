"""An event in a CloudEvents envelope is the event; what only looks like an envelope is what it was."""

import base64
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamer.errors import BadMessage
from streamer.events import codes
from streamer.events.cloudevents import data_of, traced
from streamer.events.labels import decode_label
from streamer.events.limits import Limits
from streamer.events.responses import content_hash, decode_responses
from streamer.journal import Partition, Record
from tests.made import a_label
from tests.unit.events.test_responses import encoded, event

LABEL = a_label("support-bot", "b-1", "a")


def envelope(data: Any = None, **changes: Any) -> bytes:
    context: dict[str, Any] = {
        "specversion": "1.0", "id": "e-1", "source": "/gateway", "type": "com.example.answers",
        "datacontenttype": "application/json; charset=utf-8", "anything": "else",
        "data": event() if data is None else data,
    }  # fmt: skip
    return json.dumps(
        {name: value for name, value in (context | changes).items() if value is not ...}
    ).encode()


def test_what_is_inside_is_read() -> None:
    plain = decode_responses(encoded())
    assert decode_responses(envelope()) == plain
    assert content_hash(decode_responses(envelope())) == content_hash(plain), (
        "a repeat in either mode is a repeat"
    )
    packed = base64.b64encode(encoded()).decode()
    assert decode_responses(envelope(data=..., data_base64=packed)) == plain
    assert decode_responses(envelope(datacontenttype=...)) == plain
    assert decode_responses(envelope(datacontenttype="application/cloudevents+json")) == plain
    assert decode_label(envelope(LABEL)) == decode_label(json.dumps(LABEL).encode())


@pytest.mark.parametrize(
    ("value", "code", "words"),
    [
        (envelope(specversion="0.3"), codes.WRONG_SCHEMA, "specversion is '0.3', this release reads 1.0"),
        (envelope(specversion=1), codes.WRONG_SCHEMA, "specversion is no string"),
        (envelope(id=...), codes.INVALID_FIELD, "it needs id"),
        (envelope(source=""), codes.INVALID_FIELD, "it needs source"),
        (envelope(type=7), codes.INVALID_FIELD, "it needs type"),
        (envelope(datacontenttype="application/avro"), codes.WRONG_SCHEMA, "events are JSON"),
        (envelope(data=...), codes.INVALID_FIELD, "not in both"),
        (envelope(data_base64="e30="), codes.INVALID_FIELD, "not in both"),
        (envelope(data=..., data_base64="?"), codes.INVALID_FIELD, "not base64"),
        (envelope(data=..., data_base64=7), codes.INVALID_FIELD, "not base64"),
        (envelope(data=..., data_base64=""), codes.EMPTY_VALUE, "no bytes"),
        (envelope("a text"), codes.WRONG_SCHEMA, "the value is not a streamer.responses.v1 event"),
        (envelope(LABEL), codes.WRONG_SCHEMA, "this topic carries streamer.responses.v1"),
        (envelope(event(prompt=7)), codes.INVALID_FIELD, "$.prompt"),
        (envelope()[:-1] + b', "data": {}}', codes.DUPLICATE_KEYS, "data"),
        (envelope(json.loads(envelope())), codes.WRONG_SCHEMA, "the field schema is missing"),
        (envelope(event(metadata={"n": "\x00"})), codes.NUL_OR_SURROGATE, ""),
        (envelope().replace(b'"e-1"', b'"e\xff"'), codes.NOT_UTF8, ""),
    ],
)
def test_what_is_no_such_envelope_is_refused(value: bytes, code: str, words: str) -> None:
    with pytest.raises(BadMessage) as caught:
        decode_responses(value)
    assert caught.value.code == code, caught.value
    assert words in caught.value.detail


def test_limits_are_of_the_whole_value() -> None:
    large = envelope(event(prompt="why? " * 500))
    with pytest.raises(BadMessage) as caught:
        decode_responses(large, Limits(max_value_bytes=len(large) - 1))
    assert caught.value.code == codes.TOO_LARGE
    deep: Any = "x"
    for _ in range(70):
        deep = [deep]
    with pytest.raises(BadMessage) as caught:
        decode_responses(envelope(event(metadata={"deep": deep})))
    assert caught.value.code == codes.TOO_DEEPLY_NESTED


def test_an_event_that_speaks_of_envelopes_is_no_envelope() -> None:
    for value in (
        encoded(prompt='what is "specversion"?'),
        encoded(specversion="1.0", data={"schema": "streamer.responses.v1"}),
        encoded(metadata={"specversion": "1.0"}),
    ):
        assert data_of(value) == value
        assert decode_responses(value).batch_id == "b-1"
    assert data_of(None) is None


@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_nothing_but_a_refusal_is_raised(inside: bytes) -> None:
    for value in (
        b'{"specversion": "1.0", ' + inside,
        b'{"specversion": ' + inside + b"}",
        envelope()[:-1] + inside,
    ):
        try:
            found = data_of(value)
        except BadMessage:
            continue
        assert isinstance(found, bytes)
        if found != value:
            msgspec.json.decode(value)


PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
OTHER = "00-1af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.mark.parametrize(
    ("value", "headers", "found"),
    [
        (envelope(traceparent=PARENT), (), [("traceparent", PARENT)]),
        (
            envelope(traceparent=PARENT, tracestate="a=1"),
            (("x", b"y"),),
            [("x", "y"), ("traceparent", PARENT), ("tracestate", "a=1")],
        ),
        (envelope(traceparent=OTHER), (("traceparent", PARENT.encode()),), [("traceparent", PARENT)]),
        (envelope(traceparent="garbage"), (), []),
        (envelope(traceparent=PARENT + "\u00e9"), (), []),
        (envelope(traceparent=[PARENT]), (), []),
        (envelope(tracestate="a=1"), (), []),
        (encoded(metadata={"specversion": "1.0", "traceparent": PARENT}), (), []),
        (encoded(specversion="1.0", traceparent=PARENT), (), []),
        (b'{"specversion": "1.0", "traceparent": ', (), []),
        (None, (), []),
    ],
)
def test_the_trace_of_an_envelope_is_the_record_s_where_that_brings_none(
    value: bytes | None, headers: Any, found: list[tuple[str, str]]
) -> None:
    record = Record(Partition("log", "responses", 0), 0, None, value, headers, -1)
    given_on = traced(record)
    assert [(name, (text or b"").decode()) for name, text in given_on.headers] == found
    assert given_on.value is record.value
