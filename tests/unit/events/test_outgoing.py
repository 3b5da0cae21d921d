"""Actions, labels, thresholds, dead letters and the headers that go with them."""

import hashlib
import json
import uuid
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import streamer.events
from streamer.errors import BadMessage
from streamer.events import actions, cloudevents, codes, dead_letters, labels, thresholds
from streamer.events.codec import encode
from streamer.events.limits import OUTPUT_HEADROOM_BYTES, Limits
from streamer.events.thresholds import decode_threshold, policy_from_event, threshold_event
from streamer.gates.batch_key import BatchKey
from streamer.gates.policy import Policy
from streamer.gates.settings import NO_ENCODER, GateSettings
from streamer.journal import Headers, LabelRevision, Partition, Record
from tests.made import a_label

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
TRACE = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def record(
    value: bytes | None = b"{", key: bytes | None = b"k", headers: Headers = (), offset: int = 41
) -> Record:
    return Record(Partition("log", "streamer.responses", 2), offset, key, value, headers, 0)


def action(**changes: Any) -> actions.ActionsV1:
    key = BatchKey("support-bot", "b-1", 1)
    fields: dict[str, Any] = {
        "schema": actions.SCHEMA,
        "action_id": actions.action_id(key),
        "gate": key.gate,
        "batch_id": key.batch_id,
        "attempt": 1,
        "unit": "best",
        "action": "ship",
        "enforced": True,
        "selected": "a",
        "reason": "scored",
        "responses": (
            actions.ResponseActionV1(id="a", score=0.914213, action="ship"),
            actions.ResponseActionV1(id="b", score=None, action="abstain"),
        ),
        "policy": actions.ActionPolicyV1(version=7, state="cut", threshold=0.83, alpha=0.05, method="mean"),
        "scorer": actions.ActionScorerV1(name="gram", encoder="all-MiniLM-L6-v2@53aa5117"),
        "audit": actions.ActionAuditV1(sampled=True, probability=0.05, label=("a",)),
        "source": actions.ActionSourceV1(topic="streamer.responses", partition=0, offset=41),
        "decided_at": NOON,
    }
    return actions.ActionsV1(**{**fields, **changes})


def test_action_ids_never_change() -> None:
    """Consumers deduplicate on them: the namespace and the form are for ever."""
    namespace = uuid.UUID("81e78adc-fc1e-4630-a18c-d59094748d62")
    assert actions.action_id(BatchKey("g", 'ü"', 2)) == str(uuid.uuid5(namespace, '["g","ü\\"",2]'))
    assert actions.action_id(BatchKey("g", "b", 1)) != actions.action_id(BatchKey("g", "b", 2))


@pytest.mark.parametrize(
    "wrong",
    [
        {"unit": "response"},
        {"unit": "batch"},
        {"action": "abstain"},
        {"decided_at": NOON.replace(tzinfo=None)},
        {"responses": (actions.ResponseActionV1(id="a", score=float("nan"), action="ship"),)},
        {"audit": actions.ActionAuditV1(sampled=True, probability=float("inf"))},
        {"policy": actions.ActionPolicyV1(version=1, state="cut", threshold=None, alpha=0.1, method="mean")},
        {"policy": actions.ActionPolicyV1(version=1, state="open", threshold=0.5, alpha=0.1, method="mean")},
        {
            "policy": actions.ActionPolicyV1(
                version=1, state="cut", threshold=float("inf"), alpha=0.1, method="mean"
            )
        },
    ],
)
def test_an_action_that_contradicts_itself_cannot_be_made(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        action(**wrong)


def test_a_message_is_the_same_to_the_last_byte_however_often_it_is_made() -> None:
    trace = (("x", b"y"), ("traceparent", TRACE), ("tracestate", b"vendor=1"))
    message = actions.action_message(action(), topic="streamer.actions", key=b"k", trace=trace)
    assert message == actions.action_message(action(), topic="streamer.actions", key=b"k", trace=trace)
    assert message.headers == (
        ("ce_specversion", b"1.0"),
        ("ce_id", action().action_id.encode()),
        ("ce_type", b"streamer.actions.v1"),
        ("ce_source", b"urn:streamer:gate:support-bot"),
        ("ce_subject", b"b-1"),
        ("ce_time", b"2026-11-20T12:00:00.000000Z"),
        ("ce_dataschema", b"urn:streamer:schema:actions:v1"),
        ("content-type", b"application/json"),
        ("traceparent", TRACE),
        ("tracestate", b"vendor=1"),
    )


@pytest.mark.parametrize(
    ("received", "kept"),
    [
        ((), ()),
        ((("traceparent", TRACE),), (("traceparent", TRACE),)),
        ((("tracestate", b"a=1"),), ()),
        (
            (("ce_traceparent", TRACE), ("ce_tracestate", b"a=1")),
            (("traceparent", TRACE), ("tracestate", b"a=1")),
        ),
        ((("ce_traceparent", b"garbage"), ("traceparent", TRACE)), (("traceparent", TRACE),)),
        ((("ce_traceparent", TRACE), ("tracestate", b"a=1")), (("traceparent", TRACE),)),
        ((("traceparent", None),), ()),
        ((("traceparent", b"garbage"), ("tracestate", b"a=1")), ()),
        ((("traceparent", TRACE + b"\n"),), ()),
        ((("traceparent", b"00-" + b"0" * 32 + TRACE[35:]),), ()),
        ((("traceparent", TRACE), ("tracestate", b"x" * 513)), (("traceparent", TRACE),)),
    ],
)
def test_the_trace_context_is_carried_on_when_it_is_one(received: Headers, kept: Headers) -> None:
    assert cloudevents.trace_context(received) == kept


def test_event_times() -> None:
    east = datetime(2026, 11, 20, 13, 0, 0, 5, tzinfo=timezone(timedelta(hours=1)))
    assert cloudevents.rfc3339(east) == "2026-11-20T12:00:00.000005Z"
    with pytest.raises(ValueError, match="zone"):
        cloudevents.rfc3339(datetime(2026, 11, 20))  # noqa: DTZ001
    with pytest.raises(ValueError, match="ce_subject"):
        cloudevents.headers(type="t", source="s", subject="", time=NOON, id="i", dataschema="d")


OF_ANN = {"attempt": 2, "labeller": "ann", "labelled_at": "2026-11-20T12:00:00Z"}
LABEL = a_label("support-bot", "b-1", "a", 0.25, **OF_ANN)


def test_a_label_becomes_a_revision() -> None:
    event = labels.decode_label(json.dumps(LABEL).encode())
    where = record()
    assert labels.label_revision(event, where) == LabelRevision(
        key=BatchKey("support-bot", "b-1", 2), response_id="a", severity=0.25, raw_severity=None,
        kind="human", labeller="ann", labelled_at=NOON, record=where,
    )  # fmt: skip
    assert labels.decode_label(labels.encode_label(event)) == event


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"severity": 1.01}, codes.INVALID_FIELD),
        ({"severity": -0.01}, codes.INVALID_FIELD),
        ({"severity": None}, codes.INVALID_FIELD),
        ({"severity": "0.5"}, codes.INVALID_FIELD),
        ({"severity": float("nan")}, codes.NOT_FINITE),
        ({"labelled_at": "2026-11-20"}, codes.INVALID_FIELD),
        ({"labelled_at": "2026-11-20T12:00:00"}, codes.INVALID_FIELD),
        ({"attempt": 0}, codes.INVALID_FIELD),
        ({"gate": "A"}, codes.BAD_IDENTIFIER),
        ({"batch_id": ""}, codes.BAD_IDENTIFIER),
        ({"response_id": "x" * 201}, codes.BAD_IDENTIFIER),
        ({"kind": "Human!"}, codes.BAD_IDENTIFIER),
        ({"labeller": "a\nb"}, codes.BAD_IDENTIFIER),
        ({"labeller": "a\x00b"}, codes.NUL_OR_SURROGATE),
        ({"schema": "streamer.labels.v2"}, codes.UNSUPPORTED_VERSION),
        ({"schema": "streamer.responses.v1"}, codes.WRONG_SCHEMA),
    ],
)
def test_bad_labels_are_refused_by_name(changes: dict[str, Any], code: str) -> None:
    with pytest.raises(BadMessage) as caught:
        labels.decode_label(json.dumps({**LABEL, **changes}).encode())
    assert caught.value.code == code


def test_a_label_with_a_repeated_key_is_refused() -> None:
    with pytest.raises(BadMessage, match="duplicate_keys"):
        labels.decode_label(json.dumps(LABEL)[:-1].encode() + b', "severity": 1}')


def policy(**changes: Any) -> Policy:
    fields: dict[str, Any] = {
        "gate": "support-bot", "version": 7, "gate_revision": 2,
        "settings": GateSettings(encoder="all-MiniLM-L6-v2@53aa5117", decision_deadline_seconds=30.0),
        "state": "cut", "threshold": 0.83, "calibrated": True, "calibration_run": 12,
        "seed": 2**63 - 1, "valid_from": NOON, "guarantee": "exposure at most 5 %",
        "created_by": "ann", "reason": "run 12",
    }  # fmt: skip
    return Policy(**{**fields, **changes})


@pytest.mark.parametrize(
    "original",
    [
        policy(),
        policy(state="open", threshold=None),
        policy(state="closed", threshold=None, calibrated=False, calibration_run=None, seed=0, guarantee=""),
        policy(
            settings=GateSettings(
                unit="response",
                scorer="external",
                encoder=NO_ENCODER,
                severity_kind="judge",
                alpha=0.2,
                method="rbwa",
                eta=2.5,
                draws=3,
                hold_action="escalate",
                max_attempts=4,
                mode="enforce",
                audit_probability=1.0,
                audit_draws=9,
                label_deadline_seconds=3600.5,
            )
        ),
    ],
)
def test_a_policy_travels_whole(original: Policy) -> None:
    event = thresholds.threshold_event(original)
    value = encode(event)
    assert thresholds.decode_threshold(value) == event
    assert thresholds.policy_from_event(thresholds.decode_threshold(value)) == original
    message = thresholds.threshold_message(event, topic="streamer.thresholds")
    assert (message.key, message.value) == (b"support-bot", value)
    assert ("ce_type", b"streamer.thresholds.v1") in message.headers
    assert message == thresholds.threshold_message(event, topic="streamer.thresholds")


def test_threshold_garbage_is_refused_by_name() -> None:
    fields = msgspec.to_builtins(thresholds.threshold_event(policy()))
    for changes, code in [
        ({"lambda": float("nan")}, codes.NOT_FINITE),
        ({"lambda": "0.8"}, codes.INVALID_FIELD),
        ({"version": 0}, codes.INVALID_FIELD),
        ({"alpha": 1.0}, codes.INVALID_FIELD),
        ({"rule": {"kind": "sigmoid"}}, codes.INVALID_FIELD),
        ({"rule": {"kind": "indicator", "curve": [[0.1]]}}, codes.INVALID_FIELD),
        (
            {"rule": {"kind": "indicator", "curve": [[0.123456789, 1.123456789]] * 15_000}},
            codes.INVALID_FIELD,
        ),
        ({"gate": "X"}, codes.BAD_IDENTIFIER),
        ({"schema": "streamer.thresholds.v2"}, codes.UNSUPPORTED_VERSION),
    ]:
        with pytest.raises(BadMessage) as caught:
            thresholds.decode_threshold(json.dumps({**fields, **changes}).encode())
        assert caught.value.code == code, changes
    with pytest.raises(BadMessage, match="tombstone"):
        thresholds.decode_threshold(None)


@pytest.mark.parametrize(
    "changes",
    [
        {"lambda": None},
        {"state": "open"},
        {"calibrated": False},
        {"method": "guess"},
        {"encoder": "none"},
        {"severity_kind": "Human"},
    ],
)
def test_a_policy_that_contradicts_itself_is_refused(changes: dict[str, Any]) -> None:
    fields = msgspec.to_builtins(thresholds.threshold_event(policy()))
    event = thresholds.decode_threshold(json.dumps({**fields, **changes}).encode())
    with pytest.raises(BadMessage, match="invalid_field"):
        thresholds.policy_from_event(event)


@given(st.binary(max_size=100))
def test_other_readers_raise_nothing_else_either(value: bytes) -> None:
    for read in (labels.decode_label, thresholds.decode_threshold, actions.decode_action):
        with pytest.raises(BadMessage):
            read(value)


def _size(message: Any) -> int:
    return (
        len(message.key or b"")
        + len(message.value or b"")
        + sum(len(n) + len(v or b"") for n, v in message.headers)
    )


def test_a_dead_letter_is_the_original_and_why() -> None:
    refused = record(b"\xff\x00", None, (("a", b"1"), ("a", None), ("traceparent", TRACE)))
    message = dead_letters.dead_letter_message(refused, codes.NOT_UTF8, "not UTF-8 at byte 0", topic="dl")
    assert (message.topic, message.key, message.value) == ("dl", None, b"\xff\x00")
    assert message.headers == (
        *refused.headers,
        ("__connect.errors.topic", b"streamer.responses"),
        ("__connect.errors.partition", b"2"),
        ("__connect.errors.offset", b"41"),
        ("__connect.errors.exception.class.name", b"streamer.errors.BadMessage"),
        ("__connect.errors.exception.message", b"not UTF-8 at byte 0"),
        ("streamer_error_code", b"not_utf8"),
    )
    assert dead_letters.original_headers(message.headers) == refused.headers


def test_a_replayed_dead_letter_speaks_of_the_last_time_only() -> None:
    once = dead_letters.dead_letter_message(
        record(headers=(("a", b"1"),)), codes.UNKNOWN_GATE, "x", topic="dl"
    )
    again = dead_letters.dead_letter_message(
        record(once.value, once.key, once.headers, offset=99), codes.CONFLICTING_CONTENT, "y", topic="dl"
    )
    assert len(again.headers) == len(once.headers)
    assert dict(again.headers)["__connect.errors.offset"] == b"99"


def test_the_largest_input_fits_whole() -> None:
    limits = Limits()
    headers = tuple((f"h{i}", b"x" * 1000) for i in range(25))
    largest = record(b"v" * limits.max_value_bytes, b"k" * 32_000, headers)
    message = dead_letters.dead_letter_message(largest, codes.NOT_JSON, "d" * 9999 + "\x00\ud800", topic="dl")
    assert (message.key, message.value) == (largest.key, largest.value)
    assert message.headers[: len(headers)] == headers
    assert _size(message) <= limits.max_output_bytes == limits.max_value_bytes + OUTPUT_HEADROOM_BYTES


@given(
    key=st.none() | st.integers(0, 60_000).map(bytes),
    value=st.none() | st.integers(0, 60_000).map(bytes),
    headers=st.lists(
        st.tuples(st.text(max_size=50), st.none() | st.integers(0, 9000).map(bytes)), max_size=8
    ),
    detail=st.text(max_size=400),
)
def test_a_dead_letter_always_fits(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]], detail: str
) -> None:
    refused = record(value, key, tuple(headers))
    bound = 32 * 1024
    message = dead_letters.dead_letter_message(refused, codes.TOO_LARGE, detail, topic="dl", max_bytes=bound)
    assert _size(message) + 1024 <= bound
    cut = dict(message.headers).get("streamer_truncated")
    if cut is None:
        assert (message.key, message.value) == (key, value)
    else:
        assert _size(refused) + 4096 > bound // 2
        assert (value or b"").startswith(message.value or b"")
        if message.value != value:
            assert hashlib.sha256(value or b"").hexdigest().encode() in cut


def test_a_dead_letter_needs_some_room() -> None:
    with pytest.raises(ValueError, match="16 KiB"):
        dead_letters.dead_letter_message(record(), codes.NOT_JSON, "x", topic="dl", max_bytes=1000)


EXAMPLES = Path(streamer.events.__file__).parent / "examples" / "thresholds" / "v1"
FIRST = json.loads((EXAMPLES / "closed_uncalibrated.json").read_bytes())


def written(**changes: Any) -> dict[str, Any]:
    """The first example as it is written today, with some settings of today."""
    policy = policy_from_event(decode_threshold(json.dumps(FIRST).encode()))
    settings = GateSettings(**policy.settings.flat() | changes)
    return json.loads(encode(threshold_event(replace(policy, settings=settings))))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"scorer": "of-tomorrow"}, "scorer must be one of gram, .* not 'of-tomorrow'"),
        ({"method": "of-tomorrow"}, "method must be one of mean, .* not 'of-tomorrow'"),
        ({"shape": "of-tomorrow"}, "shape must be one of indicator, .* not 'of-tomorrow'"),
        (
            {"parameters": {"of_tomorrow": 1}},
            "parameters must be those of a method or a shape, not 'of_tomorrow'",
        ),
    ],
)
def test_what_is_not_known_is_refused_by_name(changes: dict[str, Any], said: str) -> None:
    event = decode_threshold(json.dumps(written() | changes).encode())
    with pytest.raises(BadMessage, match=said) as refused:
        policy_from_event(event)
    assert refused.value.code == codes.INVALID_FIELD


def test_a_field_of_tomorrow_is_passed_over() -> None:
    plain = decode_threshold(json.dumps(written()).encode())
    assert decode_threshold(json.dumps(written() | {"of_tomorrow": {"a": [1]}}).encode()) == plain
