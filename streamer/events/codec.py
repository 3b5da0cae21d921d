"""How bytes become events, and events bytes: one strict reader for all topics."""

import re
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final, Generic, TypeVar

import msgspec

from streamer.errors import BadMessage
from streamer.events import codes
from streamer.events.excerpts import excerpt, one_line
from streamer.events.json_structure import check_structure, too_deep
from streamer.events.limits import DEFAULT_LIMITS, Limits


class Event(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What all events have in common: they name their schema, and their times are moments that UTC can express.

    A subclass that has a ``__post_init__`` of its own calls this one.

    Raises `ValueError` on construction, for a time without zone, or one outside the years 1 to 9999
    in UTC.
    """

    schema: str

    def __post_init__(self) -> None:
        # Checked here, so that no event, decoded or made, has a time that cannot be converted.
        for name in _times_of(type(self)):
            value = getattr(self, name)
            if isinstance(value, datetime):
                _check_moment(name, value)


E = TypeVar("E", bound=Event)


@lru_cache(maxsize=64)
def _times_of(kind: type[Event]) -> tuple[str, ...]:
    """The fields of an event that may hold a time."""
    return tuple(one.name for one in msgspec.structs.fields(kind) if "datetime.datetime" in repr(one.type))


def _check_moment(name: str, moment: datetime) -> None:
    if moment.tzinfo is None:
        raise ValueError(f"{name} needs a zone")
    if 1 < moment.year < 9999:  # from here no offset leaves the calendar
        return
    try:
        moment.astimezone(UTC)
    except OverflowError:
        # Written like the decoder's own errors, which name the path last.
        raise ValueError(f"{moment.isoformat()} {BEYOND_UTC} - at `$.{name}`") from None


class _SchemaOnly(msgspec.Struct, gc=False):
    schema: Any = msgspec.UNSET


_schema_only = msgspec.json.Decoder(_SchemaOnly)
_encoder = msgspec.json.Encoder()

BEYOND_UTC: Final = "is outside the years 1 to 9999 in UTC"
"""What is said of a time that no UTC timestamp can express, such as what .NET writes where there is no date."""

_NUL_ESCAPE = re.compile(rb"(?<!\\)(?:\\\\)*+\\u0000")
_SURROGATE_ESCAPE = re.compile(rb"\\u[dD][89a-fA-F]")
_POSITION = re.compile(r"\(byte (\d+)\)")
_CONSTANT = re.compile(rb"-?(?:NaN|Infinity)")
_VERSIONED = re.compile(r"(streamer\.[a-z-]+)\.v([0-9]{1,9})")


def encode(event: msgspec.Struct) -> bytes:
    """Write an event as JSON, its fields in the order of its type."""
    return _encoder.encode(event)


class Reader(Generic[E]):
    """Reads the values of one topic into `event`, whose `schema` field admits `schema` alone, for
    example ``streamer.responses.v1``.
    """

    def __init__(self, event: type[E], schema: str) -> None:
        self._decoder = msgspec.json.Decoder(event)
        self._schema = schema
        self._kind = schema.rpartition(".")[0]

    def read(self, value: bytes | None, limits: Limits = DEFAULT_LIMITS) -> E:
        """Decode and validate in one pass; unknown fields are skipped.

        Repeated keys and the nesting of what is skipped are not looked at here: see
        `streamer.events.json_structure`.

        Raises `BadMessage` and nothing else, whatever the bytes are.
        """
        text = screen(value, limits)
        try:
            return self._decoder.decode(text)
        except msgspec.ValidationError as error:
            raise self._mismatch(text, str(error), limits) from None
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise malformed(text, str(error)) from None
        except RecursionError:
            raise too_deep(limits.max_depth) from None

    def read_whole(self, value: bytes | None, limits: Limits = DEFAULT_LIMITS) -> E:
        """The same, and the whole JSON text is read a second time for repeated keys and for its nesting."""
        event = self.read(value, limits)
        check_structure(value or b"", limits.max_depth)
        return event

    def _mismatch(self, value: bytes, problem: str, limits: Limits) -> BadMessage:
        """Name what is wrong with a value that is not the event we wanted."""
        try:
            found = _schema_only.decode(value).schema
        except msgspec.ValidationError:
            return BadMessage(
                codes.WRONG_SCHEMA, f"{one_line(problem)}: the value is not a {self._schema} event"
            )
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return malformed(value, str(error))
        except RecursionError:
            return too_deep(limits.max_depth)
        if found is msgspec.UNSET:
            return BadMessage(codes.WRONG_SCHEMA, f"the field schema is missing; it must be {self._schema}")
        if found == self._schema:
            code = codes.NOT_FINITE if problem.startswith("Number out of range") else codes.INVALID_FIELD
            return BadMessage(code, one_line(problem))
        shown = excerpt(found) if isinstance(found, str) else f"a {type(found).__name__}"
        version = _VERSIONED.fullmatch(found) if isinstance(found, str) else None
        if version is not None and version[1] == self._kind:
            return BadMessage(
                codes.UNSUPPORTED_VERSION, f"schema is {shown}; this release reads {self._schema}"
            )
        return BadMessage(codes.WRONG_SCHEMA, f"schema is {shown}; this topic carries {self._schema}")


def screen(value: bytes | None, limits: Limits) -> bytes:
    """Refuse what is wrong with the bytes of a value before they are parsed.

    Raises `BadMessage` ``tombstone``, ``empty_value``, ``too_large``, ``confluent_framed``,
    ``not_utf8`` or ``nul_or_surrogate``.
    """
    if value is None:
        raise BadMessage(codes.TOMBSTONE, "the record has no value (a tombstone)")
    if not value:
        raise BadMessage(codes.EMPTY_VALUE, "the value has no bytes")
    if len(value) > limits.max_value_bytes:
        raise BadMessage(
            codes.TOO_LARGE, f"the value has {len(value)} bytes, at most {limits.max_value_bytes} are allowed"
        )
    if 0 in value:
        raise _has_nul_bytes(value)
    if not value.isascii():
        try:
            value.decode()
        except UnicodeDecodeError as error:
            raise BadMessage(codes.NOT_UTF8, f"not UTF-8 at byte {error.start}: {error.reason}") from None
    if b"\\" in value and b"\\u0000" in value and _NUL_ESCAPE.search(value) is not None:
        raise BadMessage(codes.NUL_OR_SURROGATE, "a string has an escaped NUL character (\\u0000)")
    return value


def _has_nul_bytes(value: bytes) -> BadMessage:
    if value[0] == 0 and len(value) >= 5:
        number = int.from_bytes(value[1:5], "big")
        return BadMessage(
            codes.CONFLUENT_FRAMED,
            f"the value starts with Confluent's magic byte 0 and schema id {number}; publish the plain JSON bytes",
        )
    if value[:2] in {b"\xff\xfe", b"\xfe\xff"} or value[1:2] == b"\0":
        return BadMessage(codes.NOT_UTF8, "the value looks like UTF-16; publish UTF-8")
    try:
        value.decode()
    except UnicodeDecodeError as error:
        return BadMessage(codes.NOT_UTF8, f"not UTF-8 at byte {error.start}: {error.reason}")
    return BadMessage(codes.NUL_OR_SURROGATE, f"a NUL byte at byte {value.index(0)}")


def malformed(value: bytes, problem: str) -> BadMessage:
    """Name what is wrong with a value that is not JSON; `problem` : what the parser says."""
    position = _POSITION.search(problem)
    at = int(position[1]) if position is not None else len(value)
    if _CONSTANT.match(value, max(0, at - 1)) or _CONSTANT.match(value, at):
        return BadMessage(
            codes.NOT_FINITE, f"NaN or Infinity at byte {at}; JSON has no such number: write null"
        )
    if "surrogate" in problem or _SURROGATE_ESCAPE.search(value, max(0, at - 16), at + 16):
        return BadMessage(codes.NUL_OR_SURROGATE, f"a lone UTF-16 surrogate is escaped near byte {at}")
    if value.startswith(b"\xef\xbb\xbf"):
        return BadMessage(codes.NOT_JSON, "the value starts with a byte order mark; publish without it")
    why = (
        "cut off in the middle"
        if "truncated" in problem
        else one_line(problem).removeprefix("JSON is malformed: ")
    )
    return BadMessage(codes.NOT_JSON, f"not JSON: {why}")
