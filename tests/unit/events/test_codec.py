"""The canonical form of JSON, the content hash, and names for everything."""

import hashlib
import json
import math
import struct
import sys
import uuid
from datetime import UTC, datetime
from decimal import Decimal
from enum import IntEnum

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from streamer.events.excerpts import excerpt, one_line
from streamer.events.json_structure import depth
from streamer.events.responses import ResponsesV1, ResponseV1, content_hash
from streamer.events.topic import every
from streamer.events.topics import Topics
from streamer.signing.canonical_json import canonical_json

TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)


def test_the_canonical_form() -> None:
    value = {
        "b": [1, 1.0, 0.5, 1e-6, 1e16, -0.0, 2**70],
        "a": {"é": None, "\U0001f600": True, "\uffff": False, "Z": 'q"\\/\x08\t\n\x0c\r\x00\x1f\x7f'},
    }
    assert (
        canonical_json(value)
        == (
            '{"a":{"Z":"q\\"\\\\/\\b\\t\\n\\f\\r\\u0000\\u001f\x7f","é":null,"\uffff":false,"\U0001f600":true},'
            '"b":[1,1.0,0.5,1e-06,1e+16,-0.0,1180591620717411303424]}'
        ).encode()
    )


@pytest.mark.parametrize("value", [float("nan"), [float("inf")], {"a": -float("inf")}, "\ud800"])
def test_what_has_no_canonical_form(value: object) -> None:
    with pytest.raises(ValueError, match=r"Out of range|surrogates"):
        canonical_json(value)


@pytest.mark.parametrize("value", [b"x", {1, 2}, {"a": object()}, {"a": 1, 2: 3}])
def test_what_is_not_json(value: object) -> None:
    with pytest.raises(TypeError):
        canonical_json(value)


@given(JSON)
def test_the_canonical_form_is_stable_and_reads_back(value: object) -> None:
    written = canonical_json(value)
    assert json.loads(written) == value
    assert canonical_json(json.loads(written)) == written


class _Word(str):
    __slots__ = ()


class _Level(IntEnum):
    HIGH = 3


EDGES = [1e-4, 1e16, 1e22, 2.0**53, 5e-324, sys.float_info.max, sys.float_info.min]
FLOATS = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False),
    st.floats(-1, 1).map(lambda x: round(x, 6)),
    st.sampled_from(EDGES).flatmap(
        lambda x: st.sampled_from([x, -x, math.nextafter(x, 0), math.nextafter(x, 1), -0.0])
    ),
    st.integers(-(2**60), 2**60).map(float),
    st.floats(0, 1).map(np.float64),
)
INTEGERS = st.integers() | st.sampled_from([2**63, -(2**63), 2**64, -(2**64), 10**400, _Level.HIGH])
STRINGS = st.text() | st.text(st.characters(max_codepoint=0x7F)) | TEXT.map(_Word)
VALUES = st.recursive(
    st.none() | st.booleans() | INTEGERS | FLOATS | STRINGS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(STRINGS, inner, max_size=4)
        | st.dictionaries(st.integers() | st.none(), inner, max_size=1)
    ),
    max_leaves=12,
)
NOT_JSON = st.sampled_from(
    [math.nan, math.inf, b"x", {"x"}, Decimal(1), uuid.UUID(int=1), datetime(2026, 1, 1, tzinfo=UTC), 1j]
)


def json_writes(value: object) -> bytes:
    """What the documentation says: what an auditor writes with the standard library alone."""
    return json.dumps(
        value, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False
    ).encode()


@given(VALUES)
@example([1e-5, 9.999999999999999e-05, 1e-4, 9999999999999998.0, 1e16])
def test_the_canonical_form_is_what_json_writes(value: object) -> None:
    try:
        expected = json_writes(value)
    except ValueError:  # a lone surrogate
        with pytest.raises(ValueError, match="surrogates"):
            canonical_json(value)
        return
    assert canonical_json(value) == expected


@given(FLOATS)
def test_every_number_has_the_digits_that_json_writes(number: float) -> None:
    assert canonical_json([number]) == json_writes([number])


@given(st.lists(VALUES, max_size=3), NOT_JSON, st.integers(0, 3), st.booleans())
def test_what_json_refuses_is_refused_wherever_it_stands(
    others: list[object], strange: object, place: int, inside: bool
) -> None:
    value = [*others[:place], {"a": strange} if inside else strange, *others[place:]]
    with pytest.raises((TypeError, ValueError)):
        json_writes(value)
    with pytest.raises((TypeError, ValueError)):
        canonical_json(value)


@given(st.dictionaries(TEXT, st.integers(), max_size=6), st.randoms())
def test_the_order_of_keys_never_matters(members: dict[str, int], random: object) -> None:
    shuffled = list(members.items())
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert canonical_json(dict(shuffled)) == canonical_json(members)


def batch(
    *responses: ResponseV1, prompt: str = "p", references: tuple[str, ...] | None = None, attempt: int = 1
) -> ResponsesV1:
    return ResponsesV1(
        schema="streamer.responses.v1", gate="g", batch_id="b", prompt=prompt, responses=responses,
        references=references, attempt=attempt,
    )  # fmt: skip


@given(st.lists(st.tuples(TEXT, TEXT), max_size=3), TEXT, st.none() | st.lists(TEXT, max_size=2).map(tuple))
def test_the_content_hash_is_that_of_the_canonical_json(
    pairs: list[tuple[str, str]], prompt: str, references: tuple[str, ...] | None
) -> None:
    """Re-derived with the standard library alone, as an auditor would."""
    event = batch(*(ResponseV1(id=i, text=t) for i, t in pairs), prompt=prompt, references=references)
    plain = {
        "prompt": prompt,
        "references": references,
        "responses": [{"id": i, "text": t} for i, t in pairs],
    }
    written = json.dumps(plain, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    assert content_hash(event) == hashlib.sha256(written.encode()).digest()


def test_the_content_hash_covers_scores_and_embeddings() -> None:
    event = batch(ResponseV1(id="a", text="t", score=1e-6, embedding=(0.5, -1.0)), references=("r",))
    embedding = hashlib.sha256(struct.pack("<2d", 0.5, -1.0)).hexdigest()
    written = (
        '{"prompt":"p","references":["r"],"responses":'
        f'[{{"embedding":"{embedding}","id":"a","score":1e-06,"text":"t"}}]}}'
    )
    assert content_hash(event) == hashlib.sha256(written.encode()).digest()


def test_what_the_content_hash_tells_apart() -> None:
    one, other = ResponseV1(id="a", text="x"), ResponseV1(id="b", text="y")
    events = [
        batch(one, other), batch(other, one), batch(one), batch(one, other, prompt="q"),
        batch(one, other, references=()), batch(one, other, references=("r",)),
        batch(one, ResponseV1(id="b", text="z")), batch(one, ResponseV1(id="c", text="y")),
        batch(one, ResponseV1(id="b", text="y", score=0.0)),
        batch(one, ResponseV1(id="b", text="y", embedding=(1.0, 0.0))),
    ]  # fmt: skip
    assert len({content_hash(event) for event in events}) == len(events)
    assert content_hash(batch(one, other, attempt=2)) == content_hash(batch(one, other))


@given(JSON)
def test_depth(value: object) -> None:
    def levels(member: object) -> int:
        if isinstance(member, dict):
            return 1 + max((levels(inner) for inner in member.values()), default=0)
        if isinstance(member, list):
            return 1 + max((levels(inner) for inner in member), default=0)
        return 0

    assert depth(json.dumps(value).encode()) == levels(value)
    assert depth(json.dumps(value, ensure_ascii=False, indent=1).encode()) == levels(value)


def test_excerpts_are_short_and_printable() -> None:
    assert excerpt("abc") == "'abc'"
    assert excerpt("x" * 100) == "'" + "x" * 60 + "'..."
    assert excerpt("\ud800\x00\u202e") == r"'\ud800\x00\u202e'"
    assert one_line("a\nb\x00\u2028c") == r"a\nb\x00\u2028c"
    assert len(one_line("y" * 1000)) == 300


def test_topics() -> None:
    assert Topics().responses == "streamer.responses"
    released = [
        "eu.responses", "eu.labels", "eu.actions", "eu.desk", "eu.thresholds", "eu.alerts",
        "eu.checkpoints", "eu.dead-letters",
    ]  # fmt: skip
    topics = Topics("eu.")
    assert [name for name in topics.all() if name in released] == released, "inputs first, and none goes"
    assert topics.all() == tuple(f"eu.{name}" for name in every())
    for name, topic in every().items():
        named = getattr(topics, name.replace("-", "_"), topics.of(topic))
        assert topics.of(topic) == named
    with pytest.raises(ValueError, match="prefix"):
        Topics("a b")
