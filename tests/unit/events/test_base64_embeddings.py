"""Embeddings in base64: little-endian float32, exact to the bit, and refused with what is wrong and what to send."""

import base64
import hashlib
import json
import math
import re
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamer.errors import BadMessage
from streamer.events import codes
from streamer.events.limits import DEFAULT_LIMITS, Limits
from streamer.events.responses import SCHEMA, content_hash, decode_responses, embedding_rows, encode_responses

ROOT = Path(__file__).parents[3]


def event(*embeddings: Any) -> bytes:
    responses = [
        {"id": f"r{i}", "text": "t"} | ({} if one is None else {"embedding": one})
        for i, one in enumerate(embeddings)
    ]
    return json.dumps(
        {"schema": SCHEMA, "gate": "g", "batch_id": "b", "prompt": "p", "responses": responses}
    ).encode()


def text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def floats(*numbers: float, order: str = "<") -> str:
    return text(struct.pack(f"{order}{len(numbers)}f", *numbers))


def refusal(value: bytes, limits: Limits = DEFAULT_LIMITS) -> BadMessage:
    with pytest.raises(BadMessage) as caught:
        decode_responses(value, limits)
    assert len(caught.value.detail) <= 300
    assert caught.value.detail.isprintable()
    return caught.value


@st.composite
def vectors(draw: st.DrawFn) -> list[list[float]]:
    """Two to four vectors of one dimension, every component a float32, none of them near zero."""
    dimension = draw(st.integers(2, 9))
    number = st.floats(-(2.0**56), 2.0**56, width=32)
    every = st.lists(number, min_size=dimension, max_size=dimension).filter(lambda v: math.hypot(*v) > 1e-17)
    return draw(st.lists(every, min_size=2, max_size=4))


@given(vectors())
def test_what_is_packed_is_read_to_the_bit(numbers: list[list[float]]):
    """And it means what the same numbers mean as lists: in the scores, and in the content hash."""
    packed, listed = event(*(floats(*one) for one in numbers)), event(*numbers)
    read, plain = decode_responses(packed), decode_responses(listed)
    assert decode_responses(encode_responses(read)) == read
    rows = embedding_rows([response.embedding or () for response in read.responses])
    assert rows.dtype == np.float64
    assert [struct.pack(f"<{len(row)}d", *row) for row in rows] == [
        struct.pack(f"<{len(one)}d", *one) for one in numbers
    ]
    assert rows.tobytes() == embedding_rows([r.embedding or () for r in plain.responses]).tobytes()
    assert content_hash(read) == content_hash(plain) == content_hash(decode_responses(packed))


@given(vectors())
def test_one_other_bit_is_other_content(numbers: list[list[float]]):
    packed = [struct.pack(f"<{len(one)}f", *one) for one in numbers]
    other = [bytes([packed[0][0] ^ 1]) + packed[0][1:], *packed[1:]]
    first, second = (decode_responses(event(*map(text, each))) for each in (packed, other))
    assert content_hash(first) != content_hash(second)


def test_the_content_hash_is_re_derived_with_the_standard_library_alone():
    digests = [hashlib.sha256(struct.pack("<2d", *one)).hexdigest() for one in ((0.5, -1.0), (0.0, 2.0))]
    written = {
        "prompt": "p",
        "references": None,
        "responses": [{"id": f"r{i}", "text": "t", "embedding": digest} for i, digest in enumerate(digests)],
    }
    canonical = json.dumps(
        written, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False
    )
    read = decode_responses(event(floats(0.5, -1.0), floats(0.0, 2.0)))
    assert content_hash(read) == hashlib.sha256(canonical.encode()).digest()


def test_a_number_that_float32_cannot_hold_is_other_content():
    """0.1 as a float32 is another number than 0.1 in a list: such an event conflicts with the first one."""
    packed, listed = event(floats(0.1, 1.0), floats(1.0, 0.0)), event([0.1, 1.0], [1.0, 0.0])
    assert content_hash(decode_responses(packed)) != content_hash(decode_responses(listed))
    exact = event([struct.unpack("<f", struct.pack("<f", 0.1))[0], 1.0], [1.0, 0.0])
    assert content_hash(decode_responses(packed)) == content_hash(decode_responses(exact))


def test_both_forms_may_stand_in_one_event():
    read = decode_responses(event(floats(0.5, -1.0), [0.5, -1.0]))
    rows = embedding_rows([response.embedding or () for response in read.responses])
    assert rows.tolist() == [[0.5, -1.0]] * 2


def test_escaped_slashes_are_read():
    numbers = floats(0.5, -1.25e-38 * 2**100)
    packed = event("P" + numbers[1:], floats(1.0, 2.0)).replace(b"/", rb"\/")
    plain = event("P" + numbers[1:], floats(1.0, 2.0))
    assert decode_responses(packed) == decode_responses(plain)


NUMBERS = r"; send a list of numbers, or padded base64 \(standard alphabet\) of little-endian float32$"
FLOAT32 = r"; base64 must hold finite little-endian float32, not all zero$"
FINE = floats(1.0, 0.5)
ORDINARY = (np.random.default_rng(1).normal(size=384) / 20).tolist()
MALFORMED: dict[str, tuple[bytes, str, str]] = {
    "no base64": (event("hello!", FINE), codes.INVALID_FIELD, r"base64.*\$\.responses\[0\]\.embedding.*" + NUMBERS),
    "the URL alphabet": (event(FINE, "_-8_AAAA"), codes.INVALID_FIELD, r"responses\[1\].*" + NUMBERS),
    "no padding": (event(floats(1.0, 2.0).rstrip("="), FINE), codes.INVALID_FIELD, NUMBERS),
    "padding inside": (event("AAA=AAAA", FINE), codes.INVALID_FIELD, NUMBERS),
    "a line end": (event(FINE + "\n", FINE), codes.INVALID_FIELD, NUMBERS),
    "an accent": (event("é" * 12, FINE), codes.INVALID_FIELD, NUMBERS),
    "a data URL": (event("data:;base64," + FINE, FINE), codes.INVALID_FIELD, NUMBERS),
    "a number": (event(1.5, FINE), codes.INVALID_FIELD, NUMBERS),
    "an object": (event({"base64": FINE}, FINE), codes.INVALID_FIELD, NUMBERS),
    "a list of base64": (event([FINE], FINE), codes.INVALID_FIELD, NUMBERS),
    "a piece of a number": (
        event(FINE, text(b"\0" * 9)),
        codes.BAD_EMBEDDING,
        "'r1' has 9 bytes, not a multiple of 4" + FLOAT32,
    ),
    "nothing": (event("", ""), codes.BAD_EMBEDDING, "dimension 0, allowed is 2 to 4096$"),
    "one number": (event(floats(1.0), floats(1.0)), codes.BAD_EMBEDDING, "dimension 1, allowed is 2 to 4096$"),
    "4097 numbers": (event(*[floats(*[1.0] * 4097)] * 2), codes.BAD_EMBEDDING, "dimension 4097"),
    "other dimensions": (
        event(FINE, floats(1.0, 2.0, 3.0)),
        codes.MIXED_EMBEDDING_DIMENSIONS,
        "example 2 and 3$",
    ),
    "another dimension as a list": (event(FINE, [1.0, 2.0, 3.0]), codes.MIXED_EMBEDDING_DIMENSIONS, "2 and 3$"),
    "one without": (event(FINE, None), codes.MIXED_EMBEDDING_DIMENSIONS, "1 of 2 responses have"),
    "NaN": (event(FINE, floats(1.0, math.nan)), codes.NOT_FINITE, "'r1' holds NaN or infinity" + FLOAT32),
    "a signalling NaN": (
        event(FINE, text(b"\1\0\x80\x7f" * 2)),
        codes.NOT_FINITE,
        "'r1' holds NaN or infinity" + FLOAT32,
    ),
    "infinity": (event(floats(-math.inf, 1.0), FINE), codes.NOT_FINITE, "'r0' holds NaN or infinity" + FLOAT32),
    "zeros": (event(floats(0.0, -0.0), FINE), codes.BAD_EMBEDDING, "'r0' has norm 0, .*" + FLOAT32),
    "too small": (event(floats(1e-30, 0.0), FINE), codes.BAD_EMBEDDING, "'r0' has norm 1e-30, .*" + FLOAT32),
    "too large": (event(floats(3e38, 3e38), FINE), codes.BAD_EMBEDDING, r"'r0' has norm 4.*e\+38, .*" + FLOAT32),
    "the other byte order": (
        event(*[floats(*ORDINARY, order=">")] * 2),
        codes.NOT_FINITE,
        "'r0' holds NaN or infinity" + FLOAT32,
    ),
    "doubles": (
        event(*[text(struct.pack("<384d", *ORDINARY))] * 2),
        codes.BAD_EMBEDDING,
        "'r0' has norm .*" + FLOAT32,
    ),
    "a repeated key": (
        event(FINE, FINE).replace(b'"text"', b'"embedding": "AAAA", "text"', 1),
        codes.DUPLICATE_KEYS,
        "'embedding' more than once$",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_embedding_is_refused_with_what_to_do(name: str):
    value, code, detail = MALFORMED[name]
    bad = refusal(value)
    assert bad.code == code
    assert re.search(detail, bad.detail), bad.detail


@given(st.lists(st.binary(max_size=12) | st.binary(min_size=8, max_size=8), min_size=2, max_size=3))
def test_bytes_are_read_exactly_when_they_are_vectors(parts: list[bytes]):
    numbers = [[x for (x,) in struct.iter_unpack("<f", part[: len(part) // 4 * 4])] for part in parts]
    fine = (
        all(len(part) % 4 == 0 and len(part) >= 8 for part in parts)
        and len(set(map(len, parts))) == 1
        and all(math.isfinite(x) for one in numbers for x in one)
        and all(1e-18 <= math.hypot(*one) <= 1e18 for one in numbers)
    )
    value = event(*map(text, parts))
    if fine:
        read = decode_responses(value)
        assert [response.embedding for response in read.responses] == parts
    else:
        found = refusal(value).code
        assert found in {codes.BAD_EMBEDDING, codes.MIXED_EMBEDDING_DIMENSIONS, codes.NOT_FINITE}


@given(st.text(max_size=30) | st.text(alphabet="AQ/+=-_ \n", max_size=24))
def test_any_text_is_base64_or_refused(embedding: str):
    try:
        read = decode_responses(event(embedding, embedding))
    except BadMessage as bad:
        refused = bad
    else:
        assert read.responses[0].embedding == base64.b64decode(embedding, validate=True)
        return
    assert refused.code in codes.MEANINGS
    assert len(refused.detail) <= 300
    assert refused.detail.isprintable()


def test_the_publisher_of_the_page_is_read():
    page = (ROOT / "docs" / "events" / "README.md").read_text("utf-8")
    (example,) = re.findall(r"```python\n(import base64.*?)```", page, re.DOTALL)
    given_ = np.array([[0.6, 0.8, 0.1], [0.8, 0.6, -0.1]])
    names: dict[str, Any] = {"texts": ["4", "four"], "vectors": given_}
    exec(example, names)
    read = decode_responses(
        json.dumps(
            {
                "schema": SCHEMA, "gate": "g", "batch_id": "b", "prompt": "2 + 2?",
                "responses": names["responses"],
            }
        ).encode()
    )  # fmt: skip
    assert [response.text for response in read.responses] == ["4", "four"]
    rows = embedding_rows([response.embedding or () for response in read.responses])
    assert rows.tolist() == given_.astype(np.float32).tolist()
