"""Scores of the record, from its texts."""

from collections import Counter
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from streamer.audit.rescoring import Rescorer

OPPOSITE = np.array([[1.0, 0.0], [-1.0, 0.0]] * 2, dtype=np.float32)


def test_without_an_encoder_it_says_what_needs_one() -> None:
    verifier: Any = SimpleNamespace(counts=Counter(), notes={}, fault=pytest.fail)
    rescorer = Rescorer({})
    later = {
        "encoded": True,
        "encoder": "any@12345678",
        "texts": ["a", "b"],
        "scorer": "gram",
        "scores": [1.0, 1.0],
    }
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
        "encoded": True,
        "texts": ["a", "b", "c", "d"],
        "scorer": "gram",
        "models": (),
        "judged": "whole@1",
    }
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
