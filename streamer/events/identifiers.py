"""Names and identifiers: what they may look like, as JSON Schema and as checks."""

import re
from typing import Annotated, Any

from msgspec import Meta

from streamer.errors import BadMessage
from streamer.events import codes
from streamer.events.excerpts import excerpt
from streamer.events.limits import DEFAULT_LIMITS
from streamer.gates.setting import GATE_NAME, GATE_NAME_RULE


def about(text: str, **bounds: Any) -> Meta:
    """Describe a field, and bound its value."""
    return Meta(description=text, **bounds)


_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")
# The negative look-ahead means the same to ECMAScript and Python, where `$` also matches before a last newline.
_NO_CONTROL_PATTERN = r"^(?![\s\S]*[\u0000-\u001f\u007f-\u009f])"

Identifier = Annotated[
    str,
    Meta(
        extra_json_schema={
            "minLength": 1,
            "maxLength": DEFAULT_LIMITS.max_identifier,
            "pattern": _NO_CONTROL_PATTERN,
        }
    ),
]
"""1..200 characters, none of them a control character (C0, DEL, C1)."""

GateName = Annotated[
    str, Meta(extra_json_schema={"minLength": 1, "maxLength": 64, "pattern": f"^{GATE_NAME.pattern}$"})
]
"""A gate's name, and the names of kinds of severity: see `streamer.gates.policy.GATE_NAME`."""


def is_identifier(text: str, max_characters: int) -> bool:
    """Report whether `text` has 1..`max_characters` characters and no control character."""
    return 0 < len(text) <= max_characters and (text.isprintable() or _CONTROL.search(text) is None)


def check_identifier(name: str, text: str, max_characters: int) -> None:
    """Raise `BadMessage` (``bad_identifier``), naming the field `name`, unless `text` is an identifier."""
    if is_identifier(text, max_characters):
        return
    if not text:
        problem = f"is empty; a name has 1 to {max_characters} characters"
    elif len(text) > max_characters:
        problem = f"has {len(text)} characters, at most {max_characters} are allowed: {excerpt(text)}"
    else:
        problem = f"has a control character: {excerpt(text)}"
    raise BadMessage(codes.BAD_IDENTIFIER, f"{name} {problem}")


def check_name(field: str, text: str) -> None:
    """Raise `BadMessage` (``bad_identifier``) unless `text` is a gate name (or the name of a kind)."""
    if GATE_NAME.fullmatch(text) is None:
        raise BadMessage(codes.BAD_IDENTIFIER, f"{field} must be {GATE_NAME_RULE}, not {excerpt(text)}")
