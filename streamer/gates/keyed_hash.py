"""Keyed hashes of identities, which every draw derives from: the audit's and that of random gates. Pure."""

import hashlib
import hmac


def keyed_bits(salt: bytes, *parts: str) -> int:
    """Map `parts` to a number in [0, 2^64), uniform to anyone who does not know `salt`.

    It is the first eight bytes of HMAC-SHA256, the highest first. Parts are length-prefixed, so that no two sequences
    of parts share an encoding.
    """
    mac = hmac.new(salt, digestmod=hashlib.sha256)
    for part in parts:
        mac.update(_length_prefixed(part))
    return int.from_bytes(mac.digest()[:8], "big")


def _length_prefixed(part: str) -> bytes:
    """Encode a part with its length before it."""
    encoded = part.encode("utf-8")
    return len(encoded).to_bytes(4, "big") + encoded
