"""Scores of the record, from its texts, by the scorer's present definition or an earlier one."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from streamer.audit.rescoring import Rescorer
from streamer.scoring.learned import LearnedModel

OPPOSITE = np.array([[1.0, 0.0], [-1.0, 0.0]] * 2, dtype=np.float32)
KNOWS = LearnedModel(
    features=("gram",), means=(0.5,), scales=(0.1,), coefficients=(1.0,), intercept=0.0, order="gram", prompts=130,
    models=("small",),
)  # fmt: skip


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
    rescorer = Rescorer({"any@12345678": lambda batches: [OPPOSITE for _ in batches]})
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


@pytest.mark.parametrize(("kept", "faults"), [(0.0, 0), (1.0, 0), (0.5, 1)])
def test_an_earlier_batch_of_a_model_that_the_score_does_not_know_has_0_or_once_had_1(
    kept: float, faults: int
) -> None:
    found, verifier = _rescored(KNOWS, kept)
    assert verifier.counts["batches scored again"] == 1
    assert len(found) == faults


def test_a_score_so_steep_that_every_number_would_fit_is_not_checked() -> None:
    steep = replace(KNOWS, models=(), scales=(1e-10,), coefficients=(1e300,))
    found, verifier = _rescored(steep, 0.123456)
    assert found == []
    assert "batches scored again" not in verifier.counts
    assert any("too steep" in one for one in verifier.notes.values())


def _rescored(model: LearnedModel, kept: float) -> tuple[list[tuple[str, str, str]], Any]:
    """Faults, and the verifier, of four answers of a newer language model that have this score in the record."""
    found: list[tuple[str, str, str]] = []
    verifier: Any = SimpleNamespace(
        counts=Counter(), notes={}, fault=lambda *fault: found.append(fault), model=lambda _name: model.text
    )
    rescorer = Rescorer({"any@12345678": lambda batches: [OPPOSITE for _ in batches]})
    later = {
        "encoded": True, "encoder": "any@12345678", "texts": ["a", "b", "c", "d"], "scorer": model.name, "batch": ("g", "one", 1),
        "models": ("newer",) * 4, "scores": [kept] * 4,
    }  # fmt: skip
    rescorer.take_later(later, verifier)
    rescorer.finish(verifier)
    return found, verifier


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
    alike = np.array([[1.0, 0.0]] * 4, dtype=np.float32)
    rescorer = Rescorer(
        {
            "old@12345678": lambda batches: [OPPOSITE for _ in batches],
            "new@12345678": lambda batches: [alike for _ in batches],
        }
    )
    later = {"encoded": True, "texts": ["a", "b", "c", "d"], "scorer": "kernel-entropy", "models": ()}
    for encoder, score in (("old", 0.5), ("new", 1.0), ("new", 0.2), ("older", 0.3)):
        rescorer.take_later(
            later | {"encoder": f"{encoder}@12345678", "batch": ("g", encoder, 1), "scores": [score] * 4},
            verifier,
        )
    rescorer.finish(verifier)
    assert verifier.counts["batches scored again"] == 3
    assert verifier.counts["batches not scored again"] == 1
    assert [place for _, place, _ in found] == ["learned_scores kernel-entropy (g/new#1)"]
    assert list(verifier.notes.values()) == [
        "some batches were not scored again: scores are of the encoder older@12345678, and these are old@12345678 and "
        "new@12345678"
    ]
