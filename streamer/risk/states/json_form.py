"""States as JSON, to the last bit: what is read equals what was written, and anything else is refused."""

import dataclasses
import json
from collections.abc import Mapping
from functools import cache
from typing import Any, ClassVar, NoReturn, Self, TypeVar, get_args, get_type_hints

import msgspec

T = TypeVar("T")


class State:
    """A state that can live in a database: a dataclass whose fields are numbers, and states in turn."""

    __slots__ = ()

    json_kind: ClassVar[str]

    def to_json(self) -> str:
        """Write the state as one JSON object; `from_json` gives it back to the last bit."""
        return write(self.json_kind, fields_of(self))

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Read what `to_json` wrote.

        Raises `ValueError` if `text` is not such an object, or its numbers contradict one another.
        """
        return made(cls, read(text, cls.json_kind))


class Evidence(State):
    """A state of `bets` that raise it. Immutable; once raised it stays raised and reads no more."""

    __slots__ = ()

    bets: Any

    @property
    def evidence(self) -> float:
        """The e-value so far, of an alarm on labels the most that any prefix of the draws comes to; 1/delta raises it."""
        found: float = self.bets.evidence
        return found

    @property
    def raised_at(self) -> int | None:
        """The decision, draw or mark, from 1, that raised it; None while it is quiet."""
        found: int | None = self.bets.raised_at
        return found


def write(kind: str, fields: Mapping[str, Any]) -> str:
    """Write one JSON object that begins with its kind; floats in the shortest form that reads back the same."""
    return json.dumps({"kind": kind, **fields}, allow_nan=False)


def read(text: str | bytes, kind: str) -> dict[str, Any]:
    """Read what `write` wrote for this kind.

    Raises `ValueError` if `text` is not a JSON object of this kind.
    """
    try:
        fields = json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError(f"a {kind} in JSON is not nested that deeply") from None
    if not isinstance(fields, dict) or fields.get("kind") != kind:
        found = fields.get("kind") if isinstance(fields, dict) else type(fields).__name__
        raise ValueError(f"expected a JSON object of kind {kind!r}, not {found!r}")
    return fields


def fields_of(state: object) -> dict[str, Any]:
    """Return a state as the fields of a JSON object."""
    fields: dict[str, Any] = msgspec.to_builtins(state)
    return fields


def made(state: type[T], fields: object) -> T:
    """Make a state of what `fields_of` returned: every part of it there, and of its type or made already.

    Raises `ValueError` if something is missing or of another type, or the state refuses its
    numbers.
    """
    _require_all(state, fields)
    try:
        return msgspec.convert(fields, state)
    except msgspec.ValidationError as error:
        raise ValueError(f"{state.__name__} must be as it was written: {error}") from None


def _require_all(state: type, fields: object) -> None:
    if isinstance(fields, state):
        return
    if not isinstance(fields, dict):
        raise ValueError(f"{state.__name__} must be an object, not {fields!r}")
    kinds = _parts(state)
    for field in dataclasses.fields(state):
        name = field.name
        if name not in fields:
            raise ValueError(f"{name} must not be missing")
        for one in get_args(kinds[name]) or (kinds[name],):
            if isinstance(one, type) and dataclasses.is_dataclass(one) and fields[name] is not None:
                _require_all(one, fields[name])


_parts = cache(get_type_hints)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
