"""Schemas that answers are held against, beside the package `jsonschema`."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from streamer.labels.llm.record import Choice
from streamer.serving.chat.forms import BadSchemaError, reader

NAMES, BOUNDS = st.sampled_from("abc"), st.integers(0, 3)
SCALARS = st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([0.5, 1.5, "", "a", "ab"])
VALUES = st.recursive(
    SCALARS, lambda one: st.lists(one, max_size=3) | st.dictionaries(NAMES, one, max_size=3), max_leaves=6
)
TYPES = st.sampled_from(["null", "boolean", "integer", "number", "string", "array", "object"])
BOUNDED = (
    "minimum exclusiveMinimum maximum exclusiveMaximum minLength maxLength minItems maxItems minProperties "
    "maxProperties"
)


def schemas(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    several = st.lists(inner, min_size=1, max_size=2)
    keywords = {
        "type": TYPES | st.lists(TYPES, min_size=1, max_size=3, unique=True),
        "enum": st.lists(VALUES, min_size=1, max_size=3),
        "const": VALUES,
        "$ref": st.sampled_from(["#/$defs/a~0~1", "#/$defs/b/anyOf/0"]),
        "properties": st.dictionaries(NAMES, inner, max_size=2),
        "required": st.lists(NAMES, max_size=2, unique=True),
    }
    keywords |= dict.fromkeys(("allOf", "anyOf", "prefixItems"), several)
    keywords |= dict.fromkeys(("items", "additionalProperties"), inner) | dict.fromkeys(
        BOUNDED.split(), BOUNDS
    )
    return st.fixed_dictionaries({}, optional=keywords)


SCHEMAS = st.recursive(st.booleans(), schemas, max_leaves=6)
DEFS = {"a~/": {"type": ["object", "array"]}, "b": {"anyOf": [{"maximum": 1}]}}


def fits(schema: Any, value: Any) -> bool:
    form = {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}}
    return reader(form)(Choice(json.dumps(value))) is not None


@given(SCHEMAS.filter(lambda one: isinstance(one, dict)), VALUES)
def test_a_schema_admits_what_it_does_elsewhere(schema: Any, value: Any) -> None:
    whole = schema | {"$defs": DEFS}
    assert fits(whole, value) == Draft202012Validator(whole).is_valid(value)


def test_what_is_not_checked_refuses_nothing() -> None:
    for schema in (
        {"pattern": "^(a+)+$", "format": "uuid", "not": {}, "multipleOf": 2, "uniqueItems": True},
        {"oneOf": [{"minLength": 1}, {"maxLength": 50}]},
    ):
        assert fits(schema, "a" * 40 + "!")
    assert fits({"patternProperties": {"^n": {"type": "null"}}, "additionalProperties": False}, {"m": 1})


def test_references_that_never_end_are_kept_by_nothing() -> None:
    assert not fits({"$ref": "#"}, 1)
    doubling = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(40)}
    assert not fits({"$ref": "#/$defs/d0", "$defs": doubling | {"d40": {}}}, 1)
    nested = {"type": "object", "properties": {"next": {"$ref": "#"}}, "additionalProperties": False}
    assert fits(nested, {"next": {"next": {}}})
    assert not fits(nested, {"next": {"other": {}}})


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({"type": "text"}, r"'text' - at `\$\.type`"),
        ({"required": True}, r"got `bool` - at `\$\.required`"),
        ({"items": {"$ref": "https://example.com/s.json"}}, "is no place in it"),
        ({"$ref": "#/$defs/none"}, "is no place in it"),
        ({"$ref": "#/required", "required": ["a"]}, "is no place in it"),
    ],
)
def test_a_schema_that_cannot_be_followed_is_refused(schema: Any, why: str) -> None:
    with pytest.raises(BadSchemaError, match=why):
        fits(schema, {})
