"""A few numbers of a batch's embeddings, kept with its decision so that drift can be looked for without the texts. Pure.

With unit rows v_1..v_n and their mean m: the mean cosine over all pairs, (n^2 |m|^2 - n)/(n (n - 1)), and the cosine of
m to four fixed directions. The directions are corners of a cube, +1 or -1 in every dimension, by a hash of the
encoder's identity: whatever the answers move towards, a random direction sees some of it, and the same encoder has the
same four forever.
"""

import hashlib
import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

STATISTICS = ("cosine", "direction_1", "direction_2", "direction_3", "direction_4")
"""The numbers, in the order in which they are kept."""

_DIRECTIONS = len(STATISTICS) - 1
_DECIMALS = 6
_CANCELLED = 1e-12


def cloud_numbers(rows: Floats, count: int, encoder: str) -> tuple[float, ...] | None:
    """Return what a batch's embeddings amount to, in the order of `STATISTICS`.

    `rows`: shape (n, d), of length 1, or 0 where an answer is blank, as
    `streamer.scoring.gram.unit_rows` makes them. `count`: the rows that are not 0. `encoder`: the
    identity of the encoder, which the directions belong to. Returns numbers in [-1, 1], rounded to
    1e-6; None where fewer than two responses are left, or they cancel out.
    """
    if count < 2:
        return None
    together = rows.sum(axis=0)
    square = float(together @ together)
    if square < _CANCELLED:
        return None
    cosine = (square - count) / (count * (count - 1))
    along = _directions(encoder, together.size) @ together
    length = math.sqrt(square)
    numbers = (cosine, *(one / length for one in along.tolist()))
    return tuple(round(min(1.0, max(-1.0, number)), _DECIMALS) for number in numbers)


@lru_cache(maxsize=16)
def _directions(encoder: str, dimension: int) -> Floats:
    """Return the directions, shape (4, d), each of length 1."""
    each = -(-dimension // 8)
    bits = hashlib.shake_256(b"streamer.cloud.v1\x00" + encoder.encode()).digest(_DIRECTIONS * each)
    signs = np.unpackbits(np.frombuffer(bits, dtype=np.uint8)).reshape(_DIRECTIONS, each * 8)[:, :dimension]
    directions: Floats = (2.0 * signs - 1.0) / np.sqrt(dimension)
    return directions
