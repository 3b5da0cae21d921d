"""Whether an answer has the form that a request demands: JSON of a schema, and calls of the tools as they may be called."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, Literal
from urllib.parse import unquote

import msgspec
from msgspec import UNSET, UnsetType, field

from streamer.labels.llm.record import Choice
from streamer.scoring.judged import call_text, json_text

CALLED: Final = "tool_calls"
"""The finish reason of an answer that is a call, its text the canonical form."""

_MOST_STEPS: Final = 100_000
"""Of one check: references may make a schema exponential in its length."""

_Type = Literal["null", "boolean", "integer", "number", "string", "array", "object"]
_Number = int | float | UnsetType

_KINDS: Final[Mapping[str, Callable[[Any], bool]]] = {
    "null": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: _is_number(value) and value == value // 1,
    "number": lambda value: _is_number(value),
    "string": lambda value: isinstance(value, str),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
}


class Call(msgspec.Struct):
    """A call of a tool; its arguments are JSON, byte for byte as they were scored."""

    name: str
    arguments: msgspec.Raw

    @property
    def text(self) -> str:
        """The arguments, as a text."""
        return bytes(self.arguments).decode()


def calls_of(text: str) -> list[Call]:
    """Read what `call_text` has written: nothing, one call, or an array of several."""
    return msgspec.json.decode(text if text.startswith("[") else f"[{text}]", type=list[Call])


class BadSchemaError(ValueError):
    """No answer can be checked against what `param` of a request has for a schema."""

    def __init__(self, param: str, why: str) -> None:
        super().__init__(why)
        self.param = param


class _Keywords(msgspec.Struct, gc=False, rename="camel"):
    """The keywords of JSON Schema (2020-12, and `items` as a list from before) that are checked.

    A value that breaks one of them breaks the schema, whatever keywords it has besides; of `oneOf` one or more may hold.
    """

    ref: str = field(default="", name="$ref")
    defs: dict[str, _Keywords | bool] = field(default_factory=dict, name="$defs")
    definitions: dict[str, _Keywords | bool] = {}
    type: _Type | list[_Type] = []
    enum: list[Any] | UnsetType = UNSET
    const: Any = UNSET
    all_of: list[_Keywords | bool] = []
    any_of: list[_Keywords | bool] = []
    one_of: list[_Keywords | bool] = []
    properties: dict[str, _Keywords | bool] = {}
    required: list[str] = []
    pattern_properties: dict[str, _Keywords | bool] = {}
    additional_properties: _Keywords | bool = True
    items: _Keywords | bool | list[_Keywords | bool] = True
    prefix_items: list[_Keywords | bool] = []
    minimum: _Number = UNSET
    maximum: _Number = UNSET
    exclusive_minimum: _Number = UNSET
    exclusive_maximum: _Number = UNSET
    min_length: int = 0
    max_length: int | UnsetType = UNSET
    min_items: int = 0
    max_items: int | UnsetType = UNSET
    min_properties: int = 0
    max_properties: int | UnsetType = UNSET

    @property
    def inner(self) -> Iterator[_Keywords | bool]:
        """The schemas in it."""
        yield self.additional_properties
        yield from self.items if isinstance(self.items, list) else [self.items]
        for several in (self.all_of, self.any_of, self.one_of, self.prefix_items):
            yield from several
        for named in (self.properties, self.pattern_properties, self.defs, self.definitions):
            yield from named.values()

    def of_parts(self, value: Any) -> Iterator[tuple[Any, _Keywords | bool]]:
        """The members or items of a value, each with the schema that it has here."""
        if isinstance(value, dict):
            others = True if self.pattern_properties else self.additional_properties
            for name, one in value.items():
                yield one, self.properties.get(name, others)
        if isinstance(value, list):
            first, rest = (
                (self.items, True) if isinstance(self.items, list) else (self.prefix_items, self.items)
            )
            for place, one in enumerate(value):
                yield one, first[place] if place < len(first) else rest

    def admits(self, value: Any) -> bool:
        """Whether a value keeps what is said of it without the schemas inside."""
        kinds = self.type if isinstance(self.type, list) else [self.type]
        return (
            (not kinds or any(_KINDS[kind](value) for kind in kinds))
            and (self.enum is UNSET or any(same(value, one) for one in self.enum))
            and (self.const is UNSET or same(value, self.const))
            and self._in_bounds(value)
            and (not isinstance(value, dict) or value.keys() >= set(self.required))
        )

    def _in_bounds(self, value: Any) -> bool:
        if _is_number(value):
            return (
                (self.minimum is UNSET or value >= self.minimum)
                and (self.maximum is UNSET or value <= self.maximum)
                and (self.exclusive_minimum is UNSET or value > self.exclusive_minimum)
                and (self.exclusive_maximum is UNSET or value < self.exclusive_maximum)
            )
        if isinstance(value, str):
            least, most = self.min_length, self.max_length
        elif isinstance(value, list):
            least, most = self.min_items, self.max_items
        elif isinstance(value, dict):
            least, most = self.min_properties, self.max_properties
        else:
            return True
        return least <= len(value) and (most is UNSET or len(value) <= most)


_ATTRIBUTES: Final = {one.encode_name: one.name for one in msgspec.structs.fields(_Keywords)}


class _Schema:
    """A schema that a value may be held against. Raises `BadSchemaError`."""

    def __init__(self, param: str, schema: object) -> None:
        try:
            self._root = msgspec.convert(schema, _Keywords | bool)
        except (msgspec.ValidationError, RecursionError) as error:
            raise BadSchemaError(param, str(error)) from None
        self._referred: dict[str, _Keywords | bool] = {}
        waiting = [self._root]
        for one in waiting:  # grows meanwhile
            if isinstance(one, bool):
                continue
            waiting += one.inner
            if one.ref and one.ref not in self._referred:
                found = self._at(one.ref)
                if not isinstance(found, _Keywords | bool):
                    raise BadSchemaError(param, f"$ref {one.ref!r} is no place in it, like #/$defs/NAME")
                self._referred[one.ref] = found

    def fits(self, value: object) -> bool:
        """Whether a JSON value keeps all keywords of `_Keywords`; not where that takes too long to tell."""
        self._steps = 0
        try:
            return self._holds(value, self._root)
        except RecursionError:
            return False

    def _at(self, pointer: str) -> Any:
        """What is there in the whole; None where nothing is."""
        found: Any = self._root
        start, *names = unquote(pointer).split("/")
        try:
            for name in (one.replace("~1", "/").replace("~0", "~") for one in names):
                if isinstance(found, _Keywords):
                    found = getattr(found, _ATTRIBUTES[name])
                else:
                    found = found[int(name) if isinstance(found, list) else name]
        except (LookupError, TypeError, ValueError):
            return None
        return found if start == "#" else None

    def _holds(self, value: Any, schema: _Keywords | bool) -> bool:
        if isinstance(schema, bool):
            return schema
        self._steps += 1 + (0 if schema.enum is UNSET else len(schema.enum))
        if self._steps > _MOST_STEPS:
            raise RecursionError
        return (
            schema.admits(value)
            and (not schema.ref or self._holds(value, self._referred[schema.ref]))
            and all(self._holds(value, one) for one in schema.all_of)
            and all(
                not several or any(self._holds(value, one) for one in several)
                for several in (schema.any_of, schema.one_of)
            )
            and all(self._holds(part, one) for part, one in schema.of_parts(value))
        )


def reader(form: Mapping[str, Any]) -> Callable[[Choice], Choice | None]:
    """Return what makes an answer of a choice, None where it has not the form that was asked for.

    Calls and JSON get their canonical form, for that is judged and goes out. `form`: see
    `streamer.serving.chat.request.ChatRequest`. Raises `BadSchemaError`.
    """
    as_json = None
    match form.get("response_format"):
        case {"type": "json_object"}:
            as_json = _Schema("response_format", {"type": "object"})
        case {"json_schema": {"schema": schema}}:
            as_json = _Schema("response_format", schema)
    tools = {
        one["function"]["name"]: _Schema(
            f"tools[{place}]",
            one["function"].get("parameters", True) if one["function"].get("strict") is True else True,
        )
        for place, one in enumerate(form.get("tools", ()))
    }
    may_say = form.get("tool_choice", "auto") == "auto"
    match form.get("tool_choice"):
        case {"function": {"name": name}}:
            tools = {name: tools[name]}
    most = 1 if form.get("parallel_tool_calls") is False else None

    def read(choice: Choice) -> Choice | None:
        if tools and choice.calls:
            text = call_text(choice.calls)
            calls = calls_of(text)
            if calls[:most] == calls != [] and all(
                one.name in tools and tools[one.name].fits(json.loads(one.text)) for one in calls
            ):
                return replace(choice, text=text, finish_reason=CALLED)
            return None
        if not may_say:
            return None
        if as_json is not None:
            text = json_text(choice.text)
            return replace(choice, text=text) if text and as_json.fits(json.loads(text)) else None
        return replace(choice, finish_reason=None) if choice.finish_reason == CALLED else choice

    return read


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def same(one: Any, other: Any) -> bool:
    """Report whether two values of JSON are equal; in Python true is 1 besides."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(value, other[name]) for name, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)
