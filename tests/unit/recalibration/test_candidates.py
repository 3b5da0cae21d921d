"""What a run makes of every mixture of method, shape, unit and options: a gate that decides, or a clear refusal."""

import itertools
import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest

from streamer import LabelledGroup
from streamer.calibration import History
from streamer.calibration.calibrators.transductive import CURVE_POINTS
from streamer.calibration.full_fit import Prompts
from streamer.calibration.specification import Sample
from streamer.events.codec import encode
from streamer.events.thresholds import decode_threshold, policy_from_event, threshold_event
from streamer.gates.policy import Policy
from streamer.gates.policy_gate import PolicyGate
from streamer.gates.rule import BatchCut, Chance, Cut, Indicator, Quantile, Rank, Segments
from streamer.gates.settings import METHODS, SHAPES, GateSettings
from streamer.recalibration.candidates import MOST_SEGMENTS, Candidate, candidates, decide
from streamer.research.evaluation.words import UNITS
from streamer.scoring.signals.signal_list import SignalList
from tests.made import a_policy

NOW = datetime(2026, 11, 20, tzinfo=UTC)


def sample(
    groups: int = 120, *, items: int = 4, alpha: float = 0.1, segments: tuple[str, ...] = (), seed: int = 3
) -> Sample:
    rng = np.random.default_rng(seed)
    made = []
    for g in range(groups):
        scores = np.round(rng.random(items), 6)
        severities = (rng.random(items) < 0.4 * (1 - scores)).astype(float)
        made.append(LabelledGroup(f"b{g}#1", tuple(f"r{i}" for i in range(items)), scores, severities))
    named = {group.id: segments[g % len(segments)] for g, group in enumerate(made)} if segments else {}
    history = History.of(np.linspace(0.0, 1.0, 101))
    prompts = Prompts(
        ids=tuple(group.id for group in made),
        rows=np.array([[group.scores[0], group.scores[-1]] for group in made], np.float32),
        bad=np.array([group.severities[0] > 0 for group in made]),
        segments=tuple(named.values()) if segments else None,
    )
    return Sample(
        groups=made, segments=named, alpha=alpha, seed=7, drawn=items, history=history, prompts=prompts
    )


def settings(**changes: Any) -> GateSettings:
    signals = {"scorer": "choice", "signals": SignalList().text} if changes.get("method") == "full" else {}
    return GateSettings(**{"encoder": "e@00000000", "alpha": 0.1, "audit_draws": 4} | signals | changes)


REFUSED_FOR = {"shape", "segment_by", "label_floor", "max_attempts", "method"}


def policy_of(chosen: GateSettings, found: Candidate) -> Policy:
    cut = Cut.at(found.threshold.value)
    return a_policy(
        chosen,
        version=2,
        state=cut.state,
        threshold=cut.threshold,
        calibration_run=1,
        seed=7,
        guarantee=found.threshold.guarantee,
        rule=found.rule,
    )


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("method", METHODS)
def test_every_cell_decides_or_is_refused_with_a_reason(method: str, shape: str, unit: str):
    """All options crossed; what is accepted becomes a policy that survives the topic and gates a batch."""
    decided = 0
    for segment_by, floor, attempts in itertools.product((None, "language"), (None, 0.2), (1, 3)):
        given = {
            "method": method,
            "shape": shape,
            "unit": unit,
            "segment_by": segment_by,
            "label_floor": floor,
            "max_attempts": attempts,
        }
        try:
            chosen = settings(**given)
        except ValueError as error:
            assert str(error).split(" ")[0] in REFUSED_FOR, error  # noqa: PT017
            continue
        decided += 1
        # what ships little proves little: selective risk needs the most groups
        found = decide(
            chosen, sample(1000 if chosen.calibrator.risk == "selective" else 120, segments=("de", "en"))
        )
        assert found.decides
        assert found.threshold.state != "closed" or isinstance(found.rule, Segments), found
        policy = policy_of(chosen, found)
        assert policy_from_event(decode_threshold(encode(threshold_event(policy)))) == policy
        gate = PolicyGate.of(policy)
        uniforms = [0.5, 0.25, 0.75, 0.125] if gate.needs_uniforms else None
        ruling = gate.decide(
            [1.0, 1.0, 0.9, 0.0], uniforms=uniforms, segment=gate.segment_of({"language": "de"})
        )
        assert ruling.cut.state != "closed"
        if floor is not None:
            assert ruling.cut.value >= floor
    plain_is_offered = not (shape == "rank" and unit != "response")
    if method in ("mean", "crc", "bb", "rbwa"):
        assert bool(decided) == plain_is_offered


def test_the_kind_of_rule_follows_from_the_settings():
    for changes, kind in (
        ({}, Indicator),
        ({"shape": "smooth"}, Chance),
        ({"shape": "ramp"}, Chance),
        ({"shape": "quantile"}, Quantile),
        ({"shape": "rank", "unit": "response"}, Rank),
        ({"method": "transductive", "unit": "response"}, BatchCut),
        ({"segment_by": "language"}, Segments),
    ):
        found = decide(settings(**changes), sample(segments=("de", "en")))
        assert isinstance(found.rule, kind), changes


def test_diagnostics_stand_beside_and_never_decide():
    found = candidates(settings(shape="smooth"), sample())
    assert [c.name for c in found if c.decides] == ["smooth mean"]
    assert {c.name for c in found} == {"smooth mean", *METHODS, "clt"} - {"full"}
    assert [c.name for c in candidates(settings(method="hb"), sample())].count("hb") == 1


def test_costly_diagnostics_are_left_out_of_large_samples(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("streamer.recalibration.candidates._LARGEST_DIAGNOSTIC", 1000)
    assert {c.name for c in candidates(settings(), sample())}.isdisjoint({"betting"})
    assert candidates(settings(method="betting"), sample())[0].name == "betting"


def test_a_quantile_gate_is_the_gate_on_the_frozen_distribution():
    """{F(Q) > q}, computed from F itself, for every score that can be."""
    drawn = sample()
    frozen = np.sort(np.concatenate([group.scores for group in drawn.groups]))
    for method in ("mean", "crc", "bb", "rbwa", "hb", "betting", "age"):
        found = decide(settings(shape="quantile", method=method, unit="response"), drawn)
        assert isinstance(found.rule, Quantile)
        assert found.rule.quantile is not None
        for score in np.round(np.random.default_rng(1).random(500), 6).tolist() + frozen.tolist():
            above = np.searchsorted(frozen, score, side="right") / len(frozen) > found.rule.quantile
            assert (score > found.threshold.value) == above


def test_a_label_floor_raises_the_cut_and_says_so():
    floor = 0.9
    for method in METHODS:
        if method.startswith("selective") or method == "full":
            continue  # a stricter cut may have a larger error rate: they start from the floor; and full has no floor
        plain, floored = (
            decide(settings(method=method, label_floor=one, unit="response"), sample()).threshold
            for one in (None, floor)
        )
        assert floored.value == max(plain.value, floor)
        assert "Only what scores above the label floor 0.9 was to be labelled" in floored.guarantee
        assert "label floor" not in plain.guarantee
        assert "Everything ships" not in floored.guarantee


def test_a_transductive_gate_claims_no_threshold_that_it_does_not_have():
    few = sample(6)
    closed = decide(settings(method="transductive", alpha=0.05), replace(few, alpha=0.05)).threshold
    assert closed.state == "closed"
    assert closed.guarantee.startswith("Nothing ships")
    assert "1/7" in closed.guarantee
    chosen = settings(method="transductive", unit="response", audit_draws=2, label_floor=0.9)
    floored = decide(chosen, replace(sample(), drawn=2)).threshold
    assert floored.value == 0.9
    assert "No batch gets a threshold above that of method mean, 0.9." in floored.guarantee


def test_a_small_segment_ships_nothing_or_by_the_pooled_threshold():
    drawn = sample(segments=("de",) * 7 + ("rare",), groups=64)
    for fallback in ("closed", "pooled"):
        found = decide(settings(segment_by="language", segment_fallback=fallback), drawn)
        assert isinstance(found.rule, Segments)
        assert [name for name, _ in found.rule.own] == ["de"]
        pooled = decide(settings(), drawn).threshold.value
        assert found.threshold.value == (float("inf") if fallback == "closed" else pooled)
        assert "'de'" in found.threshold.guarantee
        assert ("nothing is promised for it" in found.threshold.guarantee) == (fallback == "pooled")


def test_policies_stay_small_enough_for_a_message():
    many = sample(3000, alpha=0.5, segments=tuple(f"{i:03d}" * 60 for i in range(1000)))
    found = decide(settings(alpha=0.5, segment_by="language"), many)
    assert isinstance(found.rule, Segments)
    assert len(found.rule.own) == MOST_SEGMENTS
    long = decide(settings(method="transductive", unit="response"), sample(20_000, alpha=0.5))
    assert isinstance(long.rule, BatchCut)
    assert len(long.rule.levels) <= CURVE_POINTS
    for one in (found, long):
        chosen = settings(alpha=0.5, unit="response")
        assert len(encode(threshold_event(policy_of(chosen, one)))) < 256 * 1024


def test_transductive_charges_by_the_fewest_draws():
    chosen = settings(method="transductive", unit="response")
    drawn = sample()
    labelled = {}
    for fewest in (1, 2, 4):
        rule = decide(chosen, replace(drawn, drawn=fewest)).rule
        assert isinstance(rule, BatchCut)
        labelled[fewest] = rule.labelled
    assert labelled == {1: 1, 2: 2, 4: 4}
    found = decide(settings(method="transductive"), drawn).threshold.guarantee
    assert "ships what method mean ships" in found


def test_a_run_is_the_same_again():
    for method, shape in itertools.product(METHODS, SHAPES):
        try:
            chosen = settings(method=method, shape=shape, unit="response")
        except ValueError:
            continue
        assert decide(chosen, sample()) == decide(chosen, sample()), json.dumps([method, shape])
