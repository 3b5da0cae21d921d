"""Scores of the record, from its texts."""

import base64
import hashlib
import json
from collections import Counter
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from streamer.audit.rescoring import Rescorer
from streamer.scoring.gram import score_batch
from streamer_verify import scores

OPPOSITE = np.array([[1.0, 0.0], [-1.0, 0.0]] * 2, dtype=np.float32)


def test_without_an_encoder_it_says_what_needs_one() -> None:
    verifier: Any = SimpleNamespace(counts=Counter(), notes={}, fault=pytest.fail)
    rescorer = Rescorer({})
    later = {
        "encoded": True, "encoder": "any@12345678", "texts": ["a", "b"], "scorer": "gram",
        "scores": [1.0, 1.0],
    }  # fmt: skip
    rescorer.take_later(later, verifier)
    rescorer.finish(verifier)
    assert list(verifier.notes.values()) == [
        "some batches were not scored again: scores are of the encoder any@12345678, and this is none"
    ]


def test_each_batch_is_scored_again_by_the_encoder_that_made_its_scores() -> None:
    found: list[tuple[str, str, str]] = []
    verifier: Any = SimpleNamespace(counts=Counter(), notes={}, fault=lambda *fault: found.append(fault))
    rescorer = Rescorer(
        {
            "old@12345678": lambda batches: [OPPOSITE for _ in batches],
            "new@12345678": lambda batches: [np.eye(4, dtype=np.float32) for _ in batches],
        }
    )
    later = {
        "encoded": True, "texts": ["a", "b", "c", "d"], "scorer": "gram", "models": (),
        "judged": "whole@1",
    }  # fmt: skip
    for encoder, score in (("old", 1.0), ("new", 0.0), ("new", 0.2), ("older", 0.3)):
        rescorer.take_later(
            later | {"encoder": f"{encoder}@12345678", "batch": ("g", encoder, 1), "scores": [score] * 4},
            verifier,
        )
    rescorer.finish(verifier)
    assert verifier.counts["batches scored again"] == 3
    assert verifier.counts["batches not scored again"] == 1
    assert [place for _, place, _ in found] == ["carried_scores gram (g/new#1)"]
    assert list(verifier.notes.values()) == [
        "some batches were not scored again: scores are of the encoder older@12345678, and these are old@12345678 and "
        "new@12345678"
    ]


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
    there = {key: list(numbers) for key, numbers in found.items()}
    assert there == {(one["encoder"], line["text"]): [0.5, -0.25] for one in packed}
    for embedding in ("AAA", ["x"], None):
        with pytest.raises((ValueError, TypeError)):
            scores.read_embeddings([json.dumps(line | {"embedding": embedding}).encode()])
