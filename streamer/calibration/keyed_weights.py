"""The weights of one named group, derived from a seed and from names by HMAC-SHA256.

Anyone who knows the seed and the ids can derive every weight again: the order of groups and items plays no part, another
group's presence changes nothing, and scores and labels cannot reach the weights. Each scheme makes its weights of
these draws in a file of `streamer.calibration.calibrators`.
"""

from collections.abc import Sequence
from hashlib import sha256

import numpy as np
from numpy.typing import NDArray

_DOMAIN = b"streamer.calibration.v1:"
_BLOCK = 64
_INNER, _OUTER = (bytes(byte ^ pad for byte in range(256)) for pad in (0x36, 0x5C))
"""HMAC's two paddings (RFC 2104), as translations of a key's bytes."""


class KeyedWeights:
    """Weights of groups under a gate's seed, any integer, fixed before labels are read."""

    def __init__(self, seed: int) -> None:
        key = _DOMAIN + str(seed).encode()
        block = (sha256(key).digest() if len(key) > _BLOCK else key).ljust(_BLOCK, b"\0")
        # What all digests start with, hashed once: `hmac.digest` takes three times as long.
        self._inner, self._outer = sha256(block.translate(_INNER)), sha256(block.translate(_OUTER))

    def pick(self, group: str, items: Sequence[str]) -> int:
        """Return the position of the item whose digest is the smallest: each is equally likely."""
        digests = self.digests(("crc", group), items)
        return min(range(len(items)), key=lambda i: (digests[i], items[i]))

    def coin(self, group: str) -> float:
        """Draw a uniform number in [0, 1)."""
        return (int.from_bytes(self.digest("coin", group)[:8], "big") >> 11) * 2.0**-53

    def order(self, groups: Sequence[str]) -> NDArray[np.intp]:
        """Return the positions of groups in a random order that follows from seed and ids: rising digests."""
        digests = self.digests(("order",), groups)
        ranked = sorted(zip(digests, groups, range(len(groups)), strict=True))
        return np.array([place for _, _, place in ranked], dtype=np.intp)

    def digest(self, *parts: str) -> bytes:
        """Map `parts` to 32 bytes; each is preceded by its length, so that no two sequences share an encoding."""
        (digest,) = self.digests(parts[:-1], parts[-1:])
        return digest

    def digests(self, first: Sequence[str], last: Sequence[str]) -> list[bytes]:
        """Return the digest of `first` and one more part, for each part in `last`."""
        started = self._inner.copy()
        for part in first:
            started.update(_length_prefixed(part))
        made = []
        for part in last:
            inner, outer = started.copy(), self._outer.copy()
            inner.update(_length_prefixed(part))
            outer.update(inner.digest())
            made.append(outer.digest())
        return made


def _length_prefixed(part: str) -> bytes:
    encoded = part.encode("utf-8", "surrogatepass")
    return len(encoded).to_bytes(4, "big") + encoded
