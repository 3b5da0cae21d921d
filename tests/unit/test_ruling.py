"""A policy's rule applied to one batch, against what each rule says in words."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamer import LabelledGroup, calibrate_groups
from streamer.calibration import calibrate, prepare_transductive
from streamer.calibration.shapes import rank_scores
from streamer.gates.batch_key import BatchKey
from streamer.gates.declared import Unit
from streamer.gates.gate import gate_batch
from streamer.gates.policy import segment_of
from streamer.gates.policy_gate import PolicyGate
from streamer.gates.rule import INDICATOR, BatchCut, CalibrationLosses, Chance, Cut, Quantile, Rank, Segments
from streamer.gates.settings import UNITS
from streamer.gates.uniforms import uniforms_for

KEY = BatchKey("support-bot", "b-1", 1)
SALT = bytes(range(32))
GOLDEN = 0.21223396962595154

grid = st.integers(0, 20).map(lambda i: i / 20)
batches = st.lists(grid, min_size=1, max_size=8)
units = st.sampled_from(UNITS)
cuts = st.one_of(st.sampled_from([Cut("closed", None), Cut("open", None)]), grid.map(lambda v: Cut("cut", v)))


@given(batches, units, cuts, st.data())
def test_the_indicator_is_the_plain_gate(
    scores: list[float], unit: Unit, cut: Cut, data: st.DataObject
) -> None:
    blank = data.draw(st.lists(st.booleans(), min_size=len(scores), max_size=len(scores)))
    for rule in (INDICATOR, Quantile(0.3)):
        ruling = PolicyGate(unit=unit, cut=cut, rule=rule).decide(scores, blank=blank)
        assert ruling.cut == cut
        assert ruling.gate == gate_batch(
            scores, unit=unit, state=cut.state, threshold=cut.threshold, blank=blank
        )


@given(batches, units, st.sampled_from(["smooth", "ramp"]), st.floats(0.01, 1), st.floats(-1, 2), st.data())
def test_a_gate_by_chance_ships_what_dithered_passes(
    scores: list[float], unit: Unit, kind: str, width: float, level: float, data: st.DataObject
) -> None:
    blank = data.draw(st.lists(st.booleans(), min_size=len(scores), max_size=len(scores)))
    ids = [f"r{i}" for i in range(len(scores))]
    uniforms = uniforms_for(SALT, KEY, ids, unit)
    gate = PolicyGate(unit=unit, cut=Cut("cut", level), rule=Chance(kind, width))  # type: ignore[arg-type]
    assert gate.needs_uniforms
    found = gate.decide(scores, blank=blank, uniforms=uniforms).gate

    def passes(score: float, uniform: float) -> bool:
        noise = math.log(uniform / (1 - uniform)) if kind == "smooth" else uniform
        return score - width * noise > level

    plain = gate_batch(scores, unit=unit, state="closed", threshold=None, blank=blank)
    assert (found.best, found.unit_score) == (plain.best, plain.unit_score)
    if unit == "response":
        wanted = [passes(s, u) and not b for s, u, b in zip(scores, uniforms, blank, strict=True)]
    elif unit == "batch":
        assert plain.unit_score is not None
        wanted = [passes(plain.unit_score, uniforms[0]) and not any(blank)] * len(scores)
    else:
        wanted = [i == plain.best and passes(s, uniforms[i]) for i, s in enumerate(scores)]
    near = [abs(s - level) < 1e-9 for s in scores]
    assert any(near) or list(found.shipped) == wanted
    assert found.selected == (plain.best if unit == "best" and any(found.shipped) else None)


@given(batches, cuts)
def test_ranks_are_cut_in_place_of_scores(scores: list[float], cut: Cut) -> None:
    found = PolicyGate(unit="response", cut=cut, rule=Rank()).decide(scores)
    assert list(found.gate.shipped) == [rank > cut.value for rank in rank_scores(scores).tolist()]


@given(
    st.lists(st.lists(st.tuples(grid, grid), min_size=3, max_size=3), min_size=1, max_size=12),
    st.floats(0.05, 0.6),
    batches,
    units,
    st.none() | grid,
)
def test_each_batch_has_the_cut_that_its_scores_allow(
    groups: list[list[tuple[float, float]]],
    alpha: float,
    scores: list[float],
    unit: Unit,
    floor: float | None,
) -> None:
    """lambda_T by its definition, over all levels that can matter."""
    labelled = [
        LabelledGroup(
            f"g{g}", ("a", "b", "c"), np.array([q for q, _ in items]), np.array([m for _, m in items])
        )
        for g, items in enumerate(groups)
    ]
    window = prepare_transductive(labelled, alpha=alpha, labelled=3, seed=0)
    rule = BatchCut(
        alpha=alpha, groups=len(groups), labelled=3, levels=window.levels, totals=window.totals, floor=floor
    )
    found = PolicyGate(unit=unit, cut=Cut("cut", 1.0), rule=rule).decide(scores)
    eligible = scores
    if unit == "best":
        eligible = [max(scores)]
    elif unit == "batch":
        eligible = [round(math.fsum(scores) / len(scores), 6)]

    def admissible(level: float) -> bool:
        lost = sum(sum(m * (q > level) for q, m in items) / 3 for items in groups)
        most = min(3, len(eligible))
        charge = min(sum(score > level for score in eligible), most) / most
        return lost + charge <= alpha * (len(groups) + 1) + 1e-9

    levels = sorted({-math.inf, *eligible, *(q for items in groups for q, _ in items)})
    smallest = next(level for level in levels if admissible(level))
    wanted = max(smallest, -math.inf if floor is None else floor)
    assert [score > found.cut.value for score in eligible] == [score > wanted for score in eligible]
    plain = calibrate_groups(labelled, alpha=alpha, seed=0)
    assert found.cut.value <= max(plain.value, floor or 0.0, *eligible)


def test_a_closed_gate_stays_closed_whatever_its_rule() -> None:
    window = BatchCut(alpha=0.5, groups=9, labelled=None, levels=(-math.inf,), totals=(0.0,))
    closed = Cut("closed", None)
    for rule in (INDICATOR, Rank(), window, Quantile(None), Chance("smooth", 1.0)):
        gate = PolicyGate(unit="response", cut=closed, rule=rule)
        ruling = gate.decide([0.9, 1.0], uniforms=[0.5, 1e-12])
        assert ruling.cut == closed
        assert not any(ruling.gate.shipped)


def test_segments_have_their_own_cut_and_the_others_the_policys() -> None:
    rule = Segments(
        "language", (("de", Cut("cut", 0.8)), ("en", Cut("open", None)), ("fr", Cut("closed", None)))
    )
    gate = PolicyGate(unit="best", cut=Cut("cut", 0.95), rule=rule)
    shipped = {
        name: gate.decide([0.9, 0.1], segment=gate.segment_of({"language": name})).gate.selected
        for name in ("de", "en", "fr", "it")
    }
    assert shipped == {"de": 0, "en": 0, "fr": None, "it": None}
    assert gate.decide([0.9], segment="de").cut == Cut("cut", 0.8)
    assert PolicyGate(unit="best", cut=Cut("cut", 0.1), rule=INDICATOR).segment_of({"language": "de"}) is None


@pytest.mark.parametrize(
    ("value", "segment"),
    [
        ("de", "de"),
        (7, "7"),
        (True, "true"),
        (None, ""),
        (0.5, ""),
        (["de"], ""),
        ("x" * 201, ""),
        (10**18, ""),
    ],
)
def test_what_names_a_segment(value: object, segment: str) -> None:
    assert segment_of({"kind": value}, "kind") == segment
    assert segment_of({}, "kind") == ""


def test_uniforms_are_reproducible_and_different_for_each_decision() -> None:
    ids = [f"r{i}" for i in range(256)]
    drawn = uniforms_for(SALT, KEY, ids, "response")
    assert drawn == uniforms_for(SALT, KEY, ids, "response")
    assert all(0 < uniform < 1 for uniform in drawn)
    others = [
        *uniforms_for(bytes(32), KEY, ids, "response"),
        *uniforms_for(SALT, BatchKey("support-bot", "b-2", 1), ids, "response"),
        *uniforms_for(SALT, BatchKey("support-bot", "b-1", 2), ids, "response"),
    ]
    assert len({*drawn, *others}) == 4 * 256
    assert len(set(uniforms_for(SALT, KEY, ids, "batch"))) == 1
    # written down once: a worker of another year must draw the same
    assert uniforms_for(SALT, KEY, ["a"], "best") == (GOLDEN,)


def test_uniforms_are_uniform() -> None:
    drawn = np.array([uniforms_for(SALT, BatchKey("g", f"b{i}", 1), ["a"], "best")[0] for i in range(20_000)])
    counts, _ = np.histogram(drawn, bins=20, range=(0, 1))
    # chi-square with 19 degrees of freedom, tail 1e-6
    assert ((counts - 1000) ** 2 / 1000).sum() < 63.7


def test_bad_uniforms_are_refused() -> None:
    gate = PolicyGate(unit="best", cut=Cut("cut", 0.5), rule=Chance("ramp", 0.1))
    for uniforms in (None, [0.5], [0.0, 0.5], [1.0, 0.5]):
        with pytest.raises(ValueError, match="uniform"):
            gate.decide([0.4, 0.6], uniforms=uniforms)


@pytest.mark.parametrize("alpha", [0.05, 0.1, 0.29])
@pytest.mark.parametrize("groups", [19, 60, 99])
def test_it_is_within_the_budget_iff_the_score_is_above_the_cut(groups, alpha):
    for seed in range(20):
        rng = np.random.default_rng([groups, seed])
        scores = np.round(rng.random(groups), 2)
        severities = np.where(rng.random(groups) < 0.3, 1.0, 0.0)
        losses = CalibrationLosses(scores.tolist(), severities.tolist())
        found = calibrate(scores, severities, list(range(groups)), alpha=alpha)
        gate = PolicyGate(unit="best", cut=Cut.at(found.value), rule=INDICATOR, losses=losses)
        for score in np.round(rng.random(40), 2).tolist():
            ruling = gate.decide([score, 0.0])
            assert ruling.needed is not None
            bad_above = int((severities[scores >= score]).sum())
            assert (ruling.needed.count, ruling.needed.groups) == (1 + bad_above, groups)
            within = Fraction(1 + bad_above, groups + 1) <= Fraction(str(alpha))
            assert (ruling.gate.selected is not None) == within


def test_severities_between_count_as_what_they_are():
    needed = CalibrationLosses([0.2, 0.5, 0.9], [1.0, 0.5, 0.25]).needed(0.5)
    assert (needed.count, needed.groups, needed.share) == (1.75, 3, 0.4375)
