"""From the judge's reply to a verdict, strictly: anything but exactly the reply that was asked for is refused. Pure.

Only the reply is read, never the case. A reply that repeats a verdict from the case beside its own holds two objects,
or text beside one, and is refused; so there is no rule by which one of several could be picked.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NoReturn

from streamer.errors import StreamerError

ASPECT_NAMES: Mapping[str, int] = MappingProxyType(
    {"correctness": 60, "faithfulness": 20, "completeness": 15, "clarity": 5}
)
"""The rubric's aspects and the most points each can have: the paper's weights, in points of 100."""

MAX_REPLY_CHARACTERS = 4096
"""A reply in 200 tokens is far shorter; what is longer is not read at all."""

_FENCED = re.compile(r"```(?:json)?[ \t]*\n(.*)\n[ \t]*```", re.DOTALL | re.IGNORECASE)


class MalformedReply(StreamerError):
    """The reply is not the one JSON object that was asked for; the text says why, without a word of the reply."""


@dataclass(frozen=True, slots=True)
class JudgeVerdict:
    """What the judge said of one answer.

    `mark` is J in [0, 100], one decimal. `subscores` are points by aspect, from 0 to the most that
    `ASPECT_NAMES` allows; a claim has none.
    """

    mark: float
    subscores: Mapping[str, float]


def parse_verdict(reply: str, *, claim: bool = False) -> JudgeVerdict:
    """Read a reply; white space around the object, and one Markdown fence around it, are allowed.

    Raises `MalformedReply` when it is not one JSON object with the numbers ``score``, in [0, 100],
    and, but of a claim, ``subscores``, an object with exactly the rubric's aspects, each in its
    range; or when it holds anything else.
    """
    if len(reply) > MAX_REPLY_CHARACTERS:
        raise MalformedReply(f"it is longer than {MAX_REPLY_CHARACTERS} characters")
    text = reply.strip()
    if fenced := _FENCED.fullmatch(text):
        text = fenced.group(1).strip()
    try:
        parsed = json.loads(text, object_pairs_hook=_object, parse_constant=_not_a_number)
    except MalformedReply:
        raise
    except (ValueError, RecursionError):
        raise MalformedReply("it is not one JSON object and nothing else") from None
    fields = _keyed(parsed, ("score",) if claim else ("score", "subscores"), "the reply")
    points = {}
    if not claim:
        subscores = _keyed(fields["subscores"], tuple(ASPECT_NAMES), "subscores")
        points = {name: _number(subscores[name], name, most) for name, most in ASPECT_NAMES.items()}
    return JudgeVerdict(round(_number(fields["score"], "score", 100), 1), MappingProxyType(points))


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({key for key, _ in pairs}) != len(pairs):
        raise MalformedReply("a key occurs twice in it")
    return dict(pairs)


def _not_a_number(_: str) -> NoReturn:
    raise MalformedReply("it holds NaN or Infinity")


def _keyed(value: object, keys: tuple[str, ...], what: str) -> dict[str, Any]:
    if not isinstance(value, dict) or set(value) != set(keys):
        raise MalformedReply(f"{what} must be an object with exactly the keys {', '.join(keys)}")
    return value


def _number(value: object, name: str, most: int) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
        raise MalformedReply(f"{name} must be a number from 0 to {most}")
    return float(value) + 0.0  # no negative zero
