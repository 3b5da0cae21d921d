r"""The canonical form of JSON.

`canonical_json` writes a value as exactly one byte string, so that it can be hashed, and hashed again a year
later with nothing but a standard library: what ``json.dumps(value, sort_keys=True, ensure_ascii=False,
separators=(",", ":"), allow_nan=False)`` of Python returns, as UTF-8. In words:

- no white space outside strings;
- object keys are strings, in the order of their Unicode code points, which is the order of their UTF-8 bytes;
- in strings ``"`` and ``\`` are escaped by ``\``, the controls U+0008, U+0009, U+000A, U+000C, U+000D as ``\b \t
  \n \f \r``, the other ones below U+0020 as ``\u00xx`` in lower case; everything else stands for itself; there is
  no Unicode normalisation;
- integers are decimal digits; floats are the shortest digits that read back as the same double, always with a
  point or an exponent: ``0.5``, ``1.0``, ``1e-06``, ``1e+16``; NaN and infinities do not exist;
- UTF-8 without byte order mark.

It is RFC 8785 but for two things: numbers are written as above and not as ECMAScript writes them, and keys are
ordered by code points and not by UTF-16 code units.
"""

import hashlib
import json
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import msgspec

_canonical = json.JSONEncoder(
    sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False, check_circular=False
)
_fast = msgspec.json.Encoder(order="sorted")
_STR = frozenset({str})
_INTEGERS = 2**63
_ALIKE = frozenset({str, bool, type(None)})


def canonical_json(value: object) -> bytes:
    """Write `value` in the canonical form that this module documents.

    It is a dict with str keys, a list or tuple, str, int, float, bool or None, nested as you like. Raises `ValueError` when a
    float is NaN or infinite, or a string has a lone surrogate; `TypeError` when a value has another type.
    """
    return _fast.encode(value) if _written_alike(value) else _canonical.encode(value).encode()


def _written_alike(value: object) -> bool:
    """Whether the fast writer gives the same bytes: it writes exponents in another way, and takes what is not JSON."""
    waiting: list[Iterable[Any]] = [(value,)]
    for members in waiting:  # grows meanwhile: a call for each container would take longer than to write it
        for member in members:
            kind = type(member)
            if kind in _ALIKE:
                continue
            if kind is float:
                if 1e-4 <= member < 1e16 or member == 0 or 1e-4 <= -member < 1e16:
                    continue
                return False
            if kind is int:
                if -_INTEGERS < member < _INTEGERS:
                    continue
                return False
            if kind is list or kind is tuple:
                waiting.append(member)
            elif kind is dict and {*map(type, member)} <= _STR:
                waiting.append(member.values())
            else:
                return False
    return True


def signed_text(kind: str, value: object) -> bytes:
    """Write what the signature of a `kind` covers: its canonical JSON in the form of DSSE, which names type and lengths.

    https://github.com/secure-systems-lab/dsse/blob/master/protocol.md
    """
    return dsse(f"application/vnd.streamer.{kind}.v1+json", canonical_json(value))


def dsse(payload_type: str, payload: bytes) -> bytes:
    """Write what a DSSE signature of a payload covers."""
    return b"DSSEv1 %d %b %d %b" % (len(payload_type), payload_type.encode(), len(payload), payload)


def moment_text(moment: datetime) -> str:
    """Write a moment as leaves and signatures have it: UTC, always with microseconds."""
    return (moment if moment.tzinfo is UTC else moment.astimezone(UTC)).isoformat(timespec="microseconds")


def stored_number(value: float) -> float:
    """A number as it comes back from every database: 1 and 1.0 are one, and so are 0.0 and -0.0 (SQLite keeps no sign).

    What is hashed or signed must come out the same when it is read from the table.
    """
    return float(value) + 0.0


def salt_commitment(gate: str, salt: bytes) -> str:
    """What may be shown of a gate's audit salt before it is revealed: a SHA-256, in hex, that binds to both."""
    return hashlib.sha256(b"streamer.salt.v1\x00" + canonical_json([gate, salt.hex()])).hexdigest()


def seed_commitment(gate: str, seed: int) -> str:
    """The same of a gate's calibration seed."""
    return hashlib.sha256(b"streamer.seed.v1\x00" + canonical_json([gate, seed])).hexdigest()
