"""Keyed hashes of identities, which every draw derives from, and the random numbers of random gates. Pure.

They are independent of scores and labels, reproducible, and recorded.
"""

import hmac
from collections.abc import Sequence

from streamer.gates.batch_key import BatchKey
from streamer.gates.declared import Unit


def keyed_bits(salt: bytes, *parts: str) -> int:
    """Map `parts` to a number in [0, 2^64), uniform to anyone who does not know `salt`.

    It is the first eight bytes of HMAC-SHA256, the highest first. Parts are length-prefixed, so that no two sequences
    of parts share an encoding.
    """
    text = b""
    for part in parts:
        encoded = part.encode("utf-8")
        text += len(encoded).to_bytes(4, "big") + encoded
    return int.from_bytes(hmac.digest(salt, text, "sha256")[:8], "big")


_BITS = 52


def uniforms_for(salt: bytes, key: BatchKey, response_ids: Sequence[str], unit: Unit) -> tuple[float, ...]:
    """Draw one number in (0, 1) for each response, both ends excluded.

    They are keyed hashes (HMAC-SHA256) of identities, so that anyone who holds the salt can draw them again, a batch that
    is delivered twice gets the same, and nobody without it can choose ids that ship.

    `salt`: the gate's secret. `key`: the batch's identity. `response_ids`: in event order. `unit`:
    under `batch`, where all share one decision, all share one number.
    """
    if unit == "batch":
        return (_uniform(salt, key, ""),) * len(response_ids)
    return tuple(_uniform(salt, key, response) for response in response_ids)


def _uniform(salt: bytes, key: BatchKey, response: str) -> float:
    return uniform_of(salt, key, "dither", response)


def counts_bad(salt: bytes, key: BatchKey, severity: float) -> bool:
    """Whether a prompt counts as bad by the method `full`: a severity between 0 and 1 with that chance, by the gate's keyed draw."""
    return severity > 0 and (severity >= 1 or uniform_of(salt, key, "severity") < severity)


def uniform_of(salt: bytes, key: BatchKey, use: str, *parts: str) -> float:
    """Draw one number in (0, 1) for one use, both ends excluded."""
    bits = keyed_bits(salt, use, key.gate, key.batch_id, str(key.attempt), *parts)
    # the middle of one of 2^52 cells: exact in a double, and never 0 or 1
    return ((bits >> (64 - _BITS)) + 0.5) / 2.0**_BITS
