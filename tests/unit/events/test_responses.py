"""Reading response batches: what is read, and by which code everything else is refused."""

import json
from copy import deepcopy
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamer.errors import BadMessage
from streamer.events import codes
from streamer.events.limits import Limits
from streamer.events.responses import (
    MODELS,
    SIGNALS,
    ResponsesV1,
    content_hash,
    decode_responses,
    encode_responses,
    models_named,
    numbers_given,
    recorded_metadata,
    recorded_models,
    recorded_numbers,
)
from streamer.scoring.judged import form


def event(**changes: Any) -> dict[str, Any]:
    base: dict[str, Any] = {
        "schema": "streamer.responses.v1", "gate": "support-bot", "batch_id": "b-1",
        "prompt": "2 + 2?", "responses": [{"id": "a", "text": "4"}, {"id": "b", "text": "four"}],
    }  # fmt: skip
    return {**base, **changes}


def encoded(**changes: Any) -> bytes:
    return json.dumps(event(**changes)).encode()


def raw(**changes: str) -> bytes:
    """An event with fields spliced in as JSON text."""
    text = json.dumps(event())[:-1]
    return (text + "".join(f', "{name}": {member}' for name, member in changes.items()) + "}").encode()


def called(calls: str) -> bytes:
    """An event of two responses, one of which is these calls."""
    made = f'"responses": [{{"id": "a", "calls": [{calls}]}}, {{"id": "b", "text": ""}}]'
    return encoded(responses=0).replace(b'"responses": 0', made.encode())


def responses(count: int = 2, **fields: Any) -> list[dict[str, Any]]:
    return [{"id": f"r{i}", "text": "t", **fields} for i in range(count)]


def embedded(*vectors: list[float] | None) -> bytes:
    batch = [
        {"id": str(i), "text": "t"} | ({} if v is None else {"embedding": v}) for i, v in enumerate(vectors)
    ]
    return encoded(responses=batch)


def refusal(value: bytes | None, limits: Limits | None = None) -> BadMessage:
    with pytest.raises(BadMessage) as caught:
        decode_responses(value, limits or Limits())
    return caught.value


BAD: list[tuple[str, bytes | None, str]] = [
    ("tombstone", None, codes.TOMBSTONE),
    ("empty value", b"", codes.EMPTY_VALUE),
    ("2 MiB of text", encoded(responses=[{"id": "a", "text": "x" * 2**21}]), codes.TOO_LARGE),
    ("Confluent-framed", b"\x00\x00\x00\x00\x2a" + encoded(), codes.CONFLUENT_FRAMED),
    ("invalid UTF-8", encoded().replace(b"four", b"fo\xffr"), codes.NOT_UTF8),
    ("invalid UTF-8 in a field nobody reads", raw(x='"?"').replace(b"?", b"\xc3", 2), codes.NOT_UTF8),
    ("a surrogate in UTF-8", encoded().replace(b"four", b"\xed\xa0\x80"), codes.NOT_UTF8),
    ("UTF-16", json.dumps(event()).encode("utf-16"), codes.NOT_UTF8),
    ("UTF-16 without mark", json.dumps(event()).encode("utf-16-le"), codes.NOT_UTF8),
    ("not JSON", b"hello", codes.NOT_JSON),
    ("cut off", encoded()[:-1], codes.NOT_JSON),
    ("two values", encoded() + encoded(), codes.NOT_JSON),
    ("byte order mark", b"\xef\xbb\xbf" + encoded(), codes.NOT_JSON),
    ("trailing comma", encoded()[:-1] + b",}", codes.NOT_JSON),
    ("single quotes", repr(event()).encode(), codes.NOT_JSON),
    ("NaN", raw(metadata='{"a": NaN}'), codes.NOT_FINITE),
    ("Infinity", raw(metadata='{"a": Infinity}'), codes.NOT_FINITE),
    ("minus Infinity", raw(metadata='{"a": -Infinity}'), codes.NOT_FINITE),
    ("NaN in a field nobody reads", raw(x="[NaN]"), codes.NOT_FINITE),
    ("NaN as score", encoded(responses=responses(score=float("nan"))), codes.NOT_FINITE),
    ("Infinity in an embedding", embedded([1.0, float("inf")], [1.0, 0.0]), codes.NOT_FINITE),
    ("beyond a double", raw(metadata='{"a": 1e999}'), codes.NOT_FINITE),
    ("escaped NUL in a text", encoded(prompt="a\x00b"), codes.NUL_OR_SURROGATE),
    ("escaped NUL in metadata", encoded(metadata={"a": ["\x00"]}), codes.NUL_OR_SURROGATE),
    ("escaped NUL in a key", encoded(metadata={"\x00": 1}), codes.NUL_OR_SURROGATE),
    ("escaped NUL in a field nobody reads", encoded(x="\\\x00"), codes.NUL_OR_SURROGATE),
    ("raw NUL", encoded().replace(b"four", b"fo\x00r"), codes.NUL_OR_SURROGATE),
    ("lone high surrogate", encoded(prompt="\ud800"), codes.NUL_OR_SURROGATE),
    ("lone high surrogate before text", encoded(prompt="\ud83d is not a smile"), codes.NUL_OR_SURROGATE),
    ("lone low surrogate", encoded(prompt="\ude00!"), codes.NUL_OR_SURROGATE),
    ("surrogates in the wrong order", encoded(prompt="\udc00\ud800"), codes.NUL_OR_SURROGATE),
    ("lone surrogate in metadata", encoded(metadata={"a": {"b": "\udfff"}}), codes.NUL_OR_SURROGATE),
    ("lone surrogate in a key", encoded(metadata={"\ud800": 1}), codes.NUL_OR_SURROGATE),
    ("lone surrogate in a field nobody reads", encoded(x=["\ud800"]), codes.NUL_OR_SURROGATE),
    (
        "200,000 brackets in metadata",
        raw(metadata='{"a": ' + "[" * 200_000 + "]" * 200_000 + "}"),
        "too_deeply_nested",
    ),
    (
        "200,000 brackets in a field nobody reads",
        raw(x="[" * 200_000 + "]" * 200_000),
        codes.TOO_DEEPLY_NESTED,
    ),
    ("200,000 objects", raw(x='{"a":' * 130_000 + "1" + "}" * 130_000), codes.TOO_DEEPLY_NESTED),
    ("200,000 bare brackets", b"[" * 200_000, codes.WRONG_SCHEMA),
    (
        "one level too many in metadata",
        raw(metadata='{"a": ' + "[" * 63 + "]" * 63 + "}"),
        codes.TOO_DEEPLY_NESTED,
    ),
    ("one level too many elsewhere", raw(x="[" * 64 + "]" * 64), codes.TOO_DEEPLY_NESTED),
    (
        "neither text nor calls",
        encoded(responses=[{"id": "a", "text": "4"}, {"id": "b"}]),
        codes.INVALID_FIELD,
    ),
    (
        "text and calls",
        encoded(responses=responses(calls=[{"name": "pay", "arguments": {}}])),
        codes.INVALID_FIELD,
    ),
    ("no calls", encoded(responses=[{"id": "a", "calls": []}]), codes.INVALID_FIELD),
    (
        "arguments that are a number",
        encoded(responses=[{"id": "a", "calls": [{"name": "pay", "arguments": 1}]}]),
        codes.INVALID_FIELD,
    ),
    ("a repeated argument", called('{"name": "pay", "arguments": {"a": 1, "a": 2}}'), codes.DUPLICATE_KEYS),
    ("a repeated key", raw(prompt='"another"'), codes.DUPLICATE_KEYS),
    ("a repeated default", raw(attempt='1, "attempt": 1'), codes.DUPLICATE_KEYS),
    ("a repeated null", raw(references='null, "references" : null'), codes.DUPLICATE_KEYS),
    ("a repeated key, escaped", raw(**{"pr\\u006fmpt": '"another"'}), codes.DUPLICATE_KEYS),
    (
        "a repeated key in a response",
        encoded().replace(b'"id": "a"', b'"id": "a", "text" : "5"'),
        "duplicate_keys",
    ),
    ("a repeated key in metadata", raw(metadata='{"a": 1, "b": {"c": 1, "c": 2}}'), codes.DUPLICATE_KEYS),
    ("a repeated key nobody reads", raw(x='{"c": 1, "c": 2}'), codes.DUPLICATE_KEYS),
    ("repeated keys behind backslashes", raw(x='"\\\\"', prompt='"b\\\\"', y='"\\""'), codes.DUPLICATE_KEYS),
    (
        "no schema",
        json.dumps({k: v for k, v in event().items() if k != "schema"}).encode(),
        codes.WRONG_SCHEMA,
    ),
    (
        "a schema only inside",
        encoded(schema=None, metadata={"schema": "streamer.responses.v1"}),
        codes.WRONG_SCHEMA,
    ),
    ("another topic's schema", encoded(schema="streamer.labels.v1"), codes.WRONG_SCHEMA),
    ("a foreign schema", encoded(schema="x" * 10_000), codes.WRONG_SCHEMA),
    ("a schema that is a number", encoded(schema=1), codes.WRONG_SCHEMA),
    ("an array", b"[1, 2]", codes.WRONG_SCHEMA),
    ("null", b"null", codes.WRONG_SCHEMA),
    ("a later version", encoded(schema="streamer.responses.v2"), codes.UNSUPPORTED_VERSION),
    ("a later version of other shape", b'{"schema":"streamer.responses.v9"}', codes.UNSUPPORTED_VERSION),
    ("no gate", json.dumps({k: v for k, v in event().items() if k != "gate"}).encode(), codes.INVALID_FIELD),
    ("no text", encoded(responses=[{"id": "a"}]), codes.INVALID_FIELD),
    ("text of another type", encoded(responses=[{"id": "a", "text": 4}]), codes.INVALID_FIELD),
    ("null prompt", encoded(prompt=None), codes.INVALID_FIELD),
    ("attempt 0", encoded(attempt=0), codes.INVALID_FIELD),
    ("attempt true", encoded(attempt=True), codes.INVALID_FIELD),
    ("attempt 2**31", encoded(attempt=2**31), codes.INVALID_FIELD),
    ("attempt of 400 digits", encoded(attempt=10**400), codes.INVALID_FIELD),
    ("attempt of 100,000 digits", raw(attempt="1" * 100_000), codes.INVALID_FIELD),
    ("a huge integer in metadata", encoded(metadata={"a": [10**400]}), codes.INVALID_FIELD),
    ("a larger one", raw(metadata='{"a": ' + "1" * 100_000 + "}"), codes.INVALID_FIELD),
    ("score above 1", encoded(responses=responses(score=1.5)), codes.INVALID_FIELD),
    ("score below 0", encoded(responses=responses(score=-0.1)), codes.INVALID_FIELD),
    (
        "21 signals",
        encoded(responses=responses(signals={f"s{i}": 0 for i in range(21)})),
        codes.INVALID_FIELD,
    ),
    ("a signal in capitals", encoded(responses=responses(signals={"Retrieval": 0.5})), codes.INVALID_FIELD),
    ("a signal with a line end", encoded(responses=responses(signals={"a\n": 0.5})), codes.INVALID_FIELD),
    ("a signal of 41 characters", encoded(responses=responses(signals={"a" * 41: 0.5})), codes.INVALID_FIELD),
    ("a signal that is text", encoded(responses=responses(signals={"a": "0.5"})), codes.INVALID_FIELD),
    ("a signal that is null", encoded(responses=responses(signals={"a": None})), codes.INVALID_FIELD),
    ("a signal that is true", encoded(responses=responses(signals={"a": True})), codes.INVALID_FIELD),
    ("NaN as a signal", encoded(responses=responses(signals={"a": float("nan")})), codes.NOT_FINITE),
    ("a signal beyond a double", encoded(responses=responses(signals={"a": 10**400})), codes.NOT_FINITE),
    ("signals that are a list", encoded(responses=responses(signals=[0.5])), codes.INVALID_FIELD),
    (
        "a signal with the name of a field",
        encoded(responses=responses(signals={"score": 0.5})),
        codes.INVALID_FIELD,
    ),
    (
        "a repeated signal",
        raw(x="0").replace(b'"text": "4"', b'"text": "4", "signals": {"a": 1, "a": 2}'),
        codes.DUPLICATE_KEYS,
    ),
    ("the record's signals", encoded(metadata={SIGNALS: {"a": {"retrieval": 1}}}), codes.INVALID_FIELD),
    ("references that are text", encoded(references="Paris"), codes.INVALID_FIELD),
    ("metadata that is a list", encoded(metadata=[]), codes.INVALID_FIELD),
    ("time without zone", encoded(created_at="2026-11-20T12:00:00"), codes.INVALID_FIELD),
    ("time that is none", encoded(created_at="2026-13-20T12:00:00Z"), codes.INVALID_FIELD),
    ("time as number", encoded(created_at=1_795_000_000), codes.INVALID_FIELD),
    ("an id of 3,000 characters", encoded(responses=[{"id": "i" * 3000, "text": "t"}]), codes.BAD_IDENTIFIER),
    ("an empty id", encoded(responses=[{"id": "", "text": "t"}]), codes.BAD_IDENTIFIER),
    ("an id with a line end", encoded(responses=[{"id": "a\n", "text": "t"}]), codes.BAD_IDENTIFIER),
    ("an id with a C1 control", encoded(batch_id="a\x85"), codes.BAD_IDENTIFIER),
    ("an empty batch_id", encoded(batch_id=""), codes.BAD_IDENTIFIER),
    ("a long batch_id", encoded(batch_id="b" * 201), codes.BAD_IDENTIFIER),
    ("a gate in capitals", encoded(gate="Support"), codes.BAD_IDENTIFIER),
    ("a gate with a line end", encoded(gate="support\n"), codes.BAD_IDENTIFIER),
    ("a long gate", encoded(gate="g" * 65), codes.BAD_IDENTIFIER),
    (
        "duplicate ids",
        encoded(responses=[{"id": "a", "text": "x"}, {"id": "a", "text": "y"}]),
        "duplicate_response_ids",
    ),
    ("257 responses", encoded(responses=responses(257)), codes.TOO_MANY_RESPONSES),
    (
        "a text of 64 KiB and a byte",
        encoded(responses=[{"id": "a", "text": "x" * 65537}]),
        codes.TEXT_TOO_LARGE,
    ),
    (
        "a text of 64 KiB in UTF-8 and a byte",
        encoded(responses=[{"id": "a", "text": "é" * 32768 + "x"}]),
        "text_too_large",
    ),
    ("mixed embedding dimension", embedded([1.0, 0.0], [1.0, 0.0, 0.0]), codes.MIXED_EMBEDDING_DIMENSIONS),
    ("embeddings for some", embedded([1.0, 0.0], None), codes.MIXED_EMBEDDING_DIMENSIONS),
    ("an embedding of dimension 1", embedded([1.0], [1.0]), codes.BAD_EMBEDDING),
    ("an empty embedding", embedded([], []), codes.BAD_EMBEDDING),
    ("an embedding of dimension 4097", embedded([1.0] * 4097, [1.0] * 4097), codes.BAD_EMBEDDING),
    ("an embedding of zeros", embedded([1.0, 0.0], [0.0, -0.0]), codes.BAD_EMBEDDING),
    ("an embedding whose norm overflows", embedded([1e200, 1e200], [1.0, 0.0]), codes.BAD_EMBEDDING),
    ("an embedding whose norm underflows", embedded([1e-200, 0.0], [1.0, 0.0]), codes.BAD_EMBEDDING),
]


@pytest.mark.parametrize(("value", "code"), [row[1:] for row in BAD], ids=[row[0] for row in BAD])
def test_bad_input_is_refused_by_name(value: bytes | None, code: str):
    bad = refusal(value)
    assert bad.code == code
    assert code in codes.MEANINGS
    assert len(bad.detail) <= 300
    assert bad.detail.isprintable()


def test_every_code_that_reading_can_give_is_in_the_table():
    raised_elsewhere = {codes.UNKNOWN_GATE, codes.CONFLICTING_CONTENT, codes.INTERNAL_ERROR, codes.UNREADABLE}
    assert {code for _, _, code in BAD} == set(codes.MEANINGS) - raised_elsewhere


def test_confluent_framing_names_the_schema_id():
    assert "42" in refusal(b"\x00\x00\x00\x00\x2a{}").detail


def test_an_invalid_field_is_named_by_its_path():
    found = refusal(encoded(responses=[{"id": "a", "text": ""}, {"id": "b", "text": 1}])).detail
    assert "$.responses[1].text" in found


GOOD: list[tuple[str, bytes]] = [
    ("no response", encoded(responses=[])),
    ("one response", encoded(responses=responses(1))),
    ("256 responses", encoded(responses=responses(256))),
    ("blank texts", encoded(responses=[{"id": "a", "text": ""}, {"id": "b", "text": " \n"}])),
    ("a text of 64 KiB", encoded(responses=[{"id": "a", "text": "é" * 32768}])),
    ("unknown fields", encoded(x={"deep": [1, {"y": None}]}, responses=responses(model="m", tokens=[1, 2]))),
    ("escaped backslash before u0000", raw(prompt2='"\\\\u0000"')),
    ("a surrogate pair", encoded(prompt="😀")),
    ("raw UTF-8", json.dumps(event(prompt="😀 ü ﷽"), ensure_ascii=False).encode()),
    (
        "bidi marks and SQL",
        encoded(prompt="'; DROP TABLE x; -- \u202e", batch_id="'; DROP TABLE x; -- \u202e"),
    ),
    ("pretty-printed", json.dumps(event(metadata={"a": 1}), indent=2).encode()),
    (
        "quotes, colons and JSON in texts",
        encoded(prompt='{"prompt": "a", "attempt":1, "attempt": 1, "x":: "\\' + '"}'),
    ),
    ("explicit nulls", raw(references="null", created_at="null", attempt="1", metadata="{}")),
    ("null embedding and score", encoded(responses=responses(embedding=None, score=None))),
    ("the largest integers", encoded(metadata={"a": [2**64 - 1, -(2**63)]}, attempt=2**31 - 1)),
    ("62 levels in metadata", raw(metadata='{"a": ' + "[" * 62 + "]" * 62 + "}")),
    ("63 levels elsewhere", raw(x="[" * 63 + "]" * 63)),
    ("brackets in strings", encoded(prompt="[{" * 5000)),
    ("a huge number nobody reads", raw(x="1" * 5000)),
    ("an integer score", encoded(responses=responses(score=1))),
    ("embeddings", embedded([1, 0], [0.5, -1e-7])),
]


@pytest.mark.parametrize("value", [row[1] for row in GOOD], ids=[row[0] for row in GOOD])
def test_good_input_is_read(value: bytes):
    read = decode_responses(value, Limits())
    assert read == msgspec.json.decode(value, type=ResponsesV1)
    assert decode_responses(encode_responses(read)) == read


def test_limits_are_settings():
    tight = Limits(max_responses=2, max_text_bytes=3, max_identifier=3, max_dimension=2, max_depth=5)
    assert (
        decode_responses(encoded(responses=[{"id": "abc", "text": "xyz"}]), tight).responses[0].text == "xyz"
    )
    assert refusal(encoded(responses=responses(3)), tight).code == codes.TOO_MANY_RESPONSES
    assert refusal(encoded(responses=[{"id": "a", "text": "wxyz"}]), tight).code == codes.TEXT_TOO_LARGE
    assert refusal(encoded(responses=[{"id": "abcd", "text": ""}]), tight).code == codes.BAD_IDENTIFIER
    assert refusal(embedded([1.0, 0.0, 0.0]), tight).code == codes.BAD_EMBEDDING
    assert refusal(encoded(responses=[], metadata={"a": [[[[]]]]}), tight).code == codes.TOO_DEEPLY_NESTED
    large = Limits(max_value_bytes=2**22)
    assert refusal(encoded(responses=[{"id": "a", "text": "x" * 2**21}]), large).code == codes.TEXT_TOO_LARGE


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_responses": 1},
        {"max_text_bytes": 0},
        {"max_value_bytes": 10},
        {"max_identifier": 201},
        {"min_dimension": 1},
        {"max_dimension": 1},
        {"max_depth": 1000},
        {"max_curve_bytes": -1},
    ],
)
def test_limits_that_make_no_sense(wrong: dict[str, int]):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Limits(**wrong)


@given(st.binary(max_size=200))
def test_random_bytes_raise_nothing_else(value: bytes):
    refusal(value)


FULL = json.dumps(
    event(
        attempt=2,
        references=["x"],
        metadata={"a": {"b": ["c", 1.5]}},
        created_at="2026-11-20T12:00:00Z",
        x='\\"',
    )
).encode()


@given(st.data())
def test_mutated_events_raise_nothing_else(data: st.DataObject):
    value = bytearray(FULL)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(value) - 1))
        piece = data.draw(
            st.one_of(
                st.binary(max_size=3),
                st.sampled_from(
                    [b'"', b"\\", b"\\u0000", b"\\ud800", b"[", b"}", b"NaN", b"1e999", b"null", b'{"a":']
                ),
            )
        )
        value[at : at + data.draw(st.integers(0, 5))] = piece
        if not value:
            break
    bad = None
    try:
        decode_responses(bytes(value))
    except BadMessage as refused:
        bad = refused
    assert bad is None or bad.code in codes.MEANINGS
    assert bad is None or (bad.detail.isprintable() and len(bad.detail) <= 300)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def _has_nul(member: object) -> bool:
    return "\\u0000" in json.dumps(member).replace("\\\\", "")


@given(
    event_fields=st.fixed_dictionaries(
        {"prompt": st.text(max_size=40)},
        optional={
            "attempt": st.integers(1, 3),
            "references": st.none() | st.lists(st.text(max_size=9), max_size=3),
            "metadata": st.dictionaries(st.text(max_size=5), JSON, max_size=3),
            "x": JSON,
        },
    ),
    ascii_only=st.booleans(),
    indent=st.sampled_from([None, 0, 2]),
    separators=st.sampled_from([(",", ":"), (", ", " : ")]),
)
def test_what_json_writes_is_read(
    event_fields: dict[str, Any], ascii_only: bool, indent: int | None, separators: tuple[str, str]
):
    sent = event(**event_fields)
    value = json.dumps(sent, ensure_ascii=ascii_only, indent=indent, separators=separators).encode()
    if _has_nul(sent):
        assert refusal(value).code == codes.NUL_OR_SURROGATE
        return
    read = decode_responses(value)
    assert read.prompt == sent["prompt"]
    assert read.metadata == sent.get("metadata", {})
    assert decode_responses(encode_responses(read)) == read


@given(st.data())
def test_a_repeated_key_is_always_found(data: st.DataObject):
    """Whatever else stands in the event, repeating one of its members is refused."""
    sent = event(
        attempt=data.draw(st.sampled_from([1, 2])),
        references=data.draw(st.sampled_from([None, ["a\\", '"']])),
        metadata=data.draw(st.sampled_from([{}, {"k": 'x"\\'}])),
        created_at=data.draw(st.sampled_from([None, "2026-11-20T12:00:00Z"])),
        prompt=data.draw(st.text(alphabet='ab"\\: {}n', max_size=12)),
        responses=responses(
            2,
            score=data.draw(st.sampled_from([None, 0.5])),
            signals=data.draw(st.sampled_from([{}, {"a": 1, "b": 0.5}])),
        ),
    )
    for name in data.draw(
        st.lists(st.sampled_from(["attempt", "references", "metadata", "created_at"]), unique=True)
    ):
        del sent[name]
    target = data.draw(
        st.sampled_from([one for one in (sent, sent["responses"][1], sent["responses"][1]["signals"]) if one])
    )
    repeated = data.draw(st.sampled_from(sorted(target)))
    copy = deepcopy(target[repeated])
    target["\x01"] = copy
    colon = data.draw(st.sampled_from([":", ": ", " :"]))
    value = json.dumps(sent, separators=(",", colon)).replace("\\u0001", repeated)
    assert refusal(value.encode()).code == codes.DUPLICATE_KEYS


PAY = '{"name": "pay", "arguments": %s}'


@pytest.mark.parametrize(
    ("calls", "text"),
    [
        (PAY % '{"sum": 12.50}', '{"arguments":{"sum":12.5},"name":"pay"}'),
        (PAY % r'"{\"sum\": 12345678901234567890.10}"', '{"arguments":{"sum":12345678901234567890.1},"name":"pay"}'),
        (PAY % "{}" + ", " + PAY % '""', '[{"arguments":{},"name":"pay"},{"arguments":{},"name":"pay"}]'),
        (PAY % '"{"', '[{"name":"pay","arguments":"{"}]'),
    ],
)  # fmt: skip
def test_calls_are_read_in_canonical_form(calls: str, text: str):
    found = decode_responses(called(calls))
    assert [one.text for one in found.responses] == [text, ""]
    assert decode_responses(encode_responses(found)) == found
    assert form("call").part(text) == (text if '"{"' not in text else ""), "what is no call ships nothing"


def test_models_are_part_of_the_content_and_of_the_recorded_metadata():
    plain = decode_responses(encoded(metadata={"n": 1}))
    assert content_hash(plain).hex() == "5616308c71d3ee868feb3158c01d731eb488501a6960a6af7a01b6ae15146a46"
    assert recorded_metadata(plain) == {"n": 1}
    assert models_named(plain) == ()
    two = [{"id": "a", "text": "4", "model": "small"}, {"id": "b", "text": "four"}]
    named = decode_responses(encoded(metadata={"n": 1}, responses=two))
    assert content_hash(named) != content_hash(plain)
    assert content_hash(decode_responses(encode_responses(named))) == content_hash(named)
    assert models_named(named) == ("small", "")
    assert recorded_metadata(named) == {"n": 1, MODELS: {"a": "small"}}
    assert recorded_models(recorded_metadata(named), ["b", "a"]) == ("", "small")
    for erased in (None, {}, {"n": 1}, {MODELS: "small"}, {MODELS: {"c": "small"}}):
        assert recorded_models(erased, ["a", "b"]) == ()


def test_numbers_are_part_of_the_content_and_of_the_recorded_metadata():
    plain = decode_responses(encoded())
    there = (numbers_given(plain.responses), recorded_numbers(recorded_metadata(plain), ["a", "b"]))
    assert there == ({}, {})

    def sent(signals: dict[str, Any], **fields: Any) -> ResponsesV1:
        two = [
            {"id": "a", "text": "4", "signals": signals, **fields},
            {"id": "b", "text": "four", "signals": {}},
        ]
        return decode_responses(encoded(metadata={"n": 1}, responses=two))

    found = sent({"retrieval": 1, "toxicity": -1e-300}, score=0.5, logprob=-2)
    given = {
        "score": [0.5, None],
        "logprob": [-2.0, None],
        "retrieval": [1.0, None],
        "toxicity": [-1e-300, None],
    }
    assert numbers_given(found.responses) == given
    kept = recorded_metadata(found)
    assert kept == {"n": 1, SIGNALS: {"a": {name: values[0] for name, values in given.items()}}}
    assert recorded_numbers(kept, ["b", "a"]) == {name: values[::-1] for name, values in given.items()}
    assert "score" not in recorded_metadata(found, ("score",))[SIGNALS]["a"], "the record has it as the score"
    for erased in (None, {}, {SIGNALS: "x"}):
        assert recorded_numbers(erased, ["a"]) == {}

    hashes = {content_hash(sent(one)) for one in ({}, {"retrieval": 1}, {"retrieval": 0}, {"toxicity": 1})}
    assert content_hash(plain) in hashes
    assert len(hashes) == 4
    swapped = sent({"toxicity": -1e-300, "retrieval": 1.0}, score=0.5, logprob=-2)
    assert (
        content_hash(swapped)
        == content_hash(found)
        == content_hash(decode_responses(encode_responses(found)))
    )


@pytest.mark.parametrize(
    ("fields", "code", "said"),
    [
        ({"responses": responses(model="")}, codes.BAD_IDENTIFIER, "the model of response"),
        ({"responses": responses(model="x" * 201)}, codes.BAD_IDENTIFIER, "201 characters"),
        ({"responses": responses(model="a\nb")}, codes.BAD_IDENTIFIER, "control character"),
        ({"responses": responses(model=7)}, codes.INVALID_FIELD, "model"),
        ({"metadata": {MODELS: {"a": "x"}}}, codes.INVALID_FIELD, "its field `model`"),
    ],
)
def test_a_model_that_is_no_name_is_refused(fields: dict[str, Any], code: str, said: str):
    refused = refusal(encoded(**fields))
    assert refused.code == code
    assert said in refused.detail
