"""Values of a record: how they are written and read, compared and named."""

from __future__ import annotations

import hashlib
import hmac
import json
import math
import re
import uuid
from binascii import a2b_base64
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import repeat
from operator import itemgetter
from typing import Any

ACTION_NAMESPACE = uuid.UUID("81e78adc-fc1e-4630-a18c-d59094748d62")

DESK_NAMESPACE = uuid.UUID("5b1f1f64-9d0f-4f0e-8d55-6a4f1b7d3f0c")

CONTROL = ("control", "", 0)
"""What a receipt names in place of log, topic and partition for a leaf of the control log."""

HTTP_LOG = "http"

RECALIBRATOR, MONITOR, WARNING, SIGNED_IN = "recalibrator", "monitor", "early-warning", "account:"
"""Who makes what the service makes by itself, an alarm's closings, and how the names of people begin who have signed in."""

DEEPEST = 200
"""How deep values may be nested in a line."""

CLOCKS_APART = timedelta(minutes=1)

log_of = itemgetter("log_id", "topic", "partition")
"""Which log a checkpoint's head, or a gap, is of."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


# Made once: to make one for each value takes longer than many a value.
_COMPACT: dict[str, Any] = {"separators": (",", ":"), "allow_nan": False, "check_circular": False}
_WRITTEN, _CANONICAL = (json.JSONEncoder(ensure_ascii=False, sort_keys=s, **_COMPACT) for s in (False, True))


def written_json(value: object) -> bytes:
    """Write a value in the order of its keys."""
    return _WRITTEN.encode(value).encode()


def canonical_json(value: object) -> bytes:
    """Write a value as the one byte string that is hashed."""
    return _CANONICAL.encode(value).encode()


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    read = dict(pairs)
    if len(read) != len(pairs):
        raise ValueError("a key occurs twice in one object")
    return read


def _finite(text: str) -> float:
    if math.isfinite(number := float(text)):
        return number
    raise ValueError(f"{text[:40]} is no number that a double has")


_STRICT = json.JSONDecoder(object_pairs_hook=_once, parse_constant=_finite, parse_float=_finite)


def strict_json(line: bytes) -> Any:
    """Read JSON that says one thing to everybody. Raises `ValueError` for a key twice, NaN, or nesting without end."""
    try:
        value = _STRICT.decode(line.decode())
        _shallow(value, line)
        return value
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def canonical_value(line: bytes) -> dict[str, Any]:
    """Read an object that is written as canonical JSON. Raises `ValueError`; so no key occurs twice, and no number has no value."""
    try:
        value = json.loads(line.decode())
        if canonical_json(value) != line:
            raise ValueError("it is not written as canonical JSON")
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(value, dict):
        raise ValueError("it is not an object")
    _shallow(value, line)
    return value


def _shallow(value: Any, line: bytes) -> None:
    if line.count(b"[") + line.count(b"{") <= DEEPEST:
        return
    level = [value]
    for _ in range(DEEPEST):
        parts = (one.values() if isinstance(one, dict) else one for one in level)
        level = [one for part in parts for one in part if isinstance(one, dict | list)]
    if any(level):
        raise ValueError("it is nested too deeply")


def keyed_digest(key: bytes, *parts: str) -> bytes:
    """Return HMAC-SHA256 of names under a key; each is preceded by its length."""
    message = b"".join([len(part).to_bytes(4, "big") + part for part in map(str.encode, parts)])
    return hmac.digest(key, message, "sha256")


def sha256(data: bytes) -> str:
    """Return the digest in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def from_base64(text: str | None) -> bytes | None:
    """Return what a text in base64 stands for."""
    return None if text is None else a2b_base64(text)


def base64_as_hex(text: str | None) -> str | None:
    """Return base64 as hexadecimal."""
    return None if text is None else a2b_base64(text).hex()


PLAIN: dict[str, Any] = {"kind": "indicator", "parameters": {}, "curve": None}


def sizes_of(head: dict[str, Any]) -> dict[tuple[Any, ...], int]:
    """How many leaves the logs have by a manifest or a head, the control log under `()`."""
    return {(): head["control"]["size"]} | {log_of(one): one["size"] for one in head["partitions"]}


_NAMED_BY = (
    "name", "gate", "revision", "version", "event", "id", "batch_id", "response_id", "topic", "partition"
)  # fmt: skip


def row_name(kind: str, row: dict[str, Any] | None) -> str:
    """Name a row for people."""
    of = [] if row is None else [f"{key} {row[key]}" for key in _NAMED_BY if row.get(key) is not None]
    return " ".join([kind, *of])


def place_of(line: dict[str, Any]) -> str:
    """Name a decision for people."""
    place = "{}[{}], leaf {}, offset {}".format(*line["source"][1:3], line["index"], line["source"][3])
    return place + " ({}/{}#{})".format(*line["facts"]["batch"])


def parsed(value: Any) -> Any:
    """Return what JSON in a text says."""
    return json.loads(value) if isinstance(value, str) else value


@lru_cache
def given_out_of(logs: str) -> dict[tuple[Any, ...], tuple[int, int, int, str, int]]:
    """Of each log of a row of `give_outs`: first leaf, one past the last, how many decisions left,
    their root, and how many lines of the segment come before."""
    found, lines = {}, 0
    for log_id, topic, partition, first, end, count, root in json.loads(logs):
        found[log_id, topic, partition] = first, end, count, root, lines
        lines += end - first
    return found


def line_of_segment(logs: str, leaf: dict[str, Any]) -> int | None:
    """Which line of the segment of a row of `give_outs` has a leaf; None: it is of none of its ranges."""
    first, end, *_, before = given_out_of(logs).get(tuple(leaf["source"][:3]), (0, 0, 0))
    index: int = leaf["index"]
    return before + index - first if first <= index < end else None


def same_json(one: Any, other: Any, near: float = 0.0) -> bool:
    """Whether two values are the same JSON, 1 and 1.0 taken for one, and numbers, but whole ones, that `near` parts of them apart."""
    if type(one) is type(other) and type(one) not in (dict, list) and one == other:
        return True
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, int | float) and isinstance(other, int | float):
        apart = abs(one - other)
        return one == other or (isinstance(apart, float) and apart <= near * max(1.0, abs(one)))
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same_json, one, other, repeat(near)))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(
            map(same_json, one.values(), map(other.get, one), repeat(near))
        )
    return bool(one == other)


_MOMENT = re.compile(r"([0-9T:-]{19})(?:\.([0-9]{1,6}))?(?:Z|\+00:00)")


def moment_of(said: Any) -> str | None:
    """A moment of an event, which leaves out digits that are zero, as leaves have it; None where it is none."""
    found = _MOMENT.fullmatch(said) if isinstance(said, str) else None
    return None if found is None else f"{found[1]}.{found[2] or '':0<6}+00:00"


def seconds_between(start: str, end: str) -> float:
    """Return the seconds from one moment to another."""
    return (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds()
