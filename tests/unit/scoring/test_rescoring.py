"""Scores of the record, from its texts, by the scorer's present definition or an earlier one."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from streamer.audit.rescoring import Rescorer

OPPOSITE = np.array([[1.0, 0.0], [-1.0, 0.0]] * 2, dtype=np.float32)


@pytest.mark.parametrize(
    ("scores", "earlier", "faults"),
    [
        pytest.param([0.5] * 4, 0, 0, id="as it is computed now"),
        pytest.param([1.0] * 4, 1, 0, id="when opposite answers counted as alike"),
        pytest.param([0.7] * 4, 0, 1, id="neither"),
    ],
)
def test_kernel_entropy_of_the_record_follows_from_its_texts(
    scores: list[float], earlier: int, faults: int
) -> None:
    found: list[tuple[str, str, str]] = []
    verifier: Any = SimpleNamespace(counts=Counter(), notes={}, fault=lambda *fault: found.append(fault))
    rescorer = Rescorer(encoder_id="any@12345678", embed=lambda batches: [OPPOSITE for _ in batches])
    later = {
        "encoded": True,
        "encoder": "any@12345678",
        "texts": ["a", "b", "c", "d"],
        "scorer": "kernel-entropy",
        "batch": ("g", "one", 1),
        "models": (),
        "scores": scores,
    }
    rescorer.take_later(later, verifier)
    rescorer.finish(verifier)
    assert verifier.counts["batches scored again"] == 1
    assert verifier.counts["batches scored by an earlier definition"] == earlier
    assert len(found) == faults


def test_without_an_encoder_it_says_what_needs_one() -> None:
    verifier: Any = SimpleNamespace(counts=Counter(), notes={}, fault=pytest.fail)
    rescorer = Rescorer(encoder_id=None, embed=pytest.fail)
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
