"""The audit draw: which decided batches, and which of their responses, are to be labelled. Pure.

Every draw is a keyed hash (HMAC-SHA256 under the gate's secret salt) of the batch's identity: independent of
scores, texts and labels, reproducible by whoever holds the salt, and the same however often a batch is delivered.
"""

from collections.abc import Sequence

from streamer.gates.batch_key import BatchKey
from streamer.gates.uniforms import keyed_bits

_TWO_TO_64 = float(2**64)


def _keyed_uniform(salt: bytes, *parts: str) -> float:
    """Map `parts` to a number in [0, 1), uniform for one who does not know `salt`."""
    return keyed_bits(salt, *parts) / _TWO_TO_64


def is_sampled(salt: bytes, key: BatchKey, probability: float) -> bool:
    """Tell whether the audit sample takes a batch: with a chance of `probability`, in [0, 1].

    For one batch the answer is monotone: a higher probability takes all that a lower one does.
    """
    return _keyed_uniform(salt, "audit", key.gate, key.batch_id, str(key.attempt)) < probability


def draw_responses(salt: bytes, key: BatchKey, response_ids: Sequence[str], draws: int) -> frozenset[str]:
    """Draw `draws` of the responses without replacement, each subset of that size equally likely.

    All are drawn when there are no more than `draws`. The draw depends on ids alone, so it is made before any
    label is seen (partial labels as a labelling plan: the drawn ones get weight 1/k).
    """
    order = sorted(
        response_ids,
        key=lambda i: (_keyed_uniform(salt, "draw", key.gate, key.batch_id, str(key.attempt), i), i),
    )
    return frozenset(order[:draws])
