"""The budget through everything that a gate of the stream does: audit draw, label floor, calibration, rule, dice.

Settings make a policy from a labelled audit sample, the policy's gate decides fresh batches, and what ships of them is
compared with the budget. `test_cells_validity` has the calibrators one by one, with exact risks.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from streamer import LabelledGroup
from streamer.calibration.shapes import rank_scores
from streamer.calibration.specification import Sample
from streamer.gates.batch_key import BatchKey
from streamer.gates.gate import mean_score
from streamer.gates.policy_gate import PolicyGate
from streamer.gates.rule import INDICATOR, Cut
from streamer.gates.settings import GateSettings
from streamer.gates.uniforms import uniforms_for
from streamer.labels.audit_sample import draw_responses
from streamer.recalibration.candidates import Candidate, decide
from tests.validity.known_risk import assert_over, assert_within

ALPHA = 0.1
GROUPS = 39
FRESH = 40
REPEATS = 120


@dataclass(frozen=True)
class Batch:
    """A batch with the severities that labellers would give."""

    key: BatchKey
    scores: tuple[float, ...]
    severities: tuple[float, ...]
    language: str

    @property
    def ids(self) -> list[str]:
        return [f"r{i}" for i in range(len(self.scores))]


def draw_batches(count: int, rng: np.random.Generator, name: str) -> list[Batch]:
    """Ties, unequal sizes, severities that hang together; large batches and one language are worse."""
    made = []
    for b in range(count):
        size = int(rng.integers(2, 7))
        hard = rng.random() < 0.3
        scores = np.round(np.clip(rng.beta(3, 2, size), 0, 1) * 8) / 8
        common = rng.random()
        chance = np.clip((1 - scores) * (0.5 + 0.1 * size) * (2.2 if hard else 0.6), 0, 1)
        severities = np.where(rng.random(size) < 0.5, common < chance, rng.random(size) < chance)
        made.append(
            Batch(
                BatchKey("g", f"{name}{b}", 1),
                tuple(scores.tolist()),
                tuple(severities.astype(float).tolist()),
                "hard" if hard else "easy",
            )
        )
    return made


def audit_sample(settings: GateSettings, batches: Sequence[Batch], salt: bytes) -> Sample:
    """What the record would give a run: drawn responses, labelled above the floor, 1 where no label was asked for."""
    groups = []
    for batch in batches:
        scores = list(batch.scores)
        best = max(range(len(scores)), key=lambda i: (scores[i], -i))
        if settings.unit == "best":
            drawn = frozenset({f"r{best}"})
        else:
            drawn = draw_responses(salt, batch.key, batch.ids, settings.audit_draws)
        if settings.unit == "batch":
            scores = [mean_score(scores)] * len(scores)
        elif settings.shape.of_ranks:
            scores = rank_scores(scores).tolist()
        taken = [i for i, name in enumerate(batch.ids) if name in drawn]
        floor = -1.0 if settings.label_floor is None else settings.label_floor
        groups.append(
            LabelledGroup(
                f"{batch.key.batch_id}#1",
                tuple(batch.ids[i] for i in taken),
                np.array([scores[i] for i in taken]),
                np.array([batch.severities[i] if scores[i] > floor else 1.0 for i in taken]),
            )
        )
    return Sample(
        groups=groups,
        segments={g.id: b.language for g, b in zip(groups, batches, strict=True)}
        if settings.segment_by
        else {},
        alpha=settings.alpha / settings.max_attempts,
        seed=7,
        drawn=settings.audit_draws,
    )


def exposure(gate: PolicyGate, settings: GateSettings, batch: Batch, salt: bytes) -> float:
    """1{ship} m of a batch: of its best response, or averaged over its responses."""
    uniforms = uniforms_for(salt, batch.key, batch.ids, settings.unit) if gate.needs_uniforms else None
    shipped = gate.decide(
        batch.scores, uniforms=uniforms, segment=gate.segment_of({"language": batch.language})
    ).gate.shipped
    harm = sum(m for m, ships in zip(batch.severities, shipped, strict=True) if ships)
    return harm if settings.unit == "best" else harm / len(shipped)


def gate_of(found: Candidate, settings: GateSettings) -> PolicyGate:
    return PolicyGate(unit=settings.unit, cut=Cut.at(found.threshold.value), rule=found.rule)


@functools.cache
def world(repeat: int) -> tuple[bytes, list[Batch], list[Batch]]:
    """The salt of a repetition, and its batches: those that calibrate and fresh ones, the same under all settings."""
    rng = np.random.default_rng([41, repeat])
    return rng.bytes(32), draw_batches(GROUPS, rng, "c"), draw_batches(FRESH, rng, "f")


def risks(settings: GateSettings, *, language: str | None = None, plain: bool = False) -> np.ndarray:
    """Mean exposure of fresh batches, one for each of `REPEATS` calibrations."""
    means = []
    for repeat in range(REPEATS):
        salt, calibrating, fresh = world(repeat)
        found = decide(settings, audit_sample(settings, calibrating, salt))
        if plain:
            found = replace(found, rule=INDICATOR)
        gate = gate_of(found, settings)
        some = [batch for batch in fresh if language in (None, batch.language)]
        means.append(float(np.mean([exposure(gate, settings, batch, salt) for batch in some] or [0.0])))
    return np.array(means)


def gate_settings(**changes: Any) -> GateSettings:
    return GateSettings(
        **{"scorer": "external", "encoder": "none", "alpha": ALPHA, "audit_draws": 256} | changes
    )


CELLS: dict[str, dict[str, Any]] = {
    f"{shape} {unit}": {"shape": shape, "unit": unit, "width": 0.1}
    for shape in ("smooth", "ramp", "quantile")
    for unit in ("best", "response", "batch")
} | {
    "rank": {"shape": "rank", "unit": "response"},
    "transductive best": {"method": "transductive"},
    "transductive batch": {"method": "transductive", "unit": "batch"},
    "transductive, all labelled": {"method": "transductive", "unit": "response"},
    "transductive, two labelled": {"method": "transductive", "unit": "response", "audit_draws": 2},
    "one labelled": {"unit": "response", "audit_draws": 1},
    "label floor best": {"label_floor": 0.5},
    "label floor, transductive": {"label_floor": 0.5, "method": "transductive", "unit": "response"},
    "age": {"method": "age", "rho": 0.98, "unit": "response"},
    "bb, one labelled": {"method": "bb", "unit": "response", "audit_draws": 1},
    "rbwa smooth": {"method": "rbwa", "shape": "smooth", "unit": "response"},
}


@pytest.mark.parametrize("cell", CELLS)
def test_what_a_policy_ships_stays_inside_the_budget(cell: str) -> None:
    found = risks(gate_settings(**CELLS[cell]))
    assert_within(found, ALPHA)
    assert found.mean() > 0.02, "a gate that ships next to nothing proves nothing"


@pytest.mark.parametrize("language", ["easy", "hard"])
def test_every_segment_with_a_cut_of_its_own_stays_inside_the_budget(language: str) -> None:
    settings = gate_settings(segment_by="language", unit="response", alpha=0.2)
    assert_within(risks(settings, language=language), 0.2)


def test_one_cut_for_all_breaks_the_budget_of_the_hard_segment() -> None:
    assert_over(risks(gate_settings(unit="response", alpha=0.2), language="hard"), 0.2)


def test_ranks_cut_as_if_they_were_scores_break_the_budget() -> None:
    """The control: a policy's level without its rule means nothing."""
    assert_over(risks(gate_settings(shape="rank", unit="response"), plain=True), ALPHA)


def test_the_level_of_a_ramp_served_as_a_plain_cut_breaks_the_budget() -> None:
    assert_over(risks(gate_settings(shape="ramp", width=0.3, unit="response"), plain=True), ALPHA)
