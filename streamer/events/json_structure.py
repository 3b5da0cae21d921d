"""What a typed decoder does not see: repeated keys, deep nesting, integers that other readers would round.

The typed decoder keeps the last of two equal keys and skips what it does not know, so an event could mean one
thing here and another elsewhere. The exact check reads the value a second time; `proves_plain` shows, from a
few counts, that for most events there is nothing for it to find.
"""

import json
import re
from collections.abc import Sequence
from itertools import accumulate

from streamer.errors import BadMessage
from streamer.events import codes
from streamer.events.excerpts import excerpt

_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_STEP = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}

_END = 512  # in large events the small fields stand before or after the responses

MAX_INTEGER = 2**64 - 1
MIN_INTEGER = -(2**63)


def depth(value: bytes) -> int:
    """Levels of arrays and objects in a JSON text; brackets inside strings do not count."""
    brackets = _STRING.sub(b"", value).translate(None, _NOT_BRACKETS)
    return max(accumulate(_STEP[bracket] for bracket in brackets), default=0)


def too_deep(max_depth: int) -> BadMessage:
    """The refusal of a value that is nested deeper than `max_depth`."""
    return BadMessage(
        codes.TOO_DEEPLY_NESTED, f"arrays and objects are nested more than {max_depth} levels deep"
    )


class _RepeatedKeyError(Exception):
    """An object has this key twice."""


def _unique(members: list[tuple[str, None]]) -> None:
    if len(dict(members)) != len(members):
        seen: set[str] = set()
        for key, _ in members:
            if key in seen:
                raise _RepeatedKeyError(key)
            seen.add(key)


def _drop(_number: str) -> None:
    """Numbers are not needed here, and converting a long one would be slow."""


_keys_only = json.JSONDecoder(
    object_pairs_hook=_unique, parse_int=_drop, parse_float=_drop, parse_constant=_drop
)


def check_structure(value: bytes, max_depth: int) -> None:
    """Refuse a JSON text, UTF-8, that a decoder has accepted, in which an object repeats a key, or
    that is nested too deep.

    Raises `BadMessage` ``duplicate_keys`` or ``too_deeply_nested``.
    """
    if value.count(b"[") + value.count(b"{") > max_depth and depth(value) > max_depth:
        raise too_deep(max_depth)
    try:
        _keys_only.decode(value.decode())
    except _RepeatedKeyError as repeated:
        raise BadMessage(
            codes.DUPLICATE_KEYS, f"an object has the key {excerpt(repeated.args[0])} more than once"
        ) from None
    except RecursionError:
        raise too_deep(max_depth) from None
    except ValueError as error:
        raise BadMessage(codes.NOT_JSON, f"not JSON: {excerpt(str(error))}") from None


def survey(member: object, levels: int, path: str) -> int:
    """Count the keys and string values in a decoded free-form JSON value, with so many `levels` of
    nesting still allowed.

    `path` names the place in the event. Raises `BadMessage` ``too_deeply_nested``, or
    ``invalid_field`` for an integer outside 64 bits.
    """
    if isinstance(member, str):
        return 1
    if isinstance(member, (dict, list)):
        if levels == 0:
            raise BadMessage(codes.TOO_DEEPLY_NESTED, f"{path} is nested too deep")
        if isinstance(member, dict):
            return len(member) + sum(survey(inner, levels - 1, path) for inner in member.values())
        return sum(survey(inner, levels - 1, path) for inner in member)
    if isinstance(member, int) and not MIN_INTEGER <= member <= MAX_INTEGER:
        raise BadMessage(
            codes.INVALID_FIELD, f"an integer in {path} does not fit 64 bits; send it as a string"
        )
    return 0


def proves_plain(value: bytes, strings: int, optional: Sequence[bytes]) -> bool:
    """Report whether a decoded event surely has no repeated and no unknown key; False means "look
    closer".

    Each key and each string value has two quotes of its own; quotes inside strings are escaped. So
    when the text has exactly the quotes that the decoded event accounts for (`strings`: its keys
    and string values), there is no key besides, repeated or unknown. A key that holds its default
    cannot be distinguished from an absent one after decoding; such `optional` ones without string
    value are looked up in the text as they stand there: ``"attempt":``.
    """
    quotes = value.count(b'"')
    if b"\\" in value:
        if b'\\\\"' in value:
            return False  # an escaped backslash and then a quote, or a backslash and an escaped quote
        quotes -= value.count(b'\\"')
    rest = quotes - 2 * strings
    if rest == 0:
        return True
    if rest > 2 * len(optional):
        return False
    # A search in a part of the text can only find too few; then the exact check decides.
    ends = value if len(value) <= 4 * _END else value[:_END] + b"\n" + value[-_END:]
    for key in optional:
        found = ends.count(key)
        if found > 1:
            return False
        rest -= 2 * found
    return rest == 0
