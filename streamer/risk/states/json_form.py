"""States as JSON, to the last bit: what is read equals what was written, and anything else is refused."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Mapping


def write(kind: str, fields: Mapping[str, Any]) -> str:
    """Write one JSON object that begins with its kind; floats in the shortest form that reads back the same."""
    return json.dumps({"kind": kind, **fields}, allow_nan=False)


def read(text: str | bytes, kind: str, *older: str) -> dict[str, Any]:
    """Read what `write` wrote for this kind, or for one of the older kinds that are named too.

    Raises
    ------
    ValueError
        If `text` is not a JSON object of this kind.
    """
    try:
        fields = json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError(f"a {kind} in JSON is not nested that deeply") from None
    if not isinstance(fields, dict) or fields.get("kind") not in (kind, *older):
        found = fields.get("kind") if isinstance(fields, dict) else type(fields).__name__
        raise ValueError(f"expected a JSON object of kind {kind!r}, not {found!r}")
    return fields


def kind(text: str | bytes) -> object:
    """Return the kind that a text says it is; None where it says none."""
    fields = json.loads(text)
    return fields.get("kind") if isinstance(fields, dict) else None


def number(fields: Mapping[str, Any], name: str) -> float:
    """Return the number called `name`, or raise ValueError."""
    return _float(name, _field(fields, name))


def whole(fields: Mapping[str, Any], name: str) -> int:
    """Return the whole number called `name`, or raise ValueError."""
    return _int(name, _field(fields, name))


def maybe_whole(fields: Mapping[str, Any], name: str) -> int | None:
    """Return the whole number called `name`, None where it is null, or raise ValueError."""
    return None if _field(fields, name) is None else whole(fields, name)


def maybe_number(fields: Mapping[str, Any], name: str) -> float | None:
    """Return the number called `name`, None where it is null, or raise ValueError."""
    return None if _field(fields, name) is None else number(fields, name)


def numbers(fields: Mapping[str, Any], name: str) -> tuple[float, ...]:
    """Return the list of numbers called `name`, or raise ValueError."""
    return tuple(_float(name, value) for value in _list(fields, name))


def wholes(fields: Mapping[str, Any], name: str) -> tuple[int, ...]:
    """Return the list of whole numbers called `name`, or raise ValueError."""
    return tuple(_int(name, value) for value in _list(fields, name))


def lists(fields: Mapping[str, Any], name: str) -> list[list[Any]]:
    """Return the list of lists called `name`, or raise ValueError."""
    rows = _list(fields, name)
    for row in rows:
        if not isinstance(row, list):
            raise ValueError(f"{name} must be a list of lists, not of {row!r}")
    return rows


def inner(fields: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the object called `name`, or raise ValueError."""
    value = _field(fields, name)
    if not isinstance(value, dict):
        raise ValueError(f"{name} must be an object, not {value!r}")
    return value


def _field(fields: Mapping[str, Any], name: str) -> Any:
    if name not in fields:
        raise ValueError(f"{name} is missing")
    return fields[name]


def _list(fields: Mapping[str, Any], name: str) -> list[Any]:
    value = _field(fields, name)
    if not isinstance(value, list):
        raise ValueError(f"{name} must be a list, not {value!r}")
    return value


def _float(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name} must be a number, not {value!r}")
    try:
        return float(value)
    except OverflowError:
        raise ValueError(f"{name} is too large") from None


def _int(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{name} must be a whole number, not {value!r}")
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
