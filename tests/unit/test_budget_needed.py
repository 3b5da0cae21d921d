"""p under one frozen score: a gate that cuts it where `mean` finds lambda ships iff p is at most the budget."""

from fractions import Fraction

import numpy as np
import pytest

from streamer.calibration import calibrate
from streamer.gates.policy_gate import PolicyGate
from streamer.gates.rule import INDICATOR, CalibrationLosses, Cut


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
