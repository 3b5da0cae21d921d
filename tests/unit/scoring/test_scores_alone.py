"""The one-file verifier scores answers as the program does, with the standard library alone."""

import base64
import hashlib
import json
from typing import Any

import numpy as np
import pytest

from streamer.scoring.gram import score_batch
from streamer_verify import scores


def made(seed: int) -> tuple[list[bool], np.ndarray]:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 9))
    blank = [seed % 7 == 0, *(bool(one) for one in rng.random(n - 1) < 0.2)]
    rows = (rng.normal(size=6) + rng.choice([0.2, 1.0]) * rng.normal(size=(n, 6))).astype("<f4")
    if seed % 3 == 0:
        rows[-1] = rows[0]
    return blank, rows


@pytest.mark.parametrize("seed", range(60))
def test_it_scores_the_same(seed: int) -> None:
    blank, rows = made(seed)
    np.testing.assert_allclose(
        scores.gram_energy(blank, rows.tolist()), score_batch(rows, blank)[0], atol=2e-6
    )


def test_embeddings_are_read_as_events_bring_them() -> None:
    row = np.array([0.5, -0.25], "<f4")
    line = {"encoder": "e@1", "text": hashlib.sha256(b"Paris").hexdigest()}
    packed: list[dict[str, Any]] = [
        line | {"embedding": base64.b64encode(row.tobytes()).decode()},
        line | {"encoder": "e@2", "embedding": row.tolist()},
    ]
    found = scores.read_embeddings(json.dumps(one).encode() for one in packed)
    assert {key: list(numbers) for key, numbers in found.items()} == {
        (one["encoder"], line["text"]): [0.5, -0.25] for one in packed
    }
    for embedding in ("AAA", ["x"], None):
        with pytest.raises((ValueError, TypeError)):
            scores.read_embeddings([json.dumps(line | {"embedding": embedding}).encode()])
