"""Fixed-sequence testing and the asymptotic band against their definitions, level by level."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from streamer.calibration import LabelledGroup, calibrate_clt, calibrate_high_probability, item_table
from streamer.calibration.calibrators import clt
from streamer.calibration.keyed_weights import KeyedWeights
from streamer.calibration.p_values import betting, hoeffding_bentkus
from tests.unit.calibration.named_groups import every_level, group_loss, groups, some_groups


def first_failure(levels, passes):
    """Walk down while `passes`; what lies just above the first failure is the threshold."""
    value = math.inf
    for level in levels:
        if not passes(level):
            return value
        value = level
    return value


@settings(max_examples=60, deadline=None)
@given(
    labelled=groups(),
    alpha=st.floats(0.05, 0.6),
    seed=st.integers(0, 2**40),
    cells=st.sampled_from([1, 200, 1 << 20]),
)
def test_betting_walks_down_the_scores(labelled, alpha, seed, cells):
    order = KeyedWeights(seed).order(sorted(group.id for group in labelled))
    ranked = sorted(labelled, key=lambda group: group.id)

    def passes(level):
        losses = np.array([[group_loss(ranked[g], level) for g in order]])
        return betting(losses, alpha, 0.2)[0] <= 0.2

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(item_table, "_CELLS", cells)
        found = calibrate_high_probability(labelled, alpha=alpha, delta=0.2, method="betting", seed=seed)
    assert passes(2.0) or found.state == "closed"
    assert found.value == first_failure(every_level(labelled), passes)


@settings(max_examples=100, deadline=None)
@given(labelled=groups(), alpha=st.floats(0.05, 0.6))
def test_hoeffding_bentkus_walks_down_the_scores(labelled, alpha):
    def passes(level):
        total = math.fsum(group_loss(group, level) for group in labelled)
        return hoeffding_bentkus(total, len(labelled), alpha) <= 0.2

    found = calibrate_high_probability(labelled, alpha=alpha, delta=0.2, method="hb", seed=0)
    assert found.value == first_failure(every_level(labelled), passes)


@pytest.mark.parametrize("case", range(60))
def test_the_band_walks_down_the_scores(case):
    rng = np.random.default_rng([1, case])
    labelled = some_groups(rng, int(rng.integers(1, 40)), levels=1000)
    alpha, delta = rng.uniform(0.1, 0.4), rng.uniform(0.01, 0.5)
    count = len(labelled)
    z = stats.norm.isf(delta)

    def passes(level):
        losses = np.array([group_loss(group, level) for group in labelled])
        if count < 2:
            return False
        spread = losses.std(ddof=1)
        return losses.mean() + z * spread / math.sqrt(count) + 1 / (count + 1) <= alpha + 1e-12

    assert calibrate_clt(labelled, alpha=alpha, delta=delta).value == first_failure(
        every_level(labelled), passes
    )


def test_betting_reads_groups_in_an_order_that_labels_cannot_reach():
    labelled = some_groups(np.random.default_rng(9), 30)
    names = sorted(group.id for group in labelled)
    first = KeyedWeights(5).order(names).tolist()
    assert sorted(first) == list(range(30))
    assert first == KeyedWeights(5).order(names).tolist()
    assert first != KeyedWeights(6).order(names).tolist()
    assert KeyedWeights(20261120).order(["a", "b", "c", "d", "e"]).tolist() == RECORDED_ORDER


RECORDED_ORDER = [4, 2, 1, 0, 3]


@pytest.mark.parametrize("method", ["hb", "betting"])
def test_too_few_groups_close_the_gate(method):
    clean = [group for group in some_groups(np.random.default_rng(1), 200) if not group.severities.any()]
    for count in (0, 1, 5):
        few = calibrate_high_probability(clean[:count], alpha=0.1, delta=0.1, method=method, seed=0)
        assert few.state == "closed"
        assert "Nothing ships" in few.guarantee
    assert calibrate_high_probability(clean[:40], alpha=0.1, delta=0.1, method=method, seed=0).state == "open"


def test_the_guarantees_claim_what_holds():
    labelled = some_groups(np.random.default_rng(2), 300)
    for method, bound in (
        ("hb", "Hoeffding-Bentkus"),
        ("betting", "betting"),
        ("bernstein", "empirical Bernstein"),
    ):
        found = calibrate_high_probability(labelled, alpha=0.15, delta=0.05, method=method, seed=0)
        assert found.state == "cut"
        promised, _, disclaimed = found.guarantee.partition("Not promised:")
        assert "With probability at least 0.95" in promised
        assert "exposure risk is at most 15 %" in promised
        assert bound in promised
        assert "independent draws" in promised
        assert ("seed" in promised) == (method == "betting")
        assert "shipped alone" in disclaimed
    band = calibrate_clt(labelled, alpha=0.15).guarantee
    promised, _, disclaimed = band.partition("Not promised:")
    assert "Asymptotic, no finite-sample promise" in promised
    assert "at most 15 %" in disclaimed
    for word in ("safe", "compliant", "certif", "always"):
        assert word not in promised


GOOD = {"alpha": 0.3, "delta": 0.1, "seed": 0}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"alpha": 0}, "alpha must be"),
        ({"delta": 1}, "delta must be between 0 and 1, both excluded, not 1"),
        ({"seed": 0.5}, "seed must be a whole number"),
        ({"method": "clt"}, "method must be one of hb, betting, bernstein, not 'clt'"),
    ],
)
def test_wrong_arguments_are_named(change, message):
    with pytest.raises(ValueError, match=message):
        calibrate_high_probability(some_groups(np.random.default_rng(0), 3), **(GOOD | change))


@settings(max_examples=100, deadline=None)
@given(labelled=groups(), alpha=st.floats(0.05, 0.6), delta=st.floats(0.01, 0.5))
def test_levels_that_are_passed_over_change_no_band(labelled, alpha, delta):
    quick = calibrate_clt(labelled, alpha=alpha, delta=delta)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clt, "_surely_inside", lambda *_: 0)
        assert calibrate_clt(labelled, alpha=alpha, delta=delta) == quick


def test_a_band_on_many_groups_reads_few_levels(monkeypatch):
    rng = np.random.default_rng(1)
    scores = rng.random(4000)
    bad = (rng.random(4000) > scores).astype(float)
    labelled = [LabelledGroup(str(n), ("a",), scores[n : n + 1], bad[n : n + 1]) for n in range(4000)]
    read = []
    walk = item_table.ItemTable.sums_by_level

    def counted(self, *given, **named):
        for rows in walk(self, *given, **named):
            read.append(len(rows))
            yield rows

    monkeypatch.setattr(item_table.ItemTable, "sums_by_level", counted)
    assert calibrate_clt(labelled, alpha=0.1).state == "cut"
    assert sum(read) < 50
