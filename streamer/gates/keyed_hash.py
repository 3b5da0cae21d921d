"""Keyed hashes of identities, which every draw derives from: the audit's and that of random gates. Pure."""

from __future__ import annotations

import hashlib
import hmac
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_BLOCK = 64
"""Bytes of a block of SHA-256."""


def keyed_bits(salt: bytes, *parts: str) -> int:
    """Map `parts` to a number in [0, 2^64), uniform to anyone who does not know `salt`.

    It is the first eight bytes of HMAC-SHA256, the highest first. Parts are length-prefixed, so that no two sequences
    of parts share an encoding.
    """
    mac = hmac.new(salt, digestmod=hashlib.sha256)
    for part in parts:
        mac.update(_prefixed(part))
    return int.from_bytes(mac.digest()[:8], "big")


def keyed_bits_of_each(salt: bytes, parts: Iterable[str], lasts: Iterable[str]) -> list[int]:
    """Return `keyed_bits(salt, *parts, last)` for each last part; what they share is hashed once."""
    key = (salt if len(salt) <= _BLOCK else hashlib.sha256(salt).digest()).ljust(_BLOCK, b"\0")
    inner = hashlib.sha256(bytes(byte ^ 0x36 for byte in key))
    outer = hashlib.sha256(bytes(byte ^ 0x5C for byte in key))
    for part in parts:
        inner.update(_prefixed(part))
    found = []
    for last in lasts:
        message, mac = inner.copy(), outer.copy()
        message.update(_prefixed(last))
        mac.update(message.digest())
        found.append(int.from_bytes(mac.digest()[:8], "big"))
    return found


def _prefixed(part: str) -> bytes:
    encoded = part.encode("utf-8")
    return len(encoded).to_bytes(4, "big") + encoded
