"""Weights by age, segments, and risk for each response: against their definitions in exact arithmetic."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamer import LabelledGroup, calibrate_groups
from streamer.calibration import calibrate_by_age, calibrate_pooled, calibrate_segments, groups_needed
from streamer.calibration.calibrators.age import age_weights
from tests.unit.calibration.named_groups import groups, some_groups


def exact_items(group: LabelledGroup) -> list[tuple[Fraction, Fraction]]:
    return [
        (Fraction(q), Fraction(m))
        for q, m in zip(group.scores.tolist(), group.severities.tolist(), strict=True)
    ]


def smallest(labelled: list[LabelledGroup], admissible) -> float:
    """min{ l in {-inf} U scores U {+inf} : admissible(l) }."""
    levels = [-math.inf, *sorted({q for group in labelled for q, _ in exact_items(group)}), math.inf]
    return float(next(level for level in levels if level == math.inf or admissible(level)))


@settings(max_examples=200, deadline=None)
@given(
    labelled=groups(most=20),
    ages=st.lists(st.integers(0, 6), min_size=20, max_size=20),
    alpha=st.integers(1, 63),
)
def test_weights_by_age_follow_their_definition(labelled, ages, alpha):
    budget = Fraction(alpha, 64)
    by_id = {group.id: ages[g] for g, group in enumerate(labelled)}
    weights = {name: Fraction(1, 2) ** (age - min(by_id.values())) for name, age in by_id.items()}
    total = sum(weights.values())

    def admissible(level):
        lost = sum(
            weights[group.id]
            * sum((m for q, m in exact_items(group) if q > level), Fraction(0))
            / len(group.item_ids)
            for group in labelled
        )
        return (lost + 1) / (1 + total) <= budget

    found = calibrate_by_age(labelled, alpha=float(budget), ages=by_id, rho=0.5)
    assert found.value == smallest(labelled, admissible)


@settings(max_examples=100, deadline=None)
@given(
    labelled=groups(), alpha=st.floats(0.02, 0.6), ages=st.lists(st.floats(0, 1e6), min_size=60, max_size=60)
)
def test_weights_that_do_not_fade_are_plain_calibration(labelled, alpha, ages):
    by_id = {group.id: ages[g] for g, group in enumerate(labelled)}
    found = calibrate_by_age(labelled, alpha=alpha, ages=by_id, rho=1.0)
    assert found.value == calibrate_groups(labelled, alpha=alpha, seed=0).value


def test_the_floor_under_drift_does_not_fall_with_more_groups():
    """rho = .9: the weights never add up to more than 10, and 1/11 = .091."""
    clean = [LabelledGroup(f"g{g}", ("r",), np.array([0.5]), np.array([0.0])) for g in range(500)]
    ages = {group.id: float(g) for g, group in enumerate(clean)}
    assert calibrate_by_age(clean, alpha=0.0910, ages=ages, rho=0.9).state == "open"
    closed = calibrate_by_age(clean, alpha=0.0908, ages=ages, rho=0.9)
    assert closed.state == "closed"
    assert "cannot support a budget below 9.09 %" in closed.guarantee


def test_the_newest_group_weighs_one():
    assert age_weights([7.0, 5.0, 6.0], 0.5).tolist() == [0.25, 1.0, 0.5]
    assert age_weights([0.0, 1e9], 0.5).tolist() == [1.0, 0.0]
    assert age_weights([], 0.5).tolist() == []


@settings(max_examples=200, deadline=None)
@given(labelled=groups(most=20), alpha=st.integers(1, 63), spare=st.integers(0, 3))
def test_pooled_risk_follows_its_definition(labelled, alpha, spare):
    budget = Fraction(alpha, 64)
    most = max(len(group.item_ids) for group in labelled) + spare

    def admissible(level):
        spent = sum(
            ((m if q > level else Fraction(0)) - budget for group in labelled for q, m in exact_items(group)),
            Fraction(0),
        )
        return spent + most * (1 - budget) <= 0

    found = calibrate_pooled(labelled, alpha=float(budget), largest_group=most)
    assert found.value == smallest(labelled, admissible)
    if found.state == "closed" and "needs at least" in found.guarantee:
        needed = int(found.guarantee.rpartition("at least ")[2].split()[0])
        assert needed == math.ceil(most * (1 - budget) / budget)


@settings(max_examples=60, deadline=None)
@given(labelled=groups(), alpha=st.floats(0.05, 0.5))
def test_with_one_item_a_group_pooled_risk_is_plain_risk(labelled, alpha):
    single = [LabelledGroup(g.id, g.item_ids[:1], g.scores[:1], g.severities[:1]) for g in labelled]
    assert (
        calibrate_pooled(single, alpha=alpha, largest_group=1).value
        == calibrate_groups(single, alpha=alpha, seed=0).value
    )


@settings(max_examples=60, deadline=None)
@given(
    labelled=groups(),
    alpha=st.floats(0.05, 0.5),
    kinds=st.lists(st.sampled_from("abc"), min_size=60, max_size=60),
    method=st.sampled_from(["mean", "bb"]),
    fallback=st.sampled_from(["pooled", "closed"]),
)
def test_a_segment_is_calibrated_on_its_own_groups(labelled, alpha, kinds, method, fallback):
    of = {group.id: kinds[g] for g, group in enumerate(labelled)}
    found = calibrate_segments(labelled, segments=of, alpha=alpha, method=method, fallback=fallback, seed=4)
    for kind in "abcd":
        own = [group for group in labelled if of[group.id] == kind]
        assert found.counts.get(kind, 0) == len(own)
        served = found.threshold_for(kind)
        if own and len(own) >= groups_needed(alpha):
            assert served == calibrate_groups(own, alpha=alpha, method=method, seed=4)
        elif fallback == "pooled":
            assert served == calibrate_groups(labelled, alpha=alpha, method=method, seed=4)
        else:
            assert served.state == "closed"


def test_the_guarantees_claim_what_holds():
    labelled = some_groups(np.random.default_rng(3), 80)
    ages = {group.id: float(g) for g, group in enumerate(labelled)}
    promised, _, disclaimed = calibrate_by_age(labelled, alpha=0.1, ages=ages, rho=0.99).guarantee.partition(
        "Not promised:"
    )
    assert "at most 10 % plus an unmeasured drift term" in promised
    assert "the drift term is small" in disclaimed
    promised, _, disclaimed = calibrate_pooled(labelled, alpha=0.1, largest_group=4).guarantee.partition(
        "Not promised:"
    )
    assert "exposure risk for each response is at most 10 %" in promised
    assert "at most 4 responses a group" in promised
    assert "each counting once" in disclaimed


LABELLED = some_groups(np.random.default_rng(0), 3)
AGES = {"g0": 0.0, "g1": 1.0, "g2": 2.0}


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (
            lambda: calibrate_by_age(LABELLED, alpha=0.1, ages={}, rho=0.9),
            "group 'g0' needs a finite age, not None",
        ),
        (
            lambda: calibrate_by_age(LABELLED, alpha=0.1, ages=AGES | {"g1": math.nan}, rho=0.9),
            "'g1' needs a finite",
        ),
        (lambda: calibrate_by_age(LABELLED, alpha=0.1, ages=AGES, rho=1.1), "rho must be"),
        (lambda: calibrate_by_age(LABELLED, alpha=0.1, ages=AGES, rho=0), "rho must be"),
        (lambda: calibrate_by_age(LABELLED * 2, alpha=0.1, ages=AGES, rho=0.9), "occurs twice"),
        (lambda: calibrate_pooled(LABELLED, alpha=0.1, largest_group=0), "largest_group must be"),
        (
            lambda: calibrate_pooled(some_groups(np.random.default_rng(1), 9), alpha=0.1, largest_group=1),
            "more than the",
        ),
        (lambda: calibrate_segments(LABELLED, segments={}, alpha=0.1, seed=0), "group 'g0' has no segment"),
        (
            lambda: calibrate_segments(
                LABELLED, segments=dict.fromkeys(AGES, "a"), alpha=0.1, fallback="open", seed=0
            ),
            "fallback must be one of pooled, closed",
        ),
    ],
)
def test_wrong_arguments_are_named(run, message):
    with pytest.raises(ValueError, match=message):
        run()
