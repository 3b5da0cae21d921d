"""What a cell holds: nested values by dotted names, texts, lists, and what counts as empty. Pure."""

import ast
import io
import json
import math
import tokenize
from collections.abc import Iterable, Iterator, Mapping
from datetime import date, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from streamer.security.csv_cells import plain_cell

_MISSING = frozenset({"", "na", "n/a", "nan", "none", "null", "nil", "<na>", "-", "?"})
_MOST_NAMES = 200
_DEEPEST = 4
_ENTRIES_AHEAD = 5


class NotText(ValueError):
    """A value is none that a text can be made of; says what it is."""


def value_at(row: Mapping[str, Any], column: str) -> Any:
    """Return what a row has in a column, or within one: ``response.output``, ``answers.text``, ``messages.0.content``.

    Of a list of objects a name gives the list of their values, a number (from 0; -1 is the last) one entry, and ``role=user`` those
    entries that have this value. Objects and lists that are written as text, as in CSV, are read. None where there is nothing of that name.
    """
    if column in row or "." not in column:
        return row.get(column)
    for end in (place for place, sign in enumerate(column) if sign == "."):
        if column[:end] in row:
            return _within(row[column[:end]], column[end + 1 :])
    return None


def _within(value: Any, path: str) -> Any:
    value = opened_value(value)
    if isinstance(value, Mapping):
        return value_at(value, path)
    if not isinstance(value, list):
        return None
    first, _, rest = path.partition(".")
    if first.removeprefix("-").isdecimal():
        place = int(first)
        if not -len(value) <= place < len(value):
            return None
        return _within(value[place], rest) if rest else value[place]
    name, sign, wanted = first.partition("=")
    if sign:
        chosen = [one for one in value if isinstance(one, Mapping) and one.get(name) == wanted]
        return _within(chosen, rest) if rest else chosen
    found = [_within(one, path) for one in value]
    return None if all(one is None for one in found) else found


def opened_value(value: Any) -> Any:
    """Return an array as a list, and an object or a list that is written as text as what it is."""
    value = plain(value)
    if isinstance(value, str) and value.startswith(("{", "[")):
        found = structure_of_text(value)
        return value if found is None else found
    return value


def inner_names(row: Mapping[str, Any], columns: Iterable[str], *, opened: bool = False) -> list[str]:
    """Return the dotted names of what is nested in these columns of a row; `opened`: also where it is written as text."""
    found: dict[str, None] = {}
    as_it_is = opened_value if opened else plain

    def look(name: str, value: Any, depth: int) -> None:
        value = as_it_is(value)
        entries = value[:_ENTRIES_AHEAD] if isinstance(value, list) else [value]
        inside = {key: one for each in entries if isinstance(each, Mapping) for key, one in each.items()}
        if depth and not inside and len(found) < _MOST_NAMES:
            found[name] = None
        for key, one in inside.items() if depth < _DEEPEST else ():
            look(f"{name}.{key}", one, depth + 1)

    for column in columns:
        look(column, value_at(row, column), 0)
    return list(found)


def is_nested(value: Any, *, as_text: bool = False) -> bool:
    """Whether a value is an object or a list of objects; `as_text`: also one that is written as text."""
    if isinstance(value, str):
        text = value.lstrip()
        # What no reader of JSON takes is how Python shows an object.
        return as_text and (
            text.startswith("{'") or (text.startswith('{"') and isinstance(structure_of_text(text), dict))
        )
    if hasattr(value, "tolist"):
        value = value.tolist()
    return isinstance(value, Mapping) or (
        isinstance(value, list | tuple) and any(isinstance(one, Mapping) for one in value)
    )


def plain(value: Any) -> Any:
    """Return a cell's value as one of Python's: numbers and lists in place of a library's, texts stripped, NaN as None."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Decimal):
        return number_of(value) if value.is_finite() else None
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, tuple):
        return list(value)
    if type(value).__name__ in ("NAType", "NaTType"):
        return None
    return None if isinstance(value, float) and math.isnan(value) else value


def is_missing(value: Any) -> bool:
    """Whether a plain value is an empty cell."""
    return value is None or (isinstance(value, str) and value.lower() in _MISSING)


def number_of(value: Decimal) -> int | float:
    """Return a decimal number of a table as one of Python's; a whole one, which may be an id, keeps all its digits."""
    return int(value) if value.is_finite() and value == value.to_integral_value() else float(value)


def text_of(value: Any) -> str:
    """Return a cell as text, as it stands; empty where there is none. Raises `NotText` when it is
    an object, a list, or something else that is no text.
    """
    if isinstance(value, str):
        return value
    value = plain(value)
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # a table library made it a float because another row has none
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise NotText("bytes that are no UTF-8") from None
    if isinstance(value, int | float | date | time | timedelta | UUID):
        return str(value)
    what = (
        "a list"
        if isinstance(value, list)
        else "an object"
        if isinstance(value, Mapping)
        else type(value).__name__
    )
    raise NotText(what)


def name_of(value: Any) -> str:
    """Return a cell as a name: as text, without what keeps a spreadsheet from running it; see `text_of`."""
    return plain_cell(value) if isinstance(value, str) else text_of(value)


def structure_of_text(text: str) -> Any:
    """Read an object or a list as JSON or as Python writes it; None when it is neither."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        try:
            found = None if _joins_texts(text) else ast.literal_eval(text.strip())
        except (ValueError, SyntaxError, MemoryError, RecursionError, tokenize.TokenError):
            return None
    return found if isinstance(found, dict | list) else None


def list_of_text(text: str) -> list[Any] | None:
    """Read a list as JSON or as Python writes it; None when it is neither."""
    found = structure_of_text(text)
    return found if isinstance(found, list) else None


def _joins_texts(text: str) -> bool:
    """Whether texts stand side by side, as NumPy prints arrays: Python would make one of them."""
    last = None
    for token in _tokens(text):
        if token == last == tokenize.STRING:
            return True
        last = token
    return False


def _tokens(text: str) -> Iterator[int]:
    lines = io.StringIO(text.strip())
    return (one.type for one in tokenize.generate_tokens(lines.readline) if one.type != tokenize.NL)
